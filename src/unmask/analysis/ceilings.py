"""The most that can be gained: of results whose model is known, and of a recipe before anything runs.

Both sides are taken to need the same steps, as many as the control needed where its ledger says so. Foreign
results are judged by their own accounting: the named layers are skipped, the others run. Nothing is run and nothing is
written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from unmask.analysis.equality import (
    SCORED_BY,
    copies_in_scores,
    equal_everywhere,
    is_scored,
    tokens_are_given,
    why_idle,
)
from unmask.analysis.gains import GAINED, PREDICTED
from unmask.analysis.likeness import spec_of
from unmask.analysis.losses import Comparisons
from unmask.analysis.statistics import assumed_discordance, samples_for_margin
from unmask.analysis.step_counts import StepCounts, counted_steps, pattern
from unmask.analysis.table import ConfigurationResult
from unmask.cost import DEVICES, Device, ModelShape, total_price
from unmask.cost.cards import card_named, card_reported
from unmask.cost.prediction import predicted_seconds
from unmask.errors import UnmaskError
from unmask.policies.ceiling import Ceiling, canonical, ceiling_of
from unmask.policies.registry import make_policy, policy_spec
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec import AnyPolicySpec, FullSpec
from unmask.spec.decode import ResolvedSpec, cache_of
from unmask.spec.family import FAMILIES, FAST_DLLM_V2, Family
from unmask.spec.lock import Lock
from unmask.spec.recipe import ConfigurationSpec, Recipe
from unmask.spec.sweep import locked_for

ANY = Device("any", 1e12, 1e12)
GPU = "rtx6000"
"""Roofline of recipes that ask for a GPU without one being named."""
GIVEN = "tokens are given there, so settings that choose tokens, such as the threshold, change nothing"
LONGEST_PROMPT = 4096
"""Tokens of a prompt, where a criterion is to be called out of reach whatever the prompts are."""
ONE_FORWARD = "scores take forwards without a cache there, and tokens are given, so neither matters"
MOST = 0.999
"""Share of the work that can be skipped at most, so that a bound stays finite."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A speed-up that cannot be exceeded at equal steps."""

    speedup: float
    device: str | None
    """The roofline it was taken from; None: the larger of the savings in operations and in bytes."""
    accounting: str
    """What is taken to be skipped."""


def bound_of(entry: ConfigurationResult, control: ConfigurationResult | None = None) -> Bound | None:
    """The ceiling of an entry's policy; None where the model or the policy is not known well enough."""
    spec = spec_of(entry)
    if spec is None or entry.shape is None or set(entry.effect) == {"scoring"}:
        return None
    skipped = spec.layers_skipped(entry.layers or 0) if entry.foreign else None
    spec, accounting = skipped or (spec, "what the policy skips")
    script = _script(entry, control)
    name = _device(entry)
    try:
        shape = ModelShape(**entry.shape)
        ceiling = _rehearsed(msgspec.json.encode(spec), shape, DEVICES[name] if name else ANY, script)
    except (UnmaskError, OSError, TypeError, ValueError):
        return None
    if name:
        return Bound(ceiling.speedup, name, accounting)
    return Bound(_speedup_by_work(ceiling), None, accounting)


def _speedup_by_work(ceiling: Ceiling) -> float:
    """Without a device: the larger of the savings in operations and in bytes."""
    return 1 / (1 - min(MOST, max(ceiling.flops_saved, ceiling.bytes_saved)))


@lru_cache(maxsize=256)
def _rehearsed(spec: bytes, shape: ModelShape, device: Device, script: Script) -> Ceiling:
    """The ceiling of a policy, remembered: configurations of one sweep ask for the same ones many times."""
    return ceiling_of(msgspec.json.decode(spec, type=AnyPolicySpec), shape, device, script)


def _device(entry: ConfigurationResult) -> str | None:
    return card_reported(str(entry.provenance.get("machine") or ""))


