"""How long runs will take, by what earlier runs of the same checkpoint and task took on such a machine.

A canary's runs count as earlier runs. Without any the answer is that nothing is known. Nothing is run or written here.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.lock import Lock, Outline
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import PlannedRun, rows_asked
from unmask.store.index import IndexRecord, records
from unmask.store.result import AccuracyResult
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store, run_id

RECENT = 16
"""Earlier runs that a forecast is taken from at most, the newest first."""
PROMPTING = ("num_fewshot", "estimator", "order", "chat", "system_instruction")
"""Fields of a task that change how much work a row is."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long runs will take by the clocks of their workers, and what that is known from."""

    seconds: dict[str, float]
    """By the run's id; runs of which nothing comparable was executed are left out."""
    unknown: int
    """How many runs were left out."""
    basis: str

    @property
    def total(self) -> float:
        """Seconds of all runs that a forecast exists for, one after the other."""
        return sum(self.seconds.values())


def forecast(recipe: Recipe, lock: Lock, runs: Sequence[PlannedRun], store: Store) -> Forecast | None:
    """Scale what comparable earlier runs took to the rows of each run; None where nothing comparable is known."""
    comparable = [
        record
        for record in records(store)
        if record.seconds and _on_such_a_machine(record, recipe) and _is_of_the_model(record, lock, store)
    ]
    comparable.sort(key=lambda record: record.finished or "", reverse=True)
    seconds: dict[str, float] = {}
    used: set[str] = set()
    for run in runs:
        earlier = _closest(run, [record for record in comparable if _is_comparable(record, run)])[:RECENT]
        if earlier:
            used |= {record.id for record in earlier}
            seconds[run_id(run.identity)] = median(_scaled(record, run, lock, store) for record in earlier)
    if not seconds:
        return None
    place = "on GPUs" if recipe.resources.gpus else "on this machine"
    basis = f"{len(used)} earlier run{'s' * (len(used) != 1)} of the same tasks {place}"
    return Forecast(seconds, len(runs) - len(seconds), basis)


def _is_of_the_model(record: IndexRecord, lock: Lock, store: Store) -> bool:
    """By the hash of its files, or by its name as long as there is no lock."""
    if not isinstance(lock, Outline):
        return record.weights == lock.weights
    try:
        return RunFolder(store.runs_folder / record.folder).worker.checkpoint == lock.model
    except UnmaskError:
        return False


def _on_such_a_machine(record: IndexRecord, recipe: Recipe) -> bool:
    if recipe.resources.gpus:
        return (record.device or "").startswith("cuda")
    return record.host == platform.node()


def _is_comparable(record: IndexRecord, run: PlannedRun) -> bool:
    """Whether a row of the earlier run is about as much work as one of the planned run."""
    if (record.kind, record.task) != (run.kind, run.task):
        return False
    if run.kind == "timing":
        return bool(record.identity["batch_size"] == run.identity["batch_size"])
    if not record.rows or record.answers.resumed:
        return False
    earlier, planned = record.identity["task"], run.identity["task"]
    return all(earlier.get(field) == planned.get(field) for field in PROMPTING)


def _closest(run: PlannedRun, earlier: list[IndexRecord]) -> list[IndexRecord]:
    """Of accuracy runs those of the same configuration, else those of the same decode settings, else all."""
    if run.kind == "timing":
        return earlier
    decoded = [record for record in earlier if _same(record.decode, run.identity["decode"])]
    return (
        [record for record in decoded if _same(record.policy, run.identity["policy"])] or decoded or earlier
    )


def _same(recorded: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """What was planned may hold tuples, which come back from a file as lists."""
    return bool(recorded == msgspec.json.decode(msgspec.json.encode(planned)))


def _scaled(record: IndexRecord, run: PlannedRun, lock: Lock, store: Store) -> float:
    """Seconds of the planned run: the part of the earlier one that answered, scaled; its loading as it was."""
    seconds = record.seconds or 0.0
    if run.kind == "timing":
        return seconds * _passes(run.identity) / _passes(record.identity)
    answering = _answering_seconds(RunFolder(store.runs_folder / record.folder)) or seconds
    return seconds - answering + answering * rows_asked(run, lock) / (record.rows or 1)


def _passes(identity: Mapping[str, Any]) -> int:
    """Prompts that a timing run answers, the warm-up included."""
    return int(len(identity["configurations"]) * identity["prompts"] * (identity["repeats"] + 1))


def _answering_seconds(run: RunFolder) -> float | None:
    """Seconds in which a run decoded and scored; None where its result does not say."""
    result = run.result()
    if not isinstance(result, AccuracyResult):
        return None
    decoding, scoring = result.speed.decoding, result.speed.scoring
    clocked = decoding.prefill_seconds + decoding.decode_seconds if decoding else 0.0
    return clocked + (scoring.seconds if scoring else 0.0) or None
