"""The memory benchmark and the table of layouts, end to end on the smallest sizes."""

import json
from pathlib import Path

import pytest
import torch

import layouts
import memory


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("shape", ["embedded", "llada-tiny", "dream-tiny"])
def test_the_peak_is_the_predicted_one(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.main(["--shapes", shape, "--cases", "1", "--cache", str(tmp_path)])
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert row["peak"] > row["parts"]["weights"] + row["parts"]["kv"]


def test_a_peak_beyond_a_tenth_of_its_prediction_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"peak": 12, "predicted": 10, "ratio": 1.2, "parts": {}}
    monkeypatch.setattr(memory, "measure", lambda *_: off)
    with pytest.raises(SystemExit):
        memory.main(["--shapes", "embedded", "--cases", "1"])


def test_every_size_gets_a_layout_and_is_written_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "layouts.json"
    kept = {"inputs": 1, "outputs": 1, "layout": "in_out"}
    table.write_text(json.dumps({"entries": {"another": [kept]}}))
    monkeypatch.setattr(layouts, "TABLE", table)
    layouts.main(["--shapes", "tiny", "--repeats", "1", "--write"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    written = json.loads(table.read_text())["entries"]
    assert written == {"another": [kept], told["instructions"]: told["entries"]}
    assert len(told["entries"]) == 5
    assert {entry["layout"] for entry in told["entries"]} <= set(layouts.LAYOUTS)


def test_only_a_clear_winner_displaces_in_out() -> None:
    plain = {8: 1.0, 32: 1.0, 512: 16.0}
    found = {
        "in_out": plain,
        "out_in": plain,
        "packed": {rows: 0.99 * taken for rows, taken in plain.items()},
    }
    assert layouts.best(found) == "in_out"
    found["packed"] = {rows: 0.5 * taken for rows, taken in plain.items()}
    assert layouts.best(found) == "packed"
