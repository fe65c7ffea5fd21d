"""What a person sees of a training: a bar, a log of one JSON document per line, and a plot of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unmask.errors import UnmaskError

LOG_NAME = "log.jsonl"


class Journal:
    """Appends lines to the log of a folder, and drops those after the step that training resumes from."""

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / LOG_NAME
        kept = [line for line in read_log(folder) if line["step"] <= step]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def write(self, line: dict[str, Any]) -> None:
        """Add one line."""
        with self.path.open("a") as log:
            log.write(json.dumps(line) + "\n")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All lines of a log; none if there is no log yet."""
    path = folder / LOG_NAME
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def bar() -> Progress:
    """A progress bar that also tells stage and loss."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )


def plot(folder: Path, target: Path) -> None:
    """Draw the loss by step, and the held-out accuracies where they were measured."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnmaskError("The plot needs matplotlib; install it with `pip install matplotlib`.") from error
    lines = read_log(folder)
    if not lines:
        raise UnmaskError(f"There is no training log in {folder}.")
    figure = Figure(figsize=(9, 7), layout="constrained")
    losses, accuracies = figure.subplots(2, 1, sharex=True)
    for causal, label in ((True, "causal"), (False, "block diffusion")):
        points = [(x["step"], x["loss"]) for x in lines if x.get("causal") is causal]
        if points:
            steps, values = zip(*points, strict=True)
            losses.plot(steps, _smooth(list(values)), label=label)
    losses.set(ylabel="loss (moving mean of 20)", yscale="log")
    losses.legend()
    probes = [x for x in lines if "probe" in x]
    for name in sorted({name for x in probes for name in x["probe"]}):
        accuracies.plot([x["step"] for x in probes], [x["probe"].get(name) for x in probes], "o-", label=name)
    accuracies.set(xlabel="step", ylabel="held-out exact match", ylim=(0, 1))
    if probes:
        accuracies.legend(ncols=2)
    figure.savefig(target, dpi=110)


def _smooth(values: list[float], width: int = 20) -> list[float]:
    return [sum(values[max(0, i - width + 1) : i + 1]) / min(i + 1, width) for i in range(len(values))]
