"""Recipes that are edited, moved, copied or share a name; jobs that are remembered."""

import errno
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Event, Process
from multiprocessing.synchronize import Event as EventType
from pathlib import Path

import pytest
from store_cases import done, identity

from unmask.errors import UnmaskError
from unmask.store import Store, run_id
from unmask.store.experiments import (
    AnnouncedJobs,
    Experiment,
    Member,
    experiment_names,
    read_experiment,
    read_jobs,
    write_experiment,
)
from unmask.store.store import folder_name


def member(k: int, limit: int | None = None, task: str = "gsm8k") -> Member:
    wanted = identity(task, k, limit)
    return Member(
        configuration=f"k{k}",
        task=task,
        limit=limit,
        id=run_id(wanted),
        folder=folder_name(wanted),
        kind="accuracy",
    )


def write(store: Store, recipe: Path, text: str, *members: Member) -> Experiment:
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(text)
    return write_experiment(store, "mine", recipe, text, members, "k1")


def names(members: tuple[Member, ...]) -> list[str]:
    return [each.configuration for each in members]


def test_what_is_written_is_read(store: Store, tmp_path: Path) -> None:
    assert read_experiment(store, "mine") is None
    written = write(store, tmp_path / "recipe.toml", "first ü", member(1), member(2))
    assert read_experiment(store, "mine") == written
    assert (written.control, written.recipe_text) == ("k1", "first ü")
    assert experiment_names(store) == ["mine"]


def test_a_repeated_call_changes_nothing(store: Store, tmp_path: Path) -> None:
    first = write(store, tmp_path / "recipe.toml", "first", member(1), member(2))
    before = (store.root / "experiments/mine/experiment.json").stat().st_mtime_ns
    assert write(store, tmp_path / "recipe.toml", "first", member(1), member(2)) == first
    assert (store.root / "experiments/mine/experiment.json").stat().st_mtime_ns == before


