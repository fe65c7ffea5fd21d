"""The tables on caches: what each configuration is compared with, and that both pages have places for them."""

import json
from pathlib import Path
from typing import Any

import pytest

import canvas_findings
import embedded_canvas
from canvas_findings import Canvases
from findings import Line
from pages import put_into_page
from unmask.analysis.table import ConfigurationResult
from unmask.model.hub import find_checkpoint
from unmask.store.result import Effect

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
CARD = find_checkpoint("embedded-canvas") / "README.md"


def line(folder: Path, name: str, right: str, flops: int, decode: dict[str, Any], **policy: Any) -> Line:
    """A configuration that answers row by row as `right` says: 1 or 0."""
    samples = folder / f"{name}.jsonl"
    rows = [
        {"id": f"unmask_arith/{row}", "doc_id": row, "correct": int(mark), "answer": "1+1"}
        for row, mark in enumerate(right)
    ]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = ConfigurationResult(
        experiment="any",
        configuration=name,
        task="unmask_arith",
        limit=None,
        policy={"kind": "full", **policy},
        decode={"threshold": 0.9, "sub_block_size": 8, **decode},
        value=right.count("1") / len(right),
        rows=len(right),
        tokens=40,
        effect={"generation": Effect(flops=flops, forwards={"prefill": 0, "block": 10, "sub": 6})},
        samples=samples,
    )
    return Line(entry)


@pytest.fixture
def found(tmp_path: Path) -> Canvases:
    top2 = {"threshold": None, "rule": {"kind": "top_n", "n": 2}}
    lines = [
        line(tmp_path, "t0.9_none", "11111110", 1000, {"cache": "none"}),
        line(tmp_path, "t0.7_none", "11110000", 700, {"cache": "none", "threshold": 0.7}),
        line(tmp_path, "t0.9_dual", "11111100", 250, {"cache": "dual"}),
        line(tmp_path, "t0.9_dual_r2", "11111110", 400, {"cache": "dual", "refresh_every": 2}),
        line(tmp_path, "t0.7_dual", "11100000", 200, {"cache": "dual", "threshold": 0.7}),
        line(tmp_path, "top2_dual", "11111111", 220, {"cache": "dual", **top2}),
        line(tmp_path, "t0.9_dual_s16", "11000000", 240, {"cache": "dual", "sub_block_size": 16}),
        line(tmp_path, "trim_t0.9_dual", "11111101", 125, {"cache": "dual"}, kind="trim"),
    ]
    return Canvases({each.name: each for each in lines})


def test_a_cache_is_compared_with_none_under_the_same_rule(found: Canvases) -> None:
    table = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in canvas_findings.caches(found)[2:]
    ]
    assert [row[:2] for row in table] == [
        ["threshold 0.9", "none"],
        ["threshold 0.9", "dual, refreshed every 2"],
        ["threshold 0.9", "dual"],
        ["threshold 0.7", "none"],
        ["threshold 0.7", "dual"],
    ]
    assert [row[4] for row in table] == ["", "-0 +0", "-1 +0", "", "-1 +0"]
    assert [row[5:] for row in table][2] == ["2.50", "1.2 block + 0.8 sub", "0.250"]


def test_a_policy_is_compared_with_the_same_decoding_without_it(found: Canvases) -> None:
    (row,) = canvas_findings.policies(found)[2:]
    assert row.startswith("| TRIM | threshold 0.9 | dual |")
    assert row.endswith("| -0 +1 | 0.125 | 0.500 |")


def test_rules_stand_by_work_and_sub_blocks_by_size(found: Canvases) -> None:
    rules = [row.split(" | ")[0] for row in canvas_findings.rules(found)[2:]]
    assert rules == ["| threshold 0.7", "| top_n, 2 a step", "| threshold 0.9"]
    assert [row.split(" | ")[0] for row in canvas_findings.sub_blocks(found)[2:]] == ["| 8", "| 16"]


def test_wrong_answers_are_counted_by_what_goes_wrong_first(found: Canvases) -> None:
    assert canvas_findings.failures(found)[2:] == ["| no `#### N` | 1 | 2 | 5 | 6 |"]


def test_both_pages_have_places_for_the_tables(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    for page, names in (
        (PAGE, canvas_findings.TABLES),
        (CARD, [*canvas_findings.TABLES, *embedded_canvas.TABLES]),
    ):
        copy.write_text(page.read_text(encoding="utf-8"))
        for name in names:
            put_into_page(copy, name, [f"the table {name}"])
        assert all(copy.read_text().count(f"the table {name}\n") == 1 for name in names)