def _script(entry: ConfigurationResult, control: ConfigurationResult | None) -> Script:
    """An answer with the usual steps, or with as many tokens a step as the control's ledger counts."""
    family = FAMILIES.get(entry.family or "", FAST_DLLM_V2)
    settings: dict[str, Any] = {
        name: entry.decode[name]
        for name in ("block_size", "sub_block_size", "refresh_every", "guidance")
        if entry.decode.get(name) is not None or (family.canvas and name in entry.decode)
    }
    if cache := cache_of(entry.decode):
        settings["cache"] = cache
    settings["family"] = family
    effect = control.effect.get("generation") if control else None
    if not effect or control is None or not control.tokens:
        return Script(**settings)
    if family.canvas and (blocks := effect.forwards.get("block", 0)):
        settings |= _lengths(entry, round(effect.rows["block"] / blocks), control.tokens / effect.requests)
    tokens, block, sub = counted_steps(effect, control.tokens, control.decode, family)
    steps = block + sub
    return Script(**settings, unmasked=pattern(tokens / steps)) if steps else Script(**settings)


def _lengths(entry: ConfigurationResult, canvas: int, answered: float) -> dict[str, int]:
    """What was fed on a canvas: as much of it as was asked for is the answer, whose end may come earlier."""
    asked = min(max(1, canvas - 1), max(round(answered), entry.decode.get("max_new_tokens") or 0))
    return {"prompt_tokens": canvas - asked, "new_tokens": asked, "answered": min(asked, round(answered))}


@dataclass(frozen=True, slots=True)
class Idle:
    """Configurations that can make no difference on a task."""

    task: str
    configurations: list[str]
    fate: str
    """In two words: `Cannot act` of policies, `Nothing new` of settings that do not matter there."""
    reason: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known before the first run."""

    ceilings: dict[str, Ceiling]
    """By configuration, against full compute: at equal steps, or with the steps that are known of both settings."""
    tokens_a_step: dict[str, float]
    """By configuration: how many tokens a denoising step makes known, where that is known."""
    steps_known_by: list[str]
    """The earlier runs and traces that it is known by."""
    other_settings: list[str]
    """Configurations with other decode settings than the control's, which take other steps."""
    unpriced: list[str]
    """Those of them whose steps, or whose control's, are not known: what these settings save or cost is unknown."""
    idle: list[Idle]
    """Tasks on which a policy cannot act or decode settings do not matter."""
    equal: list[list[str]]
    """Configurations that cannot differ by construction."""
    beyond: str | None
    """Why the success criterion cannot be met, where it cannot."""
    samples_needed: int | None
    """Rows that are needed to show that a loss stays within the criterion."""
    flops: dict[str, float]
    """Operations of one answer of the rehearsed length, by configuration."""


def outlook(
    recipe: Recipe, lock: Lock, device: str | None = None, steps: Mapping[str, StepCounts] | None = None
) -> Outlook:
    """Judge a recipe by arithmetic alone: on a device's roofline or, without a GPU, by the work that is skipped.

    `steps` says, by configuration, what is known of the steps that its decode settings take.
    """
    device, known = device or (GPU if recipe.resources.gpus else None), dict(steps or {})
    configurations = recipe.expanded()
    known |= _planned(recipe, configurations, lock)
    scripts = {each.name: _script_of(recipe, each, lock, known) for each in configurations}
    control = next(each for each in configurations if each.name == recipe.control)
    usual = _decoded(recipe, control, lock)
    others = [each.name for each in configurations if _decoded(recipe, each, lock) != usual]
    unpriced = [name for name in others if name not in known or control.name not in known]
    ceilings: dict[str, Ceiling] = {}
    highest: dict[str, Ceiling] = {}
    flops: dict[str, float] = {}
    for configuration in configurations:
        name, shape = configuration.name, ModelShape.of(locked_for(recipe, configuration, lock).shape)
        script = scripts[name]
        against = script if name in unpriced else replace(scripts[control.name], new_tokens=script.new_tokens)
        try:
            spec = policy_spec(configuration.policy)
            ceilings[name] = highest[name] = _ceiling(spec, shape, device, script, against)
            if script.family.canvas:
                highest[name] = _ceiling(spec, shape, device, *map(_with_long_prompt, (script, against)))
            ledger = rehearse(make_policy(spec, shape.layers), shape.layers, script)
        except UnmaskError as error:
            raise UnmaskError(f"Configuration {name}: {error}") from None
        flops[name] = total_price(ledger, shape, 2).flops
    idle = _idle(recipe, configurations, lock)
    return Outlook(
        ceilings=ceilings,
        tokens_a_step={name: counts.mean for name, counts in known.items()},
        steps_known_by=list(dict.fromkeys(counts.known_by for counts in known.values())),
        other_settings=others,
        unpriced=unpriced,
        idle=idle,
        equal=[same for same in equal_everywhere(recipe, configurations, lock) if len(same) > 1],
        beyond=_beyond_by_task(recipe, idle) or _beyond(recipe, highest, device, scripts, shape),
        samples_needed=_samples(recipe, configurations, idle, shape.layers),
        flops=flops,
    )


