"""Shared prompt blocks are fed once: rows are counted here, times are for the script to tell."""

import json

import pytest
import torch

import prefix
import unmask
import unmask.engine.decode
from unmask.engine.prefixes import Prefixes


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_sharing_feeds_fewer_prompt_rows_and_as_many_others(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--requests", "3", "--shots", "1", "--new-tokens", "8", "--batches", "1", "2")
    prefix.main(["--repeats", "1", *sizes])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])

    assert [case["batch"] for case in report["cases"]] == [1, 2]
    for case in report["cases"]:
        shared, unshared = case["contenders"]["shared"], case["contenders"]["unshared"]
        saved = unshared["prompt_rows"] - shared["prompt_rows"]
        assert saved == 2 * (report["shared_tokens"] // 32 * 32) > 0
        assert unshared["rows"] - shared["rows"] == saved
    assert unmask.engine.decode.Prefixes is Prefixes


def test_no_figure_where_tokens_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([[[1, 2]], [[1, 3]]])
    monkeypatch.setattr(prefix, "decode", lambda *_: prefix.Outcome(next(outcomes), 1, 1.0, 1, 1))
    with pytest.raises(SystemExit, match="no figure is given"):
        prefix.measure(None, [], 1, None)


def test_prompts_begin_alike() -> None:
    prompts = prefix.few_shot_prompts(shots=5, count=3)
    shared = prefix.common_tokens(unmask.load("embedded", "cpu", "float32"), prompts)
    assert len(set(prompts)) == 3
    assert 400 <= shared <= 900
