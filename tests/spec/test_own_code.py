"""The code of a user's own policy is part of a run's identity, and a worker refuses other code than was planned."""

import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import pytest

from recipe_cases import lock_for, recipe
from unmask.errors import UnmaskError
from unmask.evaluation.engines import LoadedEngines
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


def test_code_beside_the_installed_packages_is_known_by_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    (folder / "of_no_package.py").write_text(CODE)
    assert own_code("of_no_package:Mine") == f"sha256:{sha256(CODE.encode()).hexdigest()}"


def test_a_package_of_ones_own_is_known_by_all_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "own_package"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("from own_package.parts.mine import Mine\n")
    (package / "parts" / "mine.py").write_text(CODE)
    before = own_code("own_package:Mine")
    (package / "notes.txt").write_text("Nothing that runs.")
    assert own_code("own_package:Mine") == before
    (package / "parts" / "mine.py").write_text(CODE + "# edited\n")
    edited = own_code("own_package:Mine")
    (package / "parts" / "mine.py").rename(package / "parts" / "other.py")
    assert len({before, edited, own_code("own_package:Mine")}) == 3


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
        execute(folder, folder.new_attempt(), LoadedEngines())


def test_no_code_of_the_packages_around_a_module_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe may come from anybody, and planning it asks for the hash of the code that it names."""
    (tmp_path / "around").mkdir()
    (tmp_path / "around/__init__.py").write_text("raise ValueError('this package was imported')")
    (tmp_path / "around/inside.py").write_text("class Mine: ...")
    monkeypatch.syspath_prepend(tmp_path)
    assert own_code("around.inside:Mine").startswith("sha256:")
    with pytest.raises(UnmaskError, match=r"there is no module around\.inside\.deeper"):
        own_code("around.inside.deeper:Mine")
    assert "around" not in sys.modules
