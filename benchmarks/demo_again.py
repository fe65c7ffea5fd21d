"""The demo's question on other rows: fresh held-out problems of other seeds, each set judged as the demo is.

    python benchmarks/demo_again.py --seeds 1 2 3 --write docs/findings.md

Rows are drawn as those of `unmask_arith` are, from equations that training never saw. A set replaces the rows of a copy
of the package in --work, where results stay, so that the command can be interrupted and repeated. The scoring task,
about which the demo asks nothing, is left out. Work and losses are counted and paired; the seconds are of processor
time, all processes together.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the trainer is no part of the package

import unmask
from pages import markdown, put_into_page
from training.task_files import ROWS, TASK_FILES, Row
from unmask import lab
from unmask.analysis.stored import experiment_table
from unmask.analysis.verdict import Candidate, verdict
from unmask.analysis.words import MINUS, in_percent, span
from unmask.store import Store

TASK = "unmask_arith"
HEADINGS = ("seed", "verdict", "candidate", "less work", "loss, points", "meets the criterion", "CPU s")


def fresh_rows(seed: int, count: int = ROWS) -> list[Row]:
    """Rows of the task from another seed, no two of them equal."""
    draw, largest = TASK_FILES["arith"]
    rng = random.Random(f"demo again/{seed}")
    rows: dict[str, Row] = {}
    while len(rows) < count:
        row = draw(rng, largest)
        rows.setdefault(row["question"], row)
    return list(rows.values())


def package_with(rows: list[Row], place: Path) -> Path:
    """A copy of the package that has these rows, and the folder to find it in."""
    source = Path(unmask.__file__).parent
    shutil.copytree(
        source, place / "unmask", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )
    file = place / "unmask" / "assets" / "tasks" / "arith.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return place


def run(seed: int, work: Path, limit: int | None) -> tuple[Store, float]:
    """Run the demo's recipe on fresh rows; gives its store and the processor time that it took."""
    place = package_with(fresh_rows(seed), work / f"seed{seed}")
    recipe, store = lab.demo(place / "demo"), place / "demo" / "results"
    command = [
        sys.executable,
        "-m",
        "unmask",
        "run",
        recipe,
        "--task",
        TASK,
        "--slots",
        "2",
        "--store",
        store,
    ]
    command += ["--limit", str(limit)] if limit else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, check=True, cwd=place, env={**os.environ, "PYTHONPATH": str(place)}, stdout=sys.stderr
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Store(store), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def lines_of(seed: int, store: Store, seconds: float) -> list[list[str]]:
    """A line for each candidate."""
    judged = verdict(experiment_table(store, "demo"), "demo")

    def line(candidate: Candidate) -> list[str]:
        gain, loss = candidate.gain, candidate.loss
        return [
            candidate.configuration,
            f"{gain.value:.2f}x" if gain else "",
            f"{in_percent(loss.value)} ({span(loss.interval.low, loss.interval.high)})".replace(MINUS, "-")
            if loss
            else "",
            "yes" if candidate.configuration in judged.confirmed else "no",
        ]

    heads = [[str(seed), judged.answer, f"{seconds:.0f}"], *(["", "", ""] for _ in judged.candidates[1:])]
    return [
        [head[0], head[1], *line(one), head[2]] for head, one in zip(heads, judged.candidates, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--work", type=Path, default=Path("runs/demo-again"), metavar="DIR")
    parser.add_argument("--limit", type=int, metavar="N", help="rows instead of the demo's")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    options = parser.parse_args(arguments)
    table = []
    for seed in options.seeds:
        table += lines_of(seed, *run(seed, options.work.resolve(), options.limit))
    lines = markdown(HEADINGS, table)
    print("\n".join(lines))
    if options.write:
        put_into_page(options.write, "the demo again", lines)


if __name__ == "__main__":
    main()
