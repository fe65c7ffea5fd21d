"""The benchmark scripts run end to end on a tiny shape; figures are printed, never asserted."""

import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import autoregressive
import contenders
import decode
import history
import honesty
import limits
import random_checkpoint
import unmask
from history import Case
from timing import Ratio, fair_clock
from unmask.cost import Device


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def _quick_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUFFER_BYTES", 1 << 22)
    monkeypatch.setattr(limits, "PRODUCT_SIZES", (64,))


def decode_tiny(cache: Path, *arguments: str) -> int:
    return decode.main(["--repeats", "2", "--cache", str(cache), "--shapes", "tiny", *arguments])


@pytest.mark.usefixtures("_quick_rates")
def test_decode_gives_equal_tokens_and_ends_with_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = ["--batches", "1", "4", "--kinds", "limit", "stop"]
    assert decode_tiny(tmp_path, *lists, "--no-history") == 0
    printed = capsys.readouterr().out.splitlines()
    report = json.loads(printed[-1])

    cases = {(case["batch"], case["kind"]): case for case in report["cases"]}
    assert set(cases) == set(product((1, 4), ("limit", "stop")))
    assert cases[1, "limit"]["tokens"] == 33
    assert cases[4, "limit"]["tokens"] == 4 * 33
    assert all(case["limit"]["seconds"] > 0 and case["limit"]["reached"] > 0 for case in cases.values())
    alone = cases[1, "limit"]
    assert alone["unmask"]["steps"] == alone["reference"]["steps"]
    assert alone["unmask"]["steps"]["sub"] > 0
    stopped = cases[1, "stop"]
    assert 0 < stopped["tokens"] < 33
    assert sum(stopped["unmask"]["steps"].values()) < sum(alone["unmask"]["steps"].values())
    rows = [row for row in printed if row.startswith("tiny ")]
    assert len(rows) == len(cases)
    assert len({row.index("]") for row in rows}) == 1


@pytest.mark.usefixtures("_quick_rates")
def test_decode_of_the_embedded_model_adds_a_line_to_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    assert decode.main(["--repeats", "1", "--cache", str(tmp_path), "--shapes", "embedded"]) == 0
    (case,) = json.loads(capsys.readouterr().out.splitlines()[-1])["cases"]
    assert (case["prompt"], case["tokens"]) == (64, 33)

    (run,) = history.read()
    assert run["cases"] == [decode.key_figures(case)]
    assert len(json.dumps(run)) < 1000


def test_prompts_are_cut_to_the_models_context() -> None:
    assert decode.fitting(Case("embedded", 1, 1, 2048, "limit"), 33).prompt == 1984
    assert decode.fitting(Case("0.5b", 1, 1, 2048, "limit"), 33).prompt == 2048


def test_several_threads_are_timed_on_the_wall() -> None:
    assert (fair_clock(1), fair_clock(2)) == ("cpu", "wall")


def test_decode_refuses_to_time_different_tokens() -> None:
    outcomes = {"unmask": decode.Outcome([[1, 2, 3]], {}), "reference": decode.Outcome([[1, 4, 3]], {})}
    with pytest.raises(decode.TokensDifferError, match="differ from position 1 on"):
        decode.refuse_difference(outcomes)


@pytest.mark.usefixtures("_quick_rates")
def test_decode_gives_no_figures_where_tokens_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    wrong = decode.Outcome([[0] * 33], {"steps": {}})
    monkeypatch.setattr(contenders, "reference_decoding", lambda *_: lambda *_: wrong)
    assert decode_tiny(tmp_path) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["cases"] == []
    assert [one["reason"] for one in report["without_figures"]] == ["refused"]
    assert history.read() == []


