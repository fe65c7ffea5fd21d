"""What happens when memory runs out: the batch is halved, and that is told."""

import gc
import warnings

import torch

from unmask.errors import UnmaskError

SIGNS = "can't allocate memory", "cublas_status_alloc_failed"
"""What other errors say, in lower case, when memory has run out."""


class MemoryRanOutWarning(UserWarning):
    """A batch did not fit into memory and is decoded again in halves."""


def halved(batch_size: int, error: RuntimeError) -> int:
    """The next batch size to try after memory ran out; other errors pass through."""
    message = str(error).lower()
    if not isinstance(error, torch.OutOfMemoryError) and not any(sign in message for sign in SIGNS):
        raise error
    if batch_size == 1:
        raise UnmaskError(
            "Memory ran out with a single request; lower max_new_tokens, shorten the prompt or use a smaller dtype."
        ) from None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    warnings.warn(
        f"Memory ran out: the batch is halved from {batch_size} to {batch_size // 2}.",
        MemoryRanOutWarning,
        stacklevel=3,
    )
    return batch_size // 2