def test_a_recipe_edited_after_half_of_its_runs_keeps_what_is_done(store: Store, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    write(store, recipe, "first", member(1), member(2))
    run = done(store, k=2)
    edited = write(store, recipe, "second", member(1), member(3))
    assert names(edited.members) == ["k1", "k3"]
    assert names(edited.superseded) == ["k2"]
    assert edited.superseded[0].recipe_sha256 != edited.recipe_sha256
    assert store.open(edited.superseded[0].id).result() == run.result()
    back = write(store, recipe, "third", member(1), member(2))
    assert (names(back.members), names(back.superseded)) == (["k1", "k2"], ["k3"])


def test_a_call_for_some_of_the_runs_does_not_forget_the_others(store: Store, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    write(store, recipe, "first", member(1), member(2))
    again = write(store, recipe, "first", member(2), member(2, limit=5))
    assert [(each.configuration, each.limit) for each in again.members] == [
        ("k1", None),
        ("k2", None),
        ("k2", 5),
    ]
    assert again.superseded == ()


def test_a_renewed_lock_supersedes_the_old_ids(store: Store, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    old = member(1)
    renewed = Member(
        configuration=old.configuration, task=old.task, limit=None, id="0" * 16, folder="x", kind=old.kind
    )
    write(store, recipe, "first", old)
    after = write(store, recipe, "first", renewed)
    assert [each.id for each in after.members] == ["0" * 16]
    assert [each.id for each in after.superseded] == [old.id]


def test_two_recipes_with_one_name_are_refused_while_both_exist(store: Store, tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "recipe.toml", tmp_path / "b" / "recipe.toml"
    kept = write(store, first, "first", member(1))
    with pytest.raises(UnmaskError, match=r"belongs to .*a/recipe\.toml, whose content .* another name"):
        write(store, second, "second", member(2))
    assert read_experiment(store, "mine") == kept
    first.unlink()
    moved = write(store, second, "second", member(2))
    assert moved.recipe == str(second.resolve())
    assert names(moved.superseded) == ["k1"]


def test_an_exact_copy_of_a_recipe_is_the_same_recipe(store: Store, tmp_path: Path) -> None:
    write(store, tmp_path / "a" / "recipe.toml", "first", member(1))
    copy = write(store, tmp_path / "b" / "recipe.toml", "first", member(1))
    assert names(copy.members) == ["k1"]


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_folder_is_refused(store: Store, tmp_path: Path, name: str) -> None:
    with pytest.raises(UnmaskError, match="no name for an experiment"):
        write_experiment(store, name, tmp_path / "recipe.toml", "", [], None)


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 1, "name"'])
def test_a_damaged_experiment_says_that_no_result_is_lost(store: Store, tmp_path: Path, content: str) -> None:
    write(store, tmp_path / "recipe.toml", "first", member(1))
    (store.root / "experiments/mine/experiment.json").write_text(content)
    with pytest.raises(UnmaskError, match=r"delete it and run the recipe again: no result is lost"):
        read_experiment(store, "mine")


def submit(store: Store, **jobs: str) -> None:
    """Write down that these runs were submitted as these jobs."""
    AnnouncedJobs.announce(store, "mine", jobs).confirm(jobs.values())


def test_jobs_are_appended_and_a_torn_line_costs_only_itself(store: Store) -> None:
    assert list(read_jobs(store, "mine")) == []
    submit(store, a="1_0", b="1_1")
    (torn,) = (store.root / "experiments/mine/jobs").iterdir()
    with torn.open("ab") as stream:
        stream.write(b'{"job": "2_0", "ru')
    submit(store, c="3_0")
    assert [job["job"] for job in read_jobs(store, "mine")] == ["1_0", "1_1", "3_0"]


def test_jobs_of_an_older_store_come_first(store: Store) -> None:
    submit(store, a="2")
    (store.root / "experiments/mine/jobs.jsonl").write_text('{"job": "1", "run": "a"}\n')
    assert [job["job"] for job in read_jobs(store, "mine")] == ["1", "2"]


def test_a_writer_that_fails_takes_no_line_of_another_with_it(store: Store) -> None:
    begun, others_wrote = Event(), Event()
    submit(store, a="1")
    failing = Process(target=_fail_to_append, args=(store.root, begun, others_wrote))
    failing.start()
    assert begun.wait(30)
    writers = [Process(target=_append_some, args=(store.root, writer)) for writer in range(2, 5)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(30)
    others_wrote.set()
    failing.join(30)
    assert [process.exitcode for process in (failing, *writers)] == [0, 0, 0, 0]
    jobs = [job["job"] for job in read_jobs(store, "mine")]
    assert jobs[0] == "1"
    assert sorted(jobs[1:]) == sorted(f"{writer}_{call}" for writer in range(2, 5) for call in range(10))
    for writer in range(2, 5):
        assert [job for job in jobs if job.startswith(f"{writer}_")] == [f"{writer}_{n}" for n in range(10)]


def _fail_to_append(root: Path, begun: EventType, others_wrote: EventType) -> None:
    """Append as on a disk that is found full only when others have written."""

    def full(_handle: int) -> None:
        begun.set()
        others_wrote.wait(30)
        raise OSError(errno.ENOSPC, "No space left on device")

    os.fsync = full
    with pytest.raises(UnmaskError, match="disk or quota is full"):
        submit(Store(root), b="5")


def _append_some(root: Path, writer: int) -> None:
    for call in range(10):
        submit(Store(root), c=f"{writer}_{call}")


def test_an_edit_keeps_the_runs_that_the_text_still_describes(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    write(store, file, "first", member(1), member(2), member(3))
    described = {(each.place, each.id) for each in (member(1), member(2))}
    now = write_experiment(store, "mine", file, "other comment", [member(2)], "k1", described)
    assert names(now.members) == ["k1", "k2"]
    assert [one.configuration for one in now.superseded] == ["k3"]


def test_two_writers_at_once_lose_no_member(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("text")
    with ProcessPoolExecutor(4) as pool:
        for _ in pool.map(_write_one, [store.root] * 12, [file] * 12, range(1, 13)):
            pass
    experiment = read_experiment(store, "mine")
    assert experiment is not None
    assert sorted(names(experiment.members)) == sorted(f"k{k}" for k in range(1, 13))


def _write_one(root: Path, recipe: Path, k: int) -> None:
    write_experiment(Store(root), "mine", recipe, "text", [member(k)], "k1")
