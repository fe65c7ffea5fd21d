"""Facts of published checkpoints and data sets, so that a plan needs neither a lock nor a network.

They ship as one file, `assets/published.json`, which says of each fact where it is from. A lock holds what is true of
the copy at hand, so it comes first wherever there is one.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FACTS = Path(__file__).parents[1] / "assets" / "published.json"


class PublishedCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of checkpoints of one shape; the keys are those of their own files."""

    names: dict[str, dict[str, Any]]
    """Hub ids, each with the values of `config` that it replaces."""
    known: str
    """Where these facts are from."""
    parameters: int
    """A tied head counted once."""
    config: dict[str, Any]
    """Of config.json."""
    generation_config: dict[str, Any] = {}
    """Of generation_config.json."""


class PublishedRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of samples."""

    known: str
    """Where these facts are from."""
    rows: dict[str, int]
    """By file, as the catalogue names it below --data; by name for tasks that ship with the package."""


class PublishedFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    about: str
    checkpoints: tuple[PublishedCheckpoint, ...]
    data: tuple[PublishedRows, ...]


@cache
def facts() -> PublishedFacts:
    """All of them."""
    return msgspec.json.decode(FACTS.read_bytes(), type=PublishedFacts)


def published(name: str) -> PublishedCheckpoint | None:
    """What is known of a hub id, with its own values in place; None for one that is not known."""
    for checkpoint in facts().checkpoints:
        if name in checkpoint.names:
            own = checkpoint.config | checkpoint.names[name]
            return msgspec.structs.replace(checkpoint, names={name: {}}, config=own)
    return None


def published_rows(file_or_task: str) -> int | None:
    """How many samples a file of the catalogue, or a task that ships with the package, has."""
    return next((part.rows[file_or_task] for part in facts().data if file_or_task in part.rows), None)
