"""What is left of an evaluation: a table for people, and a folder that is whole when it has results.json."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from unmask.cli.generate import as_lines
from unmask.errors import UnmaskError
from unmask.store.files import write_atomically

if TYPE_CHECKING:
    from unmask.evaluation.run import Outcome


def check_new(output: Path) -> None:
    """Results of two runs never share a folder."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UnmaskError(f"{output} is there already; --output takes a new or empty folder for each run.")
    if not output.absolute().parent.is_dir():
        raise UnmaskError(
            f"{output.absolute().parent}: no such folder to make {output.name} in; make it first."
        )


def write_results(output: Path, outcome: "Outcome") -> None:
    """Samples first: a folder with results.json is whole."""
    output.mkdir(exist_ok=True)
    for task, rows in outcome.samples.items():
        write_atomically(output / f"samples_{task}.jsonl", as_lines(msgspec.to_builtins(rows, enc_hook=str)))
    write_atomically(
        output / "results.json", json.dumps(outcome.document, ensure_ascii=False, indent=1) + "\n"
    )


def show(document: dict[str, Any]) -> None:
    """Print a line for each task, and the speeds."""
    table = Table("task", "metric", title=f"{document['model']['checkpoint']}")
    for heading in ("value", "stderr", "rows", "work skipped"):
        table.add_column(heading, justify="right")
    table.add_column("remark", overflow="fold")
    for name, entry in document["tasks"].items():
        parts = entry["effect"].values()
        skipped = ", ".join(f"{part['reuse_fraction']:.1%}" for part in parts)
        remarks = "; ".join(f"inactive: {part['inactive']}" for part in parts if part["inactive"])
        error = "" if entry["stderr"] is None else f"{entry['stderr']:.4f}"
        table.add_row(
            name, entry["metric"], f"{entry['value']:.4f}", error, str(entry["rows"]), skipped, remarks
        )
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = 160
    console.print(table)
    for what, rate in (("decoding", "tokens_per_second"), ("scoring", "requests_per_second")):
        part = document["speed"].get(what)
        if part and part[rate]:
            unit = rate.replace("_per_second", "/s")
            console.print(f"{what}: {part[rate]:.1f} {unit} over {part['requests']} requests (accuracy run)")
