"""From a path or hub id to an engine that knows every policy."""

from pathlib import Path

import torch

from unmask.engine.engine import Engine
from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint
from unmask.model.config import ModelConfig
from unmask.model.device import choose_device, choose_dtype
from unmask.model.hub import find_checkpoint
from unmask.model.token_files import find_mask_token
from unmask.model.weights import Progress, load_transformer
from unmask.policies.registry import make_policy


def load(
    model: str | Path,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    mask_token_id: int | None = None,
    revision: str | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Load a checkpoint folder or hub id; device and dtype are chosen to suit the machine unless given."""
    chosen = choose_device(device)
    checkpoint = open_checkpoint(find_checkpoint(model, revision))
    mask_token = find_mask_id(checkpoint.config, checkpoint.folder, mask_token_id)
    transformer = load_transformer(checkpoint, chosen, choose_dtype(dtype, chosen), progress)
    return Engine(transformer, mask_token, checkpoint.folder, make_policy)


def find_mask_id(config: ModelConfig, folder: Path, given: int | None) -> int:
    """The mask token: as given, else the config's, else the tokenizer's."""
    mask_token = given if given is not None else config.mask_token_id
    if mask_token is None:
        mask_token = find_mask_token(folder)
    if mask_token is None:
        raise UnmaskError(
            f"{folder} names no mask token; give its id as mask_token_id (on the command line --mask-token-id)."
        )
    if not 0 <= mask_token < config.vocab_size:
        raise UnmaskError(
            f"The mask token {mask_token} is outside the vocabulary of {config.vocab_size} tokens."
        )
    return mask_token
