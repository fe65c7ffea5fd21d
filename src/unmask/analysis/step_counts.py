"""How many tokens the denoising steps of some decode settings make known: by their rule, by a ledger, by a trace.

Knows steps only; what they cost is in ceilings.py.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from unmask.engine.policy import Full
from unmask.engine.step_plan import DENOISING
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec.family import Family
from unmask.spec.rule import AnyRuleSpec, SequentialSpec
from unmask.store.result import CountedWork

PATTERN = 24
"""Steps of the pattern that stands for a mean number of tokens a step."""
SHARES = tuple(tuple(index * part % 8 < part for index in range(8)) for part in range(9))
"""How often the leftmost position is among those that a step makes known: never, in one step of eight, ... always."""


def counted_steps(
    effect: CountedWork, tokens: int, decode: Mapping[str, Any], family: Family
) -> tuple[int, int, int]:
    """Tokens that a rule made known, and the full-block and other denoising steps in which it did.

    Guidance takes every step twice, and some families' caches begin a sub-block with a step that asks no rule.
    """
    block = effect.forwards.get("block", 0)
    sub = sum(effect.forwards.get(kind.value, 0) for kind in DENOISING) - block
    lanes = 2 if decode.get("guidance") else 1
    block, sub = block // lanes, sub // lanes
    if not (family.refresh_writes_first and effect.requests and decode.get("cache", "none") != "none"):
        return tokens, block, sub
    mean = tokens / effect.requests
    openings = min(block, tokens, effect.requests * math.ceil(mean / (decode["sub_block_size"] or mean)))
    return tokens - openings, block - openings, sub


def pattern(mean: float) -> tuple[int, ...]:
    """Whole numbers of at least 1 with this mean, evenly mixed."""
    ends = [math.floor(max(1.0, mean) * step + 1e-9) for step in range(PATTERN + 1)]
    return tuple(after - before for before, after in pairwise(ends))


@dataclass(frozen=True, slots=True)
class StepCounts:
    """How many positions the denoising steps of some decode settings make known, and how that is known."""

    unmasked: tuple[int, ...]
    leftmost: tuple[bool, ...] | None
    """None: either may be."""
    known_by: str

    @classmethod
    def of(cls, tokens: int, block: int, sub: int, known_by: str) -> "StepCounts":
        """Steps of these numbers: as many tokens each, and as large a share of full-block steps."""
        unmasked = pattern(tokens / (block + sub))
        leftmost = min(SHARES, key=lambda shares: abs(_block_share(unmasked, shares) - block / (block + sub)))
        return cls(unmasked, leftmost, known_by)

    @classmethod
    def planned(cls, script: Script, rule: AnyRuleSpec) -> "StepCounts | None":
        """Steps of a rule that goes by their number; None where predictions decide how many positions it writes."""
        if not script.family.has_mask:
            return None
        opened = script.family.refresh_writes_first and script.cache != "none"
        counts = rule.writes(script.sub_block_size or script.new_tokens, opened)
        # Where the first position is among them matters only to a step that may have to feed the row before it.
        leftmost = (True,) if script.family.canvas or isinstance(rule, SequentialSpec) else None
        return cls(counts, leftmost, "the unmasking rule") if counts else None

    @property
    def mean(self) -> float:
        """Tokens a step."""
        return sum(self.unmasked) / len(self.unmasked)


def _block_share(unmasked: tuple[int, ...], leftmost: tuple[bool, ...]) -> float:
    steps = rehearse(Full(), 1, Script(unmasked=unmasked, leftmost=leftmost)).steps()
    return steps["block"] / (steps["block"] + steps["sub"])
