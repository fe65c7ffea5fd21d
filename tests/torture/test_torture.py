"""A sample of `make torture`, drawn anew for every commit, and what the watch finds where a promise is broken."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import stub
from stub import work_in
from stub_rounds import watched
from watch import BrokenPromiseError, Watch

DRIVER = Path(__file__).with_name("torture.py")
WITH_STUBS = ["operations", "moments", "pool", "writers", "faults", "links", "two_runners", "disk", "clock"]
ITEMS = 3


@pytest.mark.parametrize(
    ("kinds", "scale", "kills"),
    [(WITH_STUBS, 0.02, 15), pytest.param(["real_kills"], 0.01, 2, marks=pytest.mark.slow)],
    ids=["stubs", "commands"],
)
def test_nothing_is_lost_doubled_or_half_written(
    kinds: list[str], scale: float, kills: int, request: pytest.FixtureRequest
) -> None:
    seed = str(request.config.option.hypothesis_seed)
    words = [sys.executable, str(DRIVER), "--seed", seed, "--scale", str(scale), "--only", *kinds]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    summary = json.loads(done.stdout)
    assert summary["failures"] == [], done.stderr
    assert done.returncode == 0
    assert summary["kills"] >= kills
    assert all(counts["rounds"] for counts in summary["kinds"].values())


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A watch that has looked at a store with one run."""
    monkeypatch.setenv("ACKNOWLEDGED", "")  # `watched` sets it, and it is to be as before afterwards
    watch = watched(tmp_path)
    work_in(watch.store.root, 0, ITEMS)
    watch.check()
    return watch


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def repeat_last_line(file: Path) -> None:
    file.write_bytes(file.read_bytes() + file.read_bytes().splitlines(keepends=True)[-1])


def change(file: Path) -> None:
    file.write_text(file.read_text().replace('"value":', '"value": '))


def confirm_again(file: Path) -> None:
    run = next(file.parents[1].glob("runs/*")).name.rpartition("-")[2]
    os.environ["ACKNOWLEDGED"] = str(file)
    stub.acknowledge(run, stub.PUBLISHED)


@pytest.mark.parametrize(
    ("place", "harm", "found"),
    [
        ("runs/*/result.json", cut, "damaged or cut short"),
        ("runs/*/result.json", Path.unlink, "was published and is gone"),
        ("runs/*/result.json", change, "published twice"),
        ("runs/*/run.json", cut, "Unterminated|Expecting|delimiter"),
        ("runs/*/attempts/0001/attempt.json", Path.unlink, "no whole attempt.json"),
        ("runs/*/attempts/0001/answers.jsonl", cut, "is lost or changed"),
        ("runs/*/attempts/0001/answers.jsonl", repeat_last_line, "stands there twice"),
        ("runs/*/attempts/0001/rows.jsonl", cut, "row/1 was there and is lost"),
        ("runs/*/attempts/0001/samples.jsonl", cut, "rows and 2 samples"),
        ("../acknowledged", confirm_again, "confirmed 2 times"),
    ],
)
def test_the_watch_finds_what_is_planted(
    watch: Watch, place: str, harm: Callable[[Path], object], found: str
) -> None:
    (file,) = watch.store.root.glob(place)
    harm(file)
    with pytest.raises(Exception, match=found):
        watch.check()


def test_an_outcome_that_differs_is_found(watch: Watch) -> None:
    calm = {run: dict(fields) for run, fields in watch.outcome().items()}
    watch.expect(calm)
    next(iter(calm.values()))["value"] = 2.0
    with pytest.raises(BrokenPromiseError, match="value differ"):
        watch.expect(calm)
