"""`unmask check`: what makes results invalid or doubtful, found by the program. Needs no torch."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

import click

from unmask import lab
from unmask.analysis.guards import guards_by_name
from unmask.analysis.words import counted
from unmask.cli.options import store_option
from unmask.cli.screen import say
from unmask.lab.outcomes import Checked
from unmask.reading import printable

COLOURS = {"invalid": "red", "warning": "yellow", "info": "blue"}
WIDTH = 110


@click.command()
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
    checked = lab.check(*experiments, foreign=foreign, criteria=criteria, store=store)
    if as_json:
        click.echo(json.dumps(asdict(checked)))
    else:
        _show(checked, explain)
    if checked.invalid:
        ctx.exit(1)


def _show(checked: Checked, explain: bool) -> None:
    guards = guards_by_name()
    for finding in checked.findings:
        mark = click.style(f"{finding.severity}: {finding.guard}", fg=COLOURS[finding.severity], bold=True)
        click.echo(f"{mark} ({printable(finding.experiment)})")
        say(_indented(finding.sentence))
        if explain:
            say(_indented(guards[finding.guard].explanation))
        say(_indented(f"What to do: {finding.advice}") + "\n")
    tally: Counter[str] = Counter(finding.severity for finding in checked.findings)
    severities = ", ".join(f"{tally[severity]} {severity}" for severity in COLOURS if tally[severity])
    click.echo(
        f"{counted(checked.results, 'result')}, {len(guards)} guards: {severities or 'nothing found'}."
    )


def _indented(text: str) -> str:
    return fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
