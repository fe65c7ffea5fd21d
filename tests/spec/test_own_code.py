"""The code of a user's own policy is part of a run's identity, and a worker refuses other code than was planned."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from recipe_cases import lock_for, recipe
from unmask.errors import UnmaskError
from unmask.evaluation.worker import execute
from unmask.spec.own_code import own_code
from unmask.spec.sweep import sweep_of
from unmask.store.store import Store, run_id

CODE = "class Mine:\n    def plan(self, view):\n        ...\n"
TRIM = 'policy = { kind = "trim", keep = 0.25 }'
OWN = {
    "policy": (TRIM, 'policy = { kind = "custom", target = "my_policy:Mine" }'),
    "rule": (TRIM, 'decode = { rule = { kind = "custom", target = "my_policy:Mine" } }'),
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_policy", raising=False)
    file = tmp_path / "my_policy.py"
    file.write_text(CODE)
    return file


def ids(noun: str) -> dict[str, str]:
    planned = recipe(OWN[noun])
    return {run.label: run_id(run.identity) for run in sweep_of(planned, lock_for(planned))}


@pytest.mark.parametrize("noun", OWN)
def test_an_edit_makes_a_new_run_of_that_configuration_alone(file: Path, noun: str) -> None:
    before = ids(noun)
    assert ids(noun) == before
    file.write_text(CODE + "# edited\n")
    after = ids(noun)
    changed = {label for label, name in after.items() if name != before[label]}
    assert changed == {label for label in before if label.endswith(" trimmed")}
    assert changed
    file.write_text(CODE)
    assert ids(noun) == before


def test_code_of_an_installed_package_is_known_by_its_version() -> None:
    assert own_code("click.core:Command") == f"click {version('click')}"


@pytest.mark.parametrize("target", ["nowhere_at_all:Mine", "my_policy.deeper:Mine", "sys:path"])
def test_code_that_cannot_be_found_is_refused_in_a_sentence(file: Path, target: str) -> None:
    with pytest.raises(UnmaskError, match=r"cannot be found .* put its folder on PYTHONPATH"):
        own_code(target)


@pytest.mark.parametrize("noun", OWN)
def test_a_worker_refuses_code_that_was_edited_after_the_plan(file: Path, tmp_path: Path, noun: str) -> None:
    planned = recipe(OWN[noun])
    (run,) = [
        run
        for run in sweep_of(planned, lock_for(planned), ["unmask_arith"])
        if run.configuration == "trimmed"
    ]
    folder = Store(tmp_path / "results").run(run.identity)
    file.write_text(CODE + "# edited\n")
    with pytest.raises(UnmaskError, match=f"The {noun} .* was edited since this run was planned"):
        execute(folder, folder.new_attempt())
