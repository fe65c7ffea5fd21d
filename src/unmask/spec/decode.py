"""How a request is decoded: plain, validated data that is part of a result's identity."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.build import within
from unmask.spec.family import CacheName, EndOfText, Family
from unmask.spec.rule import AnyRuleSpec, ThresholdSpec, check_threshold

MOST_TOKENS, LARGEST_BLOCK, LARGEST_SEED, MOST_STOPS = 1_000_000, 4096, (1 << 63) - 1, 1000
MOST_GUIDANCE, MOST_DRAWS = 1000, 100_000


class DecodeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the decoder. None stands for what the family of the checkpoint, or the checkpoint itself, says."""

    later: ClassVar[tuple[str, ...]] = ("rule", "refresh_every", "top_k", "guidance", "end_of_text", "draws")
    """Settings that came after version 0.2: at their default they stay out of identities, so that ids stay."""
    renamed: ClassVar[dict[str, str]] = {
        "block_cache": 'cache: "dual" is what true was, "none" what false was'
    }

    max_new_tokens: int = 512
    """Upper bound of returned tokens; what is returned is the beginning of the unlimited decoding."""

    threshold: float | None = None
    """Short for the rule `threshold`: a masked position is unmasked when its confidence is strictly greater."""

    rule: AnyRuleSpec | None = None
    """The unmasking rule: which predictions a denoising step makes known."""

    sub_block_size: int | None = None
    """Positions that compete in one denoising step; must divide the block size."""

    block_size: int | None = None
    """Positions of a block."""

    cache: CacheName | None = None
    """What later steps of a sub-block feed, on the keys of its last full-block step: `none` feeds the whole block,
    `prefix` the sub-block and what follows it, `dual` the sub-block only."""

    refresh_every: int | None = None
    """With a cache: steps after which a sub-block takes a full-block step again."""

    temperature: float = 0.0
    """0 takes the most likely token of a position; above 0 the token is drawn."""

    top_p: float | None = None
    """Share of probability mass that a draw may come from. Where a family says so it also acts at temperature 0."""

    top_k: int | None = None
    """Number of tokens that a draw may come from, the most likely ones; acts where `top_p` does."""

    guidance: float = 0.0
    """How strongly predictions are pushed away from those that the model makes without the prompt (published as
    `cfg_scale`); every step then feeds its rows twice."""

    end_of_text: EndOfText | None = None
    """Holds back tokens that end a text: `never` predicts none, `last` takes any other prediction first."""

    draws: int = 128
    """Draws of each log likelihood that the estimator `monte_carlo` makes."""

    seed: int = 0
    """Seed of all draws; without effect where nothing is drawn."""

    stop_tokens: tuple[int, ...] | None = None
    """Token ids that end an answer; None takes the checkpoint's."""

    stop_strings: tuple[str, ...] = ()
    """The text is cut before the first of these."""

    def __post_init__(self) -> None:
        """Refuse values that no decoding could honour."""
        within("max_new_tokens", self.max_new_tokens, 1, MOST_TOKENS)
        if self.threshold is not None:
            check_threshold(self.threshold)
            if self.rule is not None:
                raise UnmaskError("threshold is short for a rule, and rule names one as well; leave one out.")
        within("sub_block_size", self.sub_block_size, 1, LARGEST_BLOCK)
        within("block_size", self.block_size, 1, LARGEST_BLOCK)
        within("seed", self.seed, 0, LARGEST_SEED)
        within("refresh_every", self.refresh_every, 1, MOST_TOKENS)
        within("top_k", self.top_k, 1, LARGEST_SEED)
        within("guidance", self.guidance, 0, MOST_GUIDANCE)
        within("draws", self.draws, 1, MOST_DRAWS)
        for token in self.stop_tokens or ():
            within("A stop token", token, 0, LARGEST_SEED)
        for name, stops in (("stop_tokens", self.stop_tokens or ()), ("stop_strings", self.stop_strings)):
            within(f"The number of {name}", len(stops), 0, MOST_STOPS)
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise UnmaskError(f"temperature is {self.temperature}; it must be 0 or a positive number.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UnmaskError(f"top_p is {self.top_p}; it must lie in (0, 1].")
        if "" in self.stop_strings:
            raise UnmaskError("A stop string is empty; leave it out or give at least one character.")

    def resolved(self, family: Family, checkpoint_block_size: int | None) -> "ResolvedSpec":
        """The same settings as an identity holds them: what is left to family and checkpoint is filled in."""
        cache = self._cache_in(family)
        size, sub_block_size = self._sizes_in(family, checkpoint_block_size, cache)
        if self.guidance and not family.canvas:
            raise UnmaskError(
                f"Guidance needs a prompt that can be hidden in every step; models of the family {family.name} keep "
                "its keys, so leave guidance out."
            )
        rule = self._rule_in(family)
        threshold = rule.threshold if isinstance(rule, ThresholdSpec) and rule.steps is None else None
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        values |= {
            "threshold": threshold,
            "rule": rule if threshold is None else None,
            "sub_block_size": sub_block_size,
            "block_size": size,
            "cache": cache,
            "top_p": family.top_p if self.top_p is None else self.top_p,
        }
        return ResolvedSpec(**values)

    def _cache_in(self, family: Family) -> CacheName:
        cache = self.cache or family.caches[0]
        if cache not in family.caches:
            raise UnmaskError(
                f"Models of the family {family.name} cannot use the cache {cache}; "
                f"choose among {', '.join(family.caches)}."
            )
        if self.refresh_every is not None and cache == "none":
            raise UnmaskError(
                "refresh_every is an interval of a cache, but the cache is none; leave one out."
            )
        return cache

    def _sizes_in(
        self, family: Family, checkpoint_block_size: int | None, cache: CacheName
    ) -> tuple[int | None, int | None]:
        """Positions of a block (None: prompt and answer) and of a sub-block (None: the answer)."""
        sub_block_size = self.sub_block_size or family.sub_block_size
        if cache != "none":
            sub_block_size = self.sub_block_size or family.cached_sub_block_size or sub_block_size
        if family.canvas:
            if self.block_size is not None:
                raise UnmaskError(
                    f"block_size is {self.block_size}, but prompt and answer are one block in models of the family "
                    f"{family.name}; leave it out (what their publishers call a block is sub_block_size)."
                )
            return None, sub_block_size
        size = self._block_size_in(family, checkpoint_block_size)
        if size % (sub_block_size or size):
            raise UnmaskError(
                f"The block size {size} is not a multiple of sub_block_size {sub_block_size}; "
                "choose a sub-block that divides the block."
            )
        return size, sub_block_size or size

    def _block_size_in(self, family: Family, checkpoint_block_size: int | None) -> int:
        if family.block_field is None and self.block_size not in (None, family.block_size):
            raise UnmaskError(
                f"block_size is {self.block_size}, but models of the family {family.name} have blocks of "
                f"{family.block_size}; leave it out."
            )
        size = self.block_size or checkpoint_block_size or family.block_size
        if size is None:
            raise UnmaskError(
                f"The checkpoint's config.json has no {family.block_field}; give block_size in the decode settings."
            )
        return size

    def _rule_in(self, family: Family) -> AnyRuleSpec:
        given = self.rule if self.threshold is None else ThresholdSpec(threshold=self.threshold)
        if not family.has_mask and given not in (None, family.rule):
            raise UnmaskError(
                f"Models of the family {family.name} predict one token at a time, so no unmasking rule can serve "
                "them; leave threshold and rule out."
            )
        return given or family.rule


class ResolvedSpec(DecodeSpec, frozen=True, kw_only=True):
    """Decode settings that leave nothing to the checkpoint. A plain threshold is written short."""

    sub_block_size: int | None
    """None: a sub-block is the whole answer."""
    block_size: int | None
    """None: a block is prompt and answer."""
    cache: CacheName
    top_p: float

    @property
    def unmasking(self) -> AnyRuleSpec:
        """The rule, written out."""
        return self.rule or ThresholdSpec(threshold=self.threshold or 1.0)


def cache_of(decode: Mapping[str, Any]) -> CacheName | None:
    """The cache of stored decode settings; version 0.1 had two of them and wrote block_cache."""
    before: dict[Any, CacheName] = {True: "dual", False: "none"}
    cache: CacheName | None = decode.get("cache")
    return cache or before.get(decode.get("block_cache"))


def joined(settings: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Decode settings with others put over them; a rule, or a threshold that is short for one, replaces either."""
    replaced = {"threshold", "rule"} if {"threshold", "rule"} & over.keys() else set()
    return {name: value for name, value in settings.items() if name not in replaced} | dict(over)
