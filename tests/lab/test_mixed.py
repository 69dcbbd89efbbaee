"""The slope of a mixed model: against closed forms at both ends, and its interval on data that are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.lab.mixed import mixed_slope


def test_without_effects_it_is_the_plain_line():
    random = np.random.default_rng(0)
    x = random.standard_normal((6, 7))
    y = 0.5 * x + random.standard_normal((6, 7))
    y -= y.mean(axis=0, keepdims=True) + y.mean(axis=1, keepdims=True) - y.mean()  # less than no effects are left
    plain = np.polyfit(x.ravel(), y.ravel(), 1)[0]
    assert mixed_slope(x, y).value_or_raise == pytest.approx(plain, abs=1e-4)


def test_with_large_effects_it_is_the_slope_within_rows_and_columns():
    random = np.random.default_rng(1)
    x = random.standard_normal((6, 7))
    effects = 1e3 * random.standard_normal((6, 1)) + 1e3 * random.standard_normal((1, 7))
    y = 0.5 * x + effects + random.standard_normal((6, 7))

    def within(table):
        return table - table.mean(axis=0, keepdims=True) - table.mean(axis=1, keepdims=True) + table.mean()

    expected = (within(x) * within(y)).sum() / (within(x) ** 2).sum()
    assert mixed_slope(x, y).value_or_raise == pytest.approx(expected, abs=1e-3)


def test_intervals_hold_for_a_quantity_of_the_rows():
    """Of 200 tables with a quantity that differs between rows alone, 95 % of the intervals hold the truth, or more."""
    random = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        x = np.repeat(random.standard_normal((5, 1)), 7, axis=1)
        y = 0.3 * x + random.standard_normal((5, 1)) + random.standard_normal((1, 7)) + random.standard_normal((5, 7))
        around = mixed_slope(x, y).interval
        held += around.low <= 0.3 <= around.high
    assert held >= 180


def test_too_few_rows_or_values_that_do_not_differ_have_none():
    random = np.random.default_rng(3)
    assert mixed_slope(random.standard_normal((2, 9)), random.standard_normal((2, 9))) is None
    assert mixed_slope(np.ones((4, 4)), random.standard_normal((4, 4))) is None
