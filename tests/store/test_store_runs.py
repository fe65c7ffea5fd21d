"""Runs are found by identity, name or id; attempts never share a number; a result is published once."""

import errno
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_cases import answer, done, identity, result, timing_identity, wait_until

from unmask.errors import UnmaskError
from unmask.store import Attempt, Store, answer_file, canonical, run_id
from unmask.store import attempt as attempt_module
from unmask.store.attempt import GeneratedAnswer, Sample, ScoredGroup
from unmask.store.computation import Computation
from unmask.store.run_folder import RunFolder, WorkerSettings
from unmask.store.twins import compared

# Names and ids.


def test_an_id_is_the_hash_of_the_identity_alone() -> None:
    one = identity()
    assert run_id(one) == run_id(json.loads(json.dumps(one, indent=3)))
    assert run_id(one) != run_id(identity(k=3))
    assert len(run_id(one)) == 16
    with pytest.raises(UnmaskError, match="plain, finite JSON"):
        run_id({"value": float("nan")})


def test_folders_are_named_by_task_policy_and_id(store: Store) -> None:
    assert store.run(identity()).name == f"gsm8k-layer_reuse-{run_id(identity())}"
    assert store.run(timing_identity()).name == f"gsm8k-timing-{run_id(timing_identity())}"
    assert store.run({"task": {"name": "mbpp"}}).name.startswith("mbpp-full-")


@given(st.text())
def test_no_task_name_leaves_the_store(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    store = Store.at(tmp_path_factory.mktemp("store"))
    run = store.run({"task": {"name": name}})
    assert run.folder.parent == store.runs_folder
    assert [found.name for found in store.runs()] == [run.name]


def test_the_store_is_the_given_the_named_or_the_usual_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNMASK_STORE", raising=False)
    assert Store.at().root == Path("results")
    monkeypatch.setenv("UNMASK_STORE", str(tmp_path / "named"))
    assert Store.at().root == tmp_path / "named"
    assert Store.at(tmp_path).root == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(UnmaskError, match="a store is a folder"):
        Store.at(tmp_path / "file")
    assert list(Store.at().runs()) == []
    assert not (tmp_path / "named").exists()


def test_runs_are_opened_by_id_name_folder_and_unique_beginning(store: Store) -> None:
    run, other = store.run(identity("gsm8k")), store.run(identity("mmlu"))
    for name in (run.id, run.name, str(run.folder), run.folder, run.id[:6], "gsm8k", "gsm8k-layer"):
        assert store.open(name).folder.resolve() == run.folder.resolve()
    store.run(identity("gsm8k", k=3))
    with pytest.raises(UnmaskError, match=r"could be gsm8k-.*, gsm8k-.*; give more"):
        store.open("gsm8k")
    for name in ("zzzz", "", "nowhere/zzzz"):
        with pytest.raises(UnmaskError, match="There is no run"):
            store.open(name)
    assert store.open(other.id).identity == identity("mmlu")


def test_an_identity_is_frozen_and_the_worker_is_not(store: Store) -> None:
    run = store.run(identity(), WorkerSettings(batch_size=1))
    before = (run.folder / "run.json").stat().st_mtime_ns
    again = store.run(identity(), WorkerSettings(batch_size=8))
    assert again.identity == identity()
    assert run.worker == WorkerSettings(batch_size=8)
    assert (run.folder / "run.json").stat().st_mtime_ns == before
    store.run(identity())
    assert run.worker == WorkerSettings(batch_size=8)


def test_a_run_json_with_another_identity_is_refused(store: Store) -> None:
    run = store.run(identity())
    other = store.run(identity(k=3))
    (run.folder / "run.json").write_bytes((other.folder / "run.json").read_bytes())
    with pytest.raises(UnmaskError, match=f"another identity.*unmask rm {run.id}"):
        store.run(identity())
    (run.folder / "run.json").write_text('{"schema": 1, "identity"')
    with pytest.raises(UnmaskError, match=r"run.json is damaged or cut short .*it is written anew"):
        store.run(identity())
    (run.folder / "run.json").write_text("{}")
    with pytest.raises(UnmaskError, match="holds no identity"):
        _ = store.open(run.id).identity
    (run.folder / "run.json").unlink()
    assert store.run(identity()).identity == identity()


# Attempts.


def test_attempts_have_numbers_and_never_a_clock(store: Store) -> None:
    run = store.run(identity())
    first, second = run.new_attempt(), run.new_attempt()
    os.utime(first.folder, (4e9, 4e9))
    assert [attempt.number for attempt in run.attempts()] == ["0001", "0002"]
    (run.folder / "attempts" / "9999").mkdir()
    assert [run.new_attempt().number for _ in range(2)] == ["10000", "10001"]
    assert [attempt.number for attempt in run.attempts()][-3:] == ["9999", "10000", "10001"]
    assert second.record().run == run.id


def test_attempts_that_begin_at_once_get_different_numbers(store: Store) -> None:
    run = store.run(identity())
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: run.new_attempt().number, range(24)))
    assert sorted(numbers) == [f"{number:04}" for number in range(1, 25)]
    assert sorted(entry.name for entry in (run.folder / "attempts").iterdir()) == sorted(numbers)


