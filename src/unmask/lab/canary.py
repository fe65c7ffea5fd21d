"""A canary: a few rows of a few configurations first, judged by the guards before the rest is started."""

from collections.abc import Iterator, Sequence

from unmask.analysis.equality import equal_everywhere
from unmask.analysis.guards import run_guards
from unmask.analysis.table import AnalysedExperiment, Table, entry_of
from unmask.errors import UnmaskError
from unmask.lab.planning import Plan, SweepRun
from unmask.policies.registry import policy_spec
from unmask.spec import DecodeSpec
from unmask.spec.lock import Lock
from unmask.spec.recipe import ConfigurationSpec, ModelSpec, Recipe
from unmask.spec.sweep import PlannedRun, sweep_of
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
    names = [each.name for each in configurations]
    groups = equal_everywhere(recipe, configurations, lock)
    control = recipe.control if recipe.control in names else names[0]
    equal = next(group for group in groups if control in group)
    twin = [name for name in equal if name != control][:1]
    wanted = [
        [name for name in group if recipe.success is None or recipe.success.is_candidate(name)]
        for group in groups
        if group is not equal
    ]
    others = [names[0] for names in wanted if names]
    chosen = [control, *twin, *others][:MOST_CONFIGURATIONS]
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
