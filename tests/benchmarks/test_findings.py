"""The tables of docs/findings.md: what is compared at equal work, and that the page has a place for each table."""

import json
import re
from pathlib import Path

import pytest

import findings
from findings import Findings, Line
from pages import put_into_page
from unmask.analysis.table import ConfigurationResult
from unmask.store.result import Effect

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
FORWARDS = {"prefill": 8, "block": 10, "sub": 6, "commit": 4}


def line(
    folder: Path,
    name: str,
    right: str,
    flops: int,
    threshold: float = 0.9,
    kind: str = "full",
    size: int = 8,
) -> Line:
    """A configuration that answers row by row as `right` says: 1 or 0."""
    samples = folder / f"{name}.jsonl"
    rows = [{"id": f"unmask_arith/{row}", "correct": int(mark)} for row, mark in enumerate(right)]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = ConfigurationResult(
        experiment="any",
        configuration=name,
        task="unmask_arith",
        limit=None,
        policy={"kind": kind},
        decode={"threshold": threshold, "sub_block_size": size},
        value=right.count("1") / len(right),
        rows=len(right),
        tokens=40,
        effect={"generation": Effect(flops=flops, forwards=FORWARDS, requests=len(right))},
        samples=samples,
    )
    return Line(entry)


@pytest.fixture
def found(tmp_path: Path) -> Findings:
    plain = [
        line(tmp_path, "t0.9_s8", "11111110", 1000),
        line(tmp_path, "t0.7_s8", "11110000", 600, 0.7),
        line(tmp_path, "t0.5_s8", "11000000", 400, 0.5),
        line(tmp_path, "t0.9_s16", "11100000", 700, size=16),
    ]
    return Findings({findings.CURVE: {each.name: each for each in plain}})


def test_at_equal_work_a_policy_meets_a_mixture_of_two_thresholds(found: Findings, tmp_path: Path) -> None:
    policy = line(tmp_path, "policy", "11111100", 700, kind="trim")
    mixture = found.against_curve(policy)
    assert mixture is not None
    expected, difference, interval = mixture
    # A quarter of the questions at 0.9 and the rest at 0.7 take 700: 0.25 * 7/8 + 0.75 * 4/8.
    assert expected == pytest.approx(0.59375)
    assert difference == pytest.approx(0.75 - 0.59375)
    # By row: four rows at 0, two rows at 1 - 0.25, one at -0.25, one at 0.
    assert (interval.low + interval.high) / 2 == pytest.approx((2 * 0.75 - 0.25) / 8)
    assert found.work(policy) == pytest.approx(0.7)


def test_a_threshold_is_level_with_the_curve_and_other_work_has_none(found: Findings, tmp_path: Path) -> None:
    for own in found.curve:
        mixture = found.against_curve(own)
        assert mixture is not None
        assert mixture[1] == pytest.approx(0)
    for flops in (399, 1001):
        assert found.against_curve(line(tmp_path, "far", "11111110", flops, kind="trim")) is None


def test_losses_are_paired_with_the_baseline(found: Findings, tmp_path: Path) -> None:
    value, interval, lost, won = found.loss(line(tmp_path, "policy", "01111111", 700, kind="trim"))
    assert (value, lost, won) == (0, 1, 1)
    assert interval.low < 0 < interval.high
    with pytest.raises(SystemExit, match="other rows"):
        found.loss(line(tmp_path, "short", "1111", 700, kind="trim"))


def test_thresholds_are_listed_by_work_with_their_steps(found: Findings) -> None:
    table = findings.thresholds(found)
    assert [row.split(" | ")[0] for row in table[2:]] == ["| 0.5", "| 0.7", "| 0.9"]
    assert table[-1].endswith("| 2.00 | 38 | 1.000 |")  # 40 tokens in 20 forwards, 6 of 16 on sub-blocks
    assert [row.split(" | ")[0] for row in findings.sub_blocks(found)] == [
        "| sub-block size",
        "|---|---|---|---|---|---|---|",
        "| 8",
        "| 16",
    ]


def test_the_page_has_a_place_for_every_table(tmp_path: Path) -> None:
    copy = tmp_path / "findings.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"))
    for name in findings.TABLES:
        put_into_page(copy, name, [f"the table {name}"])
    assert all(copy.read_text().count(f"the table {name}\n") == 1 for name in findings.TABLES)


def test_the_prose_of_the_page_repeats_its_tables() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    tables = " ".join(text for text in lines if text.startswith("|"))
    prose = " ".join(text for text in lines if not text.startswith("|"))
    figures = re.findall(r"-?\d+\.\d \[-?\d+\.\d, -?\d+\.\d\]", prose)
    assert len(figures) > 10
    assert [figure for figure in figures if figure not in tables] == []
