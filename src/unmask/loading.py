"""From a path, a hub id or an opened checkpoint to an engine that knows every policy."""

from pathlib import Path

import torch

from unmask.engine.engine import Engine
from unmask.model.checkpoint import Checkpoint, open_checkpoint
from unmask.model.device import choose_device, choose_dtype
from unmask.model.hub import find_checkpoint
from unmask.model.token_files import mask_token_of
from unmask.model.weights import Progress, load_transformer
from unmask.policies.registry import make_policy


def load(
    model: str | Path | Checkpoint,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    mask_token_id: int | None = None,
    revision: str | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Load a checkpoint folder or hub id; device and dtype are chosen to suit the machine unless given.

    A checkpoint that was opened before is not read again, and the engine shares its tokenizer.
    """
    chosen = choose_device(device)
    checkpoint = model if isinstance(model, Checkpoint) else open_checkpoint(find_checkpoint(model, revision))
    mask_token = mask_token_of(checkpoint.config, checkpoint.folder, mask_token_id)
    transformer = load_transformer(checkpoint, chosen, choose_dtype(dtype, chosen), progress)
    return Engine(transformer, mask_token, checkpoint, make_policy)
