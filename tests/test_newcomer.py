"""The README's way from clone to report, command by command, in a fresh clone and an environment of its own that holds
what the source distribution gives: sdist, wheel, installation. Recipes have fewer rows there, and there is no network.
"""

import html
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

import unmask

ROOT = Path(__file__).parents[1]
QUICK = {
    "demo": [(r"\[\[tasks\]\]  # scored[^\[]*", ""), ("limit = 500", "limit = 6")],
    "experiment": [
        ("limit = 100", "limit = 4"),
        ("prompts = 4", "prompts = 1"),
        ("repeats = 6", "repeats = 2"),
        (r"\[0.7, 0.8\]", "[0.7]"),
    ],
}
"""What is made smaller in recipes of the package, so that the way takes seconds."""


def path_of_a_newcomer() -> list[str]:
    """The commands under the README's first heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## From clone to report$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert section
    return [line.partition("#")[0].strip() for line in re.findall(r"^\$ (.+)$", section[1], re.MULTILINE)]


def called(*command: object, **options: object) -> str:
    """What a program prints; its failure is the test's."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_quick(package: Path) -> None:
    for name, changes in QUICK.items():
        recipe = package / "assets" / name / "recipe.toml"
        text = recipe.read_text(encoding="utf-8")
        for before, after in changes:
            text, times = re.subn(before, after, text)
            assert times == 1, before
        recipe.write_text(text, encoding="utf-8")


def install(clone: Path, folder: Path) -> None:
    """What `make` would do first, without a network: packages that Unmask needs are those of the tests."""
    called(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=clone)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    (sdist,) = folder.glob("*.tar.gz")
    called(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder, sdist)
    called(sys.executable, "-m", "venv", clone / ".venv")
    own = [clone / ".venv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    called(*own, "install", "--no-deps", "--no-index", *folder.glob("*.whl"))
    (packages,) = clone.glob(".venv/lib/python*/site-packages")
    # A folder that a .pth file names is searched after the environment's own, and its own .pth files are not read.
    (packages / "others.pth").write_text(str(Path(click.__file__).parents[1]))
    make_quick(packages / "unmask")
    (clone / ".venv" / ".installed").touch()


@pytest.mark.slow
def test_from_clone_to_report(tmp_path: Path) -> None:
    clone_and_enter, *commands = path_of_a_newcomer()
    assert clone_and_enter == "git clone <this repository> unmask && cd unmask"
    called("git", "clone", "-q", ROOT, tmp_path / "unmask")
    clone, home = tmp_path / "unmask", tmp_path / "home"
    home.mkdir()
    install(clone, tmp_path / "built")
    nowhere = "http://127.0.0.1:9"
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere),
    }
    # So few rows are invalid to a guard, which ends with exit code 1.
    script = "\n".join(f"{line} || test $? = 1 -a '{line}' = 'unmask check 05_mine'" for line in commands)
    output = called("bash", "-e", "-c", script, cwd=clone, env=environment)
    lines = output.splitlines()
    assert "demo: 7 done" in output
    verdict = next(number for number, line in enumerate(lines) if re.match(r"(Conf|Reje|Unde|Not )", line))
    lessons = [line.removeprefix("- ") for line in lines[verdict + 1 :] if line.startswith("- ")][:3]
    page = clone / "unmask-demo" / "results" / "reports" / "demo" / "report.html"
    assert lessons[0] in html.unescape(page.read_text(encoding="utf-8"))
    assert "too-few-samples" in output
    own = clone / "results" / "reports" / "05_mine" / "report.html"
    assert "trim_0.25" in own.read_text(encoding="utf-8")
    changed = called("git", "status", "--short", cwd=clone).split()
    assert changed == ["??", "recipes/05_mine/"], "nothing else of the clone is touched"
    again = called(".venv/bin/unmask", "demo", "--slots", "1", cwd=clone, env=environment)
    assert "Nothing to do: 7 done." in again
    assert lessons[0] in again


def test_the_readme_s_example_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "#### 8" in str(names["full"])


def test_the_readme_s_table_holds_figures_of_the_findings() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    findings = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    figures = re.findall(r"-?\d+\.\d \[-?\d+\.\d, -?\d+\.\d\]", text)
    assert len(figures) == 4
    assert [figure for figure in figures if figure not in findings] == []


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == unmask.__version__
    assert citation["license"] == "Apache-2.0"


def test_continuous_integration_runs_commands_that_the_readme_names() -> None:
    program, *targets = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1].split()
    assert program == "make"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [target for target in targets if f"`make {target}`" not in readme] == []
