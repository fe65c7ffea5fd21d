"""Which configurations must behave alike, which claim to act, and the work that was counted for them.

Likeness is read from policies and decode settings, never from results; work is read from what results count.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import msgspec

from unmask.analysis.equality import SCORED_BY
from unmask.analysis.table import ConfigurationResult, ConfigurationTiming, Measured, TaskResults
from unmask.errors import UnmaskError
from unmask.policies.ceiling import canonical
from unmask.spec import AnyPolicySpec, known_policy
from unmask.spec.policy import BASELINE

USUAL_LAYERS = 28
"""Layers of the published checkpoints, for results that do not say how many their model has."""
Result = TypeVar("Result", ConfigurationResult, ConfigurationTiming)


def spec_of(result: Measured) -> AnyPolicySpec | None:
    """The policy as a spec; None where this version does not know it."""
    return known_policy(result.policy)


def behaviour(result: Measured) -> Hashable:
    """Equal for two results only when their policies must decode alike."""
    spec = spec_of(result)
    if spec is None:
        return _frozen(dict(result.policy))
    try:
        return _frozen(canonical(spec, result.layers or USUAL_LAYERS))
    except (UnmaskError, OSError):
        return _frozen(dict(result.policy))


def likeness(result: Measured) -> Hashable:
    """Equal for two results only when checkpoint, policy and decode settings must decode alike."""
    return result.model, behaviour(result), _decoding(result)


def must_agree(first: ConfigurationResult, second: ConfigurationResult) -> bool:
    """Whether two results must be equal: both decode alike, or what differs had nothing to act on."""
    return outcome_class(first) == outcome_class(second)


def outcome_class(entry: ConfigurationResult) -> Hashable:
    """Equal for two results only when they must be equal: a policy that could not act is none."""
    parts = entry.effect.values()
    idle = bool(parts) and all(part.inactive and not part.branch_rows_skipped for part in parts)
    return entry.model, BASELINE if idle else behaviour(entry), _decoding(entry)


def _decoding(result: Measured) -> Hashable:
    """The decode settings that matter: where tokens are given, a threshold that would choose them does not."""
    scored = set(result.effect) == {"scoring"}
    return _frozen({name: value for name, value in result.decode.items() if not scored or name in SCORED_BY})


def acts(result: Measured) -> bool:
    """Whether the policy claims to do anything."""
    return behaviour(result) != BASELINE


def alike(results: Iterable[Result]) -> list[list[Result]]:
    """Results sorted into those that must decode alike."""
    found: dict[Hashable, list[Result]] = defaultdict(list)
    for result in results:
        found[likeness(result)].append(result)
    return list(found.values())


def control_of(group: TaskResults) -> ConfigurationResult | None:
    """The control that the experiment names; if it names none, and in imports, the first one without reuse."""
    if group.control is not None or (group.experiment.control is not None and not group.experiment.foreign):
        return group.control
    return next((entry for entry in group.entries if not acts(entry)), None)


def distinct(entries: Iterable[ConfigurationResult]) -> list[ConfigurationResult]:
    """One result of each run: two names of the same run are not two measurements."""
    once: dict[Hashable, ConfigurationResult] = {}
    for entry in entries:
        once.setdefault(entry.run or (entry.configuration, entry.task, entry.limit), entry)
    return list(once.values())


def subset_axis(entries: Iterable[ConfigurationResult]) -> list[list[ConfigurationResult]]:
    """Groups of two or more results that differ only in the layers that their policies name."""
    by_settings: dict[tuple[str, Hashable], list[ConfigurationResult]] = defaultdict(list)
    for entry in entries:
        spec = spec_of(entry)
        if spec is not None and spec.layer_fields:
            rest = {key: value for key, value in entry.policy.items() if key not in spec.layer_fields}
            axis = spec.layer_fields[0]
            by_settings[axis, _frozen([rest, dict(entry.decode), entry.model])].append(entry)
    return [
        group
        for (axis, _), group in by_settings.items()
        if len({_frozen(entry.policy.get(axis)) for entry in group}) > 1
    ]


def method_of(entry: ConfigurationResult) -> tuple[Hashable, str]:
    """What configurations of one method share, and its name: weights, policy, and the kind of unmasking rule.

    They may differ in what the rule is given (a threshold, positions a step), which trades accuracy for parallelism.
    """
    rule = entry.decode.get("rule") or {}
    kind = str(rule.get("kind") or "threshold")
    rest = {name: value for name, value in entry.decode.items() if name not in ("threshold", "rule")}
    spec = spec_of(entry)
    policy = [str(entry.policy.get("kind")), (spec.short_name if spec else None) or ""]
    words = [*(policy if acts(entry) else ["plain decoding"]), "" if kind == "threshold" else kind]
    return (entry.provenance.get("weights"), behaviour(entry), kind, _frozen(rest)), ", ".join(
        filter(None, words)
    )


def threshold(result: Measured) -> float | None:
    """The threshold of a plain decoding; None under a policy."""
    value = result.decode.get("threshold")
    return None if acts(result) or value is None else float(value)


def but_threshold(result: Measured) -> Hashable:
    """Equal for two results only when they may lie on one curve of thresholds."""
    rest = {name: value for name, value in result.decode.items() if name not in ("threshold", "rule")}
    return result.model, _frozen(rest)


def _frozen(value: Any) -> Hashable:
    """A hashable form of a JSON value or of a policy's canonical form."""
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value, order="deterministic")
    if isinstance(value, dict):
        return tuple((key, _frozen(value[key])) for key in sorted(value))
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(one) for one in value)
    hashable: Hashable = value
    return hashable


def reuse_fraction(result: Measured) -> float | None:
    """Share of the layer work that was not done; None where nothing was counted."""
    done = sum(part.branch_rows for part in result.effect.values())
    skipped = sum(part.branch_rows_skipped for part in result.effect.values())
    return skipped / (done + skipped) if done + skipped else None


def operations(result: Measured) -> float | None:
    """Operations of the ledgers, as if each request ran alone; None where nothing was counted."""
    return sum(part.flops for part in result.effect.values()) or None


def flops(result: Measured) -> float | None:
    """Operations that were computed, without those that were taken over; None where nothing was counted."""
    return (operations(result) or 0) - sum(part.flops for part in result.shared.values()) or None


def tokens_a_forward(result: Measured) -> float | None:
    """Accepted tokens over all forwards but prefills; None where nothing was generated or counted."""
    effect = result.effect.get("generation")
    return effect.tokens_a_forward(result.tokens) if effect else None


def units(result: Measured) -> int | None:
    """What the work is divided by: tokens when generating, requests when scoring."""
    if isinstance(result, ConfigurationTiming):
        return result.units or None
    if "generation" in result.effect:
        return result.tokens or None
    return sum(part.requests for part in result.effect.values()) or None


def work_ratio(control: Measured, result: Measured) -> float | None:
    """Operations for each token (or request), as a multiple of the control's."""
    before, after = flops(control), flops(result)
    count, other = units(control), units(result)
    if not (before and after and count and other):
        return None
    return (after / other) / (before / count)
