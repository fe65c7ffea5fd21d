"""Kinds of torture with `unmask run`, real workers and the embedded model; every round ends as an undisturbed store."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from light import LIMIT, note, strike, watched
from watch import BrokenPromiseError, Watch

from unmask.store import Store

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


def kills(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Kills of parents and workers at random moments; in every fourth round two parents share the store."""
    recipe, calm = prepared(folder.parents[1])
    runners = 2 if luck.random() < 0.25 else 1
    watch = watched(folder, alone=runners == 1)
    parents = [run(recipe, watch.store) for _ in range(runners)]
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
    finish(recipe, watch.store)
    watch.expect(calm)
    note(watch, counts)


def two_runners(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
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
