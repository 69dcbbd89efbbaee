"""Intervals and deviations of the profile by length: coverage by simulation, and vectors in a narrow cone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope import length_profile
from poolscope.metrics.length.profile import neighbour_shares
from poolscope.numbers.cosines import rank_estimate
from poolscope.numbers.intervals import leave_one_out_interval
from poolscope.numbers.ranking import nearest_neighbours, unit_rows


def test_leaving_out_groups_gives_the_error_of_a_mean():
    values = np.random.default_rng(0).standard_normal(203)
    errors = []
    for size in (1, 10):
        groups = [np.delete(values, np.s_[k * size : (k + 1) * size]).mean() for k in range(203 // size)]
        found = leave_one_out_interval(values.mean(), np.array(groups), texts=203, size=size)
        errors.append((found.high - found.low) / 4)
    assert errors[0] == pytest.approx(values.std(ddof=1) / np.sqrt(203), rel=0.02)
    assert errors[1] == pytest.approx(errors[0], rel=0.5)


@pytest.mark.parametrize("count", [30, 41, 70])
def test_the_interval_of_the_effective_rank_is_as_wide_as_its_error(count):
    random = np.random.default_rng(0)
    sizes = 1 / np.sqrt(1 + np.arange(192))
    found = [rank_estimate(unit_rows(random.standard_normal((count, 192)) * sizes, "v")) for _ in range(60)]
    values = np.array([one.value for one in found])
    width = np.mean([one.interval.high - one.interval.low for one in found])
    assert width / 2 == pytest.approx(2.05 * values.std(ddof=1), rel=0.3)
    inside = [one.interval.low <= values.mean() <= one.interval.high for one in found]
    assert np.mean(inside) >= 0.85  # of 60 intervals of 95 %: fewer have a probability of 0.1 %


def topics(seed, count=120, dimension=8):
    """Vectors about six topics, in which the length shows a little: texts share their neighbours."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((6, dimension))
    lengths = np.exp2(random.uniform(3, 8, count)).astype(int)
    vectors = centres[random.integers(0, 6, count)] + random.standard_normal((count, dimension))
    vectors[:, 0] += 0.5 * (np.log2(lengths) - 5)
    return unit_rows(vectors, "v"), (lengths >= 50).astype(int)


def test_the_interval_of_the_neighbours_covers():
    found = []
    for seed in range(150):
        unit, of = topics(seed)
        found.append(neighbour_shares(nearest_neighbours(unit, 11)[0], of, 2))
    for number in (0, 1):
        truth = np.mean([shares[number].value for shares in found])
        inside = [shares[number].interval.low <= truth <= shares[number].interval.high for shares in found]
        assert np.mean(inside) >= 0.91  # a mean of the shares of single texts covers in about 80 %


def test_shares_of_neighbours_are_those_without_each_text():
    unit, of = topics(0, count=40)
    found = neighbour_shares(nearest_neighbours(unit, 4)[0], of, 2)

    def shares(keep):
        nearest = nearest_neighbours(unit[keep], 3)[0]
        own = of[keep]
        return np.array([(own[nearest[own == number]] == number).mean() for number in (0, 1)])

    everyone = np.arange(40)
    without = np.array([shares(np.delete(everyone, k)) for k in everyone])
    for number, share in enumerate(found):
        assert share.value == pytest.approx(shares(everyone)[number])
        error = np.sqrt(39 / 40 * ((without[:, number] - share.value) ** 2).sum())
        reach = stats.t.ppf(0.975, 39) * error
        assert (share.interval.low, share.interval.high) == pytest.approx((share.value - reach, share.value + reach))


def test_a_rise_does_not_hang_on_the_width_of_the_cone():
    random = np.random.default_rng(0)
    lengths = np.exp2(random.uniform(3, 9, 400)).astype(int)
    noise = (1.35 - 0.1 * np.log2(lengths))[:, None] * random.standard_normal((400, 64)) / 8
    rises = []
    for spread in (0.1, 0.01):
        found = length_profile(np.eye(64)[0] + spread * noise, lengths, bins=6, shuffles=40)
        assert found.slope.interval.low > found.slope.floor_high > 0
        rises.append((found.slope.value / spread**2, found.slope.floor_high / spread**2))
    assert rises[0] == pytest.approx(rises[1], rel=0.05)
    assert "0.000 per doubling" not in found.in_words()[0]


def test_chance_keeps_its_digits_in_a_narrow_cone():
    random = np.random.default_rng(0)
    lengths = np.exp2(random.uniform(3, 9, 4000)).astype(int)
    noise = random.standard_normal((4000, 16)) / 4
    floors = []
    names = list(map(str, range(4000)))
    for spread in (0.03, 0.003):
        vectors = np.eye(16)[0] + spread * noise
        found = length_profile(vectors, lengths, texts=names, bins=4, shuffles=40, neighbours=1)
        floors.append(found.slope.floor_high / spread**2)
    assert floors[0] == pytest.approx(floors[1], rel=0.1)
