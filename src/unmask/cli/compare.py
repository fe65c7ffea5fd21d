"""`unmask compare`: two runs, sample by sample. Needs no torch."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from unmask import lab
from unmask.analysis.table import ConfigurationResult
from unmask.analysis.words import signed_minus
from unmask.cli.options import store_option
from unmask.cli.screen import say
from unmask.lab.outcomes import ComparedRuns
from unmask.reading import printable

LONGEST = 400
"""Characters of an answer that are shown, its end: that is where the result stands."""


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@store_option
@click.option(
    "--flips",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="Flipped samples to show with both answers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every flipped sample.")
def compare(first: str, second: str, store: Path | None, flips: int, as_json: bool) -> None:
    """Compare two accuracy runs on the same rows: who is right where, and what the difference is.

    A run is given by its id or folder, the beginning of either, or its configuration; where several have that name,
    with its task and its experiment in front. The difference is the second run's accuracy minus the first's, with
    Tango's score interval, a bootstrap (seed 0) and the exact McNemar test.

    \b
    Examples:
      unmask compare k1_first k2_middle
      unmask compare 05_mine/gsm8k/k1_first 3f2a
      unmask compare results/runs/gsm8k-full-3f2a... results/runs/gsm8k-layer_reuse-91bc... --flips 20
    """
    compared = lab.compare(first, second, store=store)
    for sentence in compared.retractions:
        say(f"Warning: {sentence}", err=True)
    if as_json:
        click.echo(json.dumps(_document(compared), default=str))
        return
    _show(compared, flips)


def _document(compared: ComparedRuns) -> dict[str, Any]:
    comparison, (first, second) = compared.comparison, compared.folders
    return {
        "first": _side(comparison.first, first),
        "second": _side(comparison.second, second),
        "difference": asdict(comparison.difference),
        "changed_answers": comparison.changed,
        "flips": [asdict(flip) for flip in comparison.flips],
    }


def _side(entry: ConfigurationResult, folder: str) -> dict[str, Any]:
    return {
        "run": folder,
        "configuration": entry.configuration,
        "task": entry.task,
        "value": entry.value,
        "rows": entry.rows,
    } | ({"sandbox": entry.sandbox} if entry.sandbox else {})


def _show(compared: ComparedRuns, flips: int) -> None:
    comparison = compared.comparison
    pair, first, second = comparison.difference, comparison.first, comparison.second
    for name, side, folder in zip(("first ", "second"), (first, second), compared.folders, strict=True):
        programs = f"  (programs of the model ran: {side.sandbox})" if side.sandbox else ""
        called = "" if side.configuration == folder else f"{side.configuration}  "
        say(f"{name}  {side.value:7.2%}  {called}{folder}{programs}")
    drawn = f", bootstrap {_span(pair.bootstrap.low, pair.bootstrap.high)}" if pair.bootstrap else ""
    say(
        f"Difference {_signed(pair.value)} points on {pair.count:,} rows; 95 % interval "
        f"{_span(pair.interval.low, pair.interval.high)} ({pair.interval.method}){drawn}."
    )
    if pair.counts is not None and pair.p_value is not None:
        say(
            f"Both right {pair.counts.both}, only the first {pair.counts.lost}, only the second "
            f"{pair.counts.gained}, neither {pair.counts.neither}; exact McNemar p = {pair.p_value:.3g}."
        )
    say(f"{comparison.changed:,} answers differ in their text; {len(comparison.flips):,} flipped.")
    for flip in comparison.flips[:flips]:
        say(f"\n{flip.id}: {'gained' if flip.gained else 'lost'}; target {flip.target.strip()!r}")
        say(f"  first : {_short(flip.first)}")
        say(f"  second: {_short(flip.second)}")
    if len(comparison.flips) > flips:
        say(f"\n{len(comparison.flips) - flips:,} more flipped samples; --flips shows more of them.")


def _span(low: float, high: float) -> str:
    return f"{_signed(low)} to {_signed(high)}"


def _signed(share: float) -> str:
    """Points with a sign, and the minus of the other tables."""
    return signed_minus(f"{share * 100:+.2f}")


def _short(text: str) -> str:
    # A model may write anything, a terminal must not obey it.
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"... {line[-LONGEST:]}"
