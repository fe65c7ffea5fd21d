"""A user's own policy that fails: one sentence with its file and line, also where it tries to end the process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse

PLAN = """\
import os, sys, json
class Mine:
    def __init__(self, options=None):
        self.options = options
    def plan(self, view):
        {statement}
"""
MADE = "class Mine:\n  def plan(self): ...\n  def __init__(self):\n"
FAILING = {
    "an error": (PLAN.format(statement="return 1 / 0"), 6, "ZeroDivisionError: division by zero"),
    "an error of a library": (PLAN.format(statement="json.loads('{{')"), 6, "JSONDecodeError"),
    "a way out": (PLAN.format(statement="sys.exit(0)"), 6, "it tried to end the process"),
    "a hard way out": (PLAN.format(statement="os._exit(77)"), 6, "it tried to end the process"),
    "an error while it is made": (MADE + "    [][1]\n", 4, "IndexError"),
    "its own type error": (MADE + "    1 + ''\n", 4, "TypeError"),
    "an error while it is imported": ("import os\nos._exit(77)\n", 2, "it tried to end the process"),
    "another one": ("\n\nundefined\n", 3, "NameError"),
    "no Python": ("class Mine\n", 1, "SyntaxError"),
    "an error without words": (
        PLAN.format(statement="raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()"),
        6,
        "Odd",
    ),
    "a long error": (PLAN.format(statement="raise ValueError('x' * 100000)"), 6, "ValueError: xxx"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("failing", None)


@pytest.mark.parametrize("case", FAILING)
def test_the_sentence_names_file_and_line(case: str, folder: Path) -> None:
    text, line, reason = FAILING[case]
    file = folder / "failing.py"
    file.write_text(text)
    with pytest.raises(UnmaskError) as caught:
        rehearse(make_policy({"kind": "custom", "target": "failing:Mine"}, 4), 4, Script())
    sentence = str(caught.value)
    assert sentence.startswith(f"The policy failing:Mine failed in {file}, line {line} ({reason}")
    assert len(sentence) < 700
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "parts",
    ["7, 7", "'', ''", "True", "rows=3", "merge=2", "ops=[[]]", "ops=object()", "ops=(1j,)", "drift={}"],
)
def test_a_plan_of_other_parts_is_refused(folder: Path, parts: str) -> None:
    statement = f"from unmask.engine.step_plan import StepPlan; return StepPlan({parts})"
    (folder / "failing.py").write_text(PLAN.format(statement=statement))
    with pytest.raises(UnmaskError, match=r"^The policy failing:Mine answered with a plan that is none \("):
        rehearse(make_policy({"kind": "custom", "target": "failing:Mine"}, 4), 4, Script())


def test_a_plan_may_have_lists_for_tuples(folder: Path) -> None:
    statement = "from unmask.engine.step_plan import Op, StepPlan; return StepPlan([Op.COMPUTE] * 4)"
    (folder / "failing.py").write_text(PLAN.format(statement=statement))
    assert rehearse(make_policy({"kind": "custom", "target": "failing:Mine"}, 4), 4, Script())


def test_a_process_that_a_policy_forks_may_end(folder: Path) -> None:
    statement = "child = os.fork(); child or os._exit(7); raise ValueError(os.waitpid(child, 0)[1] >> 8)"
    (folder / "failing.py").write_text(PLAN.format(statement=statement))
    leave = os._exit
    with pytest.raises(UnmaskError, match="ValueError: 7"):
        rehearse(make_policy({"kind": "custom", "target": "failing:Mine"}, 4), 4, Script())
    assert os._exit is leave


def test_what_is_no_class_is_not_called(folder: Path) -> None:
    target, mark = "subprocess:check_output", folder / "mark"
    with pytest.raises(UnmaskError, match="is no class with a method plan"):
        make_policy({"kind": "custom", "target": target, "options": {"args": ["touch", str(mark)]}}, 4)
    assert not mark.exists()


def test_the_command_says_it_in_one_line(folder: Path) -> None:
    (folder / "failing.py").write_text(PLAN.format(statement="os._exit(77)"))
    command = [sys.executable, "-m", "unmask", "generate", "2+2=", "--raw"]
    command += ["--policy", '{"kind": "custom", "target": "failing:Mine"}']
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(folder)}
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: The policy failing:Mine failed in {folder / 'failing.py'}, line 6")
