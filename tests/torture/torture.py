"""`make torture`: a seeded plan of kills and faults; counts as JSON at the end, a line to repeat each failure.

python tests/torture/torture.py                                  everything, about half an hour on two cores
python tests/torture/torture.py --scale 0.02 --only operations pool
python tests/torture/torture.py --seed 16 --only pool --round 3  one round again

Rounds with stubs are in `stub_rounds.py`; those here start `unmask run` with real workers and the embedded model, and
every one ends as an undisturbed store. What must hold of a store at every moment is in `watch.py`.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import stub
import stub_rounds
from stub_rounds import LIMIT, note, strike, watched
from watch import BrokenPromiseError, Watch

from unmask.store import Store

WITHOUT_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Has permissions count for root too, as they do for everybody else."""
RECIPE = """\
name = "torture"
hypothesis = "Kills change nothing."

[model]
checkpoint = "embedded"

[decode]
threshold = 0.9
max_new_tokens = 64

[evaluation]
batch_size = 2

[[tasks]]
name = "unmask_arith"
limit = 4

[[tasks]]
name = "unmask_choice_text"
limit = 3

[[configurations]]
name = "full"

[[configurations]]
name = "k2"
policy = { kind = "layer_reuse", k = 2, unit = "output", layers = "middle" }

[success]
task = "unmask_arith"
control = "full"
candidates = ["k2"]
confirm = { speedup = 1.0, drop = 0.5 }

[until_decided]
rows = 2
"""
LONGEST_PAUSE = 4.5
"""Seconds between two kills at most: about what a worker takes from its start to its result."""


@cache
def prepared(base: Path) -> tuple[Path, dict[str, Any]]:
    """The recipe with its lock, and what an undisturbed store of it holds; made once."""
    recipe = base / "calm" / "recipe"
    recipe.mkdir(parents=True, exist_ok=True)
    (recipe / "recipe.toml").write_text(RECIPE)
    store = Store(base / "calm" / "store")
    finish(recipe, store)
    return recipe, Watch(store, base / "calm" / "acknowledged").outcome()


def unmask(*arguments: object, prefix: tuple[str, ...] = (), **variables: str) -> "subprocess.Popen[bytes]":
    """A real command, leader of its own group; what it prints goes to a file beside the store."""
    words = [*prefix, sys.executable, "-m", "unmask", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200", **variables}
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )


def run(recipe: Path, store: Store, *more: str, **options: Any) -> "subprocess.Popen[bytes]":
    """`unmask run` on two slots."""
    return unmask("run", recipe, "--store", store.root, "--slots", "2", *more, **options)


