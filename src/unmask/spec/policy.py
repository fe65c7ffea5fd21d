"""Reuse policies as data: a tagged union, one struct a policy. What each does lives in `unmask.policies`."""

from typing import Any, Literal

import msgspec

from unmask.errors import UnmaskError

UnitName = Literal["output", "residual", "attention", "mlp"]
BranchName = Literal["residual", "attention", "mlp"]
StepName = Literal["sub", "block"]


class PolicySpec(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    omit_defaults=False,
):
    """What all policy specs share: they are frozen, refuse unknown fields and are told apart by `kind`."""


class FullSpec(PolicySpec, frozen=True, kw_only=True, tag="full"):
    """The baseline: everything is computed."""


class LayerReuseSpec(PolicySpec, frozen=True, kw_only=True, tag="layer_reuse"):
    """Some layers run only every k-th denoising step of a block; in between their last result is put back."""

    k: int = 2
    """Recompute period; 1 never reuses."""
    layers: str | tuple[int | str, ...] = "middle"
    """`first`, `middle`, `last`, `auto`, or indices and ranges such as [0, "4-9"]."""
    size: int | None = None
    """Layers of a named subset; None takes 12, or a third of the model where 12 do not fit."""
    unit: UnitName = "residual"
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
        if self.k < 1:
            raise UnmaskError(f"k is {self.k}; it must be at least 1 (1 never reuses).")
        if self.warmup < 1:
            raise UnmaskError(
                f"warmup is {self.warmup}; the first step of a block always computes, so at least 1."
            )
        if not self.on:
            raise UnmaskError("on is empty; name the steps that may reuse: sub, block or both.")
        if isinstance(self.layers, str) and self.layers not in ("first", "middle", "last", "auto"):
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


class TrimSpec(PolicySpec, frozen=True, kw_only=True, tag="trim"):
    """Full-block steps push only the rows through that need it; the others keep their keys."""

    keep: float = 0.0
    """Share of the other rows that is recomputed all the same, those that drifted most; 1 trims nothing."""
    every: int | None = None
    """Every so many full-block steps all rows are recomputed; None: only a block's first one."""
    probe_layer: int = 2
    """Drift is measured on this layer's input: the layers below run on all rows. Without effect at keep = 0."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if not 0 <= self.keep <= 1:
            raise UnmaskError(f"keep is {self.keep}; it must lie in [0, 1].")
        if self.every is not None and self.every < 1:
            raise UnmaskError(f"every is {self.every}; it must be at least 1, or left out.")
        if self.probe_layer < 1:
            raise UnmaskError(f"probe_layer is {self.probe_layer}; it must be at least 1.")


class AdaptiveSpec(PolicySpec, frozen=True, kw_only=True, tag="adaptive"):
    """Layers whose input has hardly moved since they last ran are not run again."""

    unit: BranchName = "residual"
    on: tuple[StepName, ...] = ("sub", "block")
    max_drift: float = 0.1
    """Largest relative change of a layer's input, at the last step, that still allows reuse."""
    budget: float = 0.5
    """Largest share of the layers that one step may reuse; those that moved least come first."""
    cap: int = 2
    """Largest number of consecutive steps that a layer may be reused."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if not self.on:
            raise UnmaskError("on is empty; name the steps that may reuse: sub, block or both.")
        if not self.max_drift >= 0:
            raise UnmaskError(f"max_drift is {self.max_drift}; it must not be negative.")
        if not 0 <= self.budget <= 1:
            raise UnmaskError(f"budget is {self.budget}; it must lie in [0, 1].")
        if self.cap < 0:
            raise UnmaskError(f"cap is {self.cap}; it must not be negative.")


class CombineSpec(PolicySpec, frozen=True, kw_only=True, tag="combine"):
    """Rows chosen by one policy, layers by another, in one plan."""

    rows: TrimSpec
    layers: LayerReuseSpec | AdaptiveSpec


class CustomSpec(PolicySpec, frozen=True, kw_only=True, tag="custom"):
    """A policy of your own: `target` is `package.module:Class` or the name of an installed entry point."""

    target: str
    options: dict[str, Any] = {}
    """Keyword arguments of the class."""


AnyPolicySpec = FullSpec | LayerReuseSpec | TrimSpec | AdaptiveSpec | CombineSpec | CustomSpec
