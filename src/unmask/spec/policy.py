"""Reuse policies as data: a tagged union, one struct a policy. What each does lives in `unmask.policies`.

Whatever else somebody wants to know of a policy (why it cannot act, which of its settings are the same, what to
call it in a sentence) is asked of its spec, so that a new policy is told apart nowhere else. A new policy is one
struct here, named in the union at the end; one file in `unmask.policies`; one line of its registry; and one
heading in docs/policies.md.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import read_plain
from unmask.spec.build import shown, within
from unmask.spec.own_code import TARGET, own_code

UnitName = Literal["output", "residual", "attention", "mlp"]
BranchName = Literal["residual", "attention", "mlp"]
StepName = Literal["sub", "block", "tail"]
MOST_STEPS, MOST_LAYERS = 1_000_000, 1024
TRACE_NAME = re.compile(r"sha256:([0-9a-f]{64})")
"""A trace in an identity, which holds its content's hash and not where it lies."""


class PolicySpec(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    omit_defaults=False,
):
    """What all policy specs share: they are frozen, refuse unknown fields and are told apart by `kind`.

    The answers given here are those of a policy about which there is nothing special to say.
    """

    axes: ClassVar[tuple[str, ...]] = ()
    """The two fields that span a table of configurations best, where both vary."""
    later: ClassVar[tuple[str, ...]] = ()
    """Settings that came after version 0.2: at their default they stay out of identities, so that ids stay."""

    @property
    def dead(self) -> str | None:
        """Why the policy cannot save anything, whatever is decoded; None where it can."""
        return None

    @property
    def unmet(self) -> str:
        """Why the policy saved nothing in a decoding, although it could have."""
        return "no step of this decoding meets its conditions"

    @property
    def is_baseline(self) -> bool:
        """Whether it does not even claim to act."""
        return False

    @property
    def short_name(self) -> str | None:
        """What to call all configurations of this policy that save alike; None: nothing but their own names."""
        return None

    @property
    def layer_fields(self) -> tuple[str, ...]:
        """Fields that say which layers are meant and nothing else: the axis of subsets. Empty where there is none."""
        return ()

    @property
    def why_alike(self) -> str:
        """Why configurations of this policy that are written otherwise decode alike."""
        return "their policies come to the same plan at every step"

    def remarks(self, estimator: str | None) -> list[str]:  # noqa: ARG002 (an answer for most policies)
        """Why configurations that look different may agree to the last digit; `estimator` is set for scores."""
        return []

    def layers_skipped(self, layers: int) -> "tuple[AnyPolicySpec, str] | None":  # noqa: ARG002
        """A spec that costs what skipping the named layers would, and that in words; None where no layers are named."""
        return None

    @property
    def older_names(self) -> dict[str, Any]:
        """The settings that older scripts knew, by the names of their summary.json files."""
        return {"reuse_k": None, "layer_subset": None}

    def canonical(self, chosen: "ChosenLayers") -> object:
        """Equal for two specs only when they must decode alike on the model whose layers `chosen` knows."""
        return BASELINE if self.dead else self._behaviour(chosen)

    def _behaviour(self, chosen: "ChosenLayers") -> object:  # noqa: ARG002
        return msgspec.json.encode(self, order="deterministic")

    def depends_on(self) -> dict[str, str]:
        """What a result depends on besides these fields: code, by its hash or version."""
        return {}

    def with_named_traces(self) -> "tuple[PolicySpec, dict[str, Path]]":
        """The policy as identities hold it, with a name for every trace, and the traces by these names."""
        return self, {}


BASELINE = "baseline"
"""The canonical form of every policy that cannot act."""


class FullSpec(PolicySpec, frozen=True, kw_only=True, tag="full"):
    """The baseline: everything is computed."""

    @property
    def dead(self) -> str | None:
        """There is nothing that it could do."""
        return "it is the baseline"

    @property
    def is_baseline(self) -> bool:
        """It is."""
        return True

    @property
    def older_names(self) -> dict[str, Any]:
        """Older scripts wrote a period of 1."""
        return {"reuse_k": 1, "layer_subset": None}


