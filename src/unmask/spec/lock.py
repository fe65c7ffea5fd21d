"""What a run depends on, written down once by its hashes. Data only: `unmask.evaluation.lock` makes and checks it.

A lock is what lets `plan`, `run` and `status` know every run's identity without a model or a data set at
hand. It never holds a token.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import MOST_TEXT, is_inside, parse_json, read_plain
from unmask.spec.build import build_named, shown, within
from unmask.spec.decode import DecodeSpec, ResolvedSpec
from unmask.spec.family import FAMILIES, FAST_DLLM_V2

LARGEST_NUMBER, MOST_LAYERS = 1 << 24, 1024


class LockedCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One checkpoint by the hashes of its files."""

    model: str
    """As it was asked for."""
    revision: str | None = None
    """The commit of a hub checkpoint."""
    asked_revision: str | None = None
    """The branch, tag or commit that was asked for."""
    files: dict[str, str] = {}
    """SHA-256 of every file of the checkpoint."""
    shape: dict[str, int] = {}
    """The architecture's numbers that costs depend on."""
    block_size: int | None = None
    """The checkpoint's own."""
    family: str = FAST_DLLM_V2.name
    """The family of its models."""
    mask_token_id: int | None = None
    """The checkpoint's own, as its config or its tokenizer names it."""

    def __post_init__(self) -> None:
        """Refuse what no checkpoint has: the lock was edited, or cut short."""
        for file in self.files:
            if not is_inside(file):
                raise UnmaskError(f"The lock names {file!r}, which is no file in a checkpoint's folder.")
        for name, number in {**self.shape, "block_size": self.block_size or 1}.items():
            within(f"The lock's {name}", number, 1, LARGEST_NUMBER)
        within("The lock's layers", self.shape.get("layers"), 1, MOST_LAYERS)
        if self.family not in FAMILIES:
            raise UnmaskError(
                f"The lock's family is {shown(self.family)}; this version knows {', '.join(FAMILIES)}."
            )

    def decoded(self, decode: DecodeSpec) -> ResolvedSpec:
        """Decode settings with everything filled in that they leave to the checkpoint."""
        return decode.resolved(FAMILIES[self.family], self.block_size)

    @property
    def weights(self) -> str:
        """One hash for all files of the checkpoint."""
        listing = json.dumps(self.files, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(listing.encode()).hexdigest()


class Lock(LockedCheckpoint, frozen=True, kw_only=True):
    """The content of a lock file: the recipe's checkpoint, those of single configurations, and the data."""

    others: dict[str, LockedCheckpoint] = {}
    """By the names that the recipe gives them."""
    datasets: dict[str, str] = {}
    """The commit of every hub dataset."""
    members: dict[str, tuple[str, ...]] = {}
    """The tasks of each name that was asked for: itself, or those of a group."""
    tasks: dict[str, str] = {}
    """SHA-256 of every task's rows, as the model will be asked them."""
    sizes: dict[str, int] = {}
    """Rows of every task."""
    versions: dict[str, str] = {}
    """Every task's own version."""
    lm_eval: str | None = None

    def __post_init__(self) -> None:
        """Refuse a lock whose parts do not fit each other: it was edited, or cut short."""
        for name, members in self.members.items():
            missing = [task for task in members if not task_is_known(task, self)]
            if missing or not members:
                raise UnmaskError(
                    f"The lock does not say all of {', '.join(missing[:1]) or name}; run `unmask prepare` again."
                )
        for name, number in self.sizes.items():
            within(f"The lock's {name}", number, 1, LARGEST_NUMBER)
        super().__post_init__()

    def with_checkpoint(self, name: str) -> Self:
        """The same lock with another of its checkpoints in the place of the recipe's own."""
        if name not in self.others:
            raise UnmaskError(
                f"The checkpoint {name} is not in the lock; run `unmask prepare` on the recipe again."
            )
        return self._about(self.others[name])

    def with_weights(self, weights: str | None) -> Self | None:
        """The same lock with the checkpoint of this hash in the place of the recipe's own; None where it has none."""
        checkpoints: list[LockedCheckpoint] = [self, *self.others.values()]
        return next((self._about(each) for each in checkpoints if each.weights == weights), None)

    def _about(self, checkpoint: LockedCheckpoint) -> Self:
        fields = LockedCheckpoint.__struct_fields__
        return msgspec.structs.replace(self, **{field: getattr(checkpoint, field) for field in fields})


class Outline(Lock, frozen=True, kw_only=True):
    """What is known before a lock is made: shape and numbers of rows, but no hashes, so that no run has an id."""

    @classmethod
    def of(
        cls,
        checkpoints: Mapping[str, LockedCheckpoint],
        members: dict[str, tuple[str, ...]],
        sizes: dict[str, int],
    ) -> "Outline":
        """An outline, the recipe's own checkpoint first, with nothing in the place of every hash and version."""
        unknown = dict.fromkeys(sizes, "")
        own, *others = checkpoints.values()
        fields = {field: getattr(own, field) for field in LockedCheckpoint.__struct_fields__}
        return cls(
            **fields,
            others=dict(zip(list(checkpoints)[1:], others, strict=True)),
            members=members,
            sizes=sizes,
            tasks=unknown,
            versions=unknown,
        )


def task_is_known(task: str, lock: "Lock") -> bool:
    """Whether a lock holds a task's rows, their number and its version."""
    return task in lock.tasks and task in lock.sizes and task in lock.versions


def read_lock(file: Path) -> Lock:
    """Read a lock file."""
    try:
        values = parse_json(read_plain(file, MOST_TEXT))
    except FileNotFoundError:
        raise UnmaskError(f"{file}: no such lock; write one with `unmask prepare`.") from None
    except OSError as error:
        raise UnmaskError(f"{file} cannot be read ({error.strerror}); run `unmask prepare` again.") from None
    except ValueError as error:
        raise UnmaskError(f"{file} cannot be read as a lock ({error}); run `unmask prepare` again.") from None
    return build_named(Lock, values, str(file))


def as_text(lock: Lock) -> str:
    """A lock file's text."""
    return json.dumps(msgspec.to_builtins(lock), indent=1, sort_keys=True) + "\n"
