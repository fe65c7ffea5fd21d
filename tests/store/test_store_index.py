"""The index is derived: deleting, damaging or forbidding it costs time and nothing else."""

import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from store_cases import done, fields_of_a_result, identity, timing_identity, timing_result

from unmask.errors import UnmaskError
from unmask.store import RunFolder, Store, canonical
from unmask.store import files as files_module
from unmask.store import index as index_module
from unmask.store.attempt import Sample
from unmask.store.index import listing, records


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs whose result was opened."""
    seen: list[str] = []
    real = RunFolder.result

    def watched(self: RunFolder) -> Any:
        seen.append(self.name)
        return real(self)

    monkeypatch.setattr(RunFolder, "result", watched)
    return seen


def test_records_hold_what_tables_need(store: Store) -> None:
    run = done(store, limit=50)
    (record,) = records(store)
    assert (record.id, record.folder, record.kind, record.task) == (run.id, run.name, "accuracy", "gsm8k")
    assert record.identity == run.identity
    assert (record.limit, record.policy["k"], record.decode["threshold"]) == (50, 2, 0.9)
    assert (record.value, record.stderr, record.rows, record.rows_of_the_set) == (0.75, 0.01, 1319, 1319)
    assert record.metric == "exact_match,flexible-extract"
    assert (record.answers.sha256, record.answers.tokens, record.answers.truncated) == ("a" * 64, 1000, 3)
    assert record.effect["generation"].reuse_fraction == 0.25
    assert (record.commit, record.dirty, record.host, record.gpu) == ("c0ffee", False, "node1", "a GPU")
    assert (record.weights, record.seconds, record.attempt) == ("w" * 64, 12.5, "0001")
    assert record.finished == "2026-11-18T02:00:00+00:00"


def test_timing_runs_keep_their_configurations(store: Store) -> None:
    run = store.run(timing_identity())
    run.publish(timing_result(run))
    (record,) = records(store)
    assert record.kind == "timing"
    assert record.timings["k2"].speedup.median == 1.1
    assert (record.timings["k2"].reuse_fraction, record.timings["k1"].speedup) == (0.5, None)


def test_only_what_is_new_is_opened(store: Store, opened: list[str]) -> None:
    first = done(store)
    assert [record.folder for record in records(store)] == [first.name]
    opened.clear()
    second = done(store, k=3)
    assert len(records(store)) == 2
    assert opened == [second.name]
    opened.clear()
    assert len(records(store)) == 2
    assert opened == []


def test_an_index_gives_the_same_records_as_the_files(store: Store) -> None:
    for k in (1, 2, 3):
        done(store, k=k)
    fresh = records(store)
    assert records(store) == fresh


def damages() -> dict[str, bytes | None]:
    return {
        "deleted": None,
        "empty": b"",
        "cut short": b'{"schema":1,"entries":{"gsm8k',
        "no text": b"\xff\xff",
        "another schema": b'{"schema":99,"entries":{}}',
        "another layout": b'{"schema":1,"entries":{"gsm8k":{"x":1}}}',
        "nested": b'{"schema":1,"entries":' * 5000,
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages().keys())
def test_a_damaged_index_is_made_anew(store: Store, damage: bytes | None, opened: list[str]) -> None:
    done(store)
    before = records(store)
    file = store.root / "index.json"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    assert records(store) == before
    opened.clear()
    assert records(store) == before
    assert opened == []


def test_a_result_that_changed_on_disk_is_read_again(store: Store) -> None:
    run = done(store)
    records(store)
    file = run.folder / "result.json"
    status = file.stat()
    content = file.read_text().replace('"value":0.75', '"value":0.25')
    other = file.with_name("other")
    other.write_text(content)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)
    assert file.stat().st_size == status.st_size
    assert [record.value for record in records(store)] == [0.25]


def test_a_removed_run_leaves_the_index(store: Store) -> None:
    run, _ = done(store), done(store, k=3)
    records(store)
    run.remove()
    assert len(records(store)) == 1
    assert run.id not in (store.root / "index.json").read_text()


def test_retracted_results_enter_no_table_unless_asked_for(store: Store) -> None:
    run, _ = done(store), done(store, k=3)
    assert len(records(store)) == 2
    run.retract("wrong data")
    assert len(records(store)) == 1
    told = {record.id: record.retraction for record in records(store, retracted=True)}
    assert told[run.id] == "wrong data"


def test_a_damaged_result_is_listed_apart(store: Store) -> None:
    run, other = done(store), done(store, k=3)
    (run.folder / "result.json").write_text('{"id"')
    waiting = store.run(identity("mmlu"))
    found = listing(store)
    assert list(found.records) == [other.name]
    assert "--retry-failed" in found.damaged[run.name]
    assert set(found.names) == {run.name, other.name, waiting.name}


def test_a_store_that_cannot_be_written_to_is_read_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(store)

    def refuse(*_: Any, **__: Any) -> None:
        raise UnmaskError("read-only")

    monkeypatch.setattr(index_module, "write_atomically", refuse)
    assert len(records(store)) == len(records(store)) == 1
    assert not (store.root / "index.json").exists()


def test_an_empty_store_has_no_records_and_stays_empty(tmp_path: Path) -> None:
    assert records(Store.at(tmp_path / "nothing")) == []
    assert not (tmp_path / "nothing").exists()


def test_readers_and_writers_at_once_see_every_result(store: Store) -> None:
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(10):
                found = records(store)
                assert len(found) == len({record.id for record in found})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for k in range(1, 30):
        done(store, k=k)
    for thread in threads:
        thread.join()
    assert not failures
    assert len(records(store)) == 29


def peak(action: Any) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_samples(store: Store) -> None:
    run = done(store)
    attempt = run.new_attempt()
    records(store)
    small = peak(lambda: (records(store), listing(store)))
    rows = 5_000
    written = peak(
        lambda: attempt.write_samples(Sample(id=str(number), answer="x" * 200) for number in range(rows))
    )
    size = (attempt.folder / "samples.jsonl").stat().st_size
    assert size > 1_000_000
    assert written < size / 10
    (store.root / "index.json").unlink()
    assert peak(lambda: records(store)) < small + 200_000
    assert peak(lambda: sum(1 for _ in attempt.samples())) < size / 10


def test_unknown_fields_of_a_result_are_no_damage(store: Store) -> None:
    run = store.run(identity())
    fields = {**fields_of_a_result(run), "added_later": {"a": 1}}
    (run.folder / "result.json").write_bytes(canonical(fields))
    assert len(records(store)) == 1


def test_an_index_is_replaced_and_never_half_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    done(store)
    before = records(store)
    content = (store.root / "index.json").read_bytes()
    done(store, k=3)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_module.Path, "replace", full)
    assert len(records(store)) == 2
    assert (store.root / "index.json").read_bytes() == content
    assert len(before) == 1
