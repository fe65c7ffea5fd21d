"""Keeps the key figures of benchmark runs, one line a run, and draws speed-ups over commits.

Knows the file, who ran what where, and how a series of runs looks. A script hands over a document with its
own few figures; only runs of `decode.py` are drawn. Points are in the order of the file, so commits are in
the order in which they were measured.

    python benchmarks/history.py                       # the table
    python benchmarks/history.py --plot history.png    # the table and the picture
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from timing import machine

HISTORY = Path(__file__).with_name("history.jsonl")
MOST_LABELS = 12
"""Commits named under a panel; more would run into each other."""


@dataclass(frozen=True, order=True)
class Case:
    """What a panel shows."""

    shape: str
    threads: int
    batch: int
    prompt: int
    kind: str

    @classmethod
    def of(cls, figures: dict[str, Any]) -> "Case":
        """Name the case that figures belong to."""
        return cls(*(figures[name] for name in cls.__dataclass_fields__))

    def __str__(self) -> str:
        return f"{self.shape}, batch {self.batch}, prompt {self.prompt}, {self.threads} thr., {self.kind}"


@dataclass(frozen=True)
class Point:
    """A case's figures in one run."""

    run: int
    """The run's place in the history."""
    speedup: float
    low: float
    high: float
    of_limit: float


def append(document: dict[str, Any], path: Path | None = None) -> None:
    """Add a run: the document's figures with date, commit and machine."""
    known = machine()
    stamp = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": known.pop("commit")}
    known.pop("threads")  # a figure's own: a run may measure several
    line = json.dumps(stamp | {"machine": known} | document, separators=(",", ":"))
    with (path or HISTORY).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def read(path: Path | None = None, benchmark: str | None = None) -> list[dict[str, Any]]:
    """All runs in the order of the file, or those of one benchmark."""
    path = path or HISTORY
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    runs = [json.loads(line) for line in lines if line.strip()]
    return [run for run in runs if benchmark in (None, run["benchmark"])]


def series(runs: Sequence[dict[str, Any]]) -> dict[Case, list[Point]]:
    """Figures of every case over the runs that have it."""
    found: dict[Case, list[Point]] = {}
    for place, run in enumerate(runs):
        for figures in run["cases"]:
            point = Point(place, *figures["speedup"], figures["of_limit"])
            found.setdefault(Case.of(figures), []).append(point)
    return dict(sorted(found.items()))


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Every case, run by run."""
    lines = [f"{'case':52} {'date':10} {'commit':>16} {'speed-up':>20} {'of limit':>8}"]
    for case, points in series(runs).items():
        for name, point in zip([str(case), *[""] * len(points)], points, strict=False):
            run = runs[point.run]
            speedup = f"{point.speedup:.2f} [{point.low:.2f}, {point.high:.2f}]"
            lines.append(
                f"{name:52} {run['date'][:10]} {run['commit']:>16} {speedup:>20} {point.of_limit:8.0%}"
            )
    return "\n".join(lines)


def plot(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the speed-up of every case over the runs, one panel a case."""
    cases = series(runs)
    across = min(4, len(cases))
    down = ceil(len(cases) / across)
    figure = Figure(figsize=(3.4 * across, 1.0 + 2.2 * down), layout="constrained")
    panels: list[Axes] = list(figure.subplots(down, across, squeeze=False, sharex=True).flat)
    for panel, (case, points) in zip(panels, cases.items(), strict=False):
        _draw(panel, case, points)
    for panel in panels[len(cases) :]:
        panel.set_axis_off()
    for panel in panels[max(0, len(cases) - across) : len(cases)]:
        _name_commits(panel, [run["commit"] for run in runs])
    figure.supylabel("speed-up over the reference (interval of the median)", fontsize=9)
    figure.suptitle("Decoding beside the transformers-style reference, by commit", fontsize=11)
    figure.savefig(path, dpi=130)


def _draw(panel: Axes, case: Case, points: Sequence[Point]) -> None:
    centres = [point.speedup for point in points]
    spread = [
        [point.speedup - point.low for point in points],
        [point.high - point.speedup for point in points],
    ]
    places = [point.run for point in points]
    panel.errorbar(
        places, centres, yerr=spread, marker="o", markersize=4, linewidth=1, capsize=3, color="tab:blue"
    )
    panel.axhline(1.0, color="0.5", linewidth=0.8, linestyle="--")
    panel.set_ylim(0, 1.15 * max(1.0, *(point.high for point in points)))
    panel.set_title(str(case), fontsize=7.5)
    panel.tick_params(labelsize=7)
    panel.grid(axis="y", color="0.9", linewidth=0.6)


def _name_commits(panel: Axes, commits: Sequence[str]) -> None:
    """Label the runs; the last panel of every column carries the labels of all."""
    places = range(0, len(commits), ceil(len(commits) / MOST_LABELS))
    panel.set_xticks(list(places), [commits[place] for place in places], rotation=60, ha="right", fontsize=6)
    panel.set_xlim(-0.5, len(commits) - 0.5)
    panel.tick_params(labelbottom=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--history", type=Path, default=HISTORY, help="the file to read")
    parser.add_argument("--plot", type=Path, help="write a picture (png, svg, pdf)")
    options = parser.parse_args(arguments)
    runs = read(options.history, "decode")
    if not runs:
        raise SystemExit(f"{options.history} holds no run of decode.py; run benchmarks/decode.py first.")
    print(table(runs))
    if options.plot:
        plot(runs, options.plot)
        print(f"written: {options.plot}")


if __name__ == "__main__":
    main()
