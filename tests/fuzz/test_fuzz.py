"""A sample of `make fuzz`, drawn anew for every commit, and what the judge finds where something is wrong."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import judge
import msgspec
import pytest
from known import KNOWN, REFUSED
from planted import use_planted_worker, write_recipe
from planted_store import write_store
from values import places
from world import RECIPE, Case, write_good_recipe

from unmask import lab
from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec
from unmask.spec.recipe import Recipe
from unmask.store import Store

DRIVER = Path(__file__).with_name("fuzz.py")


def test_a_sample_of_bad_inputs() -> None:
    # One sample for every commit: new ones are for `make fuzz`, whose finds are mended before they fail here.
    words = [sys.executable, str(DRIVER), "--seed", "16", "--scale", "0.004"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    summary = json.loads(done.stdout)
    assert summary["failures"] == [], done.stderr
    assert done.returncode == 0
    assert summary["kinds"]["known"]["cases"] == len(KNOWN)
    assert summary["kinds"]["known"]["codes"] == {"2": len(REFUSED), "0": len(KNOWN) - len(REFUSED)}
    assert all(kind["cases"] for kind in summary["kinds"].values())


def fields_of(kind: Any, above: str = "") -> Iterator[str]:
    """Every field of a recipe, by its way from the top."""
    for field in msgspec.structs.fields(kind):
        yield f"{above}{field.name}"
        for inner in (field.type, *getattr(field.type, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from fields_of(inner, f"{above}{field.name}.")


def test_every_field_of_a_recipe_is_made_bad() -> None:
    present = {".".join(str(key) for key in place if isinstance(key, str)) for place in places(RECIPE)}
    # The embedded checkpoint has no revision, and a gain has one of two names.
    absent = {"success.confirm.speedup", "success.reject.gain"}
    absent |= {f"{above}model.revision" for above in ("", "grid.", "configurations.")}
    assert set(fields_of(Recipe)) - present == absent
    # A threshold and a rule exclude each other, so one of them stands in a configuration alone.
    settings = {place.rpartition("decode.")[2] for place in present if "decode." in place}
    assert {field.name for field in msgspec.structs.fields(DecodeSpec)} <= settings


NOT_READ = {"slurm", "reports", "results.md", "report.html"}
"""What a store can hold that no command reads."""


def test_every_file_of_a_store_is_made_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DRIVER.parents[2] / "docs" / "store.md").read_text()
    tree = page.split("```")[1].splitlines()[2:]
    columns = [line.strip().partition("  ")[0] for line in tree]
    named = {word for column in columns for word in re.split("/|, ", column) if word and "<" not in word}
    assert {"stopped.json", "rows.jsonl", "cancel", "workers", "jobs"} <= named
    monkeypatch.syspath_prepend(tmp_path / "recipe")
    write_good_recipe(tmp_path / "recipe")
    write_store(Store(tmp_path / "results"), tmp_path / "recipe")
    there = {part for file in (tmp_path / "results").rglob("*") for part in file.relative_to(tmp_path).parts}
    assert named - there == NOT_READ | {
        "foreign",
        "files",
        "records.json",
    }  # imports come into the world later


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.json").write_text("{}")
    (tmp_path / "case" / "out").mkdir(parents=True)
    return tmp_path / "case"


def fails(*_: object, **__: object) -> None:
    raise RuntimeError("a defect")


def works_for_ever(*_: object, **__: object) -> None:
    while True:
        pass


def waits(*_: object, **__: object) -> None:
    time.sleep(100)


def kills_a_stranger(*_: object, **__: object) -> None:
    os.kill(os.getppid(), 0)


def writes_outside(*_: object, **__: object) -> None:
    Path("../outside/more").write_text("")


def writes_half(*_: object, **__: object) -> None:
    Path("out/result.json").write_text('{"a":')


def leaves_something(*_: object, **__: object) -> None:
    Path("out/.result.json.12.0a1b2c3d").write_text("{}")


def writes_and_refuses(*_: object, **__: object) -> None:
    Path("out/result.json").write_text("{}")
    raise UnmaskError("It cannot be.")


def steers(*_: object, **__: object) -> None:
    print("\x1b[2J")


def says_too_much(*_: object, **__: object) -> None:
    sys.stderr.write("One thing.\n")
    raise UnmaskError("Another thing")


WRONG: dict[Callable[..., None], str] = {
    fails: "exit code 70",
    works_for_ever: "CPU time is up",
    waits: "time is up",
    kills_a_stranger: "signal 0 to process",
    writes_outside: "something outside was changed",
    writes_half: "half written: out/result.json",
    leaves_something: "left unfinished",
    writes_and_refuses: "refused, but wrote out/result.json",
    steers: "a control character '\\x1b'",
    says_too_much: "not one sentence",
}


@pytest.mark.parametrize("what", WRONG, ids=lambda what: what.__name__)
def test_the_judge_finds_what_is_wrong(
    what: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "cancel", what)
    monkeypatch.setattr(judge, "MOST_SECONDS", 0.3)
    monkeypatch.setattr(judge, "LONGEST_WAIT", 3 if what is waits else 60)
    wrong = judge.in_process(Case(("cancel", "x")), folder).wrong
    assert any(WRONG[what] in each for each in wrong), wrong


def test_workers_of_a_command_are_planted_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", use_planted_worker(folder.parent))
    write_recipe(folder / "recipe")
    argv = ("run", "recipe", "--config", "t0.7", "--task", "unmask_arith")
    ran = judge.as_command(Case(argv), folder, {**os.environ, **judge.ENVIRONMENT})
    assert (ran.code, ran.wrong) == (0, [])


def test_the_judge_passes_what_is_right(folder: Path) -> None:
    ran = judge.in_process(Case(("cancel", "x")), folder)
    assert (ran.code, ran.wrong) == (2, [])
