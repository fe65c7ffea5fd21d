"""Damaged folders of twins: what there is to say of the run that stands for them is said all the same."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from unmask.cli import app
from unmask.store import Store
from unmask.store.twins import name_of, twin_of

IDENTITY = {"kind": "accuracy", "task": {"name": "t", "limit": None}, "policy": {"kind": "full"}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


@pytest.mark.parametrize(
    ("file", "content"),
    [("worker.json", "{"), ("worker.json", "[]"), ("attempts/0001/answers.jsonl", "{}\n{}\n"), ("twins", "")],
)
def test_a_damaged_twin_shows_nothing(store: Store, file: str, content: str) -> None:
    run = store.run(IDENTITY)
    twin = store.run({**IDENTITY, "first_rows": {"rows": 20, "seed": 0}}, twin_of=run)
    assert [each.name for each in run.twins()] == [twin.name]
    assert run.store == twin.store == store.root
    twin.new_attempt()
    (twin.folder / file).write_text(content)
    assert twin_of(run) is None
    assert name_of(twin) == twin.name
    assert store.open(twin.id).folder == twin.folder
    assert [each.name for each in store.runs()] == [run.name]


def test_a_file_in_the_place_of_twins_is_none(store: Store) -> None:
    run = store.run(IDENTITY)
    (run.folder / "twins").write_text("no folder")
    assert run.twins() == []
    (run.folder / "twins").unlink()
    (run.folder / "twins" / "..escape").mkdir(parents=True)
    (run.folder / "twins" / "..escape" / "run.json").write_text(json.dumps({"identity": IDENTITY}))
    assert run.twins() == []
    done = CliRunner().invoke(app, ["status", "--store", str(store.root)])
    assert done.exit_code == 0
