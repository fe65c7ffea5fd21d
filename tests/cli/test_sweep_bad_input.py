"""Bad input to the verbs about sweeps: exit code 2, one sentence, no traceback, and nothing is changed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_cases import Run, error_line
from planted import TEXT, folder_of, write_recipe

from recipe_cases import lock_for
from unmask.lab.recipes import open_recipe
from unmask.spec.lock import as_text
from unmask.spec.recipe import read_recipe
from unmask.store import Store

HUB = TEXT.replace('"embedded"', '"no-org/no-model"')


def files_below(folder: Path) -> dict[Path, bytes]:
    return {
        file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "index.json"
    }


ARGUMENTS: dict[str, tuple[list[str], str]] = {
    "new: no name": (["new"], "Missing argument 'NAME'"),
    "new: a path": (["new", "../mine"], "'../mine' is no name for an experiment"),
    "new: nothing": (["new", ""], "'' is no name for an experiment"),
    "plan: no recipe": (["plan"], "Missing argument 'RECIPE'"),
    "plan: nowhere": (["plan", "nowhere"], "no such recipe; make one with `unmask new NAME`"),
    "plan: task": (["plan", "RECIPE", "--task", "gsm8k"], "No task is called gsm8k; there are unmask_arith."),
    "plan: configuration": (
        ["plan", "RECIPE", "--config", "k7"],
        "No configuration is called k7; there are k1_",
    ),
    "plan: no rows": (["plan", "RECIPE", "--limit", "0"], "Invalid value for '--limit'"),
    "plan: device": (["plan", "RECIPE", "--device", "toaster"], "'toaster' is not one of"),
    "run: nowhere": (["run", "nowhere"], "no such recipe"),
    "run: a name": (
        ["run", "RECIPE", "k1_first"],
        "k1_first is not understood; name configurations with --config",
    ),
    "run: configuration": (["run", "RECIPE", "--config", "k7"], "No configuration is called k7"),
    "run: forced": (["run", "RECIPE", "--force", "k7"], "No configuration is called k7"),
    "run: no slots": (["run", "RECIPE", "--slots", "0"], "Invalid value for '--slots'"),
    "run: no canary": (["run", "RECIPE", "--canary", "0"], "Invalid value for '--canary'"),
    "run: place": (["run", "RECIPE", "--on", "mars"], "'mars' is not one of 'local', 'slurm'"),
    "run: a file as store": (["run", "RECIPE", "--store", "FILE"], "is a file; a store is a folder"),
    "run-one: nowhere": (["run-one", "nowhere"], "'nowhere' does not exist"),
    "run-one: no run": (["run-one", "FOLDER"], "is no run of a store"),
    "status: experiment": (["status", "mine"], "There is no experiment mine in"),
    "status: a file as store": (["status", "--store", "FILE"], "is a file; a store is a folder"),
    "logs: run": (["logs", "ffff"], "There is no run 'ffff' in"),
    "logs: several": (["logs", "unmask_arith"], "give more of the name or the id"),
    "logs: none": (["logs", "RUN"], "has no log yet"),
    "logs: attempt": (["logs", "RUN", "--attempt", "0"], "Invalid value for '--attempt'"),
    "cancel: nothing": (["cancel"], "Missing argument 'EXPERIMENT_OR_RUN...'"),
    "cancel: run": (["cancel", "ffff"], "There is no run 'ffff' in"),
    "retract: run": (["retract", "ffff", "--reason", "bad"], "There is no run 'ffff' in"),
    "retract: no reason": (["retract", "RUN"], "Missing option '--reason'"),
    "retract: empty reason": (["retract", "RUN", "--reason", ""], "A retraction needs a reason"),
    "rm: nothing": (["rm"], "Missing argument 'RUN...'"),
    "rm: run": (["rm", "RUN", "ffff", "--yes"], "There is no run 'ffff' in"),
    "export: experiment": (["export", "mine", "-o", "out.csv"], "There is no experiment mine in"),
    "export: no place": (["export"], "Missing option '--output'"),
    "export: ending": (
        ["export", "-o", "out.xlsx"],
        "has an ending that is not known; use .csv, .parquet or",
    ),
    "export: empty": (["export", "-o", "out.csv", "--store", "nowhere"], "There is no result in nowhere"),
    "import: nowhere": (["import", "nowhere"], "nowhere is no folder"),
    "import: empty": (["import", "FOLDER"], "summary.json"),
    "import: name": (["import", "FOLDER", "--name", "a/b"], "'a/b' is no name for an import"),
    "prepare: nothing": (["prepare"], "Nothing to prepare; give a recipe, or --tasks and --model"),
    "prepare: both": (
        ["prepare", "RECIPE", "--tasks", "gsm8k"],
        "A recipe names its own model, tasks and data",
    ),
    "prepare: nowhere": (["prepare", "nowhere"], "no such recipe"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_that_do_not_fit(
    run: Run, done: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, words = ARGUMENTS[case]
    (tmp_path / "empty").mkdir()
    (tmp_path / "a_file").write_text("")
    places = {
        "RECIPE": str(done),
        "RUN": folder_of(store, done, "k1_first").id,
        "FOLDER": str(tmp_path / "empty"),
        "FILE": str(tmp_path / "a_file"),
    }
    before = files_below(tmp_path)
    line = error_line(run(*[places.get(argument, argument) for argument in arguments]))
    assert words in line
    assert files_below(tmp_path) == before


def no_lock(folder: Path) -> None:
    (folder / "recipe.lock").unlink()


def broken_lock(folder: Path) -> None:
    (folder / "recipe.lock").write_text("{")


def foreign_lock(folder: Path) -> None:
    (folder / "recipe.lock").write_text('{"model": "embedded", "colour": "blue"}')


def missing_task(folder: Path) -> None:
    file = folder / "recipe.toml"
    file.write_text(
        file.read_text()
        .replace('name = "unmask_arith"', 'name = "gsm8k"')
        .replace('"unmask_arith"', '"gsm8k"')
    )


SPOILED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "not prepared": (
        HUB,
        no_lock,
        "is missing or does not cover the recipe; fetch and lock its checkpoint and data",
    ),
    "another model": (TEXT, lambda folder: write_hub(folder), "does not cover the recipe"),
    "lock cut short": (TEXT, broken_lock, "cannot be read as a lock"),
    "lock of another kind": (TEXT, foreign_lock, "unknown field `colour`"),
    "recipe cut short": (
        TEXT,
        lambda folder: (folder / "recipe.toml").write_text("name = "),
        "is no valid TOML",
    ),
    "recipe is binary": (
        TEXT,
        lambda folder: (folder / "recipe.toml").write_bytes(b"\xff"),
        "is no UTF-8 text",
    ),
    "recipe out of range": (
        TEXT.replace("limit = 4", "limit = 0"),
        lambda _: None,
        "recipe.toml: Expected `int` >= 1 - at `$.tasks[0].limit`",
    ),
}


def test_what_is_not_locked_can_be_planned_and_not_run(run: Run, tmp_path: Path, store: Store) -> None:
    folder = write_recipe(tmp_path / "spoiled", TEXT)
    missing_task(folder)
    assert "Not locked yet" in run("plan", folder).stdout
    assert f"with `unmask prepare {folder}`" in error_line(run("run", folder))
    assert not store.root.exists()


def write_hub(folder: Path) -> None:
    (folder / "recipe.toml").write_text(HUB)


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize("case", SPOILED)
def test_recipes_and_locks_that_do_not_fit(
    run: Run, tmp_path: Path, store: Store, case: str, verb: str
) -> None:
    text, spoil, words = SPOILED[case]
    folder = write_recipe(tmp_path / "spoiled", TEXT)
    (folder / "recipe.toml").write_text(text)
    spoil(folder)
    assert words in error_line(run(verb, folder))
    assert not store.root.exists()


@pytest.mark.parametrize(
    "locked, asked, covered",
    [
        (None, None, True),
        ("v1", "v1", True),
        ("v1", "c" * 40, True),
        ("v1", "v2", False),
        ("v1", None, False),
        (None, "v2", False),
    ],
)
def test_a_lock_of_another_revision_does_not_serve_a_recipe(
    tmp_path: Path, locked: str | None, asked: str | None, covered: bool
) -> None:
    """Else the recipe would name one checkpoint and its results would come from another."""
    folder = write_recipe(tmp_path / "revisions")
    lock = lock_for(read_recipe(folder), model="no-org/no-model", revision="c" * 40, asked_revision=locked)
    (folder / "recipe.lock").write_text(as_text(lock))
    named = f'"no-org/no-model"\nrevision = "{asked}"' if asked else '"no-org/no-model"'
    (folder / "recipe.toml").write_text(TEXT.replace('"embedded"', named))
    assert (open_recipe(folder).present_lock() == lock) == covered


def test_an_interrupted_question_deletes_nothing(run: Run, done: Path, store: Store) -> None:
    folder = folder_of(store, done, "k1_first")
    result = run("rm", folder.id, stdin="")
    assert result.exit_code == 1
    assert result.stderr.endswith("Aborted!\n")
    assert folder.result() is not None


def test_a_result_that_was_cut_short_is_told_and_can_be_mended(
    run: Run, done: Path, store: Store, workers: None
) -> None:
    folder = folder_of(store, done, "k1_first")
    file = folder.folder / "result.json"
    file.write_bytes(file.read_bytes()[:100])
    table = run("status")
    assert table.exit_code == 0
    assert "--retry-failed" in " ".join(table.stdout.split())
    assert "cut short" in error_line(run("export", "--output", "all.csv"))
    mended = run("run", done, "--retry-failed")
    assert mended.exit_code == 0, mended.output
    assert folder.result() is not None
    assert (folder.folder / "previous" / "0001" / "result.json").stat().st_size == 100


def test_an_index_that_was_deleted_or_damaged_is_made_anew(run: Run, done: Path, store: Store) -> None:
    expected = run("status", "--json").stdout
    index = store.root / "index.json"
    for spoil in (index.unlink, lambda: index.write_text("{")):
        spoil()
        assert run("status", "--json").stdout == expected


def test_a_store_that_cannot_be_written_to(run: Run, recipe: Path, tmp_path: Path) -> None:
    """A file where a folder must be: nobody can write there, root neither."""
    root = tmp_path / "store"
    root.mkdir()
    (root / "experiments").write_text("")
    line = error_line(run("run", recipe, "--store", root))
    assert str(root) in line
