"""A canary: a few rows of a few configurations first, judged by the guards before the rest is started."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from rich.console import Console

from unmask.analysis.guards import run_guards
from unmask.analysis.own import entry_of
from unmask.analysis.records import Experiment, Table
from unmask.cli.recipes import OpenRecipe
from unmask.cli.run_records import freeze_runs
from unmask.errors import UnmaskError
from unmask.launch.todo import Item, items_of, still_to_do
from unmask.policies.ceiling import canonical
from unmask.policies.registry import policy_spec
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import PlannedRun, sweep_of
from unmask.store.result import AccuracyResult
from unmask.store.store import Store

CANARIES = 4
"""Configurations that are tried: the control, one equal to it by construction, and some that may differ."""
NEEDS_MANY = {"too-few-samples"}
"""Guards that a handful of rows cannot satisfy and need not."""


def try_canary(
    opened: OpenRecipe,
    store: Store,
    planned: Sequence[PlannedRun],
    rows: int,
    start: Callable[[Sequence[Item]], None],
    screen: Console,
) -> None:
    """Run the canary and refuse to go on if a guard finds anything invalid."""
    tasks = list(dict.fromkeys(each.task for each in planned))
    present = {each.configuration for each in planned if each.kind == "accuracy"}
    lock = opened.lock()
    names = canaries(opened.recipe, present, lock.shape["layers"])
    small = [each for each in sweep_of(opened.recipe, lock, tasks, names, rows) if each.kind == "accuracy"]
    screen.print(f"Canary: {rows} rows of {', '.join(names)} on {', '.join(tasks)}.")
    items = items_of(store, small)
    freeze_runs(store, opened, items)
    if todo := still_to_do(items, retry_failed=True):
        start(todo)
    _judge(opened.recipe, items_of(store, small), screen)


def canaries(recipe: Recipe, present: set[str], layers: int) -> list[str]:
    """The control, a configuration equal to it, and candidates that are not equal to each other."""
    points = [point for point in recipe.expanded() if point.name in present]
    kinds = {
        point.name: (recipe.decode_of(point), canonical(policy_spec(point.policy), layers))
        for point in points
    }
    if not points:
        raise UnmaskError("There is no configuration that a canary could try.")
    control = recipe.control if recipe.control in kinds else points[0].name
    twin = [name for name in kinds if name != control and kinds[name] == kinds[control]][:1]
    wanted = recipe.success.candidates if recipe.success else ("*",)
    others: dict[object, str] = {}
    for name in kinds:
        if kinds[name] != kinds[control] and any(fnmatchcase(name, pattern) for pattern in wanted):
            others.setdefault(kinds[name], name)
    return [control, *twin, *others.values()][:CANARIES]


def _judge(recipe: Recipe, items: Sequence[Item], screen: Console) -> None:
    entries = []
    for item in items:
        result = item.run.result()
        if not isinstance(result, AccuracyResult):
            raise UnmaskError(
                f"The canary {item.planned.label} has no result ({item.state.reason}); nothing else was started."
            )
        entries.append(entry_of(recipe.name, item.planned.configuration, result, item.run.folder))
    experiment = Experiment(name=recipe.name, control=recipe.control)
    found = [
        finding
        for finding in run_guards(Table((experiment,), tuple(entries), ()))
        if finding.guard not in NEEDS_MANY
    ]
    for finding in found:
        screen.print(f"{finding.severity}: {finding.sentence}", markup=False)
    invalid = [finding for finding in found if finding.severity == "invalid"]
    if invalid:
        raise UnmaskError(f"The canary is invalid, so nothing else was started: {invalid[0].advice}")
    screen.print("The canary is sound.")
