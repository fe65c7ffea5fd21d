import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from tokenizers import Tokenizer

from training.__main__ import main
from training.checkpoint import FILE_NAME, load_checkpoint
from training.optimizers import orthogonalise
from training.recipe import RECIPES
from training.trainer import StepReport, Trainer, run
from training.vocabulary import build_tokenizer
from unmask.errors import UnmaskError


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer()


def new_trainer(tokenizer: Tokenizer, recipe: str = "tiny") -> Trainer:
    return Trainer(RECIPES[recipe](tokenizer.get_vocab_size()), tokenizer)


def ignore(_report: StepReport) -> None:
    pass


@pytest.mark.parametrize(
    ("recipe", "stop"),
    [("tiny", 3), ("tiny", 6), ("tiny", 9), ("tiny-canvas", 5)],
    ids=["within causal", "within joint", "within cooling", "on canvases"],
)
def test_a_resumed_training_equals_an_unbroken_one_bit_for_bit(
    tokenizer: Tokenizer, tmp_path: Path, recipe: str, stop: int
) -> None:
    unbroken = new_trainer(tokenizer, recipe)
    run(unbroken, tmp_path / "unbroken", save_every=100, watch=ignore)
    first = new_trainer(tokenizer, recipe)
    run(first, tmp_path / "broken", save_every=100, watch=ignore, until=stop)
    second = new_trainer(tokenizer, recipe)
    second.restore(tmp_path / "broken")
    assert second.step == stop
    run(second, tmp_path / "broken", save_every=100, watch=ignore)
    assert second.finished
    one, two = unbroken.network.state_dict(), second.network.state_dict()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_training_lowers_the_loss(tokenizer: Tokenizer, tmp_path: Path) -> None:
    reports: list[StepReport] = []
    run(new_trainer(tokenizer), tmp_path, save_every=100, watch=reports.append, until=8)
    assert reports[-1].loss < reports[0].loss
    assert [report.stage for report in reports] == ["causal"] * 4 + ["joint"] * 4


def test_a_broken_or_missing_checkpoint_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="no training checkpoint"):
        load_checkpoint(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"")
    with pytest.raises(UnmaskError, match="cannot be read"):
        load_checkpoint(tmp_path)


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    generator = torch.Generator().manual_seed(3)
    for shape in ((2, 16, 16), (2, 16, 40), (2, 40, 16)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape, generator=generator)))
        assert values.min() > 0.3
        assert values.max() < 1.4


@pytest.mark.parametrize(("recipe", "kind"), [("tiny", "Fast_dLLM_Qwen"), ("tiny-canvas", "llada")])
def test_the_command_line_trains_probes_resumes_and_exports(tmp_path: Path, recipe: str, kind: str) -> None:
    runner, folder = CliRunner(), str(tmp_path / "run")
    probing = ["--probe-every", "6", "--probe-size", "1"]
    for until in ("4", "6"):
        result = runner.invoke(main, ["train", folder, "--recipe", recipe, "--until", until, *probing])
        assert result.exit_code == 0, result.output
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5, 6, 6]
    assert set(log[-1]["probe"]) == {"arith_20", "arith_40", "arith_60", "arith_99", "choice"}
    result = runner.invoke(main, ["export", folder, str(tmp_path / "out"), "--recipe", recipe])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == kind
    result = runner.invoke(
        main, ["export", str(tmp_path / "none"), str(tmp_path / "out"), "--recipe", "tiny"]
    )
    assert isinstance(result.exception, UnmaskError)
