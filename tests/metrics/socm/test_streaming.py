from __future__ import annotations

import numpy as np
import pytest

from poolscope.metrics.socm.result import Largest, LogHistogram


def test_histogram_quantiles_and_shares_are_within_its_resolution():
    values = np.random.default_rng(0).lognormal(-2, 1, size=200_000)
    histogram = LogHistogram()
    for part in np.array_split(values, 7):
        histogram.add(part)
    for q in (0.01, 0.5, 0.99):
        assert histogram.quantile(q) == pytest.approx(np.quantile(values, q), rel=2e-4)
    for threshold in (0.05, 0.2, 1.0):
        assert histogram.share_at_least(threshold) == pytest.approx((values >= threshold).mean(), abs=2e-4)
    assert histogram.counts.sum() == len(values)
    assert histogram.share_at_least(0.0) == 1.0
    assert histogram.share_at_least(1e9) == 0.0


def test_histogram_counts_zero_negative_and_huge_values():
    histogram = LogHistogram()
    histogram.add(np.array([0.0, -1e-3, 1e-20, 5.0, 1e12]))
    assert histogram.counts.sum() == 5
    assert histogram.counts[0] == 3
    assert histogram.quantile(0.1) == 0.0


def test_largest_equals_a_full_sort_with_ties():
    random = np.random.default_rng(1)
    values = random.integers(50, size=1000) / 10
    i, j = random.integers(40, size=1000), random.integers(40, size=1000)
    largest = Largest(25)
    assert largest.threshold == -np.inf
    for part in np.array_split(np.arange(1000), 13):
        largest.add(values[part], i[part], j[part])
    order = np.lexsort((j, i, -values))[:25]
    assert largest.values.tolist() == values[order].tolist()
    assert largest.columns[0].tolist() == i[order].tolist()
    assert largest.columns[1].tolist() == j[order].tolist()
    assert largest.threshold == values[order[-1]]
