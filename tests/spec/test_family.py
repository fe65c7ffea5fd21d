"""Which family a config.json belongs to, and what every record promises."""

import re
from pathlib import Path

import msgspec
import pytest

from unmask.spec.family import AUTOREGRESSIVE, FAMILIES, FAST_DLLM_V2, MODEL_TYPES, SDAR, Family, family_of


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"model_type": "Fast_dLLM_Qwen", "bd_size": 32}, FAST_DLLM_V2),
        ({"model_type": "qwen2", "bd_size": 32}, FAST_DLLM_V2),
        ({"model_type": "qwen2"}, AUTOREGRESSIVE),
        ({"model_type": "qwen2", "bd_size": None}, AUTOREGRESSIVE),
        ({"model_type": "qwen3"}, AUTOREGRESSIVE),
        ({"model_type": "llama"}, AUTOREGRESSIVE),
        ({"model_type": "sdar", "block_size": 8}, SDAR),
        ({"model_type": "sdar"}, SDAR),
        ({"model_type": "gpt2"}, None),
        ({"model_type": ["sdar"]}, None),
        ({}, None),
    ],
)
def test_the_family_of_a_config(config: dict[str, object], family: Family | None) -> None:
    assert family_of(config) is family


def test_every_record_can_be_found_and_makes_sense() -> None:
    assert set(MODEL_TYPES.values()) == set(FAMILIES.values())
    for name, family in FAMILIES.items():
        assert family.name == name
        assert family.caches
        assert family.has_mask or family.block_size == 1


DOCS = (Path(__file__).parents[2] / "docs" / "families.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_family_is_described(family: Family) -> None:
    assert f"\n## {family.name}\n" in DOCS
    (row,) = [line.split("|") for line in DOCS.splitlines() if line.startswith(f"| `{family.name}` |")]
    types = {name for name, of in MODEL_TYPES.items() if of is family}
    assert types <= set(re.findall(r"`(\w+)`", row[3]))
    assert (row[4].strip(), row[5].strip()) == (str(family.shift), ", ".join(family.caches))


def test_every_field_of_a_record_is_described() -> None:
    table = DOCS[DOCS.index("## A record's fields") : DOCS.index("What follows from these")]
    named = {
        name for line in table.splitlines() for name in re.findall(r"`(\w+)`", "".join(line.split("|")[1:2]))
    }
    assert named == {field.name for field in msgspec.structs.fields(Family)}


def test_nothing_in_the_package_branches_on_a_familys_name() -> None:
    """What differs stands in the record; only the record and what publishers call things may name a family."""
    allowed = {"family.py", "published.py"}
    for file in (Path(__file__).parents[2] / "src").rglob("*.py"):
        if file.name not in allowed:
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"family\.name (==|!=|in) |family (is|is not|==|!=) [A-Z]{2}", text), file
