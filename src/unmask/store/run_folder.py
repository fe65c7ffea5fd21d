"""One run: a folder with its frozen identity, its attempts, and at most one result.

Knows the files of a run. How a run is executed, and whether one is under way, is known elsewhere.
"""

import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import is_countable, read_plain
from unmask.spec.build import Count, Positive
from unmask.store.attempt import AnyAnswer, Attempt, attempts_in
from unmask.store.computation import Computation
from unmask.store.files import (
    canonical,
    make_folder,
    publish_once,
    read_json,
    read_json_if_there,
    read_struct,
    sync_folder,
    write_atomically,
)
from unmask.store.result import SCHEMA, AccuracyResult, AnyResult
from unmask.store.worker_file import TWINS, store_of

RESULT = "result.json"
RESULT_FILES = (RESULT, "summary.json", "retracted.json", "attempts")
"""What belongs to one execution of a run, the mark of completion first."""
RECORDING_SCHEMA = 1
FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
FolderName = Annotated[str, msgspec.Meta(pattern=rf"\A{FOLDER.pattern}\Z")]
"""Names a run's folder, and nothing outside of the store."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """By what a run is judged that may end before its last row; a part of worker.json."""

    control: FolderName
    """Folder of the control's run."""
    candidates: tuple[FolderName, ...]
    """Folders of the candidates' runs."""
    bounds: tuple[Annotated[float, msgspec.Meta(ge=0, le=1)], ...]
    """Losses that the criterion names. A run is decided when its loss certainly lies on one side of each."""
    comparisons: Count
    """Comparisons with the control that hold together."""
    rows: Positive
    """Of a round."""
    seed: Count = 0
    """Of the order."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """worker.json: where and with what a run is to be executed; no part of its identity."""

    experiment: str = ""
    """Name of the recipe that asked for the run last."""
    configuration: str = ""
    """Name that this recipe gives the run's configuration."""
    lock: str = ""
    """Path of the recipe's lock file."""
    checkpoint: str = ""
    """Folder or hub id of the checkpoint."""
    data: str | None = None
    """Folder with the data of tasks; null takes the hub, or its cache."""
    batch_size: int = 1
    """Sequences that are decoded at once."""
    device: str | None = None
    """Device for the model; null takes the best that the machine has."""
    allow_code: bool = False
    """Whether programs that the model writes may be executed, in bubblewrap."""
    allow_unsafe_code: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether they may be executed without isolation where bubblewrap does not work; absent where they may not."""
    until_decided: Terms | msgspec.UnsetType = msgspec.UNSET
    """By what the run may end before its last row; absent where it may not."""


class Retraction(msgspec.Struct, frozen=True, kw_only=True):
    """retracted.json: that a result counts no longer, and why."""

    schema: int = 1
    """Version of the meaning of these fields."""
    id: str = ""
    """Id of the run."""
    reason: str = "no reason is given"
    """What is wrong with the result, without secrets."""
    time: str | None = None
    """When the result was retracted, in UTC."""


class RunFolder:
    """A run in the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name.rpartition("-")[2]

    def __repr__(self) -> str:
        return f"RunFolder({str(self.folder)!r})"

    @property
    def name(self) -> str:
        """The folder's name: task, policy and id."""
        return self.folder.name

    @property
    def store(self) -> Path:
        """The folder of the store that it lies in."""
        return store_of(self.folder)

    def twins(self) -> "list[RunFolder]":
        """The twins that answer a few rows to show that this run may stand for them."""
        folders = (self.folder / TWINS).glob("*/run.json")
        return [RunFolder(file.parent) for file in sorted(folders) if FOLDER.fullmatch(file.parent.name)]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What identifies the result; frozen before anything runs."""
        file = self.folder / "run.json"
        identity = read_json(file, self._again).get("identity")
        if not isinstance(identity, dict):
            raise UnmaskError(f"{file} holds no identity; {self._again}.")
        return identity

    @property
    def worker(self) -> WorkerSettings:
        """Where and with what the run is to be executed."""
        file = self.folder / "worker.json"
        return read_struct(file, WorkerSettings, self._again) or WorkerSettings()

    def set_worker(self, worker: WorkerSettings) -> None:
        """Replace the settings of the worker where they differ."""
        content = canonical(worker) + b"\n"
        file = self.folder / "worker.json"
        try:
            same = read_plain(file) == content
        except OSError:
            same = False
        if not same:
            write_atomically(file, content)

    # The result.

    def result(self) -> AnyResult | None:
        """The published result, or None; one that is damaged or of another run is an error that says how to mend it."""
        file = self.folder / "result.json"
        # mypy does not accept a union as a type argument yet (PEP 747).
        result: AnyResult | None = read_struct(file, AnyResult, self._mend)  # type: ignore[arg-type]
        if result is not None and result.id != self.id:
            raise UnmaskError(f"{file} is the result of another run ({result.id}); {self._mend}.")
        if result is not None and not all(map(is_countable, msgspec.to_builtins(result).values())):
            raise UnmaskError(
                f"{file} is damaged (it holds a number that nobody can have counted); {self._mend}."
            )
        if result is not None and result.schema > SCHEMA:
            raise UnmaskError(
                f"{file} was written by a newer version of Unmask (schema {result.schema}, here {SCHEMA}); "
                "install that version to read it."
            )
        return result

    def publish(self, result: AnyResult) -> bool:
        """Publish the result unless there is one; True if this one was published."""
        if result.id != self.id:
            raise UnmaskError(f"A result of {result.id} was to be published as that of {self.id}.")
        try:
            canonical(result)
        except ValueError:
            raise UnmaskError(
                f"The result of {self.name} holds a number that is not finite, so it was not published."
            ) from None
        return publish_once(self.folder / "result.json", result)

    def write_summary(self, summary: str) -> None:
        """Put the result in the layout of older scripts beside it."""
        write_atomically(self.folder / "summary.json", summary)

    def retract(self, reason: str) -> None:
        """Keep the result out of every table from now on; it stays on record with the reason."""
        if not reason.strip():
            raise UnmaskError("A retraction needs a reason; say what is wrong with the result.")
        if not (self.folder / "result.json").exists():
            raise UnmaskError(f"{self.name} has no result that could be retracted.")
        retraction = Retraction(
            id=self.id,
            reason=reason.strip(),
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        if not publish_once(self.folder / "retracted.json", retraction):
            raise UnmaskError(f"{self.name} was retracted before; its reason is in retracted.json.")

    def take_back_retraction(self) -> None:
        """Let the result count again; the retraction and its reason are kept under `previous`."""
        file = self.folder / "retracted.json"
        if not file.exists():
            raise UnmaskError(f"{self.name} is not retracted, so there is nothing to take back.")
        self._move([file.name])

    def retraction(self) -> Retraction | None:
        """Reason and time of a retraction; a damaged one still retracts."""
        try:
            mend = "delete it and run the command again"
            return read_struct(self.folder / "retracted.json", Retraction, mend)
        except UnmaskError as error:
            return Retraction(id=self.id, reason=str(error))

    # Recordings: samples decoded again, step by step, for the report's viewer.

    def recording_file(self, sample: str) -> Path:
        """Where the recording of a sample is kept."""
        return self.folder / "replays" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', sample)[:100]}.json"

    def recording(self, sample: str) -> dict[str, Any] | None:
        """A recording that belongs to the present result; None where it must be made."""
        try:
            recording = read_json_if_there(self.recording_file(sample))
        except UnmaskError:
            return None
        if recording is None or recording.get("schema") != RECORDING_SCHEMA:
            return None
        fits = recording.get("sample") == sample and recording.get("of") == self.recorded_result()
        return recording if fits else None

    def keep_recording(self, sample: str, recording: Mapping[str, Any]) -> Path:
        """Keep the recording of a sample beside the result that it belongs to."""
        file = self.recording_file(sample)
        make_folder(file.parent)
        mark = {"schema": RECORDING_SCHEMA, "of": self.recorded_result(), "run": self.id, "sample": sample}
        write_atomically(file, canonical({**mark, **recording}) + b"\n", verbatim=True)
        return file

    def recorded_result(self) -> dict[str, str | None]:
        """What a recording belongs to: a run that is executed again has other answers."""
        result = self.result()
        if not isinstance(result, AccuracyResult):
            return {"attempt": None, "answers": None}
        return {"attempt": result.attempt, "answers": result.answers.sha256}

    # Attempts.

    def attempts(self) -> list[Attempt]:
        """All attempts by their number."""
        return attempts_in(self.folder / "attempts")

    def new_attempt(self, worker: str | None = None) -> Attempt:
        """Begin an attempt in a folder of its own; `worker` names the file of a worker that takes other runs too."""
        return Attempt.create(self.folder / "attempts", self.id, worker)

    def attempt(self, number: str) -> Attempt:
        """One attempt by its number."""
        return Attempt(self.folder / "attempts" / number)

    def answers(self, kind: Computation | None = None) -> dict[str, AnyAnswer]:
        """The answers of all attempts, or of those of one kind, by their key; the first of several for a key counts."""
        answers: dict[str, AnyAnswer] = {}
        # Answers that are only out of reach, or whose kind is, would be computed again.
        for attempt in attempts_in(self.folder / "attempts", strict=True):
            computation = attempt.computation(strict=True)
            if kind is None or (computation is not None and not computation.change_to(kind)):
                for answer in attempt.answers():
                    answers.setdefault(answer.key, answer)
        return answers

    def answers_of_other_kinds(self, kind: Computation) -> dict[str, set[str]]:
        """The keys of answers that come from another kind of computation, by what is different about it."""
        found: dict[str, set[str]] = {}
        for attempt in self.attempts():
            other = attempt.computation(strict=True)
            change = other.change_to(kind) if other else "what they were computed with is not on record"
            if change:
                found.setdefault(change, set()).update(answer.key for answer in attempt.answers())
        return {change: keys for change, keys in found.items() if keys}

    def dtype(self) -> str | None:
        """The number format of the first attempt that answered anything, which holds for the run from then on."""
        for attempt in self.attempts():
            computation = attempt.computation(strict=True)
            if computation is not None and any(attempt.answers()):
                return computation.dtype
        return None

    # Ways out.

    def set_aside(self) -> Path | None:
        """Move result and attempts to previous/NNNN, so that the run begins anew; None where there is nothing."""
        present = [name for name in RESULT_FILES if (self.folder / name).exists()]
        if not present:
            return None
        return self._move(present)

    def put_damaged_away(self) -> None:
        """Move a result that cannot be read out of the way; the answers stay, so the next one is soon made."""
        try:
            self.result()
        except UnmaskError:
            self._move(["result.json"])

    def _move(self, names: Iterable[str]) -> Path:
        """Move files to a new folder under `previous`."""
        place = _numbered(self.folder / "previous")
        try:
            for name in names:
                (self.folder / name).rename(place / name)
        except OSError as error:
            raise UnmaskError(f"{self.folder} cannot be changed ({error.strerror}).") from error
        sync_folder(self.folder)
        return place

    def remove(self) -> None:
        """Delete the run with everything in it; a reader never meets half of it."""
        doomed = self.folder.with_name(f".removed.{self.name}.{secrets.token_hex(4)}")
        try:
            self.folder.rename(doomed)
            shutil.rmtree(doomed)
        except OSError as error:
            raise UnmaskError(f"{self.folder} cannot be removed ({error.strerror}).") from error

    @property
    def _mend(self) -> str:
        return "`unmask run RECIPE --retry-failed` computes it anew from the answers that are there"

    @property
    def _again(self) -> str:
        return "delete that file and run again: it is written anew"


def _numbered(folder: Path) -> Path:
    """A new folder with the next number."""
    make_folder(folder)
    number = max((int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal()), default=0)
    while True:
        number += 1
        try:
            (folder / f"{number:04}").mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise UnmaskError(f"{folder} cannot be written to ({error.strerror}).") from error
        return folder / f"{number:04}"
