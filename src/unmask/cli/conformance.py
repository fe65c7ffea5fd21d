"""`unmask conformance`: compares this machine with recorded decodings, or a checkpoint with itself."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from unmask.cli.screen import Screen, console
from unmask.conformance.vectors import Vector, read_vectors
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.conformance.check import VectorCheck

FP32 = "float32"
PLAIN_WIDTH = 160
"""Characters of a line where no terminal says otherwise."""


@click.command()
@click.argument("folder", type=Path, metavar="[DIR]", required=False)
@click.option("--model", "-m", metavar="PATH_OR_HUB_ID", help="Check this checkpoint instead of vectors.")
@click.option("--device", help="cpu, cuda, cuda:1 or mps. [the best one present]")
@click.option("--dtype", default=FP32, show_default=True, help="float32, float16 or bfloat16.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def conformance(
    ctx: click.Context, folder: Path | None, model: str | None, device: str | None, dtype: str, as_json: bool
) -> None:
    """Run every vector file of a folder and report the first position that differs.

    In float32 (the default) answers are compared token for token, and the exit code is 1 if any differs.
    In another dtype the steps of float32 are forced on it, and the report says how often the two agree. With --model
    a checkpoint is compared with itself: requests that are decoded together, on this device, with each of them
    alone in float32 on the CPU.

    \b
    Examples:
      unmask conformance tests/golden
      unmask conformance tests/golden --device cuda --dtype bfloat16
      unmask conformance tests/golden --json | jq .different
      unmask conformance --model path/to/checkpoint --device cuda --dtype bfloat16
    """
    if (folder is None) == (model is None):
        raise UnmaskError("Give either a folder of vectors or a checkpoint by --model.")
    outcomes = (
        _run_own(model, device, dtype) if model else _run(read_vectors(folder or Path()), device, dtype)
    )
    if as_json:
        click.echo(json.dumps(_document(outcomes, dtype), indent=1))
    else:
        _show(outcomes, dtype)
    ctx.exit(1 if dtype == FP32 and any(outcome.failed for outcome in outcomes) else 0)


def _run(vectors: list[Vector], device: str | None, dtype: str) -> list["VectorCheck"]:
    from unmask.conformance.check import check
    from unmask.model.device import choose_device, choose_dtype

    choose_dtype(dtype, choose_device(device))
    screen = Screen(stderr=True)
    bar = Progress(console=screen, transient=True, disable=not screen.is_terminal)
    with tempfile.TemporaryDirectory(prefix="unmask-conformance-") as scratch, bar:
        return [
            check(vector, Path(scratch), device, dtype)
            for vector in bar.track(vectors, description="Running vectors")
        ]


def _run_own(model: str, device: str | None, dtype: str) -> list["VectorCheck"]:
    from unmask.conformance.check import check_own
    from unmask.model.device import choose_device, choose_dtype

    choose_dtype(dtype, choose_device(device))
    return check_own(model, device, dtype)


def _counts(outcomes: list["VectorCheck"]) -> dict[str, int]:
    different = sum(outcome.failed for outcome in outcomes)
    return {"equal": len(outcomes) - different, "different": different}


def _agreement(outcomes: list["VectorCheck"]) -> dict[str, int]:
    return {
        "positions": sum(outcome.positions or 0 for outcome in outcomes),
        "agreed": sum(outcome.agreed or 0 for outcome in outcomes),
    }


def _document(outcomes: list["VectorCheck"], dtype: str) -> dict[str, Any]:
    agreement = {} if dtype == FP32 else _agreement(outcomes)
    return {
        "dtype": dtype,
        **_counts(outcomes),
        **agreement,
        "vectors": [asdict(outcome) for outcome in outcomes],
    }


def _show(outcomes: list["VectorCheck"], dtype: str) -> None:
    """A table, and one line that sums it up."""
    forced = dtype != FP32
    table = Table(box=SIMPLE, pad_edge=False)
    for title in ("vector", "tokens or scores", "steps"):
        table.add_column(title, no_wrap=True)
    table.add_column("first difference", overflow="fold")
    table.add_column("margin", no_wrap=True)
    if forced:
        table.add_column(f"{dtype} agrees", no_wrap=True, justify="right")
    for outcome in outcomes:
        table.add_row(*_cells(outcome, forced))
    screen = console(PLAIN_WIDTH)
    screen.print(table)
    screen.print(", ".join(f"{count} {name}" for name, count in _counts(outcomes).items()) + " (float32)")
    if forced:
        total = _agreement(outcomes)
        share = total["agreed"] / total["positions"] if total["positions"] else 1.0
        screen.print(
            f"{dtype} agrees with float32 on {total['agreed']} of {total['positions']} positions ({share:.2%})"
        )


def _cells(outcome: "VectorCheck", forced: bool) -> list[str | Text]:
    margin = outcome.smallest_margin
    cells: list[str | Text] = [
        outcome.vector,
        _verdict(outcome.tokens_equal),
        _verdict(outcome.steps_equal),
        outcome.first_difference or "-",
        "-" if margin is None else f"{margin:.1e}",
    ]
    if not forced:
        return cells
    return [*cells, "-" if outcome.positions is None else f"{outcome.agreed}/{outcome.positions}"]


def _verdict(equal: bool | None) -> str | Text:
    if equal is None:
        return "-"
    return Text("equal", "green") if equal else Text("differ", "bold red")
