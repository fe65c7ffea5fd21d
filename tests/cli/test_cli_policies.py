"""`--policy`, `unmask ceiling` and `unmask probe`: policies in every form that a person writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_cases import Run, error_line
from matplotlib.figure import Figure

import unmask
from unmask.cli.probe import ERRORS, MEASURES
from unmask.engine.probe import MEASURES as RECORDED
from unmask.engine.probe import probe
from unmask.errors import UnmaskError
from unmask.policies.text import read_policy, read_rule
from unmask.spec import LayerReuseSpec, TrimSpec
from unmask.spec.rule import ThresholdSpec, TopNSpec


def test_a_policy_may_be_short_json_or_a_file(tmp_path: Path):
    wanted = LayerReuseSpec(k=3, layers=(0, "2-3"), unit="mlp", on=("sub", "block"))
    assert read_policy("layer_reuse:k=3,layers=0+2-3,unit=mlp,on=sub+block") == wanted
    values = {"kind": "layer_reuse", "k": 3, "layers": [0, "2-3"], "unit": "mlp", "on": ["sub", "block"]}
    assert read_policy(json.dumps(values)) == wanted
    (tmp_path / "policy.json").write_text(json.dumps(values))
    assert read_policy(str(tmp_path / "policy.json")) == wanted
    (tmp_path / "policy.toml").write_text('kind = "trim"\nkeep = 0.25\n')
    assert read_policy(str(tmp_path / "policy.toml")) == TrimSpec(keep=0.25)


@pytest.mark.parametrize(
    "text, says",
    [
        ("guess", "guess"),
        ("trim:keep=2", "[0, 1]"),
        ("trim:keep", "cannot be read at 'keep'"),
        ("layer_reuse:period=2", "period"),
        ("layer_reuse:k=0", "at least 1"),
        ("layer_reuse:k=2,k=3", "gives k twice"),
        ('{"kind": "layer_reuse", "k": 2, "k": 3}', "'k' stands there twice"),
        ("nowhere.toml", "no such policy file"),
        ('{"kind": ', "cannot be read"),
    ],
)
def test_a_bad_policy_gets_one_sentence(text: str, says: str):
    with pytest.raises(UnmaskError) as caught:
        read_policy(text)
    assert says in str(caught.value)


def test_a_rule_may_be_short_json_or_a_file(tmp_path: Path):
    wanted = TopNSpec(steps=4, score="entropy")
    assert read_rule("top_n:steps=4,score=entropy") == wanted
    assert read_rule('{"kind": "top_n", "steps": 4, "score": "entropy"}') == wanted
    (tmp_path / "rule.toml").write_text('kind = "top_n"\nsteps = 4\nscore = "entropy"\n')
    assert read_rule(str(tmp_path / "rule.toml")) == wanted
    assert read_rule("threshold:threshold=0.7") == ThresholdSpec(threshold=0.7)


@pytest.mark.parametrize(
    "text, says",
    [
        ("guess", "Kinds: custom, entropy_bound"),
        ("factor:factr=1", "Allowed fields: factor"),
        ("factor:1", "The rule 'factor:1' cannot be read at '1'; write top_n:steps=4"),
        ("top_n:n=1,n=2", "gives n twice"),
        ("top_n", "Give either n"),
        ("nowhere.toml", "no such rule file"),
    ],
)
def test_a_bad_rule_gets_one_sentence(text: str, says: str):
    with pytest.raises(UnmaskError) as caught:
        read_rule(text)
    assert says in str(caught.value)
    assert "policy" not in str(caught.value)


def test_generate_unmasks_by_the_rule_given(run: Run, bare_model: Path, tmp_path: Path):
    def answer(*more: str) -> dict:
        result = run(
            "generate", "--ids", "1,2,3", "--model", bare_model, "--max-new-tokens", "60", "--json", *more
        )
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def work(*more: str) -> dict:
        return answer(*more)["steps"]

    one_a_step, two_a_step = work("--rule", "top_n:n=1"), work("--rule", "top_n:n=2")
    assert one_a_step == work("--threshold", "1") == work("--rule", "threshold:threshold=1")
    assert sum(two_a_step.values()) < sum(one_a_step.values())
    (tmp_path / "decode.toml").write_text("threshold = 0.5\n")
    assert work("--decode", str(tmp_path / "decode.toml"), "--rule", "top_n:n=1") == one_a_step
    both = run("generate", "--ids", "1", "--model", bare_model, "--rule", "factor", "--threshold", "0.5")
    assert both.exit_code == 2
    assert "leave one out" in error_line(both)


def test_generate_reuses_what_the_policy_says(run: Run, bare_model: Path):
    def answer(*more: str) -> dict:
        result = run(
            "generate", "--ids", "1,2,3", "--model", bare_model, "--max-new-tokens", "60", "--json", *more
        )
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    assert answer()["policy"] is None
    reused = answer("--policy", "layer_reuse:k=2,layers=0,unit=residual,on=sub+block")
    assert reused["policy"]["k"] == 2
    assert reused["answers"][0]["ledger"]["reuse_fraction"] > 0
    assert answer()["answers"][0]["ledger"]["reuse_fraction"] == 0


def test_ceilings_name_dead_and_equal_policies(run: Run, bare_model: Path):
    subsets = [f"layer_reuse:k=2,unit=output,layers={index}" for index in (0, 1)]
    result = run("ceiling", *subsets, "layer_reuse:k=1,layers=0", "--model", bare_model, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    first, second, dead = document["ceilings"]
    assert first["speedup"] == second["speedup"] > 1
    assert "k = 1" in dead["dead"]
    assert document["equal_by_construction"] == [subsets]
    table = run("ceiling", *subsets, "--model", bare_model)
    assert "Equal by construction" in table.stdout


def test_ceilings_of_a_published_checkpoint_need_no_network(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = "Efficient-Large-Model/Fast_dLLM_v2_7B"
    result = run("ceiling", "layer_reuse:k=3,layers=middle", "--model", model, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["layers"] == 28
    assert 1.1 < document["ceilings"][0]["speedup"] < 1.4
    assert "is no local folder" in error_line(run("ceiling", "trim", "--model", "org/unheard-of"))


def test_ceilings_are_those_of_the_family_of_a_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """SDAR has no block cache and sub-blocks as long as its blocks, so TRIM has no rows to leave out."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = "JetLM/SDAR-4B-Chat-b32"
    told = json.loads(run("ceiling", "trim", "layer_reuse:k=2,on=block", "--model", model, "--json").stdout)
    trimmed, reused = told["ceilings"]
    assert trimmed["dead"]
    assert reused["speedup"] > 1.1
    assert "cache" in error_line(run("ceiling", "trim", "--model", model, "--cache", "dual"))
    assert "is not a multiple of" in error_line(
        run("ceiling", "trim", "--model", model, "--sub-block-size", 5)
    )


