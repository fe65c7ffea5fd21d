"""What an experiment is made of: the text of its recipe, the runs it stands for, and the jobs that were submitted.

Knows names and files. An experiment does not own its runs: two that describe the same result share its folder.
"""

import hashlib
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import read_plain
from unmask.spec.recipe import NAME
from unmask.store.files import (
    canonical,
    exclusive,
    make_folder,
    parse_object,
    read_struct,
    write_atomically,
)
from unmask.store.run_folder import FolderName, Terms
from unmask.store.store import Store

JOB_FIELDS = {"job", "name", "run", "task"}
JOB_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
Place = tuple[str, str, str, int | None]
"""What a run is in its recipe, whatever its identity: kind, configuration, task and limit."""
JOBS_DIGITS = 6
"""Digits of the number that orders the files of submitted jobs."""


class Instead(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that has no run of its own, because one that is equal by construction stands for it."""

    configuration: str
    """Whose run stands for it."""
    policy: dict[str, Any]
    decode: dict[str, Any]
    """Its own settings."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration's run, under the name that the recipe gives it: its own, or the one that stands for it."""

    configuration: str
    task: str
    limit: int | None
    id: str
    folder: FolderName
    """Name of the run's folder."""
    kind: str
    instead: Instead | msgspec.UnsetType = msgspec.UNSET
    """Present where id and folder are those of another configuration's run."""
    own: str | msgspec.UnsetType = msgspec.UNSET
    """The id that its own run would have; absent where that is its id."""
    timed_as: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Of a timing run: configurations that it leaves out, and those that it times instead of them."""

    @property
    def own_id(self) -> str:
        """Of the run that is or would be its own."""
        return self.own or self.id

    @property
    def place(self) -> Place:
        """What the run is in its recipe, whatever its identity."""
        return self.kind, self.configuration, self.task, self.limit


class Superseded(Member, frozen=True, kw_only=True):
    """A run that an earlier text or lock of the recipe described and the present one does not."""

    recipe_sha256: str
    """Of that earlier text."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """The content of experiment.json."""

    schema: int = 1
    name: str
    recipe: str
    """Where the recipe lies."""
    recipe_text: str
    recipe_sha256: str
    planned: str
    """When this text was first planned."""
    control: str | None
    members: tuple[Member, ...]
    superseded: tuple[Superseded, ...] = ()
    until_decided: Terms | msgspec.UnsetType = msgspec.UNSET
    """By what its runs may end, or could when they ran; absent where all went to their end."""


def write_experiment(
    store: Store,
    name: str,
    recipe: Path,
    recipe_text: str,
    members: Iterable[Member],
    control: str | None,
    described: Collection[tuple[Place, str]] | None = None,
    until_decided: Terms | None = None,
) -> Experiment:
    """Write down what a recipe stands for now; runs that an edit dropped are kept as superseded.

    `described` are places and ids of all runs that the text stands for, also those this call is not about; without
    it a changed text stands for the given members alone.
    """
    if not NAME.fullmatch(name):
        raise UnmaskError(f"{name!r} is no name for an experiment; use letters, digits, dots, - and _.")
    make_folder(_file(store, name).parent)
    with exclusive(_file(store, name).with_name(".lock")):
        return _write_experiment(
            store, name, recipe, recipe_text, tuple(members), control, described, until_decided
        )


def _write_experiment(
    store: Store,
    name: str,
    recipe: Path,
    recipe_text: str,
    members: tuple[Member, ...],
    control: str | None,
    described: Collection[tuple[Place, str]] | None,
    until_decided: Terms | None,
) -> Experiment:
    before = read_experiment(store, name)
    digest = hashlib.sha256(recipe_text.encode()).hexdigest()
    if before is not None:
        _check_owner(before, recipe.resolve(), digest)
    same = before is not None and before.recipe_sha256 == digest
    kept = before.members if before is not None and same else ()
    if before is not None and described is not None:
        kept = tuple(member for member in before.members if (member.place, member.own_id) in described)
    now = _merged(kept, members)
    experiment = Experiment(
        name=name,
        recipe=str(recipe.resolve()),
        recipe_text=recipe_text,
        recipe_sha256=digest,
        planned=before.planned if same and before else datetime.now(UTC).isoformat(timespec="seconds"),
        control=control,
        members=now,
        superseded=_superseded(before, now),
        until_decided=until_decided or msgspec.UNSET,
    )
    if experiment != before:
        write_atomically(_file(store, name), canonical(msgspec.to_builtins(experiment)) + b"\n")
    return experiment


def read_experiment(store: Store, name: str) -> Experiment | None:
    """An experiment by its name, or None."""
    mend = "delete it and run the recipe again: no result is lost"
    return read_struct(_file(store, name), Experiment, mend)


def experiment_of(store: Store, name: str) -> Experiment:
    """An experiment by its name, or one sentence on what there is."""
    experiment = read_experiment(store, name)
    if experiment is not None:
        return experiment
    if (store.root / "foreign" / name / "records.json").is_file():
        raise UnmaskError(f"{name} is an import, no experiment; write --foreign {name}.")
    known = ", ".join(experiment_names(store)) or "none"
    raise UnmaskError(f"There is no experiment {name} in {store.root}; there are {known}.")


def experiment_names(store: Store) -> list[str]:
    """Names of all experiments."""
    names = (file.parent.name for file in (store.root / "experiments").glob("*/experiment.json"))
    return sorted(filter(NAME.fullmatch, names))


@contextmanager
def submitting(store: Store) -> Iterator[None]:
    """Keep everybody else from submitting runs of this store; experiments share runs, so one mutex serves them all."""
    folder = store.root / "experiments"
    make_folder(folder)
    with exclusive(folder / ".lock"):
        yield


@dataclass(frozen=True, slots=True)
class AnnouncedJobs:
    """Runs that are about to be submitted as one array, written down first.

    The job goes by `job_name`, so that the queue can be asked for it if its id never gets written down.
    """

    file: Path
    """One for every array, so that no other writer, on this machine or another, can cut its lines off."""
    job_name: str
    runs: tuple[str, ...]

    @classmethod
    def announce(cls, store: Store, name: str, runs: Iterable[str]) -> Self:
        """Write down which runs an array is about to have, in its order."""
        folder = _jobs_folder(store, name)
        make_folder(folder)
        number = max((int(file.name[:JOBS_DIGITS]) for file in _jobs_files(folder)), default=0) + 1
        token = secrets.token_hex(4)
        announced = cls(folder / f"{number:0{JOBS_DIGITS}}-{token}.jsonl", f"{name}-{token}", tuple(runs))
        array = len(announced.runs) > 1
        announced._write(
            {"name": announced.job_name, **({"task": task} if array else {})}
            for task in range(len(announced.runs))
        )
        return announced

    def confirm(self, job_ids: Iterable[str]) -> None:
        """Write down the job of each run, such as `123_4`."""
        self._write([{"job": job} for job in job_ids])

    def _write(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        lines = [{**job, "run": run} for job, run in zip(jobs, self.runs, strict=True)]
        write_atomically(self.file, b"".join(canonical(line) + b"\n" for line in lines))


def names_with_jobs(store: Store) -> list[str]:
    """Names under which jobs were submitted; a canary's are there before the experiment is written down."""
    names = {path.parent.name for path in (store.root / "experiments").glob("*/jobs*")}
    return sorted(filter(NAME.fullmatch, names))


def read_jobs(store: Store, name: str) -> Iterator[dict[str, Any]]:
    """All jobs in the order of their submission: {"job", "run"}, or {"name", "run"} where the id is not on record.

    A name stands for an array if there is a "task" too.

    A line that was cut short, or is none that was written here, is passed over.
    """
    folder = _jobs_folder(store, name)
    # Older stores have one file, which all writers shared.
    for file in (folder.with_suffix(".jsonl"), *_jobs_files(folder)):
        for line in _lines(file):
            with suppress(ValueError):
                job = parse_object(line)
                # They become words of SLURM's programs and names of files.
                if all(JOB_WORD.fullmatch(str(job[field])) for field in JOB_FIELDS & job.keys()):
                    yield job


def _lines(file: Path) -> list[bytes]:
    try:
        return read_plain(file).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        # A job that is not seen would be submitted again.
        raise UnmaskError(f"{file} cannot be read ({error.strerror}), so jobs are not known.") from None


def _jobs_folder(store: Store, name: str) -> Path:
    return _file(store, name).with_name("jobs")


def _jobs_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{'[0-9]' * JOBS_DIGITS}-*.jsonl"))


def _check_owner(before: Experiment, recipe: Path, digest: str) -> None:
    """Two recipes must not write into one experiment; a moved, copied or edited one is the same recipe."""
    owner = Path(before.recipe)
    if recipe != owner and digest != before.recipe_sha256 and owner.exists():
        raise UnmaskError(
            f"The name {before.name!r} belongs to {owner}, whose content is another than that of {recipe}; give "
            "one of them another name."
        )


def _merged(before: tuple[Member, ...], members: tuple[Member, ...]) -> tuple[Member, ...]:
    """A call for some tasks of a recipe does not forget the others."""
    # A lock that was renewed gives a configuration another id, which takes the place of the old one.
    known = {member.place: member for member in (*before, *members)}
    return tuple(known.values())


def _superseded(before: Experiment | None, members: tuple[Member, ...]) -> tuple[Superseded, ...]:
    if before is None:
        return ()
    present = {member.id for member in members}
    dropped = [
        Superseded(**msgspec.structs.asdict(member), recipe_sha256=before.recipe_sha256)
        for member in before.members
    ]
    known = {(each.recipe_sha256, each.place, each.id): each for each in (*before.superseded, *dropped)}
    return tuple(member for member in known.values() if member.id not in present)


def _file(store: Store, name: str) -> Path:
    return store.root / "experiments" / name / "experiment.json"
