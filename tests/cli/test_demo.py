"""`unmask demo`: the shipped recipe lands where it is asked for, runs, is reported on, and goes on when repeated."""

import html
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from unmask import lab
from unmask.cli import app
from unmask.lab.recipes import DEMO
from unmask.spec.recipe import read_recipe

ROOT = Path(__file__).parents[2]


def unmask(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")


def installed(folder: Path) -> Path:
    """A new environment that holds the wheel of this clone; what the wheel needs is found where the tests have it."""
    wheels, place = folder / "wheels", folder / "venv"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", wheels, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    own = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*own, "install", "--no-deps", "--no-index", *wheels.glob("*.whl")], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    # A folder that a .pth file names is searched after the environment's own, and its own .pth files are not read.
    (packages / "others.pth").write_text(str(Path(click.__file__).parents[1]))
    recipe = packages / "unmask" / "assets" / "demo" / "recipe.toml"
    text = recipe.read_text(encoding="utf-8")
    quick, tasks = re.subn(r"\[\[tasks\]\]  # scored[^\[]*", "", text)
    quick, limits = re.subn("limit = 500", "limit = 6", quick)
    assert (tasks, limits) == (1, 1)
    recipe.write_text(quick, encoding="utf-8")
    return place / "bin" / "unmask"


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


@pytest.mark.slow
def test_it_runs_from_a_wheel_without_a_network_and_goes_on(tmp_path: Path) -> None:
    program, home = installed(tmp_path), tmp_path / "home"
    home.mkdir()
    nowhere = "http://127.0.0.1:9"
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "UNMASK_STORE": str(tmp_path / "elsewhere"),
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere),
    }

    def run(*arguments: str) -> str:
        command = [program, "demo", *arguments]
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first = run()
    lines = first.splitlines()
    assert lines[0] == "The recipe is unmask-demo/recipe.toml, results go to unmask-demo/results."
    assert "demo: 7 done" in first
    verdict = next(number for number, line in enumerate(lines) if re.match(r"(Conf|Reje|Unde|Not )", line))
    lessons = [line for line in lines[verdict + 1 :] if line.startswith("- ")]
    assert len(lessons) == 3
    page = home / "unmask-demo" / "results" / "reports" / "demo" / "report.html"
    assert lessons[0].removeprefix("- ") in html.unescape(page.read_text(encoding="utf-8"))
    assert "unmask-demo/results/reports/demo/report.html" in first
    assert not (tmp_path / "elsewhere").exists()
    assert {path.name for path in home.iterdir()} - {".cache", ".config"} == {"unmask-demo"}
    again = run("--slots", "1")
    assert "Nothing to do: 7 done." in again
    assert [line for line in again.splitlines() if line.startswith("- ")] == lessons
