"""A document out of a store: tables, verdicts, findings, attempts and provenance of experiments and imports."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from unmask.analysis.guards import run_guards
from unmask.analysis.records import Table
from unmask.analysis.tables import experiment_table, import_table
from unmask.analysis.verdict import verdict
from unmask.errors import UnmaskError
from unmask.report.attempts import attempts_of, runs_of
from unmask.report.document import Document, ExperimentPart, TaskPart
from unmask.report.lines import task_part
from unmask.report.provenance import artifacts_of, foreign_artifacts, provenance_of
from unmask.spec.recipe import Recipe, SuccessSpec, parse_recipe
from unmask.store import Store
from unmask.store.experiments import Experiment as Written
from unmask.store.experiments import read_experiment
from unmask.store.foreign import foreign_of


def gather(
    store: Store,
    experiments: Sequence[str],
    imports: Sequence[str] = (),
    success: SuccessSpec | None = None,
) -> Document:
    """What there is to say of some experiments and imports; criteria are for the imports."""
    parts = [_own(store, name) for name in experiments]
    parts += [_foreign(store, name, success) for name in imports]
    if not parts:
        raise UnmaskError(
            f"There is nothing to report in {store.root}; run a recipe or import summaries first."
        )
    return Document(
        title=", ".join(part.name for part in parts),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        version=version("unmask"),
        parts=tuple(parts),
    )


def task_parts(store: Store, name: str) -> list[TaskPart]:
    """What there is to say of the tasks of one experiment."""
    return list(_tasks(experiment_table(store, name), name))


def _own(store: Store, name: str) -> ExperimentPart:
    table = experiment_table(store, name)
    written = read_experiment(store, name)
    if written is None:
        raise UnmaskError(f"There is no experiment {name!r} in {store.root}.")
    recipe = _recipe(written)
    return _part(
        table,
        hypothesis=recipe.hypothesis if recipe else "",
        expected=recipe.expected if recipe else "",
        attempts=tuple(attempts_of(store, written)),
        runs=tuple(runs_of(store, written)),
        provenance=tuple(provenance_of(table, written)),
        artifacts=tuple(artifacts_of(store, written)),
        superseded=len(written.superseded),
    )


def _foreign(store: Store, name: str, success: SuccessSpec | None) -> ExperimentPart:
    table = import_table(store, name, success)
    return _part(
        table,
        provenance=tuple(provenance_of(table)),
        artifacts=tuple(foreign_artifacts(name, foreign_of(store, name))),
    )


def _part(table: Table, **about: object) -> ExperimentPart:
    (experiment,) = table.experiments
    findings = tuple(run_guards(table))
    judged = verdict(table, experiment.name, findings=findings) if experiment.success else None
    return ExperimentPart(
        about=experiment,
        tasks=tuple(_tasks(table, experiment.name)),
        timings=table.timings,
        verdict=judged,
        findings=findings,
        **about,  # type: ignore[arg-type]
    )


def _tasks(table: Table, name: str) -> Iterable[TaskPart]:
    for number, group in enumerate(table.groups(), start=1):
        # An import may bear the name of an experiment.
        kind = "foreign-" if group.experiment.foreign else ""
        yield task_part(table, group, f"{kind}{_anchor(name)}-{number}")


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)


def _recipe(written: Written) -> Recipe | None:
    """The recipe as it was planned; None where this version no longer understands it."""
    try:
        return parse_recipe(written.recipe_text, written.recipe)
    except UnmaskError:
        return None
