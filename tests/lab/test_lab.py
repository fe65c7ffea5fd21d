"""Experiments from Python: what the functions give, and that a sweep can be left at any moment."""

import gc
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from planted import ACCURACY_RUNS, ALL_RUNS, folder_of, plant

import unmask
from unmask import lab, reading
from unmask.errors import UnmaskError
from unmask.lab.executing import PoolOpened, SweepEvent
from unmask.launch import Ended, Started
from unmask.store import Store
from unmask.store.process import lives
from unmask.store.state import state_of

MODULES = Path(lab.__file__).parent
FOREVER = ",".join(ACCURACY_RUNS)


def processes_of(store: Store) -> list[bool | None]:
    """Whether the worker of each attempt lives."""
    return [lives(attempt.record()) for name in store.names() for attempt in store.open(name).attempts()]


def begun(event: SweepEvent, store: Store) -> bool:
    """Whether a worker is at work, not only started."""
    return not isinstance(event, PoolOpened) and any(processes_of(store))


# The package.


@pytest.mark.parametrize("name", lab.__all__)
def test_every_function_has_a_docstring_with_an_example(name: str) -> None:
    assert f"lab.{name}(" in (getattr(lab, name).__doc__ or "")


def test_no_module_bears_the_name_of_a_function() -> None:
    assert {file.stem for file in MODULES.glob("*.py")} & set(lab.__all__) == set()
    assert unmask.lab is lab
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = lab.nothing_of_the_kind


