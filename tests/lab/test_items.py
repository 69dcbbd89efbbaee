"""Correlations with a bootstrap over items: scipy as the oracle, resamples listed one by one, coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.lab import items
from poolscope.lab.items import ItemBootstrap, variation
from poolscope.numbers.intervals import Estimate

ITEMS = {"answers": "items", "unit": "items"}


def columns(count=60, *, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=count)
    return {"x": x, "y": x + generator.normal(size=count), "ties": generator.integers(4, size=count).astype(float)}


def test_values_are_those_of_scipy():
    data = columns()
    found = ItemBootstrap(60, **ITEMS).correlations(data)
    assert set(found) == {("x", "y"), ("x", "ties"), ("y", "ties")}
    for (a, b), result in found.items():
        assert result.pearson.value == pytest.approx(stats.pearsonr(data[a], data[b])[0], abs=1e-12)
        assert result.spearman.value == pytest.approx(stats.spearmanr(data[a], data[b])[0], abs=1e-12)


def test_a_resample_is_the_list_of_its_items():
    data = columns()
    bootstrap = ItemBootstrap(60, **ITEMS, seed=4)
    weights = bootstrap._weights
    assert (weights.sum(axis=1) == 60).all()
    found = items.weighted_correlations(weights.astype(float), data, [("x", "y"), ("y", "ties")])
    for row in (0, 17, 999):
        listed = {name: np.repeat(values, weights[row]) for name, values in data.items()}
        for a, b in found:
            assert found[a, b][0][row] == pytest.approx(stats.pearsonr(listed[a], listed[b])[0], abs=1e-12)
            assert found[a, b][1][row] == pytest.approx(stats.spearmanr(listed[a], listed[b])[0], abs=1e-12)


def test_intervals_are_the_quantiles_of_the_resamples():
    data = columns(300)  # so many that the resamples are taken in several parts
    bootstrap = ItemBootstrap(300, **ITEMS, seed=1, level=0.9)
    listed = [stats.spearmanr(np.repeat(data["x"], w), np.repeat(data["y"], w))[0] for w in bootstrap._weights]
    interval = bootstrap.correlations(data)["x", "y"].spearman.interval
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(listed, [0.05, 0.95])), abs=1e-12)
    assert (interval.answers, interval.level) == ("items", 0.9)


def test_variation_is_the_standard_deviation_over_the_mean_with_an_interval_from_leaving_out_each_item():
    values = np.array([1.0, 2.0, 4.0, 9.0, 2.5, 3.0, 1.5])
    found = variation(values, **ITEMS, level=0.9)
    assert found.value == pytest.approx(values.std() / values.mean(), rel=1e-12)
    parts = [np.delete(values, k) for k in range(7)]
    logs = np.log([part.std(ddof=1) / part.mean() for part in parts])
    reach = stats.t.ppf(0.95, 6) * np.sqrt(6 / 7 * ((logs - logs.mean()) ** 2).sum())
    centre = values.std(ddof=1) / values.mean()
    expected = (centre * np.exp(-reach), centre * np.exp(reach))
    assert (found.interval.low, found.interval.high) == pytest.approx(expected, rel=1e-12)
    assert (found.interval.answers, found.interval.level) == ("items", 0.9)


@pytest.mark.parametrize("count", [6, 12])
def test_intervals_over_few_items_miss_the_truth_about_as_seldom_as_they_say(count):
    """Percentiles of resamples miss a true variation of 0.1 in 38 % of the cases at 6 items."""
    missed, related, bootstrap = 0, 0, ItemBootstrap(count, **ITEMS)
    for seed in range(200):
        values = np.random.default_rng(seed).normal(size=(2, count))
        interval = variation(1 + values[0] / 10, **ITEMS).interval
        missed += not interval.low <= 0.1 <= interval.high
        found = bootstrap.correlations({"x": values[0], "y": values[1]})["x", "y"]
        related += not found.spearman.interval.low <= 0 <= found.spearman.interval.high
    assert missed <= 20  # 10 expected; more than 20 has a chance below 1 in 1,000
    assert related <= 20


@pytest.mark.parametrize("values", [np.full(8, 3.0), np.array([1.0] * 7 + [2.0]), np.arange(1.0, 6.0)])
def test_equal_items_and_too_few_of_them_have_a_variation_without_an_interval(values):
    found = variation(values, **ITEMS)
    assert found.value == pytest.approx(values.std() / values.mean(), abs=1e-15)
    assert found.interval is None
    few = ItemBootstrap(5, **ITEMS).correlations({"x": np.arange(5.0), "y": np.arange(5.0) ** 2})["x", "y"]
    assert few.spearman.value == pytest.approx(1)
    assert few.pearson.interval is few.spearman.interval is None


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    truth, covered = 0.6, 0
    for seed in range(60):
        pair = np.random.default_rng(seed).multivariate_normal([0, 0], [[1, truth], [truth, 1]], size=150)
        interval = (
            ItemBootstrap(150, **ITEMS, seed=seed)
            .correlations({"x": pair[:, 0], "y": pair[:, 1]})["x", "y"]
            .pearson.interval
        )
        covered += interval.low <= truth <= interval.high
    assert covered >= 51  # 57 expected; 51 or fewer has a chance below 1 %


def test_large_numbers_with_small_spread_keep_their_correlation():
    data = columns()
    shifted = {"x": 1e6 + data["x"], "y": data["y"]}
    plain = ItemBootstrap(60, **ITEMS).correlations({"x": data["x"], "y": data["y"]})["x", "y"]
    moved = ItemBootstrap(60, **ITEMS).correlations(shifted)["x", "y"]
    assert moved.pearson.value == pytest.approx(plain.pearson.value, abs=1e-8)
    assert moved.pearson.interval.low == pytest.approx(plain.pearson.interval.low, abs=1e-8)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_items_have_no_correlation(count):
    result = ItemBootstrap(count, **ITEMS).correlations({"x": np.arange(count) + 1.0, "y": np.ones(count)})
    assert result["x", "y"].pearson == result["x", "y"].spearman == Estimate(None)
    assert (variation(np.ones(count), **ITEMS).value is None) == (count < 2)


def test_a_constant_column_has_no_correlation_and_the_others_keep_theirs():
    data = columns() | {"flat": np.full(60, 3.0)}
    found = ItemBootstrap(60, **ITEMS).correlations(data)
    assert found["x", "flat"].pearson.value is None
    assert found["x", "y"].pearson.value is not None


def test_an_interval_needs_resamples_that_have_a_value():
    """Three items of which two are equal: most resamples of such few items are degenerate in neither column."""
    found = ItemBootstrap(3, **ITEMS).correlations({"x": np.array([1.0, 2, 3]), "y": np.array([0.0, 0, 1])})
    assert found["x", "y"].spearman.value == pytest.approx(stats.spearmanr([1, 2, 3], [0, 0, 1])[0])
    assert str(Estimate(None)) == "undefined"
    assert str(Estimate(0.25)) == "0.250"


def test_the_same_seed_gives_the_same_interval():
    data = columns()
    first, second, other = (ItemBootstrap(60, **ITEMS, seed=s).correlations(data)["x", "y"] for s in (0, 0, 1))
    assert first == second
    assert first.pearson.interval != other.pearson.interval
