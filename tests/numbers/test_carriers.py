"""Few that carry a number: planted outliers are named, and the number without them is right."""

from __future__ import annotations

import numpy as np

from poolscope.numbers.items import carriers, pair_carriers


def test_one_text_that_holds_most_of_a_ratio_is_named_and_left_out():
    cut, kept = np.full(100, 1.0), np.full(100, 100.0)
    cut[7] = 1000
    few = carriers(cut, kept + cut)
    assert few.units == (7,)
    assert few.share == 1000 / 1099
    assert few.without == 99 / (99 * 101)


def test_even_contributions_have_no_carriers():
    random = np.random.default_rng(0)
    assert carriers(random.exponential(size=200)) is None
    assert carriers(np.zeros(50)) is None
    assert carriers([5.0, 1.0, 1.0]) is None  # of three texts one always holds much


def test_a_few_are_at_most_five_and_a_twentieth():
    several = np.r_[np.full(3, 1000.0), np.ones(97)]
    assert carriers(several).units == (0, 1)
    assert carriers(several[:30]) is None or len(carriers(several[:30]).units) == 1
    many = np.r_[np.full(30, 1000.0), np.ones(970)]
    assert carriers(many) is None


def test_groups_have_texts_outside_them():
    few = carriers([400, 20], [400, 20], rest=580, most=1)
    assert (few.units, few.without) == ((0,), 20 / 600)


def test_one_text_that_rules_a_mean_over_pairs():
    i, j = np.triu_indices(60, 1)
    values = np.random.default_rng(0).uniform(0.1, 0.2, len(i))
    assert pair_carriers(values, i, j) is None
    far = values + 10 * ((i == 11) | (j == 11))
    few = pair_carriers(far, i, j)
    assert few.units == (11,)
    assert few.without == far[(i != 11) & (j != 11)].mean()
