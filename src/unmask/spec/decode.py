"""How a request is decoded: plain, validated data that is part of a result's identity."""

import math
from typing import ClassVar

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.build import within

MOST_TOKENS, LARGEST_BLOCK, LARGEST_SEED, MOST_STOPS = 1_000_000, 4096, (1 << 63) - 1, 1000


class DecodeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the block-diffusion decoder; the defaults are those the published speeds were taken with."""

    later: ClassVar[tuple[str, ...]] = ()
    """Settings that came after version 0.2: at their default they stay out of identities, so that ids stay."""

    max_new_tokens: int = 512
    """Upper bound of returned tokens; what is returned is the beginning of the unlimited decoding."""

    threshold: float = 0.9
    """A masked position is unmasked when its confidence is strictly greater; 1 gives one token a step."""

    sub_block_size: int = 8
    """Positions that compete in one denoising step; must divide the block size."""

    block_size: int | None = None
    """Positions of a block; None takes the checkpoint's."""

    block_cache: bool = True
    """Whether later steps of a sub-block feed that sub-block only, on the keys of the last full-block step."""

    temperature: float = 0.0
    """0 takes the most likely token of a position; above 0 the token is drawn."""

    top_p: float = 0.95
    """Share of probability mass that a draw may come from; without effect at temperature 0."""

    seed: int = 0
    """Seed of the draws; without effect at temperature 0."""

    stop_tokens: tuple[int, ...] | None = None
    """Token ids that end an answer; None takes the checkpoint's."""

    stop_strings: tuple[str, ...] = ()
    """The text is cut before the first of these."""

    def __post_init__(self) -> None:
        """Refuse values that no decoding could honour."""
        within("max_new_tokens", self.max_new_tokens, 1, MOST_TOKENS)
        if not 0 < self.threshold <= 1:
            raise UnmaskError(f"threshold is {self.threshold}; it must lie in (0, 1].")
        within("sub_block_size", self.sub_block_size, 1, LARGEST_BLOCK)
        within("block_size", self.block_size, 1, LARGEST_BLOCK)
        within("seed", self.seed, 0, LARGEST_SEED)
        for token in self.stop_tokens or ():
            within("A stop token", token, 0, LARGEST_SEED)
        for name, stops in (("stop_tokens", self.stop_tokens or ()), ("stop_strings", self.stop_strings)):
            within(f"The number of {name}", len(stops), 0, MOST_STOPS)
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise UnmaskError(f"temperature is {self.temperature}; it must be 0 or a positive number.")
        if not 0 < self.top_p <= 1:
            raise UnmaskError(f"top_p is {self.top_p}; it must lie in (0, 1].")
        if "" in self.stop_strings:
            raise UnmaskError("A stop string is empty; leave it out or give at least one character.")

    def resolved(self, checkpoint_block_size: int | None) -> "DecodeSpec":
        """The same settings with those that are left to the checkpoint filled in, as an identity holds them."""
        if self.block_size is None and checkpoint_block_size is None:
            return self
        return msgspec.structs.replace(self, block_size=self.resolved_block_size(checkpoint_block_size))

    def resolved_block_size(self, checkpoint_block_size: int | None) -> int:
        """Return the block size in force, or say why there is none that fits."""
        size = self.block_size or checkpoint_block_size
        if size is None:
            raise UnmaskError(
                "The checkpoint's config.json has no bd_size; give block_size in the decode settings."
            )
        if size % self.sub_block_size:
            raise UnmaskError(
                f"The block size {size} is not a multiple of sub_block_size {self.sub_block_size}; "
                "choose a sub-block that divides the block."
            )
        return size
