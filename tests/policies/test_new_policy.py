"""A new policy is one struct, one file, one registry line and one heading in the docs; everything then knows it.

The test makes a copy of the package with these four additions and lets `new_policy_everywhere.py` use the policy in
every place where policies are met.
"""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"

STRUCT = '''
class NapSpec(PolicySpec, frozen=True, kw_only=True, tag="nap"):
    """The MLPs of the last layers rest at every other step."""

    last: int = 1
    """Layers whose MLP rests."""
    on: tuple[StepName, ...] = ("sub", "block")

    @property
    def dead(self) -> str | None:
        return "no layer naps" if self.last == 0 else None

    @property
    def why_alike(self) -> str:
        return "nobody can tell one nap from another"

    @property
    def layer_fields(self) -> tuple[str, ...]:
        return () if self.dead else ("last",)

    def _behaviour(self, chosen: ChosenLayers) -> object:
        return "nap", self.last, frozenset(self.on)


'''
UNION = "AnyPolicySpec = FullSpec | "
FILE = '''
"""The MLPs of the last layers rest at every other step."""

from dataclasses import dataclass

from unmask.engine.policy import StepView
from unmask.engine.step_plan import FULL, Op, StepPlan, Unit
from unmask.spec.policy import NapSpec


@dataclass(frozen=True, slots=True)
class Nap:
    last: int
    on: frozenset[str]

    @classmethod
    def of(cls, spec: NapSpec, layers: int) -> "Nap":
        return cls(min(spec.last, layers), frozenset(spec.on))

    def plan(self, view: StepView) -> StepPlan:
        if not self.last:
            return FULL
        op = Op.REPLAY if view.kind.value in self.on and view.step % 2 else Op.REFRESH
        awake = view.layers - self.last
        return StepPlan((*[Op.COMPUTE] * awake, *[op] * self.last), Unit.MLP)
'''
IMPORT = "from unmask.policies.trim import Trim\n"
LINE = "    TrimSpec: Trim.of,\n"
HEADING = """\

## nap

| field | default | meaning |
|---|---|---|
| `last` | `1` | Layers whose MLP rests |
| `on` | `["sub", "block"]` | Kinds of denoising step |

```json
{"kind": "nap", "last": 2}
```
"""


def insert(text: str, before: str, addition: str) -> str:
    assert text.count(before) == 1, before
    return text.replace(before, addition + before)


def package_with_a_nap(folder: Path) -> None:
    """A copy of the package by links, with real files where something is added."""
    package = copytree(ROOT / "src" / "unmask", folder / "unmask", copy_function=os.symlink)
    struct, registry = package / "spec" / "policy.py", package / "policies" / "registry.py"
    sources = {file: file.read_text() for file in (struct, registry)}
    sources[struct] = insert(sources[struct], UNION, STRUCT).replace(UNION, f"{UNION}NapSpec | ")
    sources[registry] = insert(sources[registry], LINE, "    NapSpec: Nap.of,\n").replace(
        IMPORT, f"{IMPORT}from unmask.policies.nap import Nap\nfrom unmask.spec.policy import NapSpec\n"
    )
    for file, text in sources.items():
        file.unlink()
        file.write_text(text)
    (package / "policies" / "nap.py").write_text(FILE)
    (folder / "policies.md").write_text((ROOT / "docs" / "policies.md").read_text() + HEADING)


def test_a_policy_that_was_added_in_one_place_works_everywhere(tmp_path: Path) -> None:
    package_with_a_nap(tmp_path)
    paths = [tmp_path, TESTS, TESTS / "policies", TESTS / "cli"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "UNMASK_STORE": str(tmp_path / "results"),
        "UNMASK_TRACEBACK": "1",
    }
    program = TESTS / "policies" / "new_policy_everywhere.py"
    found = subprocess.run(
        [sys.executable, program, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    checked = found.stdout.split()
    assert checked == ["text", "docs", "ceiling", "generate", "score", "proof", "recipe", "check", "report"]
