"""The benchmarks of whole canvases end to end on a tiny shape; figures are printed, never asserted."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import canvas
import limits
import padding
from contenders import Outcome


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _quick_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUFFER_BYTES", 1 << 22)
    monkeypatch.setattr(limits, "PRODUCT_SIZES", (64,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def tiny(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    short = ["--prompt", "12", "--new-tokens", "16", "--block", "8", "--steps", "8", "--repeats", "2"]
    code = canvas.main(["--shapes", "tiny", *short, "--cache-folder", str(folder), *arguments])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("rule", [(), ("--threshold", "0.9")], ids=str)
def test_both_decode_the_same_tokens_by_the_same_forwards(
    folder: Path, capsys: pytest.CaptureFixture[str], rule: tuple[str, ...]
) -> None:
    code, report = tiny(folder, capsys, *rule)
    assert (code, report["refused"]) == (0, [])
    cases = {(case["family"], case["cache"]): case for case in report["cases"]}
    assert set(cases) == set(product(canvas.FAMILIES, canvas.CACHES))
    for (family, cache), case in cases.items():
        ours, theirs = (case[name]["forwards"] for name in ("unmask", "reference"))
        assert case["tokens"] == 16
        assert {kind for kind, count in ours.items() if count} == {"full", *({cache} - {"none"})}
        # Steps of Dream's schedule that write nothing are not taken.
        assert ours == theirs or (
            family == "dream" and not rule and sum(ours.values()) < sum(theirs.values())
        )
        assert case["limit"]["reached"] > 0


def test_no_figures_are_given_where_tokens_differ(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Outcome([[0] * 16], canvas.counted(canvas.Counter()))
    monkeypatch.setattr(canvas, "reference_decoding", lambda *_: lambda *_: wrong)
    code, report = tiny(folder, capsys, "--families", "llada", "--caches", "dual")
    assert (code, report["cases"]) == (1, [])
    assert "the tokens differ from position" in report["refused"][0]


def test_a_speed_up_below_the_bar_is_a_failure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = tiny(folder, capsys, "--families", "dream", "--caches", "dual", "--at-least", "1000")
    assert code == 1


@pytest.mark.slow
def test_padding_changes_answers_of_the_published_loop_only(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before {padding.MARKS[0]} old {padding.MARKS[1]} after")
    asked = ["--prompts", "4", "--batch", "2", "--cache-folder", str(folder), "--write", str(page)]
    assert padding.main(asked) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert {row["unmask"] for row in rows} == {0}
    assert all(row["published"] > 0 for row in rows if row["family"] == "llada")
    assert page.read_text().startswith(f"before {padding.MARKS[0]}\n| family |")
    assert page.read_text().endswith(f"|\n{padding.MARKS[1]} after")
