"""`unmask demo`: the shipped recipe lands where it is asked for, and is never written over.

That it runs, is reported on and goes on is part of the newcomer's way (tests/test_newcomer.py).
"""

from pathlib import Path

from click.testing import CliRunner, Result

from unmask import lab
from unmask.cli import app
from unmask.lab.recipes import DEMO
from unmask.spec.recipe import read_recipe

ROOT = Path(__file__).parents[2]


def unmask(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")


def test_the_recipe_asks_what_the_demo_promises() -> None:
    recipe = read_recipe(DEMO)
    assert recipe.success is not None
    assert (recipe.success.by, recipe.success.confirm.least_gain, recipe.success.confirm.drop) == (
        "work",
        1.2,
        0.05,
    )
    names = [one.name for one in recipe.expanded()]
    judged = [name for name in names if recipe.success.is_candidate(name)]
    assert judged == ["output_k2", "output_k3", "residual_k2", "trim"]
    assert {recipe.decode_of(one).threshold for one in recipe.expanded() if one.name.startswith("t0")} == {
        0.6,
        0.7,
    }
    assert recipe.model.checkpoint == "embedded"
    assert not recipe.timing


def test_it_is_written_once_and_never_over_another_recipe(tmp_path: Path) -> None:
    place = tmp_path / "here" / "demo"
    file = lab.demo(place)
    assert file.read_text(encoding="utf-8") == (DEMO / "recipe.toml").read_text(encoding="utf-8")
    before = file.stat().st_mtime_ns
    assert lab.demo(place) == file
    assert file.stat().st_mtime_ns == before
    file.write_text(file.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    refused = unmask("demo", place)
    assert refused.exit_code == 2
    assert "is not the demo of this version; name another folder" in refused.stderr
    assert file.read_text(encoding="utf-8").endswith("# mine\n")
    (tmp_path / "file").write_text("")
    refused = unmask("demo", tmp_path / "file")
    assert refused.exit_code == 2
    assert "is no folder" in refused.stderr


def test_slots_that_no_machine_has_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    refused = unmask("demo", place, "--slots", 10**6)
    assert refused.exit_code == 2
    assert "1<=x<=1024" in refused.stderr
    assert not place.exists()
