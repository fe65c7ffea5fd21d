"""Which runs are equal by construction, known before any of them is started: the one place that groups them.

Two runs are equal where one checkpoint answers the same rows under policies and decode settings that must decode alike,
or whose differences have nothing to act on in their task. Results are judged by `likeness.py`, which knows what their
ledgers counted as well. Nothing is run or written here.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from unmask.cost import ModelShape
from unmask.engine.policy import NO_STEPS, no_step_to_reuse
from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import members_of
from unmask.policies.ceiling import canonical
from unmask.policies.registry import policy_spec
from unmask.spec.decode import ResolvedSpec
from unmask.spec.family import FAMILIES, EstimatorName, Family
from unmask.spec.lock import Lock
from unmask.spec.policy import BASELINE
from unmask.spec.recipe import ConfigurationSpec, Recipe
from unmask.spec.sweep import PlannedRun, locked_for

SCORED_BY = (
    "sub_block_size",
    "block_size",
    "cache",
    "block_cache",
    "refresh_every",
    "guidance",
    "draws",
    "seed",
)
"""Decode settings that scores may depend on, `block_cache` by the name that `cache` had in version 0.1."""


def equal_groups(runs: Iterable[PlannedRun], recipe: Recipe, lock: Lock) -> list[list[PlannedRun]]:
    """Accuracy runs sorted into groups that must give the same answers, in the order of their first runs."""
    locks = {each.name: locked_for(recipe, each, lock) for each in recipe.expanded()}
    groups: dict[Hashable, list[PlannedRun]] = {}
    for run in runs:
        if run.kind == "accuracy":
            groups.setdefault(meaning(run.identity, locks[run.configuration]), []).append(run)
    return list(groups.values())


def equal_timings(run: PlannedRun, recipe: Recipe, lock: Lock) -> list[list[str]]:
    """The configurations of a timing run, sorted into groups that must do the same work."""
    groups: dict[Hashable, list[str]] = {}
    for each in recipe.expanded():
        if each.name in run.identity["configurations"]:
            identity = {**run.identity, "configurations": None, **run.identity["configurations"][each.name]}
            groups.setdefault(meaning(identity, locked_for(recipe, each, lock)), []).append(each.name)
    return list(groups.values())


def meaning(identity: Mapping[str, Any], lock: Lock) -> Hashable:
    """Equal for two runs only when they must give the same answers; the lock speaks of the run's checkpoint."""
    parts, task = dict(identity), identity["task"]
    policy = _behaviour(parts.pop("policy"), ModelShape.of(lock.shape).layers)
    if why_idle(task["name"], task["estimator"], lock):
        policy = BASELINE
    if tokens_are_given(task["name"], lock):
        settings = _scored_by(task["estimator"], FAMILIES[lock.family])
        parts["decode"] = {name: parts["decode"].get(name) for name in settings}
        del parts["generation"]
    return msgspec.json.encode(parts, order="deterministic"), policy


def _behaviour(policy: Mapping[str, Any], layers: int) -> Hashable:
    try:
        found = canonical(policy_spec(dict(policy)), layers)
    except (UnmaskError, OSError):  # it names a trace, which lies in the store
        found = policy
    return msgspec.json.encode(found, order="deterministic") if found != BASELINE else BASELINE


def equal_everywhere(
    recipe: Recipe, configurations: Sequence[ConfigurationSpec], lock: Lock
) -> list[list[str]]:
    """Configurations sorted into groups that must give the same answers on every task, generated or scored."""
    groups: dict[Hashable, list[str]] = {}
    for each in configurations:
        locked = locked_for(recipe, each, lock)
        decode = msgspec.json.encode(locked.decoded(recipe.decode_of(each)))
        policy = canonical(policy_spec(each.policy), ModelShape.of(locked.shape).layers)
        groups.setdefault((recipe.model_of(each).name, decode, policy), []).append(each.name)
    return list(groups.values())


def copies_in_scores(
    recipe: Recipe, configurations: Sequence[ConfigurationSpec], lock: Lock, estimator: EstimatorName
) -> list[str]:
    """Configurations that score as an earlier one does, or the control, whose decode settings are others."""
    first: dict[Hashable, tuple[str, ResolvedSpec]] = {}
    copies = []
    for each in sorted(configurations, key=lambda candidate: candidate.name != recipe.control):
        locked = locked_for(recipe, each, lock)
        decoded = recipe.model_of(each).name, locked.decoded(recipe.decode_of(each))
        names = _scored_by(estimator, FAMILIES[locked.family])
        settings = tuple(getattr(decoded[1], name, None) for name in names)
        policy = canonical(policy_spec(each.policy), ModelShape.of(locked.shape).layers)
        if first.setdefault((decoded[0], settings, policy), decoded) != decoded:
            copies.append(each.name)
    return copies


def _scored_by(estimator: EstimatorName, family: Family) -> tuple[str, ...]:
    """Decode settings that the scores of an estimator depend on; on a canvas only a chain takes more than a step."""
    if estimator == "monte_carlo":
        return ("guidance", "draws", "seed")
    of_chains = tuple(name for name in SCORED_BY if name not in ("draws", "seed"))
    return ("guidance",) if family.canvas and estimator != "chain" else of_chains


def why_idle(task: str, estimator: str, lock: Lock) -> str | None:
    """Why no policy can act on a task; None where one can."""
    if not FAMILIES[lock.family].has_mask:
        return NO_STEPS
    return no_step_to_reuse(estimator, choices_of(task) == {"letters"}) if is_scored(task) else None


def tokens_are_given(task: str, lock: Lock) -> bool:
    """Whether the task's answers are given and scored, so that what chooses tokens does not matter."""
    return is_scored(task) and FAMILIES[lock.family].has_mask


def is_scored(task: str) -> bool:
    """Whether a task's choices are scored; None of them is generated."""
    return None not in choices_of(task)


def choices_of(task: str) -> set[str | None]:
    """What is scored in the tasks of a name; None for what is generated, or not known to this version."""
    try:
        return {source.choices for source in members_of(task)}
    except (KeyError, UnmaskError):
        return {None}
