"""A canary: a few rows of a few configurations first, judged by the guards before the rest is started."""

from collections.abc import Iterator, Sequence

from unmask.analysis.guards import run_guards
from unmask.analysis.table import AnalysedExperiment, Table, entry_of
from unmask.cost import ModelShape
from unmask.errors import UnmaskError
from unmask.lab.planning import Plan, SweepRun
from unmask.policies.ceiling import canonical
from unmask.policies.registry import policy_spec
from unmask.spec import DecodeSpec
from unmask.spec.lock import Lock
from unmask.spec.recipe import ConfigurationSpec, ModelSpec, Recipe
from unmask.spec.sweep import PlannedRun, locked_for, sweep_of
from unmask.store.result import AccuracyResult

MOST_CONFIGURATIONS = 4
"""Configurations that are tried: the control, one equal to it by construction, and some that may differ."""
MOST_SETTINGS = 6
"""Further decode settings that are tried, each by one configuration, so that `plan` can price their steps."""
NEED_MANY_ROWS = {"too-few-samples"}
"""Guards that a handful of rows cannot satisfy and need not."""


def canary_runs(plan: Plan, rows: int) -> tuple[list[PlannedRun], str]:
    """The runs of a canary, and a sentence on them."""
    recipe, lock = plan.opened.recipe, plan.lock
    tasks = list(dict.fromkeys(run.planned.task for run in plan.runs))
    present = {run.planned.configuration for run in plan.runs if run.planned.kind == "accuracy"}
    names = canary_configurations(recipe, present, lock)
    runs = [run for run in sweep_of(recipe, lock, tasks, names, rows) if run.kind == "accuracy"]
    return runs, f"Canary: {rows} rows of {', '.join(names)} on {', '.join(tasks)}."


def canary_configurations(recipe: Recipe, present: set[str], lock: Lock) -> list[str]:
    """The control, one equal to it, candidates that are not equal to each other, and one for each further setting."""
    configurations = [each for each in recipe.expanded() if each.name in present]
    if not configurations:
        raise UnmaskError("There is no configuration that a canary could try.")
    meanings = {
        each.name: (
            recipe.model_of(each),
            recipe.decode_of(each),
            canonical(policy_spec(each.policy), ModelShape.of(locked_for(recipe, each, lock).shape).layers),
        )
        for each in configurations
    }
    control = recipe.control if recipe.control in meanings else configurations[0].name
    twin = [name for name in meanings if name != control and meanings[name] == meanings[control]][:1]
    others: dict[object, str] = {}
    for name, meaning in meanings.items():
        wanted = recipe.success is None or recipe.success.is_candidate(name)
        if wanted and meaning != meanings[control]:
            others.setdefault(meaning, name)
    chosen = [control, *twin, *others.values()][:MOST_CONFIGURATIONS]
    return [*chosen, *_further_settings(recipe, configurations, chosen)]


def _further_settings(
    recipe: Recipe, configurations: Sequence[ConfigurationSpec], chosen: Sequence[str]
) -> list[str]:
    """Configurations without an acting policy, one for each decode setting that no chosen one tries so."""
    plain = {
        each.name: (recipe.model_of(each), recipe.decode_of(each))
        for each in configurations
        if policy_spec(each.policy).dead
    }
    tried = [plain[name] for name in chosen if name in plain]
    further: dict[tuple[ModelSpec, DecodeSpec], str] = {}
    for name, settings in plain.items():
        if settings not in tried:
            further.setdefault(settings, name)
    return list(further.values())[:MOST_SETTINGS]


def judge(recipe: Recipe, runs: Sequence[SweepRun]) -> Iterator[str]:
    """Sentences of the guards on the canary; anything invalid, or a run without a result, is an UnmaskError."""
    entries = []
    for run in runs:
        result = run.folder.result()
        if not isinstance(result, AccuracyResult):
            raise UnmaskError(
                f"The canary {run.label} has no result ({run.state.reason}); nothing else was started."
            )
        name, model = run.planned.configuration, run.planned.model
        entries.append(entry_of(recipe.name, name, result, run.folder.folder, model=model))
    experiment = AnalysedExperiment(name=recipe.name, control=recipe.control)
    findings = [
        finding
        for finding in run_guards(Table((experiment,), tuple(entries), ()))
        if finding.guard not in NEED_MANY_ROWS
    ]
    for finding in findings:
        yield f"{finding.severity}: {finding.sentence}"
    invalid = [finding for finding in findings if finding.severity == "invalid"]
    if invalid:
        raise UnmaskError(f"The canary is invalid, so nothing else was started: {invalid[0].advice}")
    yield "The canary is sound."
