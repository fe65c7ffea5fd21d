"""The store of the small world: runs in every state, and every file that a store can hold.

A worker that is at a run right now is one of a machine that does not exist, so that no case can signal it.
"""

import json
import os
import shutil
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]

from planted import LAYERS, plant, plant_stopped, runs_of  # noqa: E402

from recipe_cases import lock_for  # noqa: E402
from unmask.cost.work_sums import WorkSums  # noqa: E402
from unmask.spec.conduct import answer_order  # noqa: E402
from unmask.spec.recipe import read_recipe  # noqa: E402
from unmask.spec.sweep import sweep_of  # noqa: E402
from unmask.store import RunFolder, Store  # noqa: E402
from unmask.store.attempt import Attempt, GeneratedAnswer, Sample  # noqa: E402
from unmask.store.computation import Computation  # noqa: E402
from unmask.store.experiments import AnnouncedJobs, Member, write_experiment  # noqa: E402
from unmask.store.files import canonical, make_folder  # noqa: E402
from unmask.store.index import listing  # noqa: E402
from unmask.store.run_folder import Terms, WorkerSettings  # noqa: E402
from unmask.store.stopping import AnsweredRow, add_rows, stop  # noqa: E402
from unmask.store.traces import keep_traces  # noqa: E402
from unmask.store.worker_file import WORKERS, HeldRun  # noqa: E402

CONTROL, ELSEWHERE = "k1_first_0.5", "nowhere-17-1"
JUDGED = {"tasks": ["unmask_arith"]}
"""The criterion of the recipe is about this task."""
ROUND = 2
KIND = Computation(unmask="0.2", commit="c0ffee", code_sha256="5e", torch="2", device="cpu", dtype="float32")


def write_store(store: Store, recipe: Path) -> None:
    """The store that the expected texts are made of, and beside it runs in every state."""
    shutil.copytree(TESTS / "reference" / "store", store.root)
    planned = runs_of(recipe, **JUDGED)
    runs = {name: store.run(run.identity) for name, run in planned.items()}
    _answered(runs[CONTROL], right=True)
    done = plant(store, recipe, CONTROL, "k2_first_0.5", "t0.7", "timing", **JUDGED)
    done[1].retract("the GPU was shared")
    done[2].retract("by mistake")
    done[2].take_back_retraction()
    plant_stopped(runs["k1_last_0.5"], "one line\n")
    runs["k2_last_0.5"].new_attempt().fail("The disk is full.")
    stop(_answered(runs["trim"], right=False), ROUND, 4, 1, "it loses certainly more than 5 points")
    cancelled = _answered(runs["ruled"], right=True)
    cancelled.cancel()
    cancelled.interrupt()
    runs["adaptive"].new_attempt().fail("The network is down.")
    runs["adaptive"].set_aside()
    _hold_elsewhere(store, runs["listed"])
    terms = Terms(
        control=runs[CONTROL].name,
        candidates=(runs["trim"].name, runs["k2_first_0.5"].name),
        bounds=(0.05, 0.3),
        comparisons=2,
        rows=ROUND,
    )
    for name in (CONTROL, "trim", "ruled", "listed"):
        settings = {"experiment": "planted", "configuration": name, "checkpoint": "embedded", "device": "cpu"}
        lock = str(Path("recipe") / "recipe.lock")
        runs[name].set_worker(WorkerSettings(**settings, lock=lock, batch_size=8, until_decided=terms))
    shutil.copytree(runs["trim"].folder, runs[CONTROL].folder / "twins" / runs["trim"].name)
    _write_experiment(store, recipe, runs, terms)
    for configuration in read_recipe(recipe).expanded():
        keep_traces(store.root, read_recipe(recipe).policy_of(configuration).with_named_traces()[1])
    listing(store)  # writes the index


def keep_alive(store: Path) -> None:
    """Let the worker elsewhere have given a sign of life just now; copies share the file with the world."""
    for file in store.glob("runs/*/attempts/*/progress"):
        if ELSEWHERE.encode() in (file.parent / "attempt.json").read_bytes():
            os.utime(file)


def _answered(run: RunFolder, right: bool) -> Attempt:
    """An attempt with the answers of one round, and their scores."""
    attempt = run.new_attempt()
    attempt.compute_as(KIND)
    attempt.log.write_text("loading\nanswering\n")
    effect = WorkSums(LAYERS, 1, layer_calls=[1] * LAYERS, flops=10).as_row()
    names = answer_order(run.identity["task"], 0)[:ROUND]
    for name in names:
        attempt.answer(GeneratedAnswer(key=name, text="6", tokens=7, finish="stop_token", effect=effect))
    attempt.close()
    add_rows(attempt, [AnsweredRow(row=name, value=float(right), tokens=7, effect=effect) for name in names])
    attempt.write_samples(Sample(id=name, correct=float(right), answer="6", tokens=7) for name in names)
    attempt.progress(ROUND, 4)
    return attempt


def _hold_elsewhere(store: Store, run: RunFolder) -> None:
    """A run that a worker of another machine is at."""
    attempt = run.new_attempt(ELSEWHERE)
    attempt.progress(1, 4)
    elsewhere = {"host": "nowhere", "boot": "b", "namespace": "n", "pid": 17, "pid_started": 1}
    record = attempt.folder / "attempt.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **elsewhere}))
    held = HeldRun(**elsewhere, run=run.id, job="12_4")
    make_folder(store.root / WORKERS)
    (store.root / WORKERS / f"{ELSEWHERE}.json").write_bytes(canonical(held))


def _write_experiment(store: Store, recipe: Path, runs: dict[str, RunFolder], terms: Terms) -> None:
    spec, text = read_recipe(recipe), (recipe / "recipe.toml").read_text()
    members = [
        Member(
            configuration=run.configuration,
            task=run.task,
            limit=run.limit,
            id=store.find(run.identity).id,
            folder=store.find(run.identity).name,
            kind=run.kind,
        )
        for run in sweep_of(spec, lock_for(spec))
    ]
    file = recipe / "recipe.toml"
    write_experiment(store, "planted", file, text, members, spec.control, until_decided=terms)
    AnnouncedJobs.announce(store, "planted", [runs["k2_last_0.5"].id]).confirm(["12_3"])
    AnnouncedJobs.announce(store, "planted", [runs["both"].id])
