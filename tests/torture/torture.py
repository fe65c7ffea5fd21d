"""`make torture`: a seeded plan of kills and faults; counts as JSON at the end, a line to repeat each failure.

python tests/torture/torture.py                                 everything, about twenty minutes on two cores
python tests/torture/torture.py --scale 0.02 --only operations pool
python tests/torture/torture.py --seed 16 --only pool --round 3  one round again
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import light
import places
import real
import writers

Round = Callable[[random.Random, Path, int, "Counter[str]"], None]


@dataclass(frozen=True)
class Kind:
    """A kind of torture: what one round does, and how many rounds with how many kills or faults a full run has."""

    round: Round
    rounds: int
    kills: int


KINDS = {
    "operations": Kind(light.operations, 30, 10),
    "moments": Kind(light.moments, 10, 10),
    "pool": Kind(light.pool, 12, 21),
    "writers": Kind(writers.several, 15, 10),
    "faults": Kind(light.faults, 30, 10),
    "links": Kind(light.links, 12, 0),
    "two_runners": Kind(light.two_runners, 6, 0),
    "disk": Kind(places.full_disk_of_stubs, 10, 6),
    "clock": Kind(places.clock_of_stubs, 6, 0),
    "real_kills": Kind(real.kills, 10, 20),
    "real_runners": Kind(real.two_runners, 2, 0),
    "real_disk": Kind(places.full_disk, 2, 0),
    "real_folder": Kind(places.closed_folder, 1, 6),
    "real_clock": Kind(places.clock, 1, 0),
}


def main() -> int:
    """Run what was asked for; 1 if anything failed."""
    options = _options()
    start = time.monotonic()
    counts: dict[str, Counter[str]] = {}
    failures: list[dict[str, Any]] = []
    base = Path(options.folder or tempfile.mkdtemp(prefix="unmask-torture-"))
    for name in options.only or KINDS:
        counts[name] = _rounds(name, options, base, failures)
        print(f"{time.monotonic() - start:6.0f} s  {name}: {dict(counts[name])}", file=sys.stderr, flush=True)
    summary = {
        "seed": options.seed,
        "seconds": round(time.monotonic() - start),
        "kills": sum(each["kills"] for each in counts.values()),
        "kinds": counts,
        "failures": failures,
    }
    print(json.dumps(summary, indent=1))
    if not failures and not options.folder:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failures else 0


def _rounds(
    name: str, options: argparse.Namespace, base: Path, failures: list[dict[str, Any]]
) -> Counter[str]:
    kind, counts = KINDS[name], Counter[str]()
    rounds = max(1, round(kind.rounds * options.scale))
    for number in [options.round] if options.round is not None else range(rounds):
        folder = base / name / str(number)
        folder.mkdir(parents=True)
        luck = random.Random(f"{options.seed}/{name}/{number}")
        begin = time.monotonic()
        try:
            kind.round(luck, folder, kind.kills, counts)
        except Exception as error:
            again = f"python tests/torture/torture.py --seed {options.seed} --only {name} --round {number}"
            print(f"{name} {number}: {error}\n  again: {again}\n  left in {folder}", file=sys.stderr)
            traceback.print_exc()
            failures.append({"kind": name, "round": number, "what": str(error), "again": again})
        else:
            shutil.rmtree(folder, ignore_errors=True)
        counts["rounds"] += 1
        counts["seconds"] += round(time.monotonic() - begin)
    return counts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="Part of the rounds; at least one of each kind."
    )
    parser.add_argument("--only", nargs="+", choices=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--round", type=int, help="One round alone.")
    parser.add_argument("--folder", help="Where stores are made and left; without it a temporary folder.")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
