"""What a report says, as data: the same for its two forms. Knows neither where it came from nor how it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unmask.analysis.frontier import Curve, Point, best_under
from unmask.analysis.gains import Gain, Speedup
from unmask.analysis.guards import Finding
from unmask.analysis.losses import Comparisons, Loss
from unmask.analysis.statistics import Interval
from unmask.analysis.table import AnalysedExperiment, ConfigurationResult, ConfigurationTiming, TaskResults
from unmask.analysis.verdict import Verdict
from unmask.spec.recipe import Gained


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """One configuration of one task."""

    entry: ConfigurationResult
    is_control: bool
    interval: Interval | None
    """Of the accuracy."""
    loss: Loss | None
    """Against the control; None for the control itself."""
    skipped: float | None
    """Share of the layer work that was not done."""
    gains: Mapping[Gained, Gain]
    """What it gains over the control by counting; 1 for the control itself."""
    work_a_token: float | None
    """Computed operations a token (or request), as a multiple of the control's."""
    timing: ConfigurationTiming | None
    """Of a timing run on the same task."""
    speedup: Speedup | None

    @property
    def name(self) -> str:
        """The configuration."""
        return self.entry.configuration

    @property
    def same_as_control(self) -> bool:
        """Whether it cannot differ from the control by construction."""
        return self.loss is not None and self.loss.equal

    @property
    def rate(self) -> float | None:
        """Tokens (or requests) a second of a timing run; of an imported summary the speed that it states."""
        if self.timing is not None:
            generating = self.timing.path == "generation"
            return self.timing.tokens_per_second if generating else self.timing.requests_per_second
        return self.entry.run_tokens_per_second if self.entry.foreign else None

    @property
    def by_kind(self) -> dict[str, dict[str, int]]:
        """Forwards, computed and skipped layer rows by kind of forward, all paths together."""
        found: dict[str, dict[str, int]] = {}
        for part in self.entry.effect.values():
            for kind, work in part.by_kind.items():
                sums = found.setdefault(kind, {"forwards": 0, "branch_rows": 0, "branch_rows_skipped": 0})
                sums["forwards"] += work.forwards
                sums["branch_rows"] += work.branch_rows
                sums["branch_rows_skipped"] += work.branch_rows_skipped
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPart:
    """One task of an experiment: configurations that can be compared."""

    key: str
    """Unique in the document, usable as an anchor."""
    group: TaskResults
    lines: tuple[TableLine, ...]
    control: ConfigurationResult | None
    comparisons: Comparisons
    """How many comparisons with the control hold together, and so the level of the intervals."""
    planes: Mapping[Gained, tuple[Point, ...]]
    """Accuracy and gain of the configurations, by what is gained; first by what the criteria name."""
    curves: tuple[Curve, ...]
    """Methods with two points or more of tokens a forward and accuracy."""
    equal: tuple[tuple[str, ...], ...]
    """Sets of configurations that reuse work and cannot differ by construction."""
    baselines: tuple[str, ...]
    """Configurations that are the baseline under several names."""
    budget: float
    """The loss of accuracy that the best configuration may have."""

    @property
    def name(self) -> str:
        """For headings."""
        return self.group.name

    @property
    def awaited(self) -> str | None:
        """The recipe's control where it has no result here."""
        return self.group.experiment.control if self.control is None else None

    @property
    def control_retracted(self) -> bool:
        """Whether the control has no result here because it was retracted."""
        return any(
            (run.configuration, run.task, run.limit) == (self.awaited, self.group.task, self.group.limit)
            for run in self.group.experiment.retracted
        )

    @property
    def plane(self) -> tuple[Point, ...]:
        """The first plane with two points or more: by what the criteria name, where that is known."""
        return next((points for points in self.planes.values() if len(points) > 1), ())

    @property
    def generates(self) -> bool:
        """Whether the task generates tokens; otherwise it scores options."""
        return any(line.entry.tokens for line in self.lines)

    @property
    def rows(self) -> int | None:
        """Rows, where all configurations agree on them."""
        counts = {line.entry.rows for line in self.lines}
        return counts.pop() if len(counts) == 1 else None

    @property
    def metric(self) -> str | None:
        """The metric, where all configurations agree on it."""
        metrics = {line.entry.metric for line in self.lines}
        return metrics.pop() if len(metrics) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """One attempt at a run, in time."""

    host: str
    label: str
    task: str
    kind: str
    state: str
    """done, failed, interrupted or running."""
    start: float
    stop: float
    """Seconds since 1970."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPart:
    """One experiment or import."""

    experiment: AnalysedExperiment
    hypothesis: str = ""
    expected: str = ""
    tasks: tuple[TaskPart, ...]
    timings: tuple[ConfigurationTiming, ...]
    verdict: Verdict | None
    findings: tuple[Finding, ...]
    attempts: tuple[AttemptSpan, ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    """Names and values, several joined."""
    artifacts: tuple[tuple[str, str], ...] = ()
    runs: tuple[Mapping[str, Any], ...] = ()
    """One for each run: what the table of provenance shows."""
    superseded: int = 0

    @property
    def name(self) -> str:
        """Its name."""
        return self.experiment.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report."""

    title: str
    made: str
    """When, as ISO 8601 in UTC."""
    version: str
    parts: tuple[ExperimentPart, ...]
    flips: tuple[Mapping[str, Any], ...] = ()
    """By task: samples whose outcome changed, for the page."""
    recordings: tuple[Mapping[str, Any], ...] = ()
    recording_note: str = ""
    """Why there is no recording, or none of some run."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all parts."""
        return tuple(finding for part in self.parts for finding in part.findings)


def best_point(task: TaskPart) -> Point | None:
    """The best configuration that stays within the budget; None where the control itself is the best."""
    baseline = {line.name for line in task.lines if line.is_control or line.same_as_control}
    others = [point for point in task.plane if point.configuration not in baseline and point.gain > 1]
    return best_under([point for point in others if point.loss is not None], task.budget)


@dataclass(frozen=True, slots=True)
class Subject:
    """One subtask."""

    name: str
    """Without the part that all subtasks share."""
    rows: int | None
    values: Mapping[str, float]
    """By configuration."""


def subjects_of(task: TaskPart) -> list[Subject]:
    """All subtasks in the order of the control's accuracy, the best first."""
    values: dict[str, dict[str, float]] = {}
    rows: dict[str, int | None] = {}
    for line in task.lines:
        for name, part in line.entry.subtasks.items():
            if name == task.group.task or part.value is None:
                continue
            values.setdefault(name, {})[line.name] = float(part.value)
            rows.setdefault(name, part.rows)
    if len(values) < 2:
        return []
    first = task.control.configuration if task.control else None
    subjects = [
        Subject(name.removeprefix(f"{task.group.task}_"), rows[name], by_name)
        for name, by_name in values.items()
    ]
    return sorted(subjects, key=lambda subject: (-subject.values.get(first or "", 0.0), subject.name))
