"""The model card and the command that makes its tables."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CARD = ROOT / "src" / "unmask" / "assets" / "embedded" / "README.md"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("embedded_card", ROOT / "benchmarks" / "embedded.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["embedded_card"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_card_holds_every_table_that_the_command_makes(benchmark: ModuleType, tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(CARD.read_text())
    for name in benchmark.TABLES:
        benchmark.put_into_card(copy, name, [f"the table {name}"])
    text = copy.read_text()
    assert all(text.count(f"the table {name}\n") == 1 for name in benchmark.TABLES)
    assert "| 95 % interval |" not in text
    assert "| 95 % interval |" in CARD.read_text()
    with pytest.raises(SystemExit, match="0 places for the table unheard"):
        benchmark.put_into_card(copy, "unheard", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So Tom has 3+4=<<3+4=7>>7 pens.", "no `#### N`"),
        ("So Tom has 3+4=<<3+4=8>>8 pens.\n#### 8", "a wrong result"),
        ("So Tom has 3-4=<<3-4=1>>1 pens.\n#### 1", "an equation that does not belong there"),
        ("So Tom has 3+4=<<3+4=7>>7 pens.\n#### 9", "something else"),
    ],
)
def test_wrong_answers_are_told_apart(benchmark: ModuleType, text: str, expected: str) -> None:
    assert benchmark.failure(text, {"canonical": "3+4"}).startswith(expected)


def test_intervals_are_wilsons(benchmark: ModuleType) -> None:
    low, high = benchmark.interval(90, 100)
    assert (low, high) == (pytest.approx(0.8256, abs=1e-4), pytest.approx(0.9448, abs=1e-4))
    assert benchmark.interval(0, 10)[0] == 0
