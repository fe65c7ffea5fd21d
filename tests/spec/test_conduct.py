"""The order in which rows are answered where runs may end early, and how many of them a round has."""

from collections import Counter

import pytest

from recipe_cases import changed, recipe
from unmask.errors import UnmaskError
from unmask.spec.conduct import UntilDecidedSpec, answer_order
from unmask.spec.recipe import parse_recipe

TASK = {"rows": {"small": 20, "large": 180}, "limit": None}


def test_every_row_comes_once_and_a_seed_gives_one_order() -> None:
    order = answer_order(TASK, 0)
    assert sorted(order) == sorted(
        f"{name}/{row}" for name, size in TASK["rows"].items() for row in range(size)
    )
    assert answer_order(TASK, 0) == order
    assert answer_order(TASK, 1) != order
    assert order[:20] != [f"large/{row}" for row in range(20)]


def test_any_beginning_holds_the_same_share_of_each_subtask() -> None:
    order = answer_order(TASK, 3)
    for rows in range(10, 200, 10):
        assert abs(Counter(row.partition("/")[0] for row in order[:rows])["small"] - rows / 10) <= 2


def test_a_limit_counts_for_each_subtask() -> None:
    order = answer_order({**TASK, "limit": 30}, 0)
    assert Counter(row.partition("/")[0] for row in order) == {"small": 20, "large": 30}


@pytest.mark.parametrize(("batch_size", "rows", "expected"), [(1, 500, 32), (16, 500, 64), (16, 20, 20)])
def test_a_round_is_a_few_batches_where_the_recipe_says_nothing(
    batch_size: int, rows: int, expected: int
) -> None:
    assert UntilDecidedSpec().round_of("gsm8k", rows, batch_size) == expected


def test_a_round_that_is_larger_than_the_set_is_refused() -> None:
    assert UntilDecidedSpec(rows=20).round_of("gsm8k", 20, 1) == 20
    with pytest.raises(
        UnmaskError, match=r"until_decided\.rows is 21, but gsm8k asks 20 rows; make a round smaller"
    ):
        UntilDecidedSpec(rows=21).round_of("gsm8k", 20, 1)


def test_a_recipe_that_asks_to_stop_needs_a_criterion() -> None:
    asking = ("[resources]\ngpus", "[until_decided]\nrows = 2\n\n[resources]\ngpus")
    assert recipe(asking).until_decided == UntilDecidedSpec(rows=2)
    text = changed(asking)
    without = text[: text.index("[success]")] + text[text.index("[until_decided]") :]
    with pytest.raises(UnmaskError, match=r"if there is a criterion; give the recipe a \[success\] table"):
        parse_recipe(without, "recipe.toml")
