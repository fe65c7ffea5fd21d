"""docs/policies.md says what there is, and its examples run."""

import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policy_cases import PROMPTS, one
from unmask.engine.policy import StepView
from unmask.engine.step_plan import Kind, Op, StepPlan
from unmask.errors import UnmaskError
from unmask.policies.registry import MAKERS, make_policy, policy_spec
from unmask.spec import PolicySpec
from unmask.spec.own_code import POLICY

DOCS = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()


def blocks(language: str, text: str = DOCS) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def section(kind: str) -> str:
    found = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", DOCS, flags=re.MULTILINE | re.DOTALL)
    assert found, f"docs/policies.md has no heading '## {kind}'"
    return found[1]


def tag(spec: type[PolicySpec]) -> str:
    return str(spec.__struct_config__.tag)


def table(kind: str) -> dict[str, str]:
    settings = section(kind).partition("\n### ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", settings, flags=re.MULTILINE))


@pytest.mark.parametrize("spec", MAKERS, ids=tag)
def test_every_registered_policy_has_its_heading_fields_and_defaults(spec: type[PolicySpec]) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(spec)}
    told = table(tag(spec))
    assert list(told) == list(fields)
    for name, text in told.items():
        field = fields[name]
        if text == "required":
            assert field.required
        elif text == "none":
            assert field.default is None
        else:
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            assert json.loads(text.strip("`")) == json.loads(msgspec.json.encode(default))


@pytest.mark.parametrize("spec", MAKERS, ids=tag)
def test_every_section_has_an_example_of_its_kind(spec: type[PolicySpec]) -> None:
    examples: list[dict[str, Any]] = [json.loads(text) for text in blocks("json", section(tag(spec)))]
    examples += [
        tomllib.loads(text) for text in blocks("toml", section(tag(spec))) if text.startswith("kind")
    ]
    assert examples
    for values in examples:
        assert type(policy_spec(values)) is spec
        if spec.__name__ != "CustomSpec" and "calibration" not in values:
            assert make_policy(values, 28)


@pytest.mark.parametrize("described", [StepView, StepPlan])
def test_what_a_policy_sees_and_answers_is_described(described: type) -> None:
    text = section("custom")
    for name in described.__dataclass_fields__:
        assert f"`{name}`" in text, name


def example() -> str:
    (source,) = [text for text in blocks("python", section("custom")) if "class " in text]
    return source


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as a file that can be imported."""
    (tmp_path / "few_masks.py").write_text(example())
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("few_masks", None)


def check(target: str, most: int) -> None:
    policy = {"kind": "custom", "target": target, "options": {"most": most}}
    found, baseline = one(PROMPTS[1], policy, threshold=1.0), one(PROMPTS[1], threshold=1.0)
    ledger = found.generation.ledger
    assert ledger.reuse_fraction() > 0
    assert found.generation.ids != baseline.generation.ids
    replays = [event for event in found.events if Op.REPLAY in event.plan.ops]
    assert {event.kind for event in replays} == {Kind.SUB}
    reads = [work.reads for work in ledger.entries if work.mlp is not None and 0 in work.mlp]
    assert max(reads) == most
    one(PROMPTS[2], policy)


@pytest.mark.usefixtures("installed")
def test_the_example_runs_by_its_module_path() -> None:
    document = json.loads(blocks("json", section("custom"))[0])
    assert policy_spec(document).target == "few_masks:FewMasks"
    check(document["target"], document["options"]["most"])


@pytest.mark.usefixtures("installed")
def test_the_example_runs_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads(
        next(text for text in blocks("toml", section("custom")) if "entry-points" in text)
    )
    ((name, value),) = project["project"]["entry-points"][POLICY.entry_points].items()
    entry = importlib.metadata.EntryPoint(name=name, value=value, group=POLICY.entry_points)

    def entry_points(**wanted: str) -> list[importlib.metadata.EntryPoint]:
        return [entry] if wanted == {"group": entry.group, "name": entry.name} else []

    monkeypatch.setattr("unmask.spec.own_code.entry_points", entry_points)
    check(name, 1)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("few_masks:FewMasks", {"least": 2}, "cannot be made with its options"),
        ("few_masks:Other", {}, "cannot be imported"),
        ("no_such_module:FewMasks", {}, "cannot be imported"),
        (":FewMasks", {}, "write package.module:Class"),
        (".few_masks:FewMasks", {}, "write package.module:Class"),
        ("few_masks:StepView.plan", {}, "write package.module:Class"),
        ("not_installed", {}, "No installed policy is called 'not_installed'"),
        ("builtins:dict", {}, "is no class with a method plan"),
        ("math:pi", {}, "is no class with a method plan"),
        ("os:system", {"command": "exit 3"}, "is no class with a method plan"),
    ],
)
def test_a_target_that_cannot_be_used(target: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UnmaskError, match=sentence):
        make_policy({"kind": "custom", "target": target, "options": options}, 6)
