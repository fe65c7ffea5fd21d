"""The history of benchmark runs: lines round-trip, the table and the picture are made from them."""

from pathlib import Path
from typing import Any

import pytest

import history
from history import Case, Point


def figures(shape: str, speedup: float, **other: Any) -> dict[str, Any]:
    spread = [speedup, speedup - 0.1, speedup + 0.2]
    case = {"shape": shape, "threads": 1, "batch": 1, "prompt": 64, "kind": "limit"}
    return {**case, "speedup": spread, "of_limit": 0.5, **other}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl"
    for number in range(3):
        cases = [figures("tiny", 2.0 + number), figures("0.5b", 1.5, batch=4)][: 1 + number % 2]
        history.append({"benchmark": "decode", "cases": cases}, path)
    history.append({"benchmark": "store", "seconds": 1.0}, path)
    return path


def test_lines_round_trip_with_date_commit_and_machine(path: Path) -> None:
    runs = history.read(path)
    assert [run["benchmark"] for run in runs] == ["decode", "decode", "decode", "store"]
    assert all(set(run) >= {"date", "commit", "machine"} for run in runs)
    assert set(runs[0]["machine"]) == {"processor", "torch", "python"}
    assert runs[1]["cases"][1] == figures("0.5b", 1.5, batch=4)
    assert len(path.read_text().splitlines()) == 4


def test_a_series_keeps_the_order_of_the_file_and_its_gaps(path: Path) -> None:
    found = history.series(history.read(path, "decode"))
    assert [point.run for point in found[Case("tiny", 1, 1, 64, "limit")]] == [0, 1, 2]
    assert found[Case("0.5b", 1, 4, 64, "limit")] == [Point(1, 1.5, 1.4, 1.7, 0.5)]


def test_the_script_prints_a_table_and_writes_the_picture(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "history.png"
    history.main(["--history", str(path), "--plot", str(picture)])
    printed = capsys.readouterr().out
    assert "0.5b, batch 4, prompt 64, 1 thr., limit" in printed
    assert "4.00 [3.90, 4.20]" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_empty_history_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no run of decode"):
        history.main(["--history", str(tmp_path / "none.jsonl")])


def test_many_runs_of_many_cases_are_drawn(tmp_path: Path) -> None:
    path, picture = tmp_path / "history.jsonl", tmp_path / "history.svg"
    for number in range(30):
        cases = [figures("tiny", 1.0 + number / 30, prompt=64 * place) for place in range(1, 8)]
        history.append({"benchmark": "decode", "cases": cases}, path)
    history.plot(history.read(path), picture)
    assert picture.stat().st_size > 0
