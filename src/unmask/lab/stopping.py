"""By what the runs of a sweep that stops when it knows are judged: the recipe's criterion as terms for its workers.

Which runs may end is then decided by each worker for itself (`analysis/stopping.py`), so no other process has to stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from unmask.analysis.decisions import simulate
from unmask.analysis.statistics import ACCURACY, AGREEMENT, LEVEL, bonferroni_level, independent_discordance
from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import check_mean
from unmask.spec.conduct import NO_CRITERION, UntilDecidedSpec
from unmask.spec.lock import Lock
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import rows_asked, sweep_of
from unmask.store.run_folder import Terms
from unmask.store.store import Store


def terms_of(
    recipe: Recipe, lock: Lock, store: Store, limit: int | None, folders: Mapping[str, str]
) -> Terms:
    """The terms of a recipe's criterion; `folders` names the runs of configurations that are planned otherwise.

    The error is split over all comparisons with the control, also of configurations that this call is not about.
    """
    success, spec = recipe.success, recipe.until_decided or UntilDecidedSpec()
    if success is None:
        raise UnmaskError(NO_CRITERION)
    task = next(task for task in recipe.tasks if task.name == success.task)
    check_mean(task.name, task.metric)
    runs = [run for run in sweep_of(recipe, lock, [task.name], limit=limit) if run.kind == "accuracy"]
    places = {
        run.configuration: folders.get(run.configuration) or store.find(run.identity).name for run in runs
    }
    control = places[success.control]
    others = dict.fromkeys(folder for folder in places.values() if folder != control)
    judged = {places[name] for name in places if success.is_candidate(name)}
    bounds = {success.confirm.drop, *([success.reject.drop] if success.reject else [])}
    return Terms(
        control=control,
        candidates=tuple(folder for folder in others if folder in judged),
        bounds=tuple(sorted(bounds)),
        comparisons=len(others),
        rows=spec.round_of(task.name, rows_asked(runs[0], lock), recipe.evaluation.batch_size),
        seed=spec.seed,
    )


MULTIPLES = (0.0, 1.0, 2.0, 3.0)
"""Of the allowed loss: the true losses for which a plan says how soon they are known."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How likely and how soon a candidate is decided."""

    loss: float
    """That it truly has."""
    probability: float
    rows: int
    """Median of the rows that it answers, where it is never decided too."""
    of: int


def decisions_of(terms: Terms, rows: int) -> tuple[Decision, ...]:
    """What is to be expected of candidates that lose nothing, what is allowed, and twice and three times that.

    As many rows change as the number of samples that a plan asks for supposes: half of those that would if errors were
    independent, and never fewer than are lost.
    """
    level, allowed = bonferroni_level(LEVEL, terms.comparisons), min(terms.bounds)
    decisions = []
    for loss in dict.fromkeys(multiple * allowed for multiple in MULTIPLES):
        if loss <= ACCURACY:
            changed = max(loss, AGREEMENT * independent_discordance(ACCURACY, loss))
            simulated = simulate(rows, terms.rows, loss, changed, terms.bounds, level)
            decisions.append(Decision(loss, simulated.decided, round(simulated.rows), rows))
    return tuple(decisions)