@pytest.mark.usefixtures("_quick_rates")
def test_decode_skips_what_does_not_fit_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode.psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))
    assert decode.main(["--shapes", "1.5b", "--cache", str(tmp_path), "--no-history"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "1.5b, batch 1, prompt 64, 1 thr., limit: skipped." in "\n".join(printed)
    assert json.loads(printed[-1])["without_figures"][0]["case"]["shape"] == "1.5b"
    assert list(tmp_path.iterdir()) == []


def test_decode_selects_by_lists_or_all_or_what_is_worth_ten_minutes() -> None:
    def chosen(*arguments: str) -> list[Case]:
        return decode.selected(decode.parsed(arguments))

    assert chosen("--prompt-lengths", "96") == [Case("0.5b", 1, 1, 96, "limit")]
    assert len(chosen("--all")) == 4 * 2 * 3 * 3 * 2
    assert len(chosen("--all", "--shapes", "tiny", "--threads", "1")) == 3 * 3 * 2
    default = chosen()
    assert {case.kind for case in default if (case.shape, case.batch) == ("0.5b", 1)} == {"limit", "stop"}
    assert {case.shape for case in default} == {"tiny", "embedded", "0.5b"}
    assert {case.threads for case in default} == {1, 2}
    assert {case.batch for case in default} == {1, 4, 16}


def test_several_threads_slower_than_one_mean_a_busy_machine() -> None:
    one, slower, faster = (Device("", rate, 1.0) for rate in (2.0, 1.0, 3.0))
    assert decode.busy({1: one, 2: slower})
    assert not decode.busy({1: one, 2: faster})
    assert not decode.busy({1: one})


def test_stop_tokens_first_occur_near_the_middle() -> None:
    assert decode.stop_tokens([[1, 1, 2, 3, 4, 5, 4, 3, 2, 1]]) == (5,)
    assert decode.stop_tokens([[7] * 10]) == (7,)
    assert decode.stop_tokens([[0, 1, 2, 3], [0, 9, 8, 7]]) == (2, 8)


AUTOREGRESSIVE_TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
}


def autoregressive_tiny(monkeypatch: pytest.MonkeyPatch, cache: Path, changed: int = 0) -> int:
    """The script with the engine in the place of transformers; so many of its last tokens are others."""

    def second(folder: Path) -> contenders.Decoding:
        run = contenders.unmask_decoding(unmask.load(folder, device="cpu", dtype="float32"))

        def decoding(prompts: contenders.Ids, spec: unmask.DecodeSpec) -> contenders.Outcome:
            ids = run(prompts, spec).ids
            cut = len(ids[0]) - changed
            return contenders.Outcome(
                [row[:cut] + [token ^ 1 for token in row[cut:]] for row in ids],
                {"forwards": {"all": len(ids[0])}},
            )

        return decoding

    monkeypatch.setitem(random_checkpoint.AUTOREGRESSIVE, "tiny-llama", AUTOREGRESSIVE_TINY)
    monkeypatch.setattr(autoregressive, "transformers_decoding", second)
    options = [
        "--shapes",
        "tiny-llama",
        "--repeats",
        "2",
        "--prompt",
        "9",
        "--new-tokens",
        "6",
        "--no-history",
    ]
    return autoregressive.main([*options, "--cache", str(cache)])


@pytest.mark.usefixtures("_quick_rates")
def test_autoregressive_counts_a_forward_a_token_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert autoregressive_tiny(monkeypatch, tmp_path) == 0
    (case,) = json.loads(capsys.readouterr().out.splitlines()[-1])["cases"]
    assert case["forwards"] == {"unmask": 6, "all": 6}
    assert case["tokens"] == 6
    assert case["limit"]["seconds"] > 0
    assert case["speedup"]["cpu"]["pairs"] == 2


@pytest.mark.usefixtures("_quick_rates")
def test_autoregressive_gives_no_figures_where_tokens_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert autoregressive_tiny(monkeypatch, tmp_path, changed=1) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["cases"] == []
    assert "the tokens differ from position 5 on" in report["differs"]


def test_autoregressive_says_when_transformers_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoregressive, "transformers", None)
    with pytest.raises(SystemExit, match="pip install transformers"):
        autoregressive.transformers_decoding(tmp_path)


def test_honesty_says_when_transformers_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(honesty, "transformers", None)
    with pytest.raises(SystemExit, match="pip install transformers"):
        honesty.main([])


@pytest.mark.parametrize(("pairs", "low", "high"), [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (15, 4, 12)])
def test_intervals_are_order_statistics(pairs: int, low: int, high: int) -> None:
    ratio = Ratio.of([float(value) for value in range(1, pairs + 1)], [1.0] * pairs)
    assert (ratio.low, ratio.high) == (low, high)
    assert ratio.coverage >= 0.95 or pairs < 6