def _ceiling(
    spec: AnyPolicySpec, shape: ModelShape, device: str | None, script: Script, against: Script
) -> Ceiling:
    if device:
        return ceiling_of(spec, shape, DEVICES[device], script, against)
    ceiling = ceiling_of(spec, shape, ANY, script, against)
    return replace(ceiling, speedup=_speedup_by_work(ceiling))


def _with_long_prompt(script: Script) -> Script:
    """On a canvas steps feed the prompt too, so most can be saved where it is long."""
    return replace(script, prompt_tokens=LONGEST_PROMPT)


def _planned(
    recipe: Recipe, configurations: Sequence[ConfigurationSpec], lock: Lock
) -> dict[str, StepCounts]:
    """Steps that are known because the unmasking rule goes by their number."""
    planned = {}
    for each in configurations:
        _, decode = _decoded(recipe, each, lock)
        script = script_of(decode, FAMILIES[locked_for(recipe, each, lock).family])
        if counts := StepCounts.planned(script, decode.unmasking):
            planned[each.name] = counts
    return planned


def _script_of(
    recipe: Recipe, configuration: ConfigurationSpec, lock: Lock, known: Mapping[str, StepCounts]
) -> Script:
    _, decode = _decoded(recipe, configuration, lock)
    script = script_of(decode, FAMILIES[locked_for(recipe, configuration, lock).family])
    counts = known.get(configuration.name)
    return replace(script, unmasked=counts.unmasked, leftmost=counts.leftmost) if counts else script


def script_of(decode: ResolvedSpec, family: Family) -> Script:
    """The answer that is rehearsed: one of the longest allowed, within reason; the settings are resolved."""
    return Script(
        new_tokens=min(decode.max_new_tokens, 256),
        block_size=decode.block_size,
        sub_block_size=decode.sub_block_size,
        cache=decode.cache,
        refresh_every=decode.refresh_every,
        guidance=decode.guidance,
        family=family,
    )


def _decoded(recipe: Recipe, configuration: ConfigurationSpec, lock: Lock) -> tuple[str, ResolvedSpec]:
    """The name of a configuration's checkpoint, and its decode settings with everything filled in."""
    locked = locked_for(recipe, configuration, lock)
    return recipe.model_of(configuration).name, locked.decoded(recipe.decode_of(configuration))


def _layers(recipe: Recipe, configuration: ConfigurationSpec, lock: Lock) -> int:
    return ModelShape.of(locked_for(recipe, configuration, lock).shape).layers


def _idle(recipe: Recipe, configurations: Sequence[ConfigurationSpec], lock: Lock) -> list[Idle]:
    """Runs that can be told beforehand to bring nothing new, by task."""
    awake = [each.name for each in configurations if not policy_spec(each.policy).dead]
    idle = []
    for task in recipe.tasks:
        if awake and (reason := why_idle(task.name, task.estimator, lock)):
            idle.append(Idle(task.name, awake, "Cannot act", reason))
        if not tokens_are_given(task.name, lock):
            continue
        if copies := copies_in_scores(recipe, configurations, lock, task.estimator):
            no_steps = FAMILIES[lock.family].canvas and task.estimator != "chain"
            idle.append(Idle(task.name, copies, "Nothing new", ONE_FORWARD if no_steps else GIVEN))
    return idle