def test_a_status_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    program = (
        "import sys; from unmask import lab; assert lab.status(store=sys.argv[1]) == []\n"
        "print([name for name in ('torch', 'numpy', 'rich', 'click') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr


# From a recipe to results.


def test_a_plan_knows_what_is_to_do(recipe: Path, store: Store) -> None:
    plant(store, recipe, "k1_first")
    plan = lab.plan(recipe, store=store.root, run_equal=True)
    assert [(run.planned.configuration, run.status) for run in plan.runs] == [
        ("k1_first", "done"),
        *((name, "missing") for name in ALL_RUNS[1:]),
    ]
    assert [run.planned.configuration for run in plan.to_do] == list(ALL_RUNS[1:])
    assert plan.outlook.equal == [["k1_first", "k1_last"], ["k2_first", "k2_last"]]
    assert plan.forecast is not None
    assert set(plan.forecast.seconds) == {run.id for run in plan.to_do if run.planned.kind == "accuracy"}
    assert [run.label for run in lab.plan(recipe, store=store, force="k1_*", run_equal=True).to_do] == [
        "unmask_arith_limit_4 k1_first",
        "unmask_arith_limit_4 k1_last",
    ]
    one_task = lab.plan(recipe, tasks="unmask_arith", configurations=iter(["k2_*"]), store=store)
    assert [run.planned.configuration for run in one_task.runs] == ["k2_first", "k2_last"]


def test_force_sets_nothing_aside_that_somebody_else_has_begun_since(
    recipe: Path, store: Store, workers: None
) -> None:
    """Their worker would go on in the folder of the next attempt, and two kinds of answers would meet there."""
    (busy,) = plant(store, recipe, "k1_first")
    with lab.running(recipe, store=store, force="k1_first") as events:
        busy.set_aside()
        theirs = busy.new_attempt()
        with pytest.raises(UnmaskError, match="k1_first is running; cancel it"):
            list(events)
    assert theirs.folder.exists()
    assert len(busy.attempts()) == 1


def test_a_sweep_runs_and_tells_what_happens(recipe: Path, store: Store, workers: None) -> None:
    events: list[SweepEvent] = []
    outcome = lab.run(recipe, store=store, slots=2, on_event=events.append)
    assert {run.planned.configuration: run.status for run in outcome.runs} == dict.fromkeys(ALL_RUNS, "done")
    assert outcome.lacking == []
    assert {run.planned.configuration: outcome.record(run) is not None for run in outcome.runs} == (
        dict.fromkeys(ALL_RUNS, True)
    )
    assert sorted(event.command.run for event in events if isinstance(event, Started)) == sorted(
        outcome.started
    )
    assert all(event.done for event in events if isinstance(event, Ended))
    assert lab.run(recipe, store=store).started == ()


def test_results_are_checked_compared_reported_and_exported(
    recipe: Path, store: Store, workers: None, tmp_path: Path
) -> None:
    lab.run(recipe, store=store, run_equal=True)
    checked = lab.check("planted", store=store)
    assert (checked.experiments, checked.results) == (("planted",), 6)
    written = lab.report("planted", recordings=0, store=store)
    assert written.page.read_text().startswith("<!doctype html>")
    assert [verdict.experiment for verdict in written.verdicts] == ["planted"]
    assert lab.export(output=tmp_path / "all.csv", store=store).count == 10
    tree = lab.export("planted", output=tmp_path / "tree", store=store)
    assert lab.import_summaries(tree.path, "older", store=store).added == tree.count == 5
    first, second = (folder_of(store, recipe, name).id for name in ("k1_first", "k2_last"))
    with pytest.raises(UnmaskError, match=r"samples\.jsonl is gone"):
        lab.compare(first, second, store=store)
    lab.retract(first, "The node was shared.", store=store)
    assert lab.remove(second, store=store) == [folder_of(store, recipe, "k2_last").folder]
    (standing,) = lab.status(store=store)
    statuses = {run.member.configuration: run.state.status for run in standing.runs}
    assert (statuses["k1_first"], statuses["k2_last"], statuses["k2_first"]) == (
        "retracted",
        "missing",
        "done",
    )


def test_a_recipe_is_read_once(
    recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = reading.read_plain

    def read_plain(path: Path, most: int = reading.MOST_BYTES) -> bytes:
        read.append(path.name)
        return original(path, most)

    monkeypatch.setattr(reading, "read_plain", read_plain)
    lab.run(recipe, store=store, configurations=["k1_*"])
    assert read.count("recipe.toml") == 1


def test_an_unknown_place_is_refused(recipe: Path, store: Store) -> None:
    with pytest.raises(UnmaskError, match="not on 'mars'"):
        lab.run(recipe, store=store, on="mars")  # type: ignore[arg-type]
    assert not store.root.exists()


# Leaving a sweep.


def test_leaving_the_block_stops_the_workers_and_the_next_call_goes_on(
    recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_WAIT", FOREVER)
    with lab.running(recipe, store=store, slots=2) as events:
        for event in events:
            if begun(event, store):
                break
    assert set(processes_of(store)) == {False}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.delenv("PLANTED_WAIT")
    outcome = lab.run(recipe, store=store)
    assert {run.status for run in outcome.runs} == {"done"}


def test_an_interrupt_leaves_a_store_that_can_be_resumed(
    recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_WAIT", FOREVER)
    sent: list[bool] = []

    def interrupt(event: SweepEvent) -> None:
        if not sent and begun(event, store):
            sent.append(True)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        lab.run(recipe, store=store, on_event=interrupt)
    assert set(processes_of(store)) == {False}
    assert state_of(folder_of(store, recipe, "k1_first")).status == "interrupted"
    monkeypatch.delenv("PLANTED_WAIT")
    assert {run.status for run in lab.run(recipe, store=store).runs} == {"done"}


def test_a_forgotten_iterator_leaves_no_workers(
    recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_WAIT", FOREVER)
    block = lab.running(recipe, store=store)
    events = block.__enter__()
    while not begun(next(events), store):
        pass
    del events, block
    gc.collect()
    assert processes_of(store) == [False]


def test_a_sweep_runs_in_a_thread_and_leaves_signals_alone(recipe: Path, store: Store, workers: None) -> None:
    handlers = []

    def sweep() -> None:
        lab.run(recipe, store=store, on_event=lambda _: handlers.append(signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=sweep)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert set(handlers) == {signal.default_int_handler}
    (standing,) = lab.status("planted", store=store)
    assert {run.state.status for run in standing.runs} == {"done"}


def test_a_block_that_is_never_entered_starts_nothing(recipe: Path, store: Store, workers: None) -> None:
    lab.running(recipe, store=store)
    time.sleep(0.1)
    assert not store.root.exists()
