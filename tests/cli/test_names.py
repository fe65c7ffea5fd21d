"""Runs go by the names that people give them, and results are shown again without running anything."""

import json
from pathlib import Path

import pytest
from cli_cases import Run, error_line
from planted import TEXT, folder_of, plant, plant_stopped, write_recipe

from unmask import lab
from unmask.errors import UnmaskError
from unmask.lab.names import find_run
from unmask.lab.records import write_down
from unmask.store import Store


def written(store: Store, recipe: Path) -> None:
    """Put the experiment on record without running anything."""
    write_down(lab.plan(recipe, store=store))


@pytest.fixture
def twice(recipe: Path, store: Store, tmp_path: Path) -> Path:
    """The recipe, and another one whose configurations have the same names and other runs."""
    other = write_recipe(
        tmp_path / "other", TEXT.replace('"planted"', '"other"').replace("limit = 4", "limit = 5")
    )
    written(store, recipe)
    written(store, other)
    return other


@pytest.mark.parametrize(
    "name", ["k2_first", "planted/k2_first", "unmask_arith/k2_first", "unmask_arith_limit_4/k2_first"]
)
def test_a_run_goes_by_its_configuration(run: Run, recipe: Path, store: Store, name: str) -> None:
    written(store, recipe)
    plant_stopped(folder_of(store, recipe, "k2_first"), log="what it printed\n")
    assert run("logs", name).stdout == "what it printed\n"


def test_of_a_name_that_several_runs_have_more_must_be_written(
    run: Run, recipe: Path, store: Store, twice: Path
) -> None:
    line = error_line(run("logs", "k2_first"))
    assert "other/unmask_arith_limit_5/k2_first, planted/unmask_arith_limit_4/k2_first" in line
    assert "write more of the name" in line
    plant_stopped(folder_of(store, twice, "k2_first"), log="the other's\n")
    assert run("logs", "other/k2_first").stdout == "the other's\n"


def test_a_shared_run_is_one_run(run: Run, recipe: Path, store: Store, tmp_path: Path) -> None:
    same = write_recipe(tmp_path / "same", TEXT.replace('"planted"', '"same"'))
    written(store, recipe)
    written(store, same)
    plant_stopped(folder_of(store, recipe, "k2_first"), log="shared\n")
    assert run("logs", "k2_first").stdout == "shared\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("k9", "There is no run 'k9'"),
        ("nowhere/k2_first", "There is no run 'nowhere/k2_first'"),
        (
            "planted",
            "planted is an experiment; name one of its runs, such as planted/unmask_arith_limit_4/k1_first.",
        ),
    ],
)
def test_names_that_mean_no_run(run: Run, recipe: Path, store: Store, name: str, words: str) -> None:
    written(store, recipe)
    assert words in error_line(run("logs", name))


def test_an_id_comes_before_names(recipe: Path, store: Store) -> None:
    written(store, recipe)
    first = folder_of(store, recipe, "k2_first")
    assert find_run(store, first.id).name == first.name
    assert find_run(store, first.name).name == first.name
    assert find_run(store, first.id[:9]).name == first.name
    assert find_run(store, str(first.folder)).name == first.name


def test_retract_and_rm_take_names(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe)
    written(store, recipe)
    assert run("retract", "k1_last", "--reason", "noise").exit_code == 0
    assert folder_of(store, recipe, "k1_last").retraction() is not None
    assert run("rm", "planted/k2_last", "--yes").stdout == "1 run deleted.\n"
    assert not folder_of(store, recipe, "k2_last").folder.exists()
    assert run("cancel", "k2_first").stdout == "0 jobs cancelled, 0 workers on this machine stopped.\n"


def test_compare_takes_names(run: Run, recipe: Path, store: Store, twice: Path) -> None:
    """Of two names that several experiments have, the pair is meant that has results."""
    plant(store, recipe)
    line = error_line(run("compare", "k1_first", "k2_first"))
    assert f"{folder_of(store, recipe, 'k1_first').name}/attempts/0001/samples.jsonl is gone" in line
    assert line.endswith("run it again with `unmask run RECIPE --force k1_first`.")
    plant(store, twice, "k1_first", "k2_first")
    assert "planted/unmask_arith_limit_4/k1_first" in error_line(run("compare", "k1_first", "k2_first"))
    with pytest.raises(UnmaskError, match=r"samples\.jsonl is gone"):
        lab.compare("other/k1_first", "k2_first", store=store)
    with pytest.raises(UnmaskError, match="k1_first could be"):
        lab.compare("k1_first", folder_of(store, twice, "k2_first").id, store=store)


def test_an_import_is_named_by_its_flag(run: Run, store: Store, tmp_path: Path) -> None:
    (store.root / "foreign" / "seed").mkdir(parents=True)
    (store.root / "foreign" / "seed" / "records.json").write_text("[]")
    for verb in ("report", "check", "status"):
        assert "seed is an import, no experiment; write --foreign seed." in error_line(run(verb, "seed"))


# What runs came to.


def test_a_status_shows_values(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe, "k1_first", "k1_last", "timing")
    written(store, recipe)
    lab.retract("k1_last", "noise", store=store)
    shown = run("status", "planted").stdout
    (line,) = [line for line in shown.splitlines() if " k1_first " in line]
    assert "75.0 %" in line
    assert "75.0 %" not in next(line for line in shown.splitlines() if " k1_last " in line)
    (document,) = json.loads(run("status", "planted", "--json").stdout)
    values = {each["configuration"]: each["value"] for each in document["runs"]}
    assert values == {"k1_first": 0.75, **dict.fromkeys(("k1_last", "k2_first", "k2_last", "t0.7", "timing"))}
    assert document["runs"][0]["metric"] == "exact_match,strict-match"


def test_results_print_the_table_of_a_run_again(run: Run, done: Path, store: Store) -> None:
    table = run("run", done).stdout
    again = run("results", "planted").stdout
    rows = [line for line in table.splitlines() if "unmask_arith_limit_4" in line]
    assert len(rows) == 5
    assert [line for line in again.splitlines() if "unmask_arith_limit_4" in line] == rows
    assert run("results").stdout == again
    document = json.loads(run("results", "--json").stdout)
    assert document == {"planted": lab.results("planted", store=store)}
    assert [row["State"] for row in document["planted"]] == ["done"] * 5


def test_results_of_nothing(run: Run, store: Store) -> None:
    assert "There is no experiment in" in run("results").stdout
    assert "There is no experiment mine" in error_line(run("results", "mine"))
