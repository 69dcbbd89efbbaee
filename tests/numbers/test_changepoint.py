"""One change in a series: found where it was planted, and as seldom as promised where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.numbers.items import change_point


@pytest.mark.parametrize("place", [8, 40, 72])
def test_a_planted_change_is_found_and_lies_in_its_range(place):
    for seed in range(10):
        random = np.random.default_rng(seed)
        series = random.normal(size=80)
        series[place:] += 4
        found = change_point(series, seed=seed)
        assert found.p_value < 0.01
        assert abs(found.position - place) <= 2
        assert found.low <= place <= found.high
        assert found.before < found.after


@pytest.mark.parametrize("place", [30, 60])
def test_the_range_holds_a_place_after_which_only_half_of_the_values_change(place):
    """Values drawn anew on each side of the best place held it in 70 %."""
    held = []
    for seed in range(150):
        random = np.random.default_rng(seed)
        series = 0.99 + 0.02 * random.normal(size=100)
        series[place:] -= 0.3 * (random.random(100 - place) < 0.5)
        found = change_point(series, shuffles=19)
        held.append(found.low - 1 <= place <= found.high)
    assert np.mean(held) > 0.9


def test_series_without_a_change_are_called_so():
    few = [change_point(np.random.default_rng(seed).normal(size=60), shuffles=199).p_value for seed in range(200)]
    assert np.mean(np.array(few) < 0.05) == pytest.approx(0.05, abs=0.045)
    assert 0.4 < np.mean(few) < 0.6


def test_values_that_go_in_runs_have_no_place_where_nothing_changes():
    """Against shuffled values alone, four of five such series had one."""
    values = [np.repeat(np.random.default_rng(seed).random(20) < 0.3, 10) for seed in range(100)]
    assert np.mean([change_point(series, shuffles=199).p_value < 0.01 for series in values]) < 0.05


def test_ties_and_one_odd_value_decide_nothing():
    series = np.ones(60)
    assert change_point(series) is None
    series[30] = -50
    assert change_point(series).p_value > 0.05
    assert change_point(np.arange(9.0)) is None
