"""A change of the code's shape changes no figure: outputs of a fixed store and fixed weights, text by text."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from documents import EXPECTED, as_text, decoding, of_the_store, run_ids


def expected(name: str) -> str:
    return (EXPECTED / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    return dict(of_the_store())


OF_THE_STORE = sorted(str(file.relative_to(EXPECTED)) for file in EXPECTED.glob("*/*") if file.is_file())


@pytest.mark.parametrize("name", OF_THE_STORE)
def test_what_the_store_leads_to_is_what_it_was(told: dict[str, str], name: str) -> None:
    assert told[name] == expected(name)


def test_nothing_else_is_told(told: dict[str, str]) -> None:
    assert sorted(told) == OF_THE_STORE


def test_ids_of_shipped_recipes_are_what_they_were() -> None:
    assert as_text(run_ids()) == expected("run_ids.json")


def test_tokens_ledgers_and_scores_are_what_they_were() -> None:
    assert as_text(decoding()) == expected("decoding.json")
