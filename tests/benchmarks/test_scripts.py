"""The benchmark scripts run end to end on a tiny shape; figures are printed, never asserted."""

import json
from pathlib import Path

import pytest
import torch

import decode
import honesty
from timing import Ratio


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_decode_gives_equal_tokens_and_ends_with_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decode.main(["--shape", "tiny", "--repeats", "2", "--cache", str(tmp_path)])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])

    assert [(case["batch"], case["tokens"]) for case in report["cases"]] == [(1, 33), (4, 132)]
    alone = report["cases"][0]
    assert alone["unmask"]["steps"] == alone["reference"]["steps"]
    assert alone["unmask"]["steps"]["sub"] > 0


def test_decode_refuses_to_time_different_tokens() -> None:
    outcomes = {"unmask": decode.Outcome([[1, 2, 3]], {}), "reference": decode.Outcome([[1, 4, 3]], {})}
    with pytest.raises(SystemExit, match="differ from position 1 on"):
        decode.refuse_difference(outcomes)


def test_honesty_says_when_transformers_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(honesty, "transformers", None)
    with pytest.raises(SystemExit, match="pip install transformers"):
        honesty.main([])


@pytest.mark.parametrize(("pairs", "low", "high"), [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (15, 4, 12)])
def test_intervals_are_order_statistics(pairs: int, low: int, high: int) -> None:
    ratio = Ratio.of([float(value) for value in range(1, pairs + 1)], [1.0] * pairs)
    assert (ratio.low, ratio.high) == (low, high)
    assert ratio.coverage >= 0.95 or pairs < 6
