"""Benchmarks on whole-canvas models: both estimators, errors of estimates, canvases that do not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checkpoints import OF_FAMILY
from unmask.errors import UnmaskError

pytestmark = pytest.mark.usefixtures("lm_eval")

TASKS = "mmlu_anatomy,gpqa_main_zeroshot"
FAMILIES = ["llada", "dream"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Canvas checkpoints that read and write text."""
    from text_model import SIZE, write_text_model

    place = tmp_path_factory.mktemp("canvases")
    sizes = {"llada": {"embedding_size": SIZE, "max_sequence_length": 1024}, "dream": {}}
    return {name: write_text_model(place / name, **OF_FAMILY[name] | sizes[name]) for name in FAMILIES}


def evaluated(model: Path, data: Path, folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    from unmask.cli.eval import evaluate

    output = folder / "_".join(("run", *(text.strip("-:={}") for text in arguments)))
    asked = ["--model", str(model), "--data", str(data), "--limit", "1", "--output", str(output)]
    result = CliRunner().invoke(evaluate, [*asked, *arguments])
    assert result.exit_code == 0, result.output
    return json.loads((output / "results.json").read_text()), result.output


@pytest.mark.parametrize("family", FAMILIES)
def test_mmlu_and_gpqa_by_both_estimators(
    family: str, models: dict[str, Path], invented: Path, tmp_path: Path
) -> None:
    exact, said = evaluated(
        models[family], invented, tmp_path, "--tasks", TASKS, "--policy", "trim:inside=true"
    )
    assert "likelihood_stderr" not in exact["model"]
    assert "standard error" not in said
    assert exact["tasks"]["gpqa_main_zeroshot"]["effect"]["scoring"]["reuse_fraction"] > 0
    # Draws that mask nothing, or what another one masks, take no forward of their own.
    estimated, said = evaluated(
        models[family], invented, tmp_path, "--tasks", TASKS, "--policy", "trim:inside=true", "--estimator",
        "monte_carlo", "--draws", "3",
    )  # fmt: skip
    assert (estimated["model"]["estimator"], estimated["model"]["decode"]["draws"]) == ("monte_carlo", 3)
    assert estimated["model"]["likelihood_stderr"] > 0
    assert "log likelihoods: 3 draws each, with a standard error of" in " ".join(said.split())
    for name, most in (("mmlu_anatomy", 4 * 3), ("gpqa_main_zeroshot", 4 * 3)):
        effect = estimated["tasks"][name]["effect"]["scoring"]
        assert effect["inactive"] == "monte_carlo takes one step a draw, so there is no earlier step to reuse"
        assert 0 < sum(effect["forwards"].values()) == effect["forwards"]["block"] <= most


def test_choices_of_one_token_are_exact_in_llada(
    models: dict[str, Path], invented: Path, tmp_path: Path
) -> None:
    """Every draw masks the only token, so the estimate is what the chain computes, at one forward a choice."""
    from text_model import choices

    from unmask.evaluation.lm import UnmaskLM

    found = {}
    for estimator in ("chain", "monte_carlo"):
        lm = UnmaskLM(models["llada"], estimator=estimator, decode={"draws": 5})
        found[estimator] = [score for score, _ in lm.loglikelihood(choices("One or two?", *"ABCD"))]
        assert lm.stderrs == ([] if estimator == "chain" else pytest.approx([0] * 4, abs=1e-6))
    assert found["monte_carlo"] == pytest.approx(found["chain"], abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_published_rows(family: str, models: dict[str, Path], real_data: Path, tmp_path: Path) -> None:
    for arguments in ([], ["--estimator", "monte_carlo", "--draws", "2"]):
        found, _ = evaluated(models[family], real_data, tmp_path, "--tasks", "mmlu_anatomy", *arguments)
        assert found["tasks"]["mmlu_anatomy"]["rows"] == 1


def test_a_canvas_that_does_not_fit_is_refused_before_the_first_answer(models: dict[str, Path]) -> None:
    """Also where it would be decoded last: other settings come before it."""
    from text_model import asked

    from unmask.evaluation.lm import UnmaskLM

    lm = UnmaskLM(models["llada"])
    requests = [asked("short", max_gen_toks=4), asked("a" * 900, max_gen_toks=125, until=["x"])]
    with pytest.raises(
        UnmaskError, match="900 tokens, and with 125 new ones it makes a canvas of 1025 positions"
    ):
        lm.generate_until(requests)
    assert lm.proof.tallies == {}
    requests[1] = asked("a" * 900, max_gen_toks=124, until=["x"])
    assert len(lm.generate_until(requests)) == 2


def test_a_target_that_does_not_fit_with_its_end_token_is_refused(models: dict[str, Path]) -> None:
    from unmask.engine.score import ScoreRequest
    from unmask.loading import load

    engine = load(models["dream"], "cpu", "float32")
    length = engine.config.max_positions
    request = ScoreRequest([1] * (length - 1), [2])
    with pytest.raises(UnmaskError, match=f"have {length + 1} tokens but the model's context is {length}"):
        engine.score([request], "monte_carlo", decode={"draws": 1})
