"""The interval around a median of a few measurements."""

import pytest

from unmask.cost.median import median_interval


def test_the_interval_of_a_median_by_order_statistics() -> None:
    ten = median_interval([float(value) for value in range(10, 0, -1)])
    assert (ten.low, ten.high) == (2, 9)
    assert ten.coverage == pytest.approx(1 - 2 * (1 + 10) / 1024)
    three = median_interval([3.0, 1.0, 2.0])
    assert (three.low, three.high, three.coverage) == (1, 3, 0.75)
    assert median_interval([5.0]).coverage == 0
