"""Checkpoints of training: one file, replaced in one go, so that a crash never leaves half of one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError

FILE_NAME = "training.pt"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """The state of training after a step."""

    step: int
    network: dict[str, Tensor]
    optimizer: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write beside the old file, then rename over it."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{FILE_NAME}.new"
    torch.save({f.name: getattr(checkpoint, f.name) for f in dataclasses.fields(checkpoint)}, fresh)
    fresh.replace(folder / FILE_NAME)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint of a folder."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise UnmaskError(f"There is no training checkpoint in {folder}.")
    try:
        return Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
    except (RuntimeError, TypeError, EOFError) as error:
        raise UnmaskError(f"The training checkpoint {path} cannot be read: {error}.") from error