class LayerReuseSpec(PolicySpec, frozen=True, kw_only=True, tag="layer_reuse"):
    """Some layers run only every k-th denoising step of a block; in between their last result is put back."""

    axes: ClassVar[tuple[str, ...]] = ("k", "layers")
    k: int = 2
    """Recompute period; 1 never reuses."""
    layers: str | tuple[int | str, ...] = "middle"
    """`first`, `middle`, `last`, `auto`, or indices and ranges such as [0, "4-9"]."""
    size: int | None = None
    """Layers of a named subset; None takes 12, or a third of the model where 12 do not fit."""
    unit: UnitName = "residual"
    """What is put back."""
    on: tuple[StepName, ...] = ("sub",)
    """Kinds of denoising step that may reuse."""
    warmup: int = 1
    """First steps of a block that always compute."""
    calibration: str | None = None
    """With layers = "auto": a trace written by `unmask probe`."""
    share: float | None = None
    """With layers = "auto": the share of all layers to reuse."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        within("k", self.k, 1, MOST_STEPS)
        within("warmup", self.warmup, 1, MOST_STEPS)
        within("size", self.size, 1, MOST_LAYERS)
        if not self.on:
            raise UnmaskError("on is empty; name the steps that may reuse: sub, block or both.")
        if not isinstance(self.layers, str):
            within("The number of layers", len(self.layers), 1, MOST_LAYERS)
        elif self.layers not in ("first", "middle", "last", "auto"):
            raise UnmaskError(
                f"layers is {self.layers!r}; use first, middle, last, auto or a list of indices."
            )
        if self.size is not None and self.layers not in ("first", "middle", "last"):
            raise UnmaskError(
                "size goes with first, middle or last only; other layers have their own number."
            )
        given = [value is not None for value in (self.calibration, self.share)]
        if given != [self.layers == "auto"] * 2:
            raise UnmaskError(
                'layers = "auto" needs calibration (a trace of `unmask probe`) and share, and only it.'
            )
        if self.share is not None and not 0 < self.share < 1:
            raise UnmaskError(f"share is {self.share}; it must lie between 0 and 1.")

    @property
    def dead(self) -> str | None:
        """A period of one step leaves nothing to put back."""
        return "k = 1 recomputes at every step" if self.k == 1 else None

    @property
    def unmet(self) -> str:
        """The step kinds that it waits for."""
        return f"no step of kind {' or '.join(self.on)} comes late enough in a block to be replayed"

    @property
    def short_name(self) -> str | None:
        """The period decides what is saved."""
        return f"k = {self.k}"

    @property
    def layer_fields(self) -> tuple[str, ...]:
        """The layers and how many of them, unless none is ever reused."""
        return () if self.dead else ("layers", "size")

    @property
    def why_alike(self) -> str:
        """Output replay does not depend on the layers."""
        if self.unit == "output":
            return (
                "putting back a layer's output makes the logits those of the last computed step, "
                "whichever layers are named"
            )
        return super().why_alike

    def remarks(self, estimator: str | None) -> list[str]:
        """Output replay does not depend on the layers, nor canvas on the period."""
        reasons = []
        if self.unit == "output":
            reasons.append(
                "output replay puts back the final hidden states: the layers named make no difference"
            )
        if estimator == "canvas":
            reasons.append("canvas has one step to replay: every k above 1 gives the same scores")
        return reasons

    def layers_skipped(self, layers: int) -> "tuple[AnyPolicySpec, str] | None":
        """Skipping some layers and running the others costs what residual replay costs, whatever is put back."""
        words = f"{self.size or 0} of {layers} layers skipped on sub-block forwards, all others run"
        return msgspec.structs.replace(self, unit="residual"), words

    @property
    def older_names(self) -> dict[str, Any]:
        """The period and the layers."""
        return {"reuse_k": self.k, "layer_subset": self.layers}

    def _behaviour(self, chosen: "ChosenLayers") -> object:
        # Output replay puts back the final hidden states, so it is the same whatever layers it names.
        layers = None if self.unit == "output" else chosen(self)
        # A step whose number k divides computes anyway, warm-up or not.
        warmup = self.warmup + (self.warmup % self.k == 0)
        return self.unit, self.k, frozenset(self.on), warmup, layers

    def with_named_traces(self) -> "tuple[LayerReuseSpec, dict[str, Path]]":
        """The same trace in another folder is the same, and another one under the same path gives other layers."""
        if self.calibration is None:
            return self, {}
        try:
            content = read_plain(Path(self.calibration))
        except OSError as error:
            raise UnmaskError(
                f"{self.calibration} cannot be read ({error.strerror}); write the trace with `unmask probe --output`."
            ) from None
        name = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return msgspec.structs.replace(self, calibration=name), {name: Path(self.calibration)}


ChosenLayers = Callable[[LayerReuseSpec], tuple[int, ...]]
"""Says which layers a spec means in the model at hand (`policies.layer_reuse.chosen_layers`)."""


class TrimSpec(PolicySpec, frozen=True, kw_only=True, tag="trim"):
    """Full-block steps push only the rows through that need it; the others keep their keys."""

    later: ClassVar[tuple[str, ...]] = ("inside",)
    keep: float = 0.0
    """Share of the other rows that is recomputed all the same, those that drifted most; 1 trims nothing."""
    every: int | None = None
    """Every so many full-block steps all rows are recomputed; None: only a block's first one."""
    probe_layer: int = 2
    """Drift is measured on this layer's input: the layers below run on all rows. Without effect at keep = 0."""
    inside: bool = False
    """Whether rows of the current sub-block may be left out too, where they are known and unchanged."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if not 0 <= self.keep <= 1:
            raise UnmaskError(f"keep is {self.keep}; it must lie in [0, 1].")
        within("every", self.every, 1, MOST_STEPS)
        within("probe_layer", self.probe_layer, 1, MOST_LAYERS)

    @property
    def dead(self) -> str | None:
        """It must leave out some row at some step."""
        if self.keep == 1:
            return "keep = 1 keeps every row"
        return "every = 1 recomputes every row at every step" if self.every == 1 else None

    def _behaviour(self, chosen: ChosenLayers) -> object:  # noqa: ARG002
        return "trim", self.keep, self.every, self.probe_layer if self.keep else None, self.inside


class AdaptiveSpec(PolicySpec, frozen=True, kw_only=True, tag="adaptive"):
    """Layers whose input has hardly moved since they last ran are not run again."""

    unit: BranchName = "residual"
    """What is put back."""
    on: tuple[StepName, ...] = ("sub", "block")
    """Kinds of denoising step that may reuse."""
    max_drift: float = 0.1
    """Largest relative change of a layer's input, at the last step, that still allows reuse."""
    budget: float = 0.5
    """Largest share of the layers that one step may reuse; those that moved least come first."""
    cap: int = 2
    """Steps after its refresh during which a feature may be put back; the oldest row that is fed counts."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if not self.on:
            raise UnmaskError("on is empty; name the steps that may reuse: sub, block or both.")
        within("max_drift", self.max_drift, 0, MOST_STEPS)
        if not 0 <= self.budget <= 1:
            raise UnmaskError(f"budget is {self.budget}; it must lie in [0, 1].")
        within("cap", self.cap, 0, MOST_STEPS)

    @property
    def dead(self) -> str | None:
        """It must be allowed to reuse some layer at some step."""
        return "its budget or its cap is 0" if self.budget == 0 or self.cap == 0 else None

    def _behaviour(self, chosen: ChosenLayers) -> object:  # noqa: ARG002
        return msgspec.structs.replace(self, on=tuple(sorted(set(self.on))))


class CombineSpec(PolicySpec, frozen=True, kw_only=True, tag="combine"):
    """Rows chosen by one policy, layers by another, in one plan."""

    rows: TrimSpec
    """Chooses the rows that are computed."""
    layers: LayerReuseSpec | AdaptiveSpec
    """Chooses what the layers do for these rows."""

    def _behaviour(self, chosen: ChosenLayers) -> object:
        return self.rows.canonical(chosen), self.layers.canonical(chosen)

    def with_named_traces(self) -> "tuple[CombineSpec, dict[str, Path]]":
        """Only what chooses layers has a trace."""
        if not isinstance(self.layers, LayerReuseSpec):
            return self, {}
        layers, traces = self.layers.with_named_traces()
        return msgspec.structs.replace(self, layers=layers), traces


class CustomSpec(PolicySpec, frozen=True, kw_only=True, tag="custom"):
    """A policy of your own: `target` is `package.module:Class` or the name of an installed entry point."""

    target: str
    """Where the class is."""
    options: dict[str, Any] = {}
    """Keyword arguments of the class."""

    def __post_init__(self) -> None:
        """Refuse what can be no place of a class."""
        if not TARGET.fullmatch(self.target):
            raise UnmaskError(f"target is {shown(self.target)}; write package.module:Class.")

    def depends_on(self) -> dict[str, str]:
        """An edit of the code gives other plans, so another result."""
        return {"code": own_code(self.target)}


AnyPolicySpec = FullSpec | LayerReuseSpec | TrimSpec | AdaptiveSpec | CombineSpec | CustomSpec


def known_policy(values: Mapping[str, Any]) -> AnyPolicySpec | None:
    """The spec of a stored policy, the baseline for an empty one; None where this version does not know it."""
    if not values:
        return FullSpec()
    try:
        spec: AnyPolicySpec = msgspec.convert(values, AnyPolicySpec)
    except (msgspec.ValidationError, UnmaskError):
        return None
    return spec
