"""How long a sweep will take: by what earlier runs counted and took, else by rehearsed answers, and a cost model.

Knows recipes, locks and stores. Nothing is run and nothing is written.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from unmask.analysis.outlook import rows_of, script_of
from unmask.cost import Demand, ModelShape, machine_model
from unmask.cost.demand import demand_of_effect, demand_of_ledger
from unmask.cost.effect import KINDS, Effect, KindEffect
from unmask.cost.model import Found
from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy, policy_spec
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec import DecodeSpec, build
from unmask.spec.lock import Lock
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import PlannedRun
from unmask.store.index import records
from unmask.store.record import Record
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store

RECENT = 64
"""Earlier runs of a task that are looked at, the newest first."""
LEAST_WORK = 0.1
"""Share of a run's seconds that is taken for work at least, however long its opening is said to take."""
ASKED = ("num_fewshot", "estimator", "order", "chat", "system_instruction")
"""Fields of a task that change how much work a row is."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long runs will take by the clocks of their workers, and what that is known from."""

    seconds: tuple[float, ...]
    """Of each run, in the order they were given."""
    start_up: float
    """Of every worker, before its clock begins."""
    basis: str

    @property
    def total(self) -> float:
        """All of them one after the other."""
        return sum(self.seconds) + self.start_up * len(self.seconds)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """An accuracy run that is done: what it asked, counted and took."""

    record: Record
    effects: tuple[Effect, ...]
    rows: int
    batch: int

    def demand(self, shape: ModelShape, rows: int, batch: int, element_bytes: int) -> Demand:
        """The same work for another number of rows and another batch."""
        total = Demand()
        for effect in self.effects:
            total += demand_of_effect(effect, shape, min(batch, rows), element_bytes)
        return total.times(rows / self.rows)


def forecast(
    recipe: Recipe, lock: Lock, runs: Sequence[PlannedRun], store: Store, found: Found | None = None
) -> Forecast | None:
    """Predict runs by the counted work of earlier ones, else by rehearsed answers; None where nothing can be said."""
    if not runs or not lock.shape:
        return None
    known = [record for record in records(store) if record.weights == lock.weights]
    try:
        forecaster = _Forecaster(recipe, lock, store, found or machine_model(), known)
        seconds = tuple(forecaster.seconds(run) for run in runs)
    except UnmaskError:
        return None
    return Forecast(seconds, forecaster.found.model.start_up_seconds, forecaster.basis())