def test_a_number_that_was_taken_after_looking_is_left_to_its_owner(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.run(identity())
    first = run.new_attempt()
    first.answer(answer("a"))
    first.close()
    monkeypatch.setattr(attempt_module, "attempts_in", lambda _: [])
    assert run.new_attempt().number == "0002"
    assert [line.key for line in first.answers()] == ["a"]


def test_an_attempt_tells_where_it_runs_and_keeps_secrets(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["unmask", "run-one", "--token", "abc", "hf_abcdefghijklmnop"])
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("HF_TOKEN", "a very secret word")
    attempt = store.run(identity()).new_attempt()
    record = attempt.record()
    assert record.pid == os.getpid()
    assert record.slurm["job"] == "77"
    assert record.slurm["array_task"] == "3"
    assert attempt.fail("the hub refused a very secret word")
    text = "".join(file.read_text() for file in attempt.folder.iterdir())
    for secret in ("abc", "hf_", "secret"):
        assert secret not in text
    assert attempt.failure().reason == "the hub refused (hidden)"


def test_answers_are_merged_and_the_first_of_a_key_counts(store: Store) -> None:
    run = store.run(identity())
    first, second = run.new_attempt(), run.new_attempt()
    second.answer(answer("b", "second"))
    second.answer(answer("c", "second"))
    second.close()
    first.answer(answer("a", "first"))
    first.answer(answer("b", "first"))
    first.close()
    with (first.folder / "answers.jsonl").open("ab") as stream:
        stream.write(b'{"key": "c", "te')
    assert {key: line.text for key, line in run.answers().items()} == {
        "a": "first",
        "b": "first",
        "c": "second",
    }


def computed(run: RunFolder, kind: Computation | None, *keys: str) -> Attempt:
    """An attempt of a kind of computation with answers to some requests."""
    attempt = run.new_attempt()
    if kind is not None:
        attempt.compute_as(kind)
    for key in keys:
        attempt.answer(answer(key, attempt.number))
    attempt.close()
    return attempt


HERE = Computation(unmask="0.2", commit="c" * 40, torch="2.13.0", device="cpu", dtype="float32")


@pytest.mark.parametrize(
    "change",
    [
        {"unmask": "0.3"},
        {"commit": "d" * 40},
        {"commit": None},
        {"diff_sha256": "e" * 64},
        {"torch": "2.12.0"},
        {"device": "cuda"},
        {"dtype": "bfloat16"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_answers_of_another_kind_of_computation_are_told_apart(store: Store, change: dict[str, Any]) -> None:
    run = store.run(identity())
    other = msgspec.structs.replace(HERE, **change)
    computed(run, other, "a", "b")
    computed(run, HERE, "b", "c")
    computed(run, None)
    assert {key: line.text for key, line in run.answers(HERE).items()} == {"b": "0002", "c": "0002"}
    assert {key: line.text for key, line in run.answers(other).items()} == {"a": "0001", "b": "0001"}
    ((said, keys),) = run.answers_of_other_kinds(HERE).items()
    assert keys == {"a", "b"}
    assert said.startswith(next(iter(change)))
    assert "c" * 11 not in said, "of a hash its beginning is enough"
    assert set(run.answers()) == {"a", "b", "c"}


def test_where_the_code_is_known_it_decides_and_not_the_commit(store: Store) -> None:
    run = store.run(identity())
    here = msgspec.structs.replace(HERE, code_sha256="a" * 64)
    computed(run, msgspec.structs.replace(here, commit="unknown"), "a")
    computed(run, msgspec.structs.replace(here, code_sha256="b" * 64), "b")
    computed(run, HERE, "c")
    assert set(run.answers(here)) == {"a", "c"}
    assert list(run.answers_of_other_kinds(here).values()) == [{"b"}]


def test_answers_of_older_versions_are_of_no_known_kind(store: Store) -> None:
    run = store.run(identity())
    computed(run, None, "a")
    assert run.answers(HERE) == {}
    assert run.answers_of_other_kinds(HERE) == {"what they were computed with is not on record": {"a"}}
    assert run.dtype() is None


def test_a_damaged_computation_is_like_no_other(store: Store) -> None:
    run = store.run(identity())
    attempt = computed(run, HERE, "a")
    (attempt.folder / "computation.json").write_text("{")
    assert run.answers(HERE) == {}
    assert run.dtype() is None


def test_the_first_attempt_that_answers_fixes_the_number_format(store: Store) -> None:
    run = store.run(identity())
    computed(run, msgspec.structs.replace(HERE, dtype="float16"))
    assert run.dtype() is None, (
        "an attempt that answered nothing, because memory ran out perhaps, fixes nothing"
    )
    computed(run, msgspec.structs.replace(HERE, dtype="bfloat16"), "a")
    computed(run, HERE, "b")
    assert run.dtype() == "bfloat16"
    run.set_aside()
    assert run.dtype() is None


def test_a_damaged_attempt_is_named_with_how_to_go_on(store: Store) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    line = canonical(answer("a"))
    (attempt.folder / "answers.jsonl").write_bytes(line + b"\nxx\n" + line + b"\n")
    with pytest.raises(UnmaskError, match=r"Line 2 of .*delete the folder .*0001 and run again"):
        run.answers()


def test_an_answer_is_there_at_once_and_on_the_disk_within_seconds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(answer_file.os, "fsync", lambda handle: synced.append(handle) or sync(handle))
    for number in range(20):
        attempt.answer(answer(str(number)))
        assert len(run.answers()) == number + 1
    assert synced == []
    with attempt.beating(often=0.001):
        wait_until(lambda: synced)
        attempt.answer(answer("last"))
        wait_until(lambda: len(synced) == 2)
    attempt.close()
    assert len(synced) == 2


def test_what_the_disk_refuses_to_keep_is_said_by_the_next_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = store.run(identity()).new_attempt()
    attempt.answer(answer("a"))

    def refuse(_handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(answer_file.os, "fsync", refuse)
    asked = threading.Event()
    monkeypatch.setattr(attempt, "is_cancelled", lambda: asked.set() or False)
    with attempt.beating(often=0.001):
        asked.wait(30)
    with pytest.raises(UnmaskError, match="Input/output error"):
        attempt.answer(answer("b"))
    monkeypatch.undo()
    attempt.close()


def test_a_line_that_an_interrupt_cut_short_is_written_when_the_attempt_closes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    write = os.write

    def interrupted(handle: int, content: bytes) -> int:
        write(handle, content[:9])
        raise KeyboardInterrupt

    attempt.answer(answer("a"))
    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attempt.answer(answer("b"))
    monkeypatch.undo()
    assert list(run.answers()) == ["a"]
    attempt.close()
    assert list(run.answers()) == ["a", "b"]


def test_progress_is_written_seldom_and_at_the_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = store.run(identity()).new_attempt()
    now = [100.0]
    monkeypatch.setattr(attempt_module.time, "monotonic", lambda: now[0])
    assert attempt.reached() is None
    attempt.progress(1, 9)
    attempt.progress(2, 9)
    assert attempt.reached() == (1, 9)
    now[0] += 1
    attempt.progress(3, 9)
    attempt.progress(9, 9)
    assert attempt.reached() == (9, 9)


def test_a_heartbeat_keeps_an_attempt_young(store: Store) -> None:
    attempt = store.run(identity()).new_attempt()
    attempt.progress(3, 9)
    file = attempt.folder / "progress"
    with attempt.beating(0.001):
        os.utime(file, (1, 1))
        for _ in range(5000):
            if file.stat().st_mtime > 1:
                break
            attempt_module.time.sleep(0.001)
    assert attempt.last_beat() > 1
    assert attempt.reached() == (3, 9)


def test_samples_are_written_whole_or_not_at_all(store: Store) -> None:
    attempt = store.run(identity()).new_attempt()
    with pytest.raises(ZeroDivisionError):
        attempt.write_samples(Sample(id=str(1 // (3 - number))) for number in range(9))
    assert [file.name for file in attempt.folder.iterdir()] == ["attempt.json"]
    attempt.write_samples(Sample(id=str(number)) for number in range(3))
    assert [sample.id for sample in attempt.samples()] == ["0", "1", "2"]


# Results.


def test_the_first_result_stays_and_others_are_told_so(store: Store) -> None:
    run = done(store, value=0.5)
    assert run.publish(result(run, 0.9)) is False
    assert run.result().value == 0.5


def test_a_result_of_another_run_or_without_a_finite_value_is_not_published(store: Store) -> None:
    run, other = store.run(identity()), store.run(identity(k=3))
    with pytest.raises(UnmaskError, match="was to be published as that of"):
        run.publish(result(other))
    with pytest.raises(UnmaskError, match="not finite, so it was not published"):
        run.publish(result(run, float("nan")))
    assert run.result() is None


def test_a_result_cut_short_says_how_to_mend_it(store: Store) -> None:
    run = done(store)
    file = run.folder / "result.json"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(
        UnmaskError, match=r"result.json is damaged or cut short .*`unmask run RECIPE --retry-failed`"
    ):
        run.result()


def test_a_retracted_result_stays_with_its_reason(store: Store) -> None:
    run = store.run(identity())
    with pytest.raises(UnmaskError, match="no result"):
        run.retract("wrong data")
    run.publish(result(run))
    with pytest.raises(UnmaskError, match="needs a reason"):
        run.retract("  ")
    run.retract("wrong data")
    with pytest.raises(UnmaskError, match="was retracted before"):
        run.retract("again")
    assert run.retraction().reason == "wrong data"
    assert run.result().value == 0.75
    (run.folder / "retracted.json").write_text("{")
    assert "damaged" in run.retraction().reason


def test_a_run_set_aside_begins_anew_and_keeps_the_old_result(store: Store) -> None:
    run = store.run(identity())
    assert run.set_aside() is None
    attempt = run.new_attempt()
    attempt.answer(answer("a"))
    attempt.close()
    run.publish(result(run, 0.5))
    place = run.set_aside()
    assert place is not None
    assert (run.result(), run.answers(), run.attempts()) == (None, {}, [])
    assert json.loads((place / "result.json").read_text())["value"] == 0.5
    assert run.publish(result(run, 0.75))
    assert run.set_aside().name == "0002"


def test_a_run_that_was_set_aside_half_way_is_not_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result goes first: one that stays without its attempts would be a result without samples."""
    run = store.run(identity())
    run.new_attempt()
    run.publish(result(run, 0.5))
    moved, rename = [], Path.rename

    def once(self: Path, target: Path) -> Path:
        if moved:
            raise OSError(5, "the disk is gone")
        moved.append(self.name)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", once)
    with pytest.raises(UnmaskError, match="cannot be changed"):
        run.set_aside()
    assert (run.result(), len(run.attempts())) == (None, 1)


def test_a_removed_run_is_gone(store: Store) -> None:
    run, other = done(store), done(store, k=3)
    run.remove()
    assert [found.name for found in store.runs()] == [other.name]
    assert [entry.name for entry in store.runs_folder.iterdir()] == [other.name]
    with pytest.raises(UnmaskError, match="cannot be removed"):
        run.remove()


def test_reading_an_attempt_writes_nothing(store: Store) -> None:
    folder = store.run(identity()).new_attempt().folder
    before = sorted(entry.name for entry in folder.iterdir())
    attempt = Attempt(folder)
    attempt.close()
    assert (attempt.failure(), attempt.reached(), list(attempt.answers())) == (None, None, [])
    assert sorted(entry.name for entry in folder.iterdir()) == before


def test_answers_that_cannot_be_read_are_not_taken_for_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.run({"task": "light"})
    run.new_attempt()

    def refused(_folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(UnmaskError, match=r"attempts cannot be read \(Input/output error\)"):
        run.answers()
    assert run.attempts() == []


def test_answers_whose_kind_cannot_be_read_are_not_taken_for_missing(store: Store) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    attempt.answer(answer("a"))
    attempt.close()
    (attempt.folder / "computation.json").mkdir()
    for read in (
        lambda: run.answers(Computation()),
        lambda: run.answers_of_other_kinds(Computation()),
        run.dtype,
    ):
        with pytest.raises(UnmaskError, match="cannot be read"):
            read()
    assert attempt.computation() == Computation()


@pytest.mark.parametrize(
    ("dtype", "apart", "wrong", "other", "excused"),
    [
        ("float32", 9e-6, 0, 0, False),  # another batch adds up in another order
        ("float32", 0.01, 0, 4, False),
        ("float32", 0.0, 1, 1, False),
        ("bfloat16", 0.01, 0, 0, False),
        ("bfloat16", 0.0, 2, 2, True),
        ("bfloat16", 0.0, 4, 4, True),
        ("bfloat16", 0.0, 5, 5, False),
    ],
)
def test_rounding_in_other_batches_is_no_difference(
    dtype: str, apart: float, wrong: int, other: int, excused: bool, store: Store
) -> None:
    run, twin = store.run(identity(), WorkerSettings()), store.run(identity(k=3), WorkerSettings())
    effect: Any = (1, [], [], 0, 0)
    for each, shift in ((run, 0.0), (twin, apart)):
        attempt = each.new_attempt()
        attempt.compute_as(Computation(device="cuda", dtype=dtype))
        for number in range(4):
            scores = [(-0.4567895 - shift, True)]
            attempt.answer(ScoredGroup(key=f"s{number}", scores=scores, inactive=None, effect=effect))
        for number in range(5):
            text = each.name if number < wrong else "same"
            attempt.answer(
                GeneratedAnswer(key=str(number), text=text, tokens=1, finish="stop", effect=effect)
            )
        attempt.close()
    shown = compared(run, twin)
    assert shown is not None
    assert (shown.equal, shown.other, bool(shown.change)) == (9 - other, other, excused)
