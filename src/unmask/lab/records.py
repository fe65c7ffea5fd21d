"""Writes down what is about to be executed: the experiment with its runs, and what each run and its worker is."""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from unmask.errors import UnmaskError
from unmask.lab.planning import Plan, SweepRun, once, recipe_terms
from unmask.lab.recipes import OpenRecipe
from unmask.lab.standing import timed_as
from unmask.spec.sweep import sweep_of
from unmask.store.experiments import Member, Place, read_experiment, write_experiment
from unmask.store.run_folder import RunFolder, Terms, WorkerSettings
from unmask.store.store import Store, run_id
from unmask.store.traces import keep_traces


def write_down(plan: Plan) -> None:
    """Write down which runs the experiment stands for, and what each run is, before anything starts."""
    opened = plan.opened
    members = [_member(plan, run) for run in plan.runs]
    described = _described(plan)
    write_experiment(
        plan.store,
        plan.experiment,
        opened.file,
        opened.text,
        members,
        opened.recipe.control,
        described,
        plan.terms or _terms_before(plan),
    )
    freeze(plan.store, opened, (*once(plan.runs), *plan.twins), plan.terms)


def _member(plan: Plan, run: SweepRun) -> Member:
    own = run_id(run.planned.identity)
    timed: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    if run.planned.kind == "timing":
        left = run.executed.identity["configurations"]
        timed = timed_as(run.planned, plan.opened.recipe, plan.lock, left) or msgspec.UNSET
    return Member(
        configuration=run.planned.configuration,
        task=run.planned.task,
        limit=run.planned.limit,
        id=run.id,
        folder=run.folder.name,
        kind=run.planned.kind,
        instead=plan.standing.instead(run.planned),
        own=msgspec.UNSET if own == run.id else own,
        timed_as=timed,
    )


def _terms_before(plan: Plan) -> Terms | None:
    """Terms of a sweep that goes to its end now, but could stop before: whoever looked then has looked."""
    before = read_experiment(plan.store, plan.experiment)
    if before is None or not before.until_decided or plan.opened.recipe.success is None:
        return None
    runs = [run for run in plan.runs if run.planned.task == plan.opened.recipe.success.task]
    limits = {run.planned.limit for run in runs if run.planned.kind == "accuracy"}
    limit = limits.pop() if len(limits) == 1 else None
    return recipe_terms(plan.opened.recipe, plan.lock, plan.store, limit, plan.standing)


def _described(plan: Plan) -> set[tuple[Place, str]]:
    """Places and ids of all runs that the recipe stands for, also under limits that were asked for before."""
    before = read_experiment(plan.store, plan.experiment)
    limits = {None, *(member.limit for member in before.members)} if before else {None}
    runs: set[tuple[Place, str]] = set()
    for limit in limits:
        with suppress(UnmaskError):  # a limit of earlier rows may exceed the present ones
            for run in sweep_of(plan.opened.recipe, plan.lock, limit=limit):
                runs.add(((run.kind, run.configuration, run.task, run.limit), run_id(run.identity)))
    return runs


def freeze(store: Store, opened: OpenRecipe, runs: Iterable[SweepRun], terms: Terms | None = None) -> None:
    """Write down what each run is and how its worker works; a canary's runs belong to no experiment."""
    judged = {terms.control, *terms.candidates} if terms else set()
    evaluation = opened.recipe.evaluation
    models = opened.recipe.models
    for each in opened.recipe.expanded():
        keep_traces(store.root, opened.recipe.policy_of(each).with_named_traces()[1])
    for run in runs:
        worker = WorkerSettings(
            experiment=opened.recipe.name,
            configuration=run.executed.configuration,
            lock=str(opened.lock_file),
            checkpoint=opened.checkpoint_of(models[run.planned.model or opened.recipe.model.name]),
            data=None if opened.data is None else str(opened.data),
            batch_size=evaluation.batch_size,
            device=evaluation.device,
            allow_code=evaluation.allow_code,
            allow_unsafe_code=evaluation.allow_unsafe_code or msgspec.UNSET,
            until_decided=terms if terms and run.folder.name in judged else msgspec.UNSET,
        )
        of = RunFolder(run.folder.folder.parents[1]) if run.is_twin else None
        store.run(run.executed.identity, worker, of)