@dataclass(slots=True)
class _Forecaster:
    """Prices runs, and remembers what it was told by."""

    recipe: Recipe
    lock: Lock
    store: Store
    found: Found
    known: list[Record]
    earlier: dict[str, list[_Earlier]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """Earlier runs that were gone by."""
    rehearsed: set[int] = field(default_factory=set)
    """Tokens of rehearsed answers."""

    @property
    def shape(self) -> ModelShape:
        return ModelShape(**self.lock.shape)

    @property
    def element_bytes(self) -> int:
        """Float32 is what workers take on a CPU."""
        dtype = self.recipe.model.dtype or ("bfloat16" if self.recipe.resources.gpus else "float32")
        return 4 if dtype == "float32" else 2

    def seconds(self, run: PlannedRun) -> float:
        """By the clock of the run's own worker."""
        rows = rows_of(run, self.lock)
        total = self.found.model.opening(self.shape, self.element_bytes)
        if run.kind == "timing":
            rounds, batch = run.identity["repeats"] + 1, run.identity["batch_size"]
            for settings in run.identity["configurations"].values():
                total += rounds * self._work(run, settings, rows, batch)
            return total
        return total + self._work(run, run.identity, rows, self.recipe.evaluation.batch_size)

    def basis(self) -> str:
        """What the seconds were taken from, for a sentence."""
        runs = f"{len(self.used)} earlier run{'s' * (len(self.used) != 1)} of the same tasks"
        length = f"{'up to ' * (len(self.rehearsed) > 1)}{max(self.rehearsed, default=0)} tokens"
        rehearsed = f"rehearsed answers of {length} behind {Script().prompt_tokens}, whatever the task"
        if self.used and self.rehearsed:
            return f"{runs} (else {rehearsed}) and {self.found.source}"
        return f"{runs if self.used else rehearsed} and {self.found.source}"

    def _work(self, run: PlannedRun, settings: Mapping[str, Any], rows: int, batch: int) -> float:
        alike = _alike(self._earlier(run), settings)
        if alike:
            self.used |= {one.record.id for one in alike}
            each = [self._price(one, rows, batch) for one in alike]
            return median(each) * self._scale(self._earlier(run))
        if self.recipe.resources.gpus and self.found.model.device == "cpu":
            raise UnmaskError("Nothing was measured on such a device.")
        return self.found.model.seconds(self._rehearsal(settings, rows, batch))

    def _price(self, one: _Earlier, rows: int, batch: int) -> float:
        return self.found.model.seconds(one.demand(self.shape, rows, batch, self.element_bytes))

    def _scale(self, earlier: Sequence[_Earlier]) -> float:
        """How many times longer the work took than its price, in the runs whose machine is that of the next ones."""
        if self.recipe.resources.gpus:
            there = [one for one in earlier if (one.record.device or "").startswith("cuda")]
        else:
            there = [one for one in earlier if one.record.host == platform.node()]
        ratios = [self._ratio(one) for one in there]
        if not ratios and self.recipe.resources.gpus:
            raise UnmaskError("Nothing was run on such a device.")
        return median(ratios) if ratios else 1.0

    def _ratio(self, one: _Earlier) -> float:
        seconds = one.record.seconds or 0.0
        work = seconds - self.found.model.opening(self.shape, self.element_bytes)
        return max(work, LEAST_WORK * seconds) / max(1e-9, self._price(one, one.rows, one.batch))

    def _earlier(self, run: PlannedRun) -> list[_Earlier]:
        if run.task not in self.earlier:
            asked = run.identity["task"]
            fitting = [
                record
                for record in self.known
                if (record.kind, record.task) == ("accuracy", run.task)
                and record.seconds
                and record.rows
                and not record.answers.resumed
                and all(_asked(record).get(name) == asked.get(name) for name in ASKED)
            ]
            fitting.sort(key=lambda record: record.finished or "", reverse=True)
            read = [_read_earlier(self.store, record, self.shape.layers) for record in fitting[:RECENT]]
            self.earlier[run.task] = [one for one in read if one]
        return self.earlier[run.task]

    def _rehearsal(self, settings: Mapping[str, Any], rows: int, batch: int) -> Demand:
        decode = build(DecodeSpec, settings["decode"], "decode")
        script = script_of(decode, self.lock)
        policy = make_policy(policy_spec(settings["policy"]), self.shape.layers)
        self.rehearsed.add(script.new_tokens)
        ledger = rehearse(policy, self.shape.layers, script)
        return demand_of_ledger(ledger, self.shape, min(batch, rows), self.element_bytes).times(rows)


def _asked(record: Record) -> Mapping[str, Any]:
    task = record.identity.get("task")
    return task if isinstance(task, Mapping) else {}


def _alike(earlier: Sequence[_Earlier], settings: Mapping[str, Any]) -> Sequence[_Earlier]:
    """Those of the same configuration, else those of the same decode settings, else all."""
    decoded = [one for one in earlier if _same(one.record.decode, settings["decode"])]
    return [one for one in decoded if _same(one.record.policy, settings["policy"])] or decoded or earlier


def _same(recorded: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """What was planned may hold tuples, which come back from a file as lists."""
    return bool(recorded == msgspec.json.decode(msgspec.json.encode(planned)))


def _read_earlier(store: Store, record: Record, layers: int) -> _Earlier | None:
    """The counted work behind a record; None where it is not told."""
    try:
        result = RunFolder(store.runs_folder / record.folder).result() or {}
        effects = tuple(_effect(part) for part in result["effect"].values())
        batch = int(result["environment"].get("batch_size") or 1)
    except (UnmaskError, msgspec.ValidationError, AttributeError, KeyError, TypeError, ValueError):
        return None
    if not effects or any(effect.layers != layers for effect in effects):
        return None
    return _Earlier(record, effects, record.rows or 1, max(1, min(batch, record.rows or 1)))


def _effect(part: Mapping[str, Any]) -> Effect:
    calls = msgspec.convert(part["layer_calls"], list[int])
    counted = msgspec.convert(part["by_kind"], dict[str, KindEffect])
    kinds = {kind: counted[kind] for kind in KINDS}
    return Effect(len(calls), int(part["requests"]), kinds, calls, int(part["flops"]))
