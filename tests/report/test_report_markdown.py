"""results.md: its structure, its figures, and what it leads with."""

import re
from pathlib import Path

import pytest
from invented_store import write_store

from unmask.analysis.words import MINUS, MISSING, TIMES
from unmask.report.document import Document
from unmask.report.gather import gather
from unmask.report.markdown import as_markdown, escaped
from unmask.report.page import as_page
from unmask.report.tables import columns_of
from unmask.store import RunFolder, Store
from unmask.store.experiments import read_experiment

SECTIONS = [
    "Verdict",
    "Results",
    "Key findings",
    "Unexpected observations",
    "Provenance",
    "Artifacts",
]


@pytest.fixture(scope="module")
def text(document: Document) -> str:
    return as_markdown(document)


def section(text: str, name: str) -> str:
    return text.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, its own heading first."""
    part = text.split(heading, 1)[1]
    lines = re.findall(r"^\|.*\|$", part.split("\n\n#", 1)[0], re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line]


def test_sections_come_in_order(text: str) -> None:
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert text.startswith("# Results: 05_invented\n")
    assert "**Guards**: " in text
    assert "**Status**: complete (22 accuracy runs, 1 timing run)" in text


def test_a_table_has_a_row_for_every_configuration(text: str) -> None:
    table = rows(text, "### arith")
    assert table[0] == [
        "Configuration",
        "Accuracy (%)",
        "Drop vs k1_first (points, 99.4 % interval)",
        "p",
        "Work skipped (%)",
        f"Less work ({TIMES})",
        f"Operations ({TIMES} control)",
        "Total time",
        "Tokens",
        "Tokens a forward",
        "Speed (tokens/s)",
        f"Speed-up vs k1_first ({TIMES}, 99.4 % interval)",
    ]
    names = [row[0] for row in table[1:]]
    assert names[0] == "k1_first (control)"
    assert {"k1_last (baseline)", "k2_middle", "k3_last", "t0.8 (no reuse)"} <= set(names)
    assert len(names) == 11


def test_figures_are_those_of_the_records(text: str, invented: Store) -> None:
    experiment = read_experiment(invented, "05_invented")
    assert experiment is not None
    values = {
        member.configuration: RunFolder(invented.runs_folder / member.folder).result().value
        for member in experiment.members
        if member.task == "arith" and member.kind == "accuracy"
    }
    table = {row[0].split(" ")[0]: row for row in rows(text, "### arith")[1:]}
    for name, value in values.items():
        assert table[name][1].split(" ")[0] == f"{value * 100:.1f}"
        if name.startswith(("k2", "k3")):
            drop = float(table[name][2].split(" ")[0].replace(MINUS, "-"))
            assert drop == pytest.approx((values["k1_first"] - value) * 100, abs=0.051)
    assert table["k1_middle"][2:4] == ["equal by construction", MISSING]
    assert table["k3_first"][3] == "&lt; 0.001"


def test_speeds_come_from_timing_runs_of_the_same_task_only(text: str) -> None:
    assert "Speed" not in " ".join(rows(text, "### exam")[0])


def test_subjects_are_listed(text: str) -> None:
    table = rows(text, "#### By subject")
    assert table[0][:2] == ["Subject", "k1_first"]
    assert len(table) == 13


def test_equal_subsets_lead(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60, unit="output")
    told = as_markdown(gather(store, ["05_invented"]))
    head = told.split("## Verdict", 1)[0]
    assert "**Equal by construction: k2_first, k2_middle, k2_last; k3_first, k3_middle, k3_last." in head
    assert "the 6 configurations that reuse work are only 2 different ones.**" in head


def test_other_units_do_not_lead_with_it(text: str) -> None:
    assert "Equal by construction" not in text


def test_one_summary_spans_experiments(invented: Store, tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60)
    write_store(tmp_path, name="06_again", rows=60, configurations=["k1_first", "k2_first", "t0.8"])
    told = as_markdown(gather(store, ["05_invented", "06_again"]))
    table = rows(told, "## Summary of all experiments")
    assert [(row[0], row[1]) for row in table[1:]] == [
        (name, task) for name in ("05_invented", "06_again") for task in ("arith", "exam")
    ]
    assert "## 06_again" in told


def test_missing_and_retracted_runs_are_told(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60)
    experiment = read_experiment(store, "05_invented")
    assert experiment is not None
    gone, withdrawn = [one for one in experiment.members if one.task == "arith" and one.kind == "accuracy"][
        3:5
    ]
    (store.runs_folder / gone.folder / "result.json").unlink()
    RunFolder(store.runs_folder / withdrawn.folder).retract("the wrong data")
    told = as_markdown(gather(store, ["05_invented"]))
    assert (
        "**Status**: partial (20 accuracy runs, 1 timing run, 1 planned without a result, 1 retracted)"
        in told
    )
    names = [row[0] for row in rows(told, "### arith")[1:]]
    assert gone.configuration not in names
    assert withdrawn.configuration not in names


def test_a_retracted_control_is_called_so(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60)
    experiment = read_experiment(store, "05_invented")
    assert experiment is not None
    control = gather(store, ["05_invented"]).parts[0].experiment.control
    for member in experiment.members:
        if member.configuration == control and member.task == "arith":
            RunFolder(store.runs_folder / member.folder).retract("the wrong data")
    document = gather(store, ["05_invented"])
    assert f"Control: {control} (retracted)." in as_markdown(document)
    assert "no result yet" not in as_markdown(document)
    page = as_page(document)
    assert f"The control {control} was retracted." in page
    assert "has no result yet" not in page


def test_text_stays_text() -> None:
    assert escaped("a|b <i> k2_first _x_ *y*\nz & w") == "a\\|b &lt;i> k2_first \\_x\\_ \\*y\\* z &amp; w"


def test_every_figure_is_said_once(text: str, document: Document) -> None:
    """A loss or a speed-up with its interval stands in the table of its task and nowhere else."""
    figures = [
        str(column.cell(line))
        for task in document.parts[0].tasks
        for column in columns_of(task)
        if column.heading.startswith(("Drop", "Speed-up"))
        for line in task.lines
        if column.cell(line).note and line.loss and not line.same_as_control
    ]
    assert len(figures) > 10
    for figure in set(figures):
        assert text.count(figure) == figures.count(figure)


def test_tokens_a_forward_and_the_accuracy_under_parallelism_are_in_both_forms(
    text: str, document: Document, invented: Store
) -> None:
    table = rows(text, "### arith")
    place = table[0].index("Tokens a forward")
    cells = {row[0].split(" ")[0]: row[place] for row in table[1:]}
    (task, _) = document.parts[0].tasks
    control = next(line.entry for line in task.lines if line.is_control)
    forwards = control.effect["generation"].forwards
    expected = (control.tokens or 0) / (forwards["block"] + forwards["sub"] + forwards["commit"])
    assert cells["k1_first"] == f"{expected:.2f}"
    (curve,) = task.curves
    assert curve.method == "plain decoding"
    row = rows(text, "#### Accuracy under parallelism")[1]
    assert row[0] == "plain decoding"
    assert f"k1_first ({expected:.2f}, {control.value * 100:.1f})" in row[1] + row[2]
    assert row[3] == f"{curve.aup:.1f}"
    best = max(line.entry.value for line in task.lines) * 100
    assert f"y\\_max = {best:.1f} %" in text or f"y_max = {best:.1f} %" in text
    page = as_page(document)
    assert "<h4>Accuracy under parallelism</h4>" in page
    assert f'<td class="number">{curve.aup:.1f}</td>' in page