def ended(command: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """Exit code and output; a traceback or the code of a defect is a failure wherever it comes from."""
    printed, _ = command.communicate(timeout=3 * LIMIT)
    text = printed.decode(errors="replace")
    if "Traceback" in text or command.returncode not in (0, 1, 2, -9):
        raise BrokenPromiseError(f"exit code {command.returncode}: {text}")
    return command.returncode, text


def finish(recipe: Path, store: Store, *more: str) -> None:
    """An undisturbed run over what is left."""
    code, text = ended(run(recipe, store, *more))
    if code:
        raise BrokenPromiseError(f"an undisturbed run ended with {code}: {text}")


def real_kills(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Kills of parents and workers at random moments; in every fourth round two parents share the store."""
    recipe, calm = prepared(folder.parents[1])
    runners = 2 if luck.random() < 0.25 else 1
    watch = watched(folder, alone=runners == 1)
    parents = [run(recipe, watch.store) for _ in range(runners)]
    try:
        while kills > 0:
            time.sleep(luck.uniform(0, LONGEST_PAUSE))
            which = luck.randrange(runners)
            if parents[which].poll() is None:
                hit = strike(parents[which], luck)
                kills -= hit
                counts["kills"] += hit
                watch.check()
            if parents[which].poll() is not None:
                ended(parents[which])
                parents[which] = run(recipe, watch.store)
        for parent in parents:
            ended(parent)
    finally:
        for parent in parents:
            parent.kill()
            parent.wait()
    finish(recipe, watch.store)
    watch.expect(calm)
    note(watch, counts)


def real_runners(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Two `unmask run` on one store: both end well, every result is published once."""
    del kills
    recipe, calm = prepared(folder.parents[1])
    watch = watched(folder, alone=False)
    parents = []
    for _ in range(2):
        parents.append(run(recipe, watch.store))
        time.sleep(luck.uniform(0, 2))
    for code, text in [ended(parent) for parent in parents]:
        if code:
            raise BrokenPromiseError(f"one of two runners ended with {code}: {text}")
    watch.expect(calm)
    counts["runners"] += 2
    note(watch, counts)


def real_disk(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """`unmask run` on a full disk, and again when there is room."""
    del kills
    if not stub.may_mount():
        counts["skipped: mounting is not permitted"] += 1
        return
    recipe, calm = prepared(folder.parents[1])
    watch = watched(folder, may_fail=True)
    with stub.small_disk(watch.store.root, 8000, 4000) as disk:
        stub.fill(disk / "ballast", luck.choice([0, 8, 24, 48, 64, 96]) * 1024)
        code, _ = ended(run(recipe, watch.store))
        counts["disks full"] += 1
        counts["refused with a sentence"] += code != 0
        watch.check()
        ended(unmask("status", "--store", disk))
        (disk / "ballast").unlink()
        finish(recipe, watch.store, "--retry-failed")
        watch.expect(calm)
        note(watch, counts)


def real_folder(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """`unmask run` and `status` on a store of which a part is closed; `kills` says how many parts, by turns."""
    recipe, calm = prepared(folder.parents[1])
    watch = watched(folder, may_fail=True)
    first = run(recipe, watch.store)
    time.sleep(luck.uniform(2, 6))
    first.kill()
    ended(first)
    for _ in range(kills):
        runs = [each.folder for each in watch.store.runs()]
        some = luck.choice(runs) if runs else watch.store.root
        parts = [
            watch.store.root,
            watch.store.runs_folder,
            some,
            some / "attempts",
            some / "attempts" / "0001",
        ]
        part = luck.choice([each for each in parts if each.is_dir()])
        mode = luck.choice([0o555, 0o000])
        part.chmod(mode)
        try:
            prefix = WITHOUT_OVERRIDE if os.geteuid() == 0 else ()
            counts["folders closed"] += 1
            ended(unmask("status", "--store", watch.store.root, prefix=prefix))
            code, _ = ended(run(recipe, watch.store, prefix=prefix))
            counts["refused with a sentence"] += code != 0
        finally:
            part.chmod(0o755)
        watch.check()
    if stub.may_mount():
        _read_only(recipe, watch, counts)
    finish(recipe, watch.store, "--retry-failed")
    watch.expect(calm)
    note(watch, counts)


def _read_only(recipe: Path, watch: Watch, counts: Counter[str]) -> None:
    """The whole store on a file system that is mounted read-only."""
    place = str(watch.store.root)
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        code, text = ended(run(recipe, watch.store))
        if code != 2 and any(each.result() is None for each in watch.store.runs()):
            raise BrokenPromiseError(f"a store that is read-only gave {code}: {text}")
        ended(unmask("status", "--store", place))
        counts["read-only file systems"] += 1
    finally:
        subprocess.run(["umount", place], check=True)
    watch.check()


SHIFTED_CLOCK = """\
import os, time
real, shift = time.time, float(os.environ["CLOCK_SHIFT"])
time.time = lambda: real() + shift
"""


def real_clock(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """`unmask run` by three clocks: one ahead, killed on the way; one behind; the right one.

    Only processes see the other clock; the times of files are the system's.
    """
    del kills
    recipe, calm = prepared(folder.parents[1])
    watch = watched(folder)
    (folder / "clock").mkdir()
    (folder / "clock" / "sitecustomize.py").write_text(SHIFTED_CLOCK)
    for hours in (30, -20):
        shifted = {"PYTHONPATH": str(folder / "clock"), "CLOCK_SHIFT": str(hours * 3600)}
        parent = run(recipe, watch.store, **shifted)
        time.sleep(luck.uniform(3, 9))
        parent.kill()
        ended(parent)
        watch.check()
        ended(unmask("status", "--store", watch.store.root, **shifted))
        counts["clocks set back"] += 1
    finish(recipe, watch.store)
    watch.expect(calm)
    note(watch, counts)


# The plan.


Round = Callable[[random.Random, Path, int, "Counter[str]"], None]


@dataclass(frozen=True)
class Kind:
    """A kind of torture: what one round does, and how many rounds with how many kills or faults a full run has."""

    round: Round
    rounds: int
    kills: int


KINDS = {
    "operations": Kind(stub_rounds.operations, 30, 10),
    "moments": Kind(stub_rounds.moments, 10, 10),
    "pool": Kind(stub_rounds.pool, 12, 21),
    "writers": Kind(stub_rounds.writers, 15, 10),
    "faults": Kind(stub_rounds.faults, 30, 10),
    "links": Kind(stub_rounds.links, 12, 0),
    "two_runners": Kind(stub_rounds.two_runners, 6, 0),
    "disk": Kind(stub_rounds.full_disk_of_stubs, 10, 6),
    "clock": Kind(stub_rounds.clock_of_stubs, 6, 0),
    "real_kills": Kind(real_kills, 10, 20),
    "real_runners": Kind(real_runners, 2, 0),
    "real_disk": Kind(real_disk, 2, 0),
    "real_folder": Kind(real_folder, 1, 6),
    "real_clock": Kind(real_clock, 1, 0),
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
    kills = max(1, round(kind.kills * min(1.0, kind.rounds * options.scale)))
    for number in [options.round] if options.round is not None else range(rounds):
        folder = base / name / str(number)
        folder.mkdir(parents=True)
        luck = random.Random(f"{options.seed}/{name}/{number}")
        begin = time.monotonic()
        try:
            kind.round(luck, folder, kills, counts)
        except Exception as error:
            again = (
                f"python tests/torture/torture.py --seed {options.seed} --scale {options.scale} --only {name} "
                f"--round {number}"
            )
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
        "--scale", type=float, default=1.0, help="Part of the plan; at least one round of each kind."
    )
    parser.add_argument("--only", nargs="+", choices=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--round", type=int, help="One round alone.")
    parser.add_argument("--folder", help="Where stores are made and left; without it a temporary folder.")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
