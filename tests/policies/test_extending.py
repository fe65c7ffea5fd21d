"""The examples of docs/extending.md run as they stand there."""

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import unmask
from policy_cases import PROMPTS, one
from unmask.engine.step_plan import Kind, Op, Unit

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {name: code for code in EXAMPLES for name in re.findall(r"Save this as (\w+)\.py", code)}


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files of the page where Python finds them."""
    for name, code in FILES.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in FILES:
        sys.modules.pop(name, None)


def test_the_page_has_a_policy_and_a_rule() -> None:
    assert set(FILES) == {"lazy_mlp", "no_neighbours"}


def test_the_policy_puts_back_mlps_of_the_upper_half() -> None:
    found = one(PROMPTS[1], {"kind": "custom", "target": "lazy_mlp:LazyMlp"}, threshold=1.0)
    assert found.generation.ledger.reuse_fraction() > 0
    replays = [event for event in found.events if Op.REPLAY in event.plan.ops]
    assert {(event.kind, event.plan.unit) for event in replays} == {(Kind.SUB, Unit.MLP)}
    for event in replays:
        half = len(event.plan.ops) // 2
        assert Op.REPLAY not in event.plan.ops[:half]


def test_the_rule_never_takes_two_neighbours_above_the_threshold() -> None:
    engine: Any = unmask.load("embedded")
    question = "Question: Tom has 12 pens. Tom buys 5 more pens. How many pens does Tom have now?\nAnswer:"
    rule = {"kind": "custom", "target": "no_neighbours:NoNeighbours"}
    steps = engine.stream(question, {"rule": rule, "max_new_tokens": 32})
    written = [sorted(step.positions) for step in steps if getattr(step, "positions", ())]
    assert any(len(positions) > 1 for positions in written)
    for positions in written:
        assert all(later - earlier > 1 for earlier, later in pairwise(positions))


def test_the_policy_s_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [code for code in EXAMPLES if "from lazy_mlp import" in code]
    exec(compile(program, "extending.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0
