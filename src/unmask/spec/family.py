"""Families of models as data: one frozen record each, so that nothing else asks for a family by its name.

A family says how its models decode. What a network looks like (biases, norms, tensor names) is not here.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.rule import AnyRuleSpec, SequentialSpec, ShareSpec, ThresholdSpec, TopNSpec

CacheName = Literal["none", "prefix", "dual"]
"""What later steps of a sub-block feed, on the keys of its last full-block step: with `none` the whole block, with
`prefix` the sub-block and all that follows it, with `dual` the sub-block only."""
ConfidenceName = Literal["nucleus", "tempered", "plain"]
EndOfText = Literal["never", "last"]
"""How tokens that end a text are held back: `never` predicts none, `last` takes any other prediction first."""


EstimatorName = Literal["chain", "canvas", "first_token", "onepass", "monte_carlo"]


class Likelihood(msgspec.Struct, frozen=True, kw_only=True):
    """How a family's publishers estimate log likelihoods from targets of which a random part is masked."""

    masks: Literal["count", "share"]
    """`count`: so many tokens as a number drawn from 1 to all of them; `share`: each token with a drawn probability."""
    ends: bool
    """Whether an end token, never masked, follows the target, and the target's last token is never masked."""


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
    """Positions that compete in one denoising step; None: all that are to be predicted in the block."""
    rule: AnyRuleSpec
    """The unmasking rule."""
    estimators: tuple[EstimatorName, ...]
    """How targets can be scored."""
    has_mask: bool = True
    """Whether unknown positions are fed as a mask token; otherwise there is never more than one token to predict."""
    cached_sub_block_size: int | None = None
    """The same where a cache is in use, if that differs."""
    canvas: bool = False
    """Whether prompt and answer are one block, whose sub-blocks begin where the prompt ends; otherwise blocks are of a
    fixed size and an earlier one never sees a later one."""
    refresh_writes_first: bool = False
    """Whether the full-block step that opens a sub-block for a cache makes its first position known and no other."""
    inclusive: bool = False
    """Whether a confidence that equals a threshold passes it."""
    top_p: float = 0.95
    """The share of probability mass that predictions come from."""
    filters_greedy: bool = False
    """Whether `top_p` and `top_k` also act at temperature 0, on confidences."""
    confidence: ConfidenceName = "nucleus"
    """At a temperature above 0, the shares that scores are taken of: those within `top_p`, those before that cut, or
    those at temperature 1."""
    likelihood: Likelihood | None = None
    """How the estimator `monte_carlo` draws; None: the family has none."""
    end_texts: tuple[str, ...] = ()
    """Tokens that end an answer beside those that the checkpoint's files name, where its tokenizer has them."""
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
LLADA = Family(
    name="llada",
    shift=0,
    caches=("none", "prefix", "dual"),
    block_field=None,
    block_size=None,
    sub_block_size=32,
    rule=TopNSpec(n=1),
    estimators=("chain", "onepass", "monte_carlo"),
    canvas=True,
    inclusive=True,
    top_p=1.0,
    confidence="plain",
    likelihood=Likelihood(masks="count", ends=False),
    end_texts=("<|eot_id|>",),
)
DREAM = Family(
    name="dream",
    shift=1,
    caches=("none", "prefix", "dual"),
    block_field=None,
    block_size=None,
    sub_block_size=None,
    cached_sub_block_size=32,
    rule=ShareSpec(),
    estimators=("chain", "onepass", "monte_carlo"),
    canvas=True,
    refresh_writes_first=True,
    inclusive=True,
    top_p=1.0,
    filters_greedy=True,
    likelihood=Likelihood(masks="share", ends=True),
    end_texts=("<|im_end|>",),
)
FAMILIES = {family.name: family for family in (FAST_DLLM_V2, SDAR, AUTOREGRESSIVE, LLADA, DREAM)}
MODEL_TYPES = {
    "Dream": DREAM,
    "Fast_dLLM_Qwen": FAST_DLLM_V2,
    "llada": LLADA,
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
