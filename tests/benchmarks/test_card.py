"""The model card and the command that makes its tables."""

from pathlib import Path

import pytest

import embedded
from pages import put_into_page

CARD = Path(__file__).parents[2] / "src" / "unmask" / "assets" / "embedded" / "README.md"


def test_the_card_holds_every_table_that_the_command_makes(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(CARD.read_text())
    for name in embedded.TABLES:
        put_into_page(copy, name, [f"the table {name}"])
    text = copy.read_text()
    assert all(text.count(f"the table {name}\n") == 1 for name in embedded.TABLES)
    assert "| 95 % interval |" not in text
    assert "| 95 % interval |" in CARD.read_text()
    with pytest.raises(SystemExit, match="0 places for the table unheard"):
        put_into_page(copy, "unheard", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So Tom has 3+4=<<3+4=7>>7 pens.", "no `#### N`"),
        ("So Tom has 3+4=<<3+4=8>>8 pens.\n#### 8", "a wrong result"),
        ("So Tom has 3-4=<<3-4=1>>1 pens.\n#### 1", "an equation that does not belong there"),
        ("So Tom has 3+4=<<3+4=7>>7 pens.\n#### 9", "something else"),
    ],
)
def test_wrong_answers_are_told_apart(text: str, expected: str) -> None:
    assert embedded.failure(text, {"canonical": "3+4"}).startswith(expected)


def test_intervals_are_wilsons() -> None:
    low, high = embedded.interval(90, 100)
    assert (low, high) == (pytest.approx(0.8256, abs=1e-4), pytest.approx(0.9448, abs=1e-4))
    assert embedded.interval(0, 10)[0] == 0
