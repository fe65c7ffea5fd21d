"""Results side by side: the table that guards, verdict, frontier and report look at, and how it is read out of a store.

From top to bottom: plain data (one configuration's result on a task, its timing, the table that holds them), results as
such data, and the tables of experiments. What two configurations have in common is in `likeness.py`. Imported summaries
become the same data in `foreign.py`, in tables of their own unless `joined` puts them together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.analysis.stopping import StoppingSweep
from unmask.errors import UnmaskError
from unmask.spec.recipe import SuccessSpec
from unmask.store.attempt import Attempt
from unmask.store.environment import UNKNOWN
from unmask.store.result import (
    AccuracyResult,
    AnyResult,
    Conditions,
    CountedWork,
    Effect,
    MeasuredSpeedup,
    SharedWork,
    Subtask,
    TimingResult,
)
from unmask.store.traces import with_traces
from unmask.store.twins import Twin

Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Own:
    """What a configuration is whose result is that of another one's run, because the two are equal by construction."""

    stand_in: str
    """The configuration whose run stands for it."""
    policy: Plain
    decode: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationResult:
    """The accuracy of one configuration on one task."""

    experiment: str
    configuration: str
    task: str
    limit: float | None
    policy: Plain
    decode: Plain
    """What was executed; `named` tells what the configuration says itself."""
    value: float
    stderr: float | None = None
    metric: str | None = None
    rows: int | None = None
    answers: str | None = None
    """Digest of all answers."""
    tokens: int | None = None
    truncated: int | None = None
    sandbox: str | None = None
    """How model-written programs ran: `bubblewrap` or `unsafe`; None where none ran or nobody noted it."""
    resumed: int = 0
    """Answers that a later attempt took over from an earlier one."""
    effect: Mapping[str, Effect] = field(default_factory=dict)
    """By path: generation, scoring."""
    shared: Mapping[str, SharedWork] = field(default_factory=dict)
    """By path: what requests spared each other."""
    subtasks: Mapping[str, Subtask] = field(default_factory=dict)
    seconds: float | None = None
    run_tokens_per_second: float | None = None
    """Of the accuracy run itself, which has no warm-up and no repeats: never evidence of a speed."""
    provenance: Plain = field(default_factory=dict)
    """Commit, weights, data, versions and machine, as far as they are known."""
    layers: int | None = None
    shape: Plain | None = None
    """Widths and counts of the model, where they are recorded."""
    model: str | None = None
    """The checkpoint as the recipe names it, where it is another than the recipe's own."""
    family: str | None = None
    """The family of the model, where it is recorded."""
    run: str | None = None
    samples: Path | None = None
    """File with one line a row; foreign results have none."""
    foreign: bool = False
    own: Own | None = None
    """Its own settings, where another configuration's run stands for it."""

    @property
    def named(self) -> tuple[Plain, Plain]:
        """The policy and the decode settings that the configuration names, whatever was executed for it."""
        return (self.own.policy, self.own.decode) if self.own else (self.policy, self.decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationTiming:
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
    shared: Mapping[str, SharedWork] = field(default_factory=dict)
    """By path: what requests spared each other."""
    answers: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    provenance: Plain = field(default_factory=dict)
    cores: int | None = None
    layers: int | None = None
    model: str | None = None
    """The checkpoint as the recipe names it, where it is another than the recipe's own."""
    also: tuple[str, ...] = ()
    """Configurations that were left out, because they are equal to this one by construction."""

    @property
    def units(self) -> int:
        """What the speed counts: tokens when generating, requests when scoring."""
        return self.tokens if self.path == "generation" else self.requests

    @property
    def weight(self) -> tuple[int, int]:
        """Timings are ranked by this: prompts, then rounds."""
        return self.prompts or self.requests, len(self.seconds)


Measured = ConfigurationResult | ConfigurationTiming


@dataclass(frozen=True, slots=True)
class Planned:
    """A run that belongs to an experiment, whether it has a result or not."""

    configuration: str | None
    """None for a timing run."""
    task: str
    limit: float | None = None
    """Rows, or prompts of a timing run; None for all."""

    def __str__(self) -> str:
        limited = "" if self.limit is None else f" (limit {self.limit:g})"
        return f"{self.configuration or 'timing'} on {self.task}{limited}"


@dataclass(frozen=True, slots=True)
class StandIn:
    """A run that gives the result of several configurations, which are equal by construction."""

    configuration: str
    """Whose run it is."""
    others: tuple[str, ...]
    """The configurations that it stands for besides."""
    task: str
    limit: float | None
    twin: Twin | None
    """One of the others, which has answered some rows itself; None as long as none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedExperiment:
    """What a table knows of an experiment beside its results."""

    name: str
    control: str | None = None
    success: SuccessSpec | None = None
    missing: tuple[Planned, ...] = ()
    """Runs of the recipe without a result, including those that were never started."""
    retracted: tuple[Planned, ...] = ()
    """Runs whose results were retracted, so that nothing uses them."""
    sequential: StoppingSweep | None = None
    """The runs of the criterion's task, where they end as soon as they are decided; none of them is missing then."""
    foreign: bool = False
    stand_ins: tuple[StandIn, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskResults:
    """The results of one experiment that can be compared: those of the same task and the same rows."""

    experiment: AnalysedExperiment
    task: str
    limit: float | None
    entries: tuple[ConfigurationResult, ...]

    @property
    def name(self) -> str:
        """The task with its limit, as sentences name it."""
        return self.task if self.limit is None else f"{self.task} (limit {self.limit:g})"

    @property
    def sequential(self) -> StoppingSweep | None:
        """The runs of this task, where they end as soon as they are decided."""
        known = self.experiment.sequential
        return known if known and (known.task, known.limit) == (self.task, self.limit) else None

    @property
    def control(self) -> ConfigurationResult | None:
        """The entry that others are compared with."""
        return self.entry(self.experiment.control) if self.experiment.control else None

    def entry(self, configuration: str) -> ConfigurationResult | None:
        """The entry of a configuration."""
        return next((entry for entry in self.entries if entry.configuration == configuration), None)


@dataclass(frozen=True, slots=True)
class Table:
    """Results that may be looked at together."""

    experiments: tuple[AnalysedExperiment, ...]
    entries: tuple[ConfigurationResult, ...]
    timings: tuple[ConfigurationTiming, ...] = ()

    def groups(self) -> list[TaskResults]:
        """Comparable entries, in the order of their first appearance."""
        found: dict[tuple[str, str, float | None], list[ConfigurationResult]] = {}
        for entry in self.entries:
            found.setdefault((entry.experiment, entry.task, entry.limit), []).append(entry)
        return [
            TaskResults(self.experiment(name), task, limit, tuple(entries))
            for (name, task, limit), entries in found.items()
        ]

    def experiment(self, name: str) -> AnalysedExperiment:
        """An experiment by its name."""
        for experiment in self.experiments:
            if experiment.name == name:
                return experiment
        raise UnmaskError(f"There is no experiment {name!r} in this table.")

    def timings_of(self, experiment: str) -> list[ConfigurationTiming]:
        """All timings of an experiment."""
        return [timing for timing in self.timings if timing.experiment == experiment]

    def timing(
        self, experiment: str, configuration: str, task: str | None = None
    ) -> ConfigurationTiming | None:
        """The best timing of a configuration: on the given task, or on another that goes the same path."""
        return next(iter(self.ranked_timings(experiment, configuration, task)), None)

    def ranked_timings(
        self, experiment: str, configuration: str, task: str | None = None
    ) -> list[ConfigurationTiming]:
        """Timings of a configuration, the best first: most prompts, then most rounds, then the latest."""
        every = self.timings_of(experiment)
        timings = [timing for timing in every if configuration in (timing.configuration, *timing.also)]
        on_task = [timing for timing in timings if timing.task == task]
        paths = self._paths(experiment, task)
        usable = on_task or [timing for timing in timings if not paths or timing.path in paths]
        return sorted(usable, key=lambda timing: timing.weight)[::-1]

    def _paths(self, experiment: str, task: str | None) -> set[str]:
        """Whether a task generates or scores, as far as its ledgers say."""
        entries = [entry for entry in self.entries if (entry.experiment, entry.task) == (experiment, task)]
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


def entry_of(
    experiment: str,
    configuration: str,
    result: AccuracyResult,
    folder: Path | None = None,
    shape: Mapping[str, int] | None = None,
    model: str | None = None,
) -> ConfigurationResult:
    """An accuracy run's result as an entry; `shape` is that of the model where the result does not say."""
    identity, answers, decoding = result.identity, result.answers, result.speed.decoding
    attempt = Attempt(folder / "attempts" / result.attempt) if folder and result.attempt else None
    return ConfigurationResult(
        experiment=experiment,
        configuration=configuration,
        task=result.task,
        limit=(identity.get("task") or {}).get("limit"),
        policy=_policy(identity, folder),
        decode=identity.get("decode") or {},
        value=float(result.value),
        stderr=result.stderr,
        metric=result.metric,
        rows=result.rows,
        answers=answers.sha256,
        tokens=answers.tokens,
        truncated=answers.truncated,
        sandbox=result.sandbox or None,
        resumed=answers.resumed or 0,
        effect=result.effect,
        shared=result.shared or {},
        subtasks=result.subtasks,
        seconds=result.seconds,
        run_tokens_per_second=decoding.tokens_per_second if decoding else None,
        provenance=_provenance(result),
        layers=_layers(result.effect.values()),
        shape=result.model.shape or shape,
        model=model,
        family=result.model.family or None,
        run=result.id,
        samples=attempt.samples_file if attempt else None,
    )


def _policy(settings: Plain, run: Path | None) -> Plain:
    """The policy of a run in a store, with the traces that it names."""
    policy = settings.get("policy") or {}
    return with_traces(run.parents[1], policy) if run else policy


def timings_of(
    experiment: str,
    result: TimingResult,
    models: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[ConfigurationTiming]:
    """All configurations of a timing run's result; `models` names checkpoints of their own."""
    settings = result.identity.get("configurations") or {}
    for name, measured in result.configurations.items():
        setting = settings.get(name) or {}
        yield ConfigurationTiming(
            experiment=experiment,
            configuration=name,
            task=result.task,
            run=result.id,
            control=result.control,
            policy=_policy(setting, folder),
            decode=setting.get("decode") or {},
            path=result.path,
            tokens=measured.tokens or 0,
            requests=measured.requests or 0,
            prompts=result.prompts or result.identity.get("prompts") or 0,
            forwards=measured.forwards or 0,
            seconds=tuple(float(seconds) for seconds in measured.seconds),
            tokens_per_second=measured.tokens_per_second,
            requests_per_second=measured.requests_per_second,
            speedup=measured.speedup,
            effect={result.path: measured.effect},
            shared={result.path: measured.shared} if measured.shared else {},
            answers=measured.answers_sha256,
            conditions=result.conditions,
            provenance=_provenance(result, setting),
            model=(models or {}).get(name),
            cores=result.environment.cores,
            layers=_layers([measured.effect]),
        )


def _provenance(result: AnyResult, setting: Plain | None = None) -> dict[str, Any]:
    """What must be the same for two results to be comparable, and where they come from.

    `setting` is that of one configuration of a timing run, which may have a checkpoint of its own.
    """
    identity, environment = result.identity, result.environment
    task = identity.get("task") or {}
    return {
        "weights": (setting or {}).get("weights") or identity.get("weights"),
        "engine": identity.get("engine"),
        "dtype": environment.dtype or identity.get("dtype"),
        "data": task.get("rows_sha256"),
        "task version": task.get("version"),
        "lm_eval": task.get("lm_eval"),
        "commit": None if environment.commit == UNKNOWN else environment.commit,
        "dirty": environment.dirty,
        "diff": environment.diff_sha256,
        "machine": environment.machine,
        "device": environment.device,
        "host": environment.host,
        "torch": environment.packages.get("torch"),
    }


def _layers(counted: Iterable[CountedWork]) -> int | None:
    return next((len(work.layer_calls) for work in counted if work.layer_calls), None)
