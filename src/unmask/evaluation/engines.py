"""What a worker has loaded: its engines, and whether they can answer a further run as a fresh worker would.

A worker takes one run after another as long as nothing differs that it has in memory: the lock, the checkpoint with its
device and number format, the source of policies and rules. Knows run folders and locks, not tasks or answers.
"""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.engine.engine import Engine
from unmask.engine.halving import MemoryRanOutWarning
from unmask.errors import UnmaskError
from unmask.loading import load
from unmask.policies.registry import policy_spec
from unmask.reading import read_plain
from unmask.spec.lock import Lock, LockedCheckpoint, read_lock
from unmask.spec.policy import CustomSpec
from unmask.spec.rule import CustomRuleSpec, rule_spec
from unmask.store.run_folder import RunFolder

Key = tuple[Any, ...]


class LoadedEngines:
    """The memory of one worker process."""

    def __init__(self) -> None:
        self._engines: dict[Key, Engine] = {}
        self._lock: bytes | None = None
        self._code: dict[str, str] = {}
        self.loading_seconds = 0.0
        """Of the present run."""
        self.ran_out = False
        """Whether memory ran out in a run; what is left may be in pieces, so a fresh worker takes the next one."""

    def suit(self, run: RunFolder) -> bool:
        """Whether this process can take a further run; before anything is loaded it can take any."""
        if not self._engines:
            return True
        try:
            return not self.ran_out and self._suit(run)
        except (UnmaskError, OSError):
            return False  # a fresh worker meets the same, and writes it down

    def _suit(self, run: RunFolder) -> bool:
        identity, file = run.identity, Path(run.worker.lock)
        if identity["kind"] == "timing" or read_plain(file) != self._lock:
            return False
        code = code_of(identity)
        if any(self._code.get(module, digest) != digest for module, digest in code.items()):
            return False
        wanted = keys_of(run, checkpoints_of(identity, read_lock(file)))
        return all(key in self._engines for key in wanted.values())

    def load(self, run: RunFolder, checkpoints: Mapping[str, LockedCheckpoint]) -> dict[str, Engine]:
        """An engine for each of a run's checkpoints; what is loaded in the same way is loaded once."""
        self._lock = read_plain(Path(run.worker.lock))
        self._code |= code_of(run.identity)
        start = time.perf_counter()
        keys = keys_of(run, checkpoints)
        for key in keys.values():
            if key not in self._engines:
                self._engines[key] = load(*key)
        self.loading_seconds = time.perf_counter() - start
        return {name: self._engines[key] for name, key in keys.items()}

    @contextmanager
    def watching_memory(self) -> Iterator[None]:
        """Notice that memory ran out, also where the engine went on with a smaller batch."""
        show = warnings.showwarning

        def look(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            self.ran_out |= issubclass(category, MemoryRanOutWarning)
            show(message, category, *rest, **more)

        warnings.showwarning = look
        try:
            yield
        finally:
            warnings.showwarning = show


def checkpoints_of(identity: Mapping[str, Any], lock: Lock) -> dict[str, LockedCheckpoint]:
    """As they were locked: that of a run, under no name, and those that configurations of a timing run have instead."""
    parts = {"": identity, **identity.get("configurations", {})}
    found = {name: lock.with_weights(part["weights"]) for name, part in parts.items() if "weights" in part}
    known: dict[str, LockedCheckpoint] = {name: one for name, one in found.items() if one is not None}
    if len(known) < len(found):
        raise UnmaskError("The lock has changed since this run was planned; plan and run the recipe again.")
    return known


def keys_of(run: RunFolder, checkpoints: Mapping[str, LockedCheckpoint]) -> dict[str, Key]:
    """How each checkpoint of a run is loaded: the arguments of `load`."""
    identity, dtype = run.identity, run.dtype()
    keys: dict[str, Key] = {}
    for name, checkpoint in checkpoints.items():
        part = identity["configurations"][name] if name else identity
        settings = run.worker.device, part["dtype"] or dtype, part["mask_token_id"], checkpoint.revision
        keys[name] = checkpoint.model, *settings
    return keys


def code_of(identity: Mapping[str, Any]) -> dict[str, str]:
    """The digests of a user's own code that a run imports, by its target, as it stands in the files now."""
    found: dict[str, str] = {}
    for settings in identity.get("configurations", {"": identity}).values():
        rule = settings["decode"].get("rule")
        for spec in (policy_spec(settings["policy"]), rule_spec(rule) if rule else None):
            if isinstance(spec, CustomSpec | CustomRuleSpec):
                (found[spec.target.partition(":")[0]],) = spec.depends_on().values()
    return found