def _beyond_by_task(recipe: Recipe, idle: Sequence[Idle]) -> str | None:
    success = recipe.success
    if success is None or success.confirm.least_gain < 1:
        return None
    if success.by == "tokens_a_forward" and is_scored(success.task):
        return (
            f"On {success.task} tokens are given and scored, so nothing gains tokens a forward there. No run can "
            'confirm the criterion; set success.by to "work" or "speed".'
        )
    names = {each.name for each in recipe.expanded() if success.is_candidate(each.name)}
    for part in idle:
        if part.task == success.task and names <= set(part.configurations):
            return f"No candidate can gain anything on {part.task}: {part.reason}. No run can confirm the criterion."
    return None


def _beyond(
    recipe: Recipe,
    ceilings: Mapping[str, Ceiling],
    device: str | None,
    scripts: Mapping[str, Script],
    shape: ModelShape,
) -> str | None:
    """Why no candidate can gain what the criterion asks for; `shape` is that of the only checkpoint."""
    success = recipe.success
    if success is None or success.by == "tokens_a_forward":
        return None
    configurations = recipe.expanded()
    control = next(configuration for configuration in configurations if configuration.name == success.control)
    candidates = [
        configuration for configuration in configurations if success.is_candidate(configuration.name)
    ]
    # Other decode settings mean other steps, and of those no ceiling is known.
    usual = recipe.model_of(control), recipe.decode_of(control)
    if any((recipe.model_of(each), recipe.decode_of(each)) != usual for each in candidates):
        return None
    by_work = success.by == "work"
    card = PREDICTED.get(success.by)
    if card:
        best = max(_predicted_gain(each, scripts[each.name], shape, card) for each in candidates)
    else:
        reachable = [ceilings[configuration.name] for configuration in candidates]
        best = max(
            1 / (1 - min(MOST, ceiling.flops_saved)) if by_work else ceiling.speedup for ceiling in reachable
        )
    if best >= success.confirm.least_gain:
        return None
    roofline = f"on {card or device}" if card or (device and not by_work) else "by the work they skip"
    return (
        f"The criterion asks for {success.confirm.least_gain:g}x by {GAINED[success.by]}, but the candidates can reach "
        f"{best:.2f}x at most {roofline} at equal steps; no run can confirm it."
    )


def _predicted_gain(configuration: ConfigurationSpec, script: Script, shape: ModelShape, card: str) -> float:
    """The most that a policy gains on a card by prediction at batch 1, at equal steps."""
    spec, on = policy_spec(configuration.policy), card_named(card)
    scripts = [script, _with_long_prompt(script)] if script.family.canvas else [script]
    if script.leftmost is None:
        scripts = [replace(each, leftmost=(always,)) for each in scripts for always in (True, False)]

    def seconds(policy: AnyPolicySpec, assumed: Script) -> float:
        ledger = rehearse(make_policy(policy, shape.layers), shape.layers, assumed)
        return predicted_seconds(ledger, shape, on)

    return max(seconds(FullSpec(), each) / seconds(spec, each) for each in scripts)


def _samples(
    recipe: Recipe, configurations: Sequence[ConfigurationSpec], idle: Sequence[Idle], layers: int
) -> int | None:
    """Rows at which the intervals of all comparisons of the criterion's task would end below the allowed loss."""
    success = recipe.success
    if success is None or not success.confirm.drop:
        return None
    equal = {name for part in idle if part.task == success.task for name in part.configurations}
    scored, control = is_scored(success.task), recipe.control
    classes: dict[object, str] = {}
    for each in sorted(configurations, key=lambda candidate: candidate.name != control):
        decode = recipe.decode_of(each)
        settings = tuple(
            getattr(decode, name, None) for name in (SCORED_BY if scored else decode.__struct_fields__)
        )
        if each.name == control or each.name not in equal:
            classes.setdefault((settings, canonical(policy_spec(each.policy), layers)), each.name)
    comparisons = Comparisons(max(1, len(classes) - 1))
    return samples_for_margin(success.confirm.drop, assumed_discordance(), comparisons.level)
