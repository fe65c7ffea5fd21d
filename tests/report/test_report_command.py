"""`unmask report`: what it writes where, what it refuses, and that it stays light."""

import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from invented_store import write_store

from unmask.cli import app
from unmask.lab.outcomes import report_folder
from unmask.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write_store(tmp_path / "results", rows=60, configurations=["k1_first", "k2_first", "t0.8"])


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)], prog_name="unmask")


def test_both_files_are_written_into_the_store(store: Store) -> None:
    result = run("--store", store.root, "--replay", 0)
    assert result.exit_code == 0, result.output
    folder = store.root / "reports" / "05_invented"
    verdict, *written = result.stdout.splitlines()
    assert verdict.startswith("05_invented: undecided. The figures do not show yet whether any of")
    assert written == [str(folder / "results.md"), str(folder / "report.html")]
    assert sorted(file.name for file in folder.iterdir()) == ["report.html", "results.md"]
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_report_is_replaced_by_the_next(store: Store, tmp_path: Path) -> None:
    for _ in range(2):
        assert (
            run("05_invented", "--store", store.root, "--replay", 0, "--output", tmp_path / "out").exit_code
            == 0
        )
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["report.html", "results.md"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "There is no experiment nothing in"),
        (["--foreign", "nothing"], "There is no import 'nothing'"),
        (["--replay", "-1"], "-1 is not in the range"),
    ],
)
def test_what_is_not_there_is_told_in_a_line(store: Store, arguments: list[str], words: str) -> None:
    result = run(*arguments, "--store", store.root)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (store.root / "reports").exists()


def test_an_empty_store_is_told(tmp_path: Path) -> None:
    result = run("--store", tmp_path / "none")
    assert result.exit_code == 2
    assert "nothing to report" in result.stderr


def test_without_a_checkpoint_the_report_says_why_there_is_no_replay(store: Store) -> None:
    result = run("--store", store.root)
    assert result.exit_code == 0, result.output
    page = (store.root / "reports" / "05_invented" / "report.html").read_text(encoding="utf-8")
    assert "Some samples could not be replayed: " in page
    assert "Traceback" not in page


def test_tables_need_no_torch(store: Store) -> None:
    program = (
        "import sys; from unmask.cli.report import report; "
        f"report(['--store', {str(store.root)!r}, '--replay', '0'], standalone_mode=False); "
        "print([name for name in ('torch', 'transformers', 'lm_eval', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_several_names_have_a_folder_of_their_own(store: Store) -> None:
    assert report_folder(store, ["a", "b"], ["c"]).name == "a+b+foreign-c"
    many = [f"experiment_{number}" for number in range(20)]
    long, other = report_folder(store, many, []), report_folder(store, many[1:], [])
    assert len(long.name) == 80
    assert long.name != other.name


def test_lone_surrogates_do_not_break_the_files(store: Store) -> None:
    for file in store.runs_folder.rglob("samples.jsonl"):
        file.write_text(file.read_text().replace("#### ", "\\ud800#### "))
    assert run("--store", store.root, "--replay", 0).exit_code == 0


@pytest.mark.skipif(shutil.which("git") is None, reason="git says what a wheel leaves out")
def test_the_wheel_leaves_out_no_file_of_the_page() -> None:
    assets = Path(str(files("unmask.report") / "assets"))
    names = [str(file) for file in assets.rglob("*") if file.is_file()]
    ignored = subprocess.run(
        ["git", "check-ignore", *names], cwd=assets, capture_output=True, text=True, check=False
    )
    assert ignored.stdout == ""
