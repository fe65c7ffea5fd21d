"""What of a sweep is still to do, and the folders and commands of the workers that will do it."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from unmask.launch.jobs import Job
from unmask.spec.sweep import PlannedRun
from unmask.store.run_folder import RunFolder
from unmask.store.state import Jobs, State, state_of
from unmask.store.store import Store


@dataclass(frozen=True, slots=True)
class Item:
    """A planned run, its folder and where it stands."""

    planned: PlannedRun
    run: RunFolder
    state: State

    @property
    def job(self) -> Job:
        """The worker that would execute it."""
        argv = (sys.executable, "-m", "unmask", "run-one", str(self.run.folder.resolve()))
        return Job(self.run.id, self.run.folder.resolve(), self.planned.label, argv)


def items_of(store: Store, planned: Sequence[PlannedRun], jobs: Jobs | None = None) -> list[Item]:
    """Every planned run with its state; nothing is written."""
    found = []
    for each in planned:
        run = store.find(each.identity)
        found.append(Item(each, run, state_of(run, jobs)))
    return found


def still_to_do(items: Iterable[Item], retry_failed: bool = False) -> list[Item]:
    """What is missing or was cut off, and on request what has failed."""
    wanted = {"missing", "interrupted", "failed"} if retry_failed else {"missing", "interrupted"}
    return _once(item for item in items if item.state.status in wanted)


def forced(items: Iterable[Item], names: Sequence[str]) -> list[Item]:
    """Those whose configuration is named, or all where no name is given."""
    return _once(
        item
        for item in items
        if not names or any(fnmatchcase(item.planned.configuration, name) for name in names)
    )


def _once(items: Iterable[Item]) -> list[Item]:
    """Two names for one and the same run are executed once."""
    found: dict[str, Item] = {}
    for item in items:
        found.setdefault(item.run.id, item)
    return list(found.values())


def freeze(store: Store, items: Iterable[Item], worker: Mapping[str, Any]) -> None:
    """Write down what each run is before anything starts."""
    for item in items:
        store.run(item.planned.identity, {**worker, "configuration": item.planned.configuration})
