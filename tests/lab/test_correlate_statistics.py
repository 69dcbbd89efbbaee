"""Statistics over few models: scipy and plain loops as oracles, known answers, coverage."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from poolscope.lab.correlate.study import (
    correlation_p,
    detectable_correlation,
    holm,
    kendall,
    kendall_p,
    partial_correlation,
    ranks,
)
from poolscope.lab.items import ItemBootstrap


def data(n=12, *, seed=0):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=n)
    return z + generator.normal(size=n), -z + generator.normal(size=n), z


def test_kendall_is_that_of_scipy_with_ties_and_in_every_resample():
    x, y, _ = data(20)
    x = x.round(0)
    statistic = kendall(x, y)
    assert statistic(np.ones((1, 20)))[0] == pytest.approx(stats.kendalltau(x, y)[0], abs=1e-12)
    bootstrap = ItemBootstrap(20, answers="models", unit="models")
    weights = bootstrap._weights[:50].astype(float)
    listed = [stats.kendalltau(np.repeat(x, w.astype(int)), np.repeat(y, w.astype(int)))[0] for w in weights]
    np.testing.assert_allclose(statistic(weights), listed, atol=1e-12)


def regression_partial(x, y, controls):
    """The other route: correlation of what a regression on the controls leaves."""
    design = np.column_stack([np.ones(len(x)), *controls])
    left = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in (x, y)]
    return np.corrcoef(*left)[0, 1]


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_partial_correlation_is_the_correlation_of_residuals(kind):
    x, y, z = data(15)
    other = np.random.default_rng(5).normal(size=15)
    columns = {"x": x, "y": y, "z": z, "other": other}
    found = partial_correlation(columns, kind)(np.ones((1, 15)))[0]
    seen = [stats.rankdata(v) if kind == "spearman" else v for v in columns.values()]
    assert found == pytest.approx(regression_partial(seen[0], seen[1], seen[2:]), abs=1e-12)


def test_a_partial_correlation_takes_out_a_common_cause():
    """x and y share z and nothing else: the correlation is strong, the partial one is 0."""
    generator = np.random.default_rng(3)
    z = generator.normal(size=4000)
    x, y = z + generator.normal(size=4000), z + generator.normal(size=4000)
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(0.5, abs=0.03)
    assert partial_correlation({"x": x, "y": y, "z": z}, "pearson")(np.ones((1, 4000)))[0] == pytest.approx(0, abs=0.04)


def test_a_control_that_determines_the_metric_leaves_nothing_to_correlate():
    x, y, _ = data()
    assert np.isnan(partial_correlation({"x": x, "y": y, "twice": 2 * x}, "pearson")(np.ones((1, 12)))[0])


def all_orders_p(x, y, statistic):
    """Every order of y, one by one; two-sided as twice the smaller tail."""
    found = np.array([statistic(x, y[list(order)]) for order in permutations(range(len(y)))])
    value = statistic(x, y)
    tails = (found >= value - 1e-12).mean(), (found <= value + 1e-12).mean()
    return min(1.0, 2 * min(tails))


def test_p_values_of_few_models_look_at_every_order():
    x, y, _ = data(6)
    x[1] = x[0]  # a tie
    spearman = correlation_p(ranks(x), ranks(y))
    assert spearman.method == "all 720 orders"
    assert spearman.value == pytest.approx(all_orders_p(ranks(x), ranks(y), lambda a, b: np.corrcoef(a, b)[0, 1]))
    assert kendall_p(x, y).value == pytest.approx(all_orders_p(x, y, lambda a, b: stats.kendalltau(a, b)[0]))


def test_the_smallest_p_of_three_models_is_a_third():
    three = np.arange(3.0)
    assert correlation_p(three, three).value == pytest.approx(2 / 6)


def test_p_values_of_more_models_are_near_those_of_scipy():
    x, y, _ = data(12)
    p = correlation_p(ranks(x), ranks(y))
    assert p.method == "9,999 random orders"
    assert p.value == pytest.approx(stats.spearmanr(x, y)[1], abs=0.02)
    assert correlation_p(x, y).value == pytest.approx(stats.pearsonr(x, y)[1], abs=0.02)
    assert kendall_p(x, y).value == pytest.approx(stats.kendalltau(x, y)[1], abs=0.02)
    assert correlation_p(x, y, seed=1).value != correlation_p(x, y, seed=2).value
    assert correlation_p(x, y, seed=1) == correlation_p(x, y, seed=1)


def test_the_published_p_value_follows_from_the_published_correlation():
    """ρ = −0.678 over 12 models: permuting gives what the paper's t approximation gives, 0.015."""
    generator = np.random.default_rng(0)
    x = np.arange(12.0)
    y = next(
        y
        for y in (generator.permutation(12.0 - x) for _ in range(100_000))
        if round(stats.spearmanr(x, y)[0], 3) == -0.678
    )
    assert correlation_p(x, y).value == pytest.approx(0.015, abs=0.006)


def test_the_p_value_with_controls_is_near_the_t_test_and_right_without_an_effect():
    x, y, z = data(14, seed=8)
    freedom = 14 - 3
    r = regression_partial(x, y, [z])
    expected = 2 * stats.t.sf(abs(r) * np.sqrt(freedom / (1 - r**2)), freedom)
    assert correlation_p(x, y, controls=[z]).value == pytest.approx(expected, abs=0.03)
    rejected = []
    for seed in range(150):
        generator = np.random.default_rng(seed)
        z = generator.normal(size=7)
        x, y = z + generator.normal(size=7), z + generator.normal(size=7)
        rejected.append(correlation_p(x, y, controls=[z]).value <= 0.1)
    assert 0.04 < np.mean(rejected) < 0.17  # 0.1 ± 0.05 (150 draws)


def test_holm_by_hand():
    assert holm([0.5, 0.01, 0.02, 0.4]) == pytest.approx([0.8, 0.04, 0.06, 0.8])
    assert holm([0.9, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_what_n_models_can_detect_is_what_a_simulation_detects():
    detectable = detectable_correlation(20)
    generator = np.random.default_rng(0)
    pearson = 2 * np.sin(np.pi / 6 * detectable)  # of normal pairs with this Spearman correlation
    found = []
    for _ in range(800):
        z = generator.normal(size=(2, 20))
        found.append(stats.spearmanr(z[0], pearson * z[0] + np.sqrt(1 - pearson**2) * z[1])[1] < 0.05)
    assert np.mean(found) == pytest.approx(0.8, abs=0.06)
    assert detectable_correlation(4) is None
