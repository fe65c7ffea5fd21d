"""`unmask compare`: two runs, sample by sample. Needs no torch."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from unmask import lab
from unmask.analysis.likeness import tokens_a_forward
from unmask.analysis.table import ConfigurationResult
from unmask.analysis.words import counted, level_in_percent, signed
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
    with its task and its experiment in front. The difference is the second run's accuracy minus the first's, with an
    interval and the p-value that belongs to it: Tango's interval and the exact McNemar test, or Student's where rows
    are not just right or wrong; rows of one prompt or subtask count as a cluster.

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
        "equal_by_construction": comparison.equal,
        "difference": asdict(comparison.difference)
        | ({"interval": None, "p_value": None} if comparison.equal else {}),
        **({"remarks": list(compared.remarks)} if compared.remarks else {}),
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
        "tokens_a_forward": tokens_a_forward(entry),
    } | ({"sandbox": entry.sandbox} if entry.sandbox else {})


def _show(compared: ComparedRuns, flips: int) -> None:
    comparison = compared.comparison
    pair, first, second = comparison.difference, comparison.first, comparison.second
    for name, side, folder in zip(("first ", "second"), (first, second), compared.folders, strict=True):
        programs = f"  (programs of the model ran: {side.sandbox})" if side.sandbox else ""
        called = "" if side.configuration == folder else f"{side.configuration}  "
        rate = tokens_a_forward(side)
        beside = f"  {rate:.2f} tokens a forward" if rate else ""
        say(f"{name}  {side.value:7.2%}  {called}{folder}{beside}{programs}")
    change = f"Difference {signed(pair.value * 100, 2)} points on {counted(pair.count, 'row')}"
    if comparison.equal:
        say(f"{change}. The two must give the same answers, so there is no interval.")
    else:
        say(
            f"{change}; {level_in_percent(pair.interval.level)} interval "
            f"{_span(pair.interval.low, pair.interval.high)} ({pair.interval.method}); p = {pair.p_value:.3g}."
        )
    if pair.counts is not None:
        say(
            f"Both right {pair.counts.both}, only the first {pair.counts.lost}, only the second "
            f"{pair.counts.gained}, neither {pair.counts.neither}."
        )
    for remark in compared.remarks:
        say(remark)
    say(f"{comparison.changed:,} answers differ in their text; {len(comparison.flips):,} flipped.")
    for flip in comparison.flips[:flips]:
        say(f"\n{flip.id}: {'gained' if flip.gained else 'lost'}; target {flip.target.strip()!r}")
        say(f"  first : {_short(flip.first)}")
        say(f"  second: {_short(flip.second)}")
    if len(comparison.flips) > flips:
        say(f"\n{counted(len(comparison.flips) - flips, 'more flipped sample')}; --flips shows more of them.")


def _span(low: float, high: float) -> str:
    return f"{signed(low * 100, 2)} to {signed(high * 100, 2)}"


def _short(text: str) -> str:
    # A model may write anything, a terminal must not obey it.
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"... {line[-LONGEST:]}"
