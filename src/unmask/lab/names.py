"""What people call runs and experiments, and which of them is meant.

A run goes by its id, its folder, or the beginning of either, or by the name of its configuration, with its task or its
experiment in front where several runs have that name: `k2_middle`, `gsm8k/k2_middle`, `05_mine/gsm8k/k2_middle`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unmask.analysis.words import join_words
from unmask.errors import UnmaskError
from unmask.spec.sweep import task_label
from unmask.store.experiments import Member, experiment_names, read_experiment
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run of an experiment, as people call it."""

    experiment: str
    member: Member

    @property
    def label(self) -> str:
        """Its whole name."""
        return (
            f"{self.experiment}/{task_label(self.member.task, self.member.limit)}/{self.member.configuration}"
        )

    def is_called(self, name: str) -> bool:
        """Whether the last part of a name is the configuration, and those before it are experiment and task."""
        *before, last = name.split("/")
        mine = (self.experiment, self.member.task, task_label(self.member.task, self.member.limit))
        return last == self.member.configuration and all(part in mine for part in before)


def find_run(store: Store, name: str) -> RunFolder:
    """The one run that goes by a name."""
    runs = {each.member.folder: each for each in runs_called(store, name)}
    if len(runs) > 1:
        raise ambiguous(name, runs.values())
    for folder in runs:
        return RunFolder(store.runs_folder / folder)
    if name in experiment_names(store):
        example = next((each.label for each in _runs_of(store, name)), f"{name}/TASK/CONFIGURATION")
        raise UnmaskError(f"{name} is an experiment; name one of its runs, such as {example}.")
    return store.open(name)


def runs_called(store: Store, name: str) -> list[NamedRun]:
    """Every run that goes by a configuration's name; none where the name is the id or the folder of a run."""
    if _is_run(store, name):
        return []
    every = (run for experiment in experiment_names(store) for run in _runs_of(store, experiment))
    return [run for run in every if run.is_called(name)]


def configurations_of(store: Store, run: RunFolder) -> list[str]:
    """The configurations whose result is that of a run, in whatever experiments."""
    every = (named for name in experiment_names(store) for named in _runs_of(store, name))
    return list(
        dict.fromkeys(named.member.configuration for named in every if named.member.folder == run.name)
    )


def ambiguous(name: str, runs: Iterable[NamedRun]) -> UnmaskError:
    """The sentence for a name that several runs have."""
    return UnmaskError(f"{name} could be {join_words(run.label for run in runs)}; write more of the name.")


def _runs_of(store: Store, name: str) -> Iterator[NamedRun]:
    experiment = read_experiment(store, name)
    return (NamedRun(name, member) for member in (experiment.members if experiment else ()))


def _is_run(store: Store, name: str) -> bool:
    return any(name in (known, known.rpartition("-")[2]) for known in store.names())
