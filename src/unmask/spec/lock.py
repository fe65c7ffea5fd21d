"""What a run depends on, written down once by its hashes. Data only: `unmask.evaluation.lock` makes and checks it.

A lock is what lets `plan`, `run` and `status` know every run's identity without a model or a data set at
hand. It never holds a token.
"""

import hashlib
import json
from pathlib import Path

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import MOST_TEXT, is_inside, parse_json, read_plain
from unmask.spec.build import build_named, shown, within
from unmask.spec.decode import DecodeSpec, ResolvedSpec
from unmask.spec.family import FAMILIES, FAST_DLLM_V2

LARGEST_NUMBER, MOST_LAYERS = 1 << 24, 1024


class Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a lock file."""

    model: str
    """As it was asked for."""
    revision: str | None = None
    """The commit of a hub checkpoint."""
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
        for file in self.files:
            if not is_inside(file):
                raise UnmaskError(f"The lock names {file!r}, which is no file in a checkpoint's folder.")
        numbers = {**self.shape, **self.sizes, "block_size": self.block_size or 1}
        for name, number in numbers.items():
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


class Outline(Lock, frozen=True, kw_only=True):
    """What is known before a lock is made: shape and numbers of rows, but no hashes, so that no run has an id."""

    @classmethod
    def of(
        cls,
        model: str,
        shape: dict[str, int],
        block_size: int | None,
        family: str,
        members: dict[str, tuple[str, ...]],
        sizes: dict[str, int],
    ) -> "Outline":
        """An outline, with nothing in the place of every hash and version."""
        unknown = dict.fromkeys(sizes, "")
        return cls(
            model=model,
            shape=shape,
            block_size=block_size,
            family=family,
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