def test_ceilings_price_a_cache_against_another(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def saved(*caches: str) -> list[dict[str, Any]]:
        words = ("full", "trim:inside=true", "--model", "GSAI-ML/LLaDA-8B-Instruct", "--json")
        ceilings: list[dict[str, Any]] = json.loads(run("ceiling", *words, *caches).stdout)["ceilings"]
        return ceilings

    same, trimmed = saved("--cache", "dual")
    assert same["dead"] == "it is the baseline"
    assert same["flops_saved"] == 0
    cached, both = saved("--cache", "dual", "--against", "none")
    assert cached["dead"] is None
    assert 0.5 < cached["flops_saved"] < both["flops_saved"]
    assert both["flops_saved"] > trimmed["flops_saved"]
    every_step, _ = saved("--cache", "dual", "--refresh-every", "1", "--against", "none")
    assert every_step["flops_saved"] == 0
    (prefix, _) = saved("--cache", "prefix", "--against", "dual")
    assert prefix["flops_saved"] < 0, "the prefix cache feeds more than the dual one"


def test_ceiling_refuses_half_a_device(run: Run, bare_model: Path):
    assert "both" in error_line(run("ceiling", "trim", "--model", bare_model, "--flops", "1e12"))


def test_probe_records_and_draws(run: Run, bare_model: Path, tmp_path: Path):
    trace, plot = tmp_path / "trace.npz", tmp_path / "trace.png"
    prompt = ("--ids", "1,2,3", "--max-new-tokens", "40", "--model", bare_model)
    result = run("probe", *prompt, "--output", trace, "--plot", plot)
    assert result.exit_code == 0, result.output
    with np.load(trace) as content:
        steps = len(content["step"])
        assert content["error_residual"].shape[0] == steps
        assert np.isnan(content["error_residual"][0]).all(), (
            "a block's first step has nothing to compare with"
        )
        assert np.isfinite(content["error_residual"][1]).any()
    assert plot.read_bytes().startswith(b"\x89PNG")
    again = run(
        "ceiling", "layer_reuse:k=2,layers=0,unit=residual", "--model", bare_model, "--trace", trace, "--json"
    )
    assert again.exit_code == 0, again.output
    auto = f"layer_reuse:layers=auto,share=0.5,on=sub+block,calibration={trace}"
    assert run("generate", *prompt, "--policy", auto).exit_code == 0


def test_probe_chats_as_generate_does(run: Run, text_model: Path, tmp_path: Path):
    def steps(prompt: Any, chat: bool) -> list[int]:
        trace = probe(unmask.load(text_model), [prompt], unmask.DecodeSpec(max_new_tokens=40), chat=chat)
        return trace.unmasked

    trace = tmp_path / "trace.npz"
    flags = ("--max-new-tokens", "40", "--model", text_model, "--output", trace)
    for chosen, chat, hinted in (((), False, True), (("--raw",), False, False), (("--chat",), True, False)):
        result = run("probe", "hello", *flags, *chosen)
        assert result.exit_code == 0, result.output
        assert ("chat template" in result.stderr) is hinted
        with np.load(trace) as content:
            assert content["unmasked"].tolist() == steps("hello", chat)
    messages = [{"role": "user", "content": "hello"}]
    assert steps(messages, chat=False) == steps("hello", chat=True) != steps("hello", chat=False)


def test_a_picture_that_fails_leaves_the_old_one(
    run: Run, bare_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plot = tmp_path / "trace.png"
    plot.write_bytes(b"old")

    def half(figure: Figure, target: Any, **_: Any) -> None:
        (target.write if hasattr(target, "write") else Path(target).write_bytes)(b"half a picture")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    prompt = ("--ids", "1,2,3", "--max-new-tokens", "40", "--model", bare_model)
    assert "No space left" in error_line(run("probe", *prompt, "--plot", plot))
    assert plot.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["trace.png"]


@pytest.mark.parametrize(
    "policy, kinds",
    [
        ("layerreuse:k=2", "adaptive, combine, custom, full, layer_reuse, trim"),
        ('{"k": 2}', "adaptive, combine, custom, full, layer_reuse, trim"),
        (
            '{"kind": "combine", "rows": {"kind": "trim"}, "layers": {"kind": "trim"}}',
            "adaptive, layer_reuse",
        ),
    ],
)
def test_an_unknown_kind_of_policy_lists_those_there_are(run: Run, bare_model: Path, policy: str, kinds: str):
    line = error_line(run("generate", "--ids", "1,2", "--model", bare_model, "--policy", policy))
    assert line.endswith(f"Kinds: {kinds}.")


def test_probe_says_what_is_missing(run: Run, bare_model: Path, tmp_path: Path):
    prompt = ("--ids", "1,2,3", "--model", bare_model)
    assert "--output" in error_line(run("probe", *prompt))
    assert "no folder" in error_line(run("probe", *prompt, "--output", tmp_path / "no" / "trace.npz"))
    assert "is a folder" in error_line(run("probe", *prompt, "--output", tmp_path))
    assert ".png" in error_line(run("probe", *prompt, "--plot", tmp_path / "trace.bmp"))


@pytest.mark.parametrize(
    "content",
    [{}, {"unmasked": [0], "leftmost": [True]}, {"unmasked": [], "leftmost": []}, {"unmasked": [1.5]}],
)
def test_ceiling_refuses_what_is_no_trace(run: Run, bare_model: Path, tmp_path: Path, content: dict):
    trace = tmp_path / "fake.npz"
    np.savez(trace, **{name: np.array(values) for name, values in content.items()})
    assert "is no trace" in error_line(run("ceiling", "trim", "--model", bare_model, "--trace", trace))
    trace.write_bytes(trace.read_bytes()[:-30])
    assert "is no trace" in error_line(run("ceiling", "trim", "--model", bare_model, "--trace", trace))


def test_measures_of_the_command_line_are_those_of_the_probe():
    assert set(MEASURES + ERRORS) == set(RECORDED)


def test_a_plot_without_matplotlib_is_refused_before_anything_is_loaded(
    run: Run, bare_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("unmask.cli.probe.find_spec", lambda _: None)
    picture = tmp_path / "trace.png"
    assert "needs matplotlib" in error_line(
        run("probe", "--ids", "1,2,3", "--model", bare_model, "--plot", picture)
    )
    assert not picture.exists()
