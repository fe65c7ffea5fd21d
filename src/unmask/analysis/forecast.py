"""What earlier runs of the same checkpoint and task say of those to come: how long they take, and how many steps.

A canary's runs count as earlier runs. Without any the answer is that nothing is known. Nothing is run or written here.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

import msgspec

from unmask.analysis.step_counts import StepCounts, counted_steps
from unmask.analysis.words import counted
from unmask.errors import UnmaskError
from unmask.spec import known_policy
from unmask.spec.family import FAMILIES, Family
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
        record for record in records(store) if record.seconds and _on_such_a_machine(record, recipe)
    ]
    comparable.sort(key=lambda record: record.finished or "", reverse=True)
    seconds: dict[str, float] = {}
    used: set[str] = set()
    by_others = 0
    for run in runs:
        of_the_model = [record for record in comparable if _is_of_the_model(record, run, lock, store)]
        earlier = _closest(run, [record for record in of_the_model if _is_comparable(record, run)])[:RECENT]
        if earlier:
            used |= {record.id for record in earlier}
            by_others += not _has_its_settings(earlier[0], run)
            seconds[run_id(run.identity)] = median(_scaled(record, run, lock, store) for record in earlier)
    if not seconds:
        return None
    place = "on GPUs" if recipe.resources.gpus else "on this machine"
    basis = f"{counted(len(used), 'earlier run')} of the same tasks {place}"
    if by_others:
        basis += f" ({counted(by_others, 'run')} by those with other decode settings, which take other steps)"
    return Forecast(seconds, len(runs) - len(seconds), basis)


def steps_taken(
    recipe: Recipe, lock: Lock, runs: Sequence[PlannedRun], store: Store
) -> dict[str, StepCounts]:
    """By configuration: the steps that earlier runs with its decode settings and without a policy took.

    All are of one task, so that they can be compared: the one of which most configurations are known.
    """
    earlier = sorted(records(store), key=lambda record: record.finished or "", reverse=True)
    first = recipe.success.task if recipe.success else recipe.tasks[0].name
    tasks = sorted({run.task for run in runs}, key=lambda task: task != first)
    known = [_steps_of_task(task, earlier, runs, lock, store) for task in tasks]
    return max(known, key=len, default={})


def _steps_of_task(
    task: str, earlier: Sequence[IndexRecord], runs: Sequence[PlannedRun], lock: Lock, store: Store
) -> dict[str, StepCounts]:
    planned = [run for run in runs if run.task == task and run.kind == "accuracy"]
    by_configuration: dict[str, StepCounts] = {}
    for run in planned:
        alike = [
            record
            for record in earlier
            if _is_of_the_model(record, run, lock, store)
            and _is_comparable(record, run)
            and _same(record.decode, run.identity["decode"])
            and _in_full(record)
        ]
        locked = lock.with_checkpoint(run.model) if run.model else lock
        if steps := _steps_of(alike[:RECENT], task, store, FAMILIES[locked.family]):
            by_configuration[run.configuration] = steps
    return by_configuration


def _in_full(record: IndexRecord) -> bool:
    policy = known_policy(record.policy)
    return policy is not None and policy.dead is not None


def _steps_of(earlier: Sequence[IndexRecord], task: str, store: Store, family: Family) -> StepCounts | None:
    sums: list[tuple[int, int, int]] = []
    for record in earlier:
        result = RunFolder(store.runs_folder / record.folder).result()
        effect = result.effect.get("generation") if isinstance(result, AccuracyResult) else None
        if effect is not None:
            sums.append(counted_steps(effect, record.answers.tokens or 0, record.decode, family))
    tokens, block, sub = (sum(column) for column in zip(*sums, strict=True)) if sums else (0, 0, 0)
    return StepCounts.of(tokens, block, sub, f"earlier runs of {task}") if tokens and block + sub else None


def _is_of_the_model(record: IndexRecord, run: PlannedRun, lock: Lock, store: Store) -> bool:
    """By the hash of the checkpoint's files, or by its name as long as there is no lock."""
    if not isinstance(lock, Outline):
        return bool(record.weights == run.identity["weights"])
    place = lock.others[run.model].model if run.model else lock.model
    try:
        return RunFolder(store.runs_folder / record.folder).worker.checkpoint == place
    except UnmaskError:
        return False


def _on_such_a_machine(record: IndexRecord, recipe: Recipe) -> bool:
    if recipe.resources.gpus:
        return (record.device or "").startswith("cuda")
    return record.host == platform.node()


def _is_comparable(record: IndexRecord, run: PlannedRun) -> bool:
    """Whether a row of the earlier run is about as much work as one of the planned run."""
    kind = "accuracy" if run.kind == "twin" else run.kind
    if (record.kind, record.task) != (kind, run.task):
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


def _has_its_settings(record: IndexRecord, run: PlannedRun) -> bool:
    """Whether the earlier run took the steps of the planned one, as far as decode settings say."""
    if run.kind == "timing":
        return True
    return _same(record.decode, run.identity["decode"])


def _same(recorded: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """What was planned may hold tuples, which come back from a file as lists."""
    return bool(recorded == msgspec.json.decode(msgspec.json.encode(planned)))


def _scaled(record: IndexRecord, run: PlannedRun, lock: Lock, store: Store) -> float:
    """Seconds of the planned run: of the earlier one what answered, scaled, and start and loading as they were."""
    folder, seconds = RunFolder(store.runs_folder / record.folder), record.seconds or 0.0
    start = max(0.0, _lifetime(folder, record) - seconds)
    if run.kind == "timing":
        return start + seconds * _passes(run.identity) / _passes(record.identity)
    answering = _answering_seconds(folder) or seconds
    return start + seconds - answering + answering * rows_asked(run, lock) / (record.rows or 1)


def _lifetime(run: RunFolder, record: IndexRecord) -> float:
    """Seconds from the start of a run's worker to its result; a result's own seconds begin after Python's imports."""
    if record.attempt is None or record.finished is None:
        return 0.0
    try:
        started = run.attempt(record.attempt).record().started
        return (
            datetime.fromisoformat(record.finished) - datetime.fromisoformat(started or "")
        ).total_seconds()
    except (UnmaskError, ValueError, TypeError):
        return 0.0


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
