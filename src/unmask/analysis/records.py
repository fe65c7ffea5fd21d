"""What the analysis sees of results: entries of accuracy runs, timings, and the table that holds them.

Plain data: where it was read from is in `own.py` and `foreign.py`, what two configurations have in common
in `likeness.py`. Own results and imported ones are never in one table unless `joined` puts them there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.spec.recipe import SuccessSpec
from unmask.store.result import Conditions, CountedWork, Effect, MeasuredSpeedup, Subtask

Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The accuracy of one configuration on one task."""

    experiment: str
    configuration: str
    task: str
    limit: float | None
    policy: Plain
    decode: Plain
    value: float
    stderr: float | None = None
    metric: str | None = None
    rows: int | None = None
    answers: str | None = None
    """Digest of all answers."""
    tokens: int | None = None
    truncated: int | None = None
    resumed: int = 0
    """Answers that a later attempt took over from an earlier one."""
    effect: Mapping[str, Effect] = field(default_factory=dict)
    """By path: generation, scoring."""
    subtasks: Mapping[str, Subtask] = field(default_factory=dict)
    seconds: float | None = None
    run_tokens_per_second: float | None = None
    """Of the accuracy run itself, which has no warm-up and no repeats: never evidence of a speed."""
    provenance: Plain = field(default_factory=dict)
    """Commit, weights, data, versions and machine, as far as they are known."""
    layers: int | None = None
    shape: Plain | None = None
    """Widths and counts of the model, where they are recorded."""
    run: str | None = None
    samples: Path | None = None
    """File with one line a row; foreign results have none."""
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One configuration in a timing run."""

    experiment: str
    configuration: str
    task: str
    run: str
    control: str
    policy: Plain
    decode: Plain
    path: str = "generation"
    tokens: int = 0
    requests: int = 0
    prompts: int = 0
    """How many were timed; 0 where the result does not say."""
    forwards: int = 0
    seconds: tuple[float, ...] = ()
    """Of each round."""
    tokens_per_second: float | None = None
    requests_per_second: float | None = None
    speedup: MeasuredSpeedup | None = None
    """Median over rounds, low, high and coverage, against the control."""
    effect: Mapping[str, CountedWork] = field(default_factory=dict)
    """By path: generation, scoring."""
    answers: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    provenance: Plain = field(default_factory=dict)
    cores: int | None = None
    layers: int | None = None

    @property
    def units(self) -> int:
        """What the speed counts: tokens when generating, requests when scoring."""
        return self.tokens if self.path == "generation" else self.requests

    @property
    def weight(self) -> tuple[int, int]:
        """What makes one timing better than another: prompts, then rounds."""
        return self.prompts or self.requests, len(self.seconds)


@dataclass(frozen=True, slots=True)
class Planned:
    """A run that an experiment stands for."""

    configuration: str | None
    """None for a timing run."""
    task: str
    limit: float | None = None
    """Rows, or prompts of a timing run; None for all."""

    def __str__(self) -> str:
        limited = "" if self.limit is None else f" (limit {self.limit:g})"
        return f"{self.configuration or 'timing'} on {self.task}{limited}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What a table knows of an experiment beside its results."""

    name: str
    control: str | None = None
    success: SuccessSpec | None = None
    missing: tuple[Planned, ...] = ()
    """Runs of the recipe without a result, those that were never started too."""
    retracted: tuple[Planned, ...] = ()
    """Runs whose results enter nothing."""
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The entries of one experiment that can be compared: the same task and the same rows."""

    experiment: Experiment
    task: str
    limit: float | None
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """For sentences."""
        return self.task if self.limit is None else f"{self.task} (limit {self.limit:g})"

    @property
    def control(self) -> Entry | None:
        """The entry that others are compared with."""
        return self.entry(self.experiment.control) if self.experiment.control else None

    def entry(self, configuration: str) -> Entry | None:
        """The entry of a configuration."""
        return next((entry for entry in self.entries if entry.configuration == configuration), None)


@dataclass(frozen=True, slots=True)
class Table:
    """Results that may be looked at together."""

    experiments: tuple[Experiment, ...]
    entries: tuple[Entry, ...]
    timings: tuple[Timing, ...] = ()

    def groups(self) -> list[Group]:
        """Comparable entries, in the order of their first appearance."""
        found: dict[tuple[str, str, float | None], list[Entry]] = {}
        for entry in self.entries:
            found.setdefault((entry.experiment, entry.task, entry.limit), []).append(entry)
        return [
            Group(self.experiment(name), task, limit, tuple(entries))
            for (name, task, limit), entries in found.items()
        ]

    def experiment(self, name: str) -> Experiment:
        """An experiment by its name."""
        for experiment in self.experiments:
            if experiment.name == name:
                return experiment
        raise UnmaskError(f"There is no experiment {name!r} in this table.")

    def timings_of(self, experiment: str) -> list[Timing]:
        """All timings of an experiment."""
        return [timing for timing in self.timings if timing.experiment == experiment]

    def timing(self, experiment: str, configuration: str, task: str | None = None) -> Timing | None:
        """The best timing of a configuration: on the given task, or on another that goes the same path."""
        return next(iter(self.ranked_timings(experiment, configuration, task)), None)

    def ranked_timings(self, experiment: str, configuration: str, task: str | None = None) -> list[Timing]:
        """Timings of a configuration: that of the most prompts, then of the most rounds, then the last first."""
        found = [one for one in self.timings_of(experiment) if one.configuration == configuration]
        on_task = [one for one in found if one.task == task]
        paths = self._paths(experiment, task)
        usable = on_task or [one for one in found if not paths or one.path in paths]
        return sorted(usable, key=lambda one: one.weight)[::-1]

    def _paths(self, experiment: str, task: str | None) -> set[str]:
        """Whether a task generates or scores, as far as its ledgers say."""
        entries = [one for one in self.entries if (one.experiment, one.task) == (experiment, task)]
        return {path for entry in entries for path in entry.effect}

    @property
    def foreign(self) -> bool:
        """Whether anything in it was imported."""
        return any(experiment.foreign for experiment in self.experiments)


def joined(*tables: Table) -> Table:
    """Several tables as one; imported entries stay marked as such."""
    return Table(
        tuple(experiment for table in tables for experiment in table.experiments),
        tuple(entry for table in tables for entry in table.entries),
        tuple(timing for table in tables for timing in table.timings),
    )
