"""`unmask check`: what makes results invalid or doubtful, found by the program. Needs no torch."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

import click

from unmask.cli.recipes import criteria_of
from unmask.cli.sweep_options import store_option
from unmask.errors import UnmaskError
from unmask.store.experiments import experiment_names
from unmask.store.foreign import imports
from unmask.store.store import Store

COLOURS = {"invalid": "red", "warning": "yellow", "info": "blue"}
WIDTH = 110


@click.command(short_help="What makes results invalid or doubtful.")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@store_option
@click.option("--foreign", multiple=True, metavar="NAME", help="Check an import instead; may be repeated.")
@click.option(
    "--criteria", type=Path, metavar="RECIPE", help="Judge imports by the [success] table of this recipe."
)
@click.option("--explain", is_flag=True, help="Say why each finding matters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def check(
    ctx: click.Context,
    experiments: tuple[str, ...],
    store: Path | None,
    foreign: tuple[str, ...],
    criteria: Path | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Look for what makes results invalid or doubtful: knobs without effect, controls that differ, mixed code.

    Without names all experiments and all imports are checked, imports apart from own results. Exit code 0:
    nothing invalid was found (warnings may have been). 1: something is invalid. 2: the input does not allow it.

    \b
    Examples:
      unmask check
      unmask check 00_baseline_embedded --explain
      unmask check --foreign seed --criteria recipes/00_baseline --json
    """
    from unmask.analysis.guards import guards_by_name, run_guards
    from unmask.analysis.records import Table
    from unmask.analysis.tables import import_table, own_table

    place = Store.at(store)
    success = criteria_of(criteria)
    own, others = list(experiments), list(foreign)
    if not own and not others:
        own, others = experiment_names(place), imports(place)
    if not own and not others:
        raise UnmaskError(
            f"There is nothing to check in {place.root}; run a recipe or import summaries first."
        )
    tables: list[Table] = [own_table(place, own)] if own else []
    tables += [import_table(place, name, success) for name in others]
    findings = [finding for table in tables for finding in run_guards(table)]
    results = sum(len(table.entries) + len({one.run for one in table.timings}) for table in tables)
    if as_json:
        checked = {"experiments": own, "imports": others, "results": results}
        click.echo(json.dumps({**checked, "findings": [asdict(finding) for finding in findings]}))
    else:
        guards = guards_by_name()
        for finding in findings:
            mark = click.style(
                f"{finding.severity}: {finding.guard}", fg=COLOURS[finding.severity], bold=True
            )
            click.echo(f"{mark} ({finding.experiment})")
            click.echo(_indented(finding.sentence))
            if explain:
                click.echo(_indented(guards[finding.guard].explanation))
            click.echo(_indented(f"What to do: {finding.advice}") + "\n")
        click.echo(_sum(Counter(finding.severity for finding in findings), results, len(guards)))
    if any(finding.severity == "invalid" for finding in findings):
        ctx.exit(1)


def _indented(text: str) -> str:
    return fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _sum(counts: Counter[str], results: int, guards: int) -> str:
    found = ", ".join(f"{counts[name]} {name}" for name in COLOURS if counts[name])
    return f"{results} results, {guards} guards: {found or 'nothing found'}."
