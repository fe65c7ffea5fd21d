"""`make fuzz`: generated bad inputs, one after the other; counts as JSON at the end, a line to repeat each failure.

python tests/fuzz/fuzz.py                                    everything, some ten minutes on a quiet core
python tests/fuzz/fuzz.py --scale 0.01 --only stores files
python tests/fuzz/fuzz.py --seed 16 --only stores --case 731 one case again

What a case is drawn from is in `kinds.py`, what it must not do in `judge.py`, the first cases in `known.py`. Cases run
in this process; every hundredth also runs as a command of its own and must end with the same exit code.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from judge import ENVIRONMENT, Ran, as_command, in_process
from kinds import KINDS, good
from known import KNOWN
from planted_store import keep_alive
from world import TESTS, Case, build, copy_parts, mend, spoil

from unmask.launch import queue_state

BATCH = 100
"""Cases that are drawn together."""
AS_COMMAND = 100
MEMORY = 3 << 30
"""Bytes that this process may take beyond what it has at the start."""
ALIVE_SECONDS = 30.0
"""After which a worker that is played must be seen alive again."""
IN_MEMORY = Path("/dev/shm")
CLUSTER = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "nvidia-smi")


@dataclass
class Tally:
    """What became of the cases of a kind."""

    cases: int = 0
    commands: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    """CPU seconds of the longest case in this process."""
    longest_case: str = ""
    longest_command: float = 0.0


def main() -> int:
    """Run what was asked for; 1 if anything was not as it should be."""
    options = _options()
    start = time.monotonic()
    # Every case makes and removes hundreds of files, so they lie in memory where the system has a place for that.
    place = str(IN_MEMORY) if os.access(IN_MEMORY, os.W_OK) else None
    base = Path(options.folder or tempfile.mkdtemp(prefix="unmask-fuzz-", dir=place)).resolve()
    world = _prepare(base)
    copies = Copies(world)
    tallies: dict[str, Tally] = {}
    failures: list[dict[str, Any]] = []
    for name in options.only or ["known", *KINDS]:
        tallies[name] = _run_kind(name, options, copies, failures)
        print(f"{time.monotonic() - start:6.0f} s  {name}: {tallies[name]}", file=sys.stderr, flush=True)
    codes = sum((tally.codes for tally in tallies.values()), Counter[str]())
    summary = {
        "seed": options.seed,
        "cases": sum(tally.cases for tally in tallies.values()),
        "commands": sum(tally.commands for tally in tallies.values()),
        "codes": codes,
        "seconds": round(time.monotonic() - start),
        "kinds": {name: vars(tally) for name, tally in tallies.items()},
        "failures": failures,
    }
    print(json.dumps(summary, indent=1))
    if not options.folder:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failures else 0


def _run_kind(
    name: str, options: argparse.Namespace, copies: "Copies", failures: list[dict[str, Any]]
) -> Tally:
    tally = Tally()
    most = len(KNOWN) if name == "known" else max(1, round(KINDS[name].cases * options.scale))
    numbers = range(most) if options.case is None else [options.case]
    for number in numbers:
        case = KNOWN[number] if name == "known" else drawn(name, number, options.seed, copies.world)
        wrong = _run_case(case, number, copies, tally)
        tally.cases += 1
        if tally.cases % 500 == 0:
            print(
                f"{name}: {tally.cases} of {most}, {time.process_time():.0f} s of CPU",
                file=sys.stderr,
                flush=True,
            )
        if wrong:
            again = f"python tests/fuzz/fuzz.py --seed {options.seed} --only {name} --case {number}"
            print(f"{name} {number}: {case}\n  again: {again}", file=sys.stderr)
            for each in wrong:
                print("  " + each.replace("\n", "\n  "), file=sys.stderr, flush=True)
            failures.append({"kind": name, "case": number, "wrong": wrong, "what": str(case), "again": again})
    return tally


def _run_case(case: Case, number: int, copies: "Copies", tally: Tally) -> list[str]:
    ran = copies.run(case, as_process=False)
    tally.codes[str(ran.code)] += 1
    if ran.seconds > tally.longest:
        tally.longest, tally.longest_case = round(ran.seconds, 2), str(case)[:200]
    if number % AS_COMMAND != AS_COMMAND - 1:
        return ran.wrong
    other = copies.run(case, as_process=True)
    tally.commands += 1
    tally.longest_command = max(tally.longest_command, round(other.seconds, 2))
    if other.code != ran.code:
        other.wrong.append(
            f"exit code {other.code} as a command, {ran.code} otherwise: {other.stderr[-300:]}"
        )
    return ran.wrong + [f"as a command: {each}" for each in other.wrong]


class Copies:
    """Copies of the world: one that a case has left as it was serves the next case with the same parts."""

    def __init__(self, world: Path) -> None:
        self.world = world
        self._clean: dict[tuple[str, ...], Path] = {}
        self._alive = 0.0

    def run(self, case: Case, as_process: bool) -> Ran:
        """Run a case in a copy with its edits."""
        if time.monotonic() - self._alive > ALIVE_SECONDS:
            self._alive = time.monotonic()
            keep_alive(self.world / "results")
        folder = self._clean.pop(case.parts, None)
        if folder is None:
            folder = Path(tempfile.mkdtemp(dir=self.world.parent))
            copy_parts(case.parts, self.world, folder)
        spoil(case, folder)
        if as_process:
            path = os.pathsep.join(map(str, (folder, self.world / "recipe", TESTS.parent / "src")))
            ran = as_command(case, folder, {**os.environ, **ENVIRONMENT, "PYTHONPATH": path})
        else:
            ran = in_process(case, folder)
        if ran.changed or ran.wrong or not mend(case, self.world, folder):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            self._clean[case.parts] = folder
        return ran


_batches: dict[tuple[str, int], list[Case]] = {}


def drawn(name: str, number: int, start: object, world: Path) -> Case:
    """The case of a kind with a number: the same for the same seed, whatever else is drawn."""
    batch, place = divmod(number, BATCH)
    if (name, batch) not in _batches:
        _batches.clear()
        _batches[name, batch] = _draw(KINDS[name].strategy(world), f"{start}/{name}/{batch}")
    cases = _batches[name, batch]
    return cases[place % len(cases)]


def _draw(strategy: st.SearchStrategy[Case], start: str) -> list[Case]:
    found: list[Case] = []

    @seed(start)
    @settings(
        max_examples=BATCH + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found[1:]  # the first is always the simplest


def _prepare(base: Path) -> Path:
    """The world, a place that nobody may touch, a cluster that does not answer, and bounds for this process."""
    world, outside, programs = base / "world", base / "outside", base / "programs"
    for folder in (outside / "model", programs, base / "home"):
        folder.mkdir(parents=True)
    (outside / "secret.json").write_text('{"secret": 1}')
    for name in CLUSTER:
        (programs / name).write_text("#!/bin/sh\necho no answer >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    os.environ.update(
        {
            **ENVIRONMENT,
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "XDG_CACHE_HOME": str(base / "home"),
            "HF_HOME": str(base / "home"),
        }
    )
    # Commands start these programs; in this process their answer is given at once: a start costs more than a case.
    vars(queue_state)["_run"] = lambda command, _: subprocess.CompletedProcess(command, 1, "", "no answer\n")
    sys.path.append(str(world / "recipe"))
    build(world)
    from planted import use_planted_worker

    sys.executable = use_planted_worker(base)
    _warm_up(world)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return world


def _warm_up(world: Path) -> None:
    """See that commands work, and import what they import when first asked, so that no case is charged with it."""
    more = [
        Case(("probe", "a", "--model", "model", "--max-new-tokens", "8", "--plot", "out/x.png")),
        Case(
            (
                "eval",
                "--tasks",
                "unmask_arith",
                "--limit",
                "1",
                "--model",
                "embedded",
                "--max-new-tokens",
                "8",
            )
        ),
    ]
    copies = Copies(world)
    for case in (*good(), *more):
        ran = copies.run(case, as_process=False)
        if ran.code not in (0, 1):
            raise RuntimeError(f"{case} does not work at all: {ran.stderr or ran.wrong}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", default="16")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="Part of the cases; at least one of each kind."
    )
    kinds = ["known", *KINDS]
    parser.add_argument("--only", nargs="+", choices=kinds, metavar="KIND", help=", ".join(kinds))
    parser.add_argument("--case", type=int, help="The case with this number alone.")
    parser.add_argument("--folder", help="Where cases are made and left; without it a temporary folder.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
