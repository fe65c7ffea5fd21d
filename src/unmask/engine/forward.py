"""The one forward: every pass of every request, baseline or reuse, generation or scoring, goes through it.

Takes flat rows of any mixture of requests that share a plan, returns their final hidden states.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.model.geometry import Geometry, Segment
from unmask.model.kv_cache import KVCache
from unmask.model.transformer import RopeTables, Transformer


class Workspace:
    """A transformer with the buffers that one decoding writes to."""

    def __init__(self, transformer: Transformer, slots: int, columns: int) -> None:
        self.transformer = transformer
        device, dtype = transformer.device, transformer.dtype
        self.cache = KVCache(transformer.config, slots, columns, device, dtype)
        self.rope = RopeTables.of(transformer.config, columns, device, dtype)

    def forward(self, tokens: Sequence[int], segments: Sequence[Segment]) -> Tensor:
        """Run every layer on the rows and return their final hidden states."""
        x_TD, geometry, rope = self._open(tokens, segments)
        for index in range(len(self.transformer.layers)):
            x_TD += self.transformer.attention(index, x_TD, self.cache, geometry, rope)
            x_TD += self.transformer.mlp(index, x_TD)
        return x_TD

    def first_bad_layer(self, tokens: Sequence[int], segments: Sequence[Segment]) -> str | None:
        """Run the rows again with a look at every branch; name the first that is not finite."""
        x_TD, geometry, rope = self._open(tokens, segments)
        if not _finite(x_TD):
            return "the embedding"
        for index in range(len(self.transformer.layers)):
            x_TD += self.transformer.attention(index, x_TD, self.cache, geometry, rope)
            if not _finite(x_TD):
                return f"the attention of layer {index}"
            x_TD += self.transformer.mlp(index, x_TD)
            if not _finite(x_TD):
                return f"the MLP of layer {index}"
        return None

    def _open(
        self, tokens: Sequence[int], segments: Sequence[Segment]
    ) -> tuple[Tensor, Geometry, RopeTables]:
        transformer = self.transformer
        tokens_T = torch.tensor(tokens).to(transformer.device, non_blocking=True)
        geometry = Geometry(segments, self.cache, transformer.dtype, transformer.device)
        return transformer.embed(tokens_T), geometry, self.rope.at(geometry.positions)


def not_finite_error(where: str | None, dtype: torch.dtype) -> UnmaskError:
    """The sentence for activations that overflowed or were never numbers."""
    place = where or "the head"
    return UnmaskError(
        f"Activations are not finite from {place} on ({str(dtype).removeprefix('torch.')}); "
        "check the weights, or use a wider dtype such as bfloat16 or float32."
    )


def _finite(x_TD: Tensor) -> bool:
    return bool(torch.isfinite(x_TD).all())
