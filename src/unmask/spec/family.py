"""Families of models as data: one frozen record each, so that nothing else asks for a family by its name.

A family says how its models decode. What a network looks like (biases, norms, tensor names) is not here.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.rule import AnyRuleSpec, SequentialSpec, ThresholdSpec

CacheName = Literal["dual", "none"]
"""`dual`: within a block, later steps feed the sub-block only, on the keys of the last full-block step."""


EstimatorName = Literal["chain", "canvas", "first_token", "onepass"]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """How the models of one family decode; the settings are those in force where nobody chooses others."""

    name: str
    shift: Literal[0, 1]
    """How many positions to the left of a token the row lies whose logits predict it."""
    caches: tuple[CacheName, ...]
    """The caches within a block that its models can use; the first is the default."""
    block_field: str | None
    """The field of config.json that holds the block size; None: the family leaves no choice."""
    block_size: int | None
    """Positions of a block where config.json names none; None: it must name them."""
    sub_block_size: int | None
    """Positions that compete in one denoising step; None: all of the block."""
    rule: AnyRuleSpec
    """The unmasking rule."""
    estimators: tuple[EstimatorName, ...]
    """How targets can be scored."""
    has_mask: bool = True
    """Whether unknown positions are fed as a mask token; otherwise there is never more than one token to predict."""
    confidence: Literal["nucleus", "tempered"] = "nucleus"
    """At a temperature above 0, the shares that scores are taken of: those within `top_p`, or those before that cut."""
    draws_next: bool = False
    """Whether, at a temperature above 0, the token behind a prefill or commit is drawn like any other."""

    def check_estimator(self, estimator: EstimatorName) -> None:
        """Refuse what the family's models cannot be scored by."""
        if estimator not in self.estimators:
            raise UnmaskError(
                f"Models of the family {self.name} cannot be scored by {estimator}; use {' or '.join(self.estimators)}."
            )


FAST_DLLM_V2 = Family(
    name="fast_dllm_v2",
    shift=1,
    caches=("dual", "none"),
    block_field="bd_size",
    block_size=None,
    sub_block_size=8,
    rule=ThresholdSpec(threshold=0.9),
    estimators=("chain", "canvas", "first_token", "onepass"),
)
SDAR = Family(
    name="sdar",
    shift=0,
    caches=("none",),
    block_field="block_size",
    block_size=4,
    sub_block_size=None,
    rule=ThresholdSpec(threshold=0.85),
    estimators=("chain", "canvas", "onepass"),
    confidence="tempered",
)
AUTOREGRESSIVE = Family(
    name="autoregressive",
    shift=1,
    caches=("none",),
    block_field=None,
    block_size=1,
    sub_block_size=None,
    rule=SequentialSpec(n=1),
    estimators=("chain",),
    has_mask=False,
    draws_next=True,
)
FAMILIES = {family.name: family for family in (FAST_DLLM_V2, SDAR, AUTOREGRESSIVE)}
MODEL_TYPES = {
    "Fast_dLLM_Qwen": FAST_DLLM_V2,
    "llama": AUTOREGRESSIVE,
    "qwen2": AUTOREGRESSIVE,
    "qwen3": AUTOREGRESSIVE,
    "sdar": SDAR,
}
"""The `model_type` of a config.json and its family."""


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family of a config.json; None where no family knows its `model_type`.

    Checkpoints of Fast-dLLM v2 that were written with transformers call themselves qwen2, and name a block size.
    """
    model_type = config.get("model_type")
    if model_type == "qwen2" and config.get("bd_size") is not None:
        return FAST_DLLM_V2
    return MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None
