"""What must hold of a store at every moment, however its writers ended."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from stub import PUBLISHED, ROW

from unmask.store import RunFolder, Store
from unmask.store.attempt import AnyAnswer
from unmask.store.result import AccuracyResult
from unmask.store.state import state_of, states
from unmask.store.stopping import AnsweredRow, rows_of

HIDDEN_FROM_SIGHT = "."
WAY = ("attempt", "seconds", "loading_seconds", "finished", "environment", "speed")
"""Fields of a result that depend on the way to it."""


class BrokenPromiseError(Exception):
    """A promise of the store that does not hold."""


class Watch:
    """Remembers what was seen of a store: nothing of it may be gone or changed at the next look."""

    def __init__(self, store: Store, acknowledged: Path, alone: bool = True, may_fail: bool = False) -> None:
        self.store, self.acknowledged = store, acknowledged
        self.alone, self.may_fail = alone, may_fail
        """Whether at most one worker at a time is at a run; whether attempts may write down a failure."""
        self._answers: dict[tuple[str, str], AnyAnswer] = {}
        self._rows: dict[tuple[str, str], AnsweredRow] = {}
        self._results: dict[str, str] = {}
        self.checks = 0

    def check(self) -> None:
        """Look at everything."""
        self.checks += 1
        seen = dict(states(self.store))
        confirmed = self._confirmed()
        for run in self.store.runs():
            if not (run.folder / "run.json").exists():
                continue  # killed between making the folder and freezing the identity
            self._check_state(run, seen[run.name].status)
            self._check_answers(run, confirmed)
            self._check_result(run, confirmed)
            self._check_rows(run, confirmed)
            for file in run.folder.rglob("*.json"):
                if not file.name.startswith(HIDDEN_FROM_SIGHT):
                    json.loads(file.read_bytes())

    def _confirmed(self) -> Counter[tuple[str, str]]:
        lines = self.acknowledged.read_text().splitlines() if self.acknowledged.exists() else []
        confirmed = Counter((run, key) for run, key in map(str.split, lines))
        for (run, key), times in confirmed.items():
            if times > 1 and not key.startswith(ROW) and (key == PUBLISHED or self.alone):
                raise BrokenPromiseError(f"{run}: {key} was confirmed {times} times")
        return confirmed

    def _check_state(self, run: RunFolder, status: str) -> None:
        alone = state_of(run).status
        if "failed" in (alone, status) and not self.may_fail:
            raise BrokenPromiseError(f"{run.name} counts as failed: {state_of(run).reason}")
        if (alone == "done") != (run.result() is not None):
            raise BrokenPromiseError(f"{run.name} counts as {alone}, its result says otherwise")

    def _check_answers(self, run: RunFolder, confirmed: Counter[tuple[str, str]]) -> None:
        found: dict[str, AnyAnswer] = {}
        for attempt in run.attempts():
            if attempt.record().run != run.id:
                raise BrokenPromiseError(f"{run.name}: attempt {attempt.number} has no whole attempt.json")
            own: set[str] = set()
            for each in attempt.answers():
                if each.key in own or (self.alone and each.key in found):
                    raise BrokenPromiseError(f"{run.name}: {each.key} stands there twice")
                if found.setdefault(each.key, each) != each:
                    raise BrokenPromiseError(f"{run.name}: two answers to {each.key} differ")
                own.add(each.key)
        for (name, key), before in self._answers.items():
            if name == run.id and found.get(key) != before:
                raise BrokenPromiseError(f"{run.name}: the answer {key} was there and is lost or changed")
        for name, key in confirmed:
            if name == run.id and key != PUBLISHED and not key.startswith(ROW) and key not in found:
                raise BrokenPromiseError(f"{run.name}: the answer {key} was confirmed and is not there")
        self._answers.update({(run.id, key): each for key, each in found.items()})

    def _check_rows(self, run: RunFolder, confirmed: Counter[tuple[str, str]]) -> None:
        """Scored rows stay as they are; rounds that an earlier attempt has scored are scored again by the next one."""
        found = rows_of(run)
        for (name, key), before in self._rows.items():
            if name == run.id and found.get(key) != before:
                raise BrokenPromiseError(f"{run.name}: the row {key} was there and is lost or changed")
        for name, key in confirmed:
            if name == run.id and key.startswith(ROW) and key not in found:
                raise BrokenPromiseError(f"{run.name}: the row {key} was confirmed and is not there")
        self._rows.update({(run.id, key): each for key, each in found.items()})

    def _check_result(self, run: RunFolder, confirmed: Counter[tuple[str, str]]) -> None:
        result = run.result()
        if result is None:
            if run.id in self._results or (run.id, PUBLISHED) in confirmed:
                raise BrokenPromiseError(f"{run.name}: its result was published and is gone")
            return
        digest = hashlib.sha256((run.folder / "result.json").read_bytes()).hexdigest()
        if self._results.setdefault(run.id, digest) != digest:
            raise BrokenPromiseError(f"{run.name}: its result was published twice")
        assert isinstance(result, AccuracyResult)
        samples = list(run.attempt(result.attempt or "").samples())
        if not len(samples) == len({each.id for each in samples}) == result.rows:
            raise BrokenPromiseError(
                f"{run.name}: {result.rows} rows and {len(samples)} samples, or a sample twice"
            )

    def outcome(self) -> dict[str, Any]:
        """What does not depend on the way to it, by run; every run must be done."""
        self.check()
        found = {}
        for run in self.store.runs():
            result = run.result()
            if result is None:
                raise BrokenPromiseError(
                    f"{run.name} has no result after an undisturbed run ({state_of(run)})"
                )
            fields = msgspec.to_builtins(result)
            for name in WAY:
                fields.pop(name, None)
            fields["answers"].pop("resumed", None)
            samples = [msgspec.to_builtins(each) for each in run.attempt(result.attempt or "").samples()]
            found[run.id] = {**fields, "samples": samples}
        return found

    def expect(self, calm: dict[str, Any]) -> None:
        """The outcome must be that of an undisturbed store, bit for bit."""
        found = self.outcome()
        if found.keys() != calm.keys():
            raise BrokenPromiseError(f"runs {sorted(found)} instead of {sorted(calm)}")
        for run, fields in found.items():
            differ = [name for name in fields if fields[name] != calm[run].get(name)]
            if differ:
                raise BrokenPromiseError(f"{run}: {', '.join(differ)} differ from an undisturbed run")

    def left_behind(self) -> int:
        """Hidden files that killed writers left; no reader looks at them."""
        return sum(
            file.is_file() and file.name != ".lock" for file in self.store.root.rglob(f"{HIDDEN_FROM_SIGHT}*")
        )
