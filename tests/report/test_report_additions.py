"""A guard and a column are added in one place each: everything that shows guards or columns then shows the new ones."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from invented_store import write_store

from unmask.analysis import guards
from unmask.analysis.guards import GUARDS, Finding, guard
from unmask.analysis.table import Table
from unmask.cli.check import check
from unmask.report import tables
from unmask.report.gather import gather, task_parts
from unmask.report.markdown import as_markdown
from unmask.report.page import as_page
from unmask.report.tables import COLUMNS, Cell, Column, brief_table
from unmask.store import Store

DOCS = Path(__file__).parents[2] / "docs" / "analysis.md"


@guard(
    severity="warning",
    title="An even number of letters",
    explanation="Names of even length are out of fashion.",
    advice="Add a letter to the name.",
)
def even_name(table: Table) -> list[Finding]:
    return [
        even_name.finding("warning", f"{entry.configuration} has an even name.", entry, [entry])
        for entry in table.entries
        if len(entry.configuration) % 2 == 0
    ]


LETTERS = Column(
    heading="Letters",
    unit="count",
    explanation="Letters of the configuration's name.",
    cell=lambda line: Cell(str(len(line.name)), "all", len(line.name)),
    brief=True,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write_store(tmp_path / "results", rows=60)


@pytest.fixture
def additions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "GUARDS", (*GUARDS, even_name))
    monkeypatch.setattr(tables, "COLUMNS", (*COLUMNS, LETTERS))


def checked(store: Store, *arguments: str) -> str:
    command: click.Command = check
    said = CliRunner().invoke(command, ["05_invented", "--store", str(store.root), *arguments])
    assert said.exit_code in (0, 1), said.output
    return " ".join(said.output.split())


@pytest.mark.usefixtures("additions")
def test_check_finds_and_explains_what_an_added_guard_finds(store: Store) -> None:
    said = checked(store, "--explain")
    assert f"{len(GUARDS) + 1} guards" in said
    assert "warning: even-name (05_invented) k1_first has an even name. Names of even length" in said
    assert "What to do: Add a letter to the name." in said


@pytest.mark.usefixtures("additions")
def test_both_forms_of_the_report_show_an_added_guard_and_an_added_column(store: Store) -> None:
    document = gather(store, ["05_invented"])
    text, page = as_markdown(document), as_page(document)
    assert "- **An even number of letters** (`even-name`)" in text
    assert "  - warning: k1_first has an even name." in text
    assert "An even number of letters</h4>" in page
    assert "<p>Names of even length are out of fashion.</p>" in page
    assert "| Letters (count) |" in text
    assert "Letters: Letters of the configuration's name." in text
    assert "| 8 (all) |" in text
    assert 'title="Letters of the configuration&#39;s name.">Letters <small>count</small></th>' in page
    assert '<td class="number" data-sort="8">8<small>all</small></td>' in page


@pytest.mark.usefixtures("additions")
def test_the_table_at_the_end_of_a_run_shows_an_added_brief_column(store: Store) -> None:
    titles, rows = brief_table(task_parts(store, "05_invented"))
    assert titles[-1] == "Letters (count)"
    assert rows["arith", None, "k1_first"][-1] == "8 (all)"


def undocumented(text: str) -> list[str]:
    """Guards and columns that the page on the analysis does not name."""
    names = [*guards.guards_by_name(), *(column.heading.partition(" vs ")[0] for column in tables.COLUMNS)]
    return [
        name for name in dict.fromkeys(names) if f"| `{name}` |" not in text and f"| {name} |" not in text
    ]


def test_every_guard_and_every_column_is_documented() -> None:
    assert undocumented(DOCS.read_text(encoding="utf-8")) == []


@pytest.mark.usefixtures("additions")
def test_an_added_guard_and_an_added_column_need_one_row_each_in_the_docs() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert undocumented(text) == ["even-name", "Letters"]
    assert (
        undocumented(f"{text}\n| `even-name` | names of even length |\n| Letters | letters of a name |\n")
        == []
    )
