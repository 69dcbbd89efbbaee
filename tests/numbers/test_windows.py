"""Windows of token vectors: closed forms, the best cuts by exhaustion, and random order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poolscope.numbers.intervals import RatioParts
from poolscope.numbers.moments import (
    BestSpans,
    Spans,
    exchangeable_share,
    second_order_loss,
    spans_of,
    window_bounds,
    window_scatters,
)
from poolscope.numbers.streaming import text_windows


def scatter(X):
    return float(((X - X.mean(axis=0)) ** 2).sum())


def lost(X, bounds):
    return sum(scatter(X[start:stop]) for start, stop in itertools.pairwise(bounds))


@pytest.fixture
def cloud():
    return np.random.default_rng(3).normal(size=(11, 5)) + 100


def test_scatter_is_that_of_each_window(cloud):
    for ratio in (1, 2, 4, 11, 50):
        bounds = window_bounds(len(cloud), ratio)
        assert window_scatters(cloud, bounds).sum() == pytest.approx(lost(cloud, bounds))
    assert window_scatters(cloud, window_bounds(11, 1)).sum() == pytest.approx(0, abs=1e-20)
    assert window_scatters(cloud, window_bounds(11, 11)).sum() == pytest.approx(scatter(cloud))


def test_windows_end_with_their_text():
    offsets = np.array([0, 5, 6, 10])
    bounds, owner = text_windows(offsets, 2)
    expected = [window_bounds(n, 2)[:-1] + start for n, start in zip((5, 1, 4), offsets, strict=False)]
    assert bounds.tolist() == [*np.concatenate(expected).tolist(), 10]
    assert owner.tolist() == [0, 0, 0, 1, 2, 2]


def test_random_order_loses_what_the_formula_says(cloud):
    random = np.random.default_rng(0)
    shares = [
        lost(cloud[random.permutation(len(cloud))], window_bounds(len(cloud), 3)) / scatter(cloud) for _ in range(4000)
    ]
    expected = exchangeable_share(11, 4)
    assert np.mean(shares) == pytest.approx(expected, abs=4 * np.std(shares) / np.sqrt(4000))


def test_joined_windows_are_as_good_as_their_cuts_and_no_better_than_the_best(cloud):
    spans = Spans.of(cloud)
    assert spans.losses[0] == pytest.approx(scatter(cloud))
    assert spans.losses[-1] == 0
    for windows in range(1, 12):
        bounds = spans.bounds(windows)
        assert len(bounds) == windows + 1
        assert lost(cloud, bounds) == pytest.approx(spans.losses[windows - 1], abs=1e-9)
        cuts = itertools.combinations(range(1, 11), windows - 1)
        best = min(lost(cloud, [0, *places, 11]) for places in cuts)
        assert best <= spans.losses[windows - 1] + 1e-9
    assert Spans.of(cloud[:1]).bounds(1).tolist() == [0, 1]


def test_the_best_windows_lose_no_more_than_any_cuts(cloud):
    spans = BestSpans.of(cloud, 11)
    for windows in range(1, 12):
        bounds = spans.bounds(windows)
        assert len(bounds) == windows + 1
        assert lost(cloud, bounds) == pytest.approx(spans.losses[windows - 1], abs=1e-9)
        cuts = itertools.combinations(range(1, 11), windows - 1)
        assert spans.losses[windows - 1] == pytest.approx(min(lost(cloud, [0, *at, 11]) for at in cuts), abs=1e-9)
    assert BestSpans.of(cloud[:1], 4).bounds(1).tolist() == [0, 1]
    assert isinstance(spans_of(np.zeros((3000, 2)), 8), Spans)


def test_cuts_fall_where_the_vectors_change():
    pieces = [np.full((n, 3), value, dtype=float) for n, value in ((4, 0), (1, 5), (7, -3))]
    spans = Spans.of(np.concatenate(pieces))
    assert spans.bounds(3).tolist() == [0, 4, 5, 12]
    assert spans.losses[2] == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 7, 8, 11])
def test_second_order_windows_keep_as_many_vectors(cloud, tokens):
    """By hand: pairs of plain windows with a mean and the first singular direction; an odd last one with its mean."""
    X, ratio, total = cloud[:tokens], 2, 0.0
    plain = list(itertools.pairwise(window_bounds(tokens, ratio)))
    for k in range(0, len(plain), 2):
        part = X[plain[k][0] : plain[min(k + 1, len(plain) - 1)][1]]
        values = np.linalg.svd(part - part.mean(axis=0), compute_uv=False) ** 2
        total += values.sum() - (values[0] if k + 1 < len(plain) else 0)
    assert second_order_loss(X, ratio) == pytest.approx(total, abs=1e-9)


def test_the_interval_of_a_ratio_is_nearly_that_of_leaving_out_texts_and_merges():
    random = np.random.default_rng(1)
    bottom = random.uniform(1, 3, size=(200, 1))
    top = bottom * random.uniform(0.2, 0.6, size=(200, 1))
    sums = RatioParts(top, bottom)
    merged = RatioParts(top[:70], bottom[:70]).merge(RatioParts(top[70:], bottom[70:]))
    estimate, other = sums.estimate(0), merged.estimate(0)
    assert other.value == pytest.approx(estimate.value)
    assert other.interval.low == pytest.approx(estimate.interval.low)
    without = (top.sum() - top[:, 0]) / (bottom.sum() - bottom[:, 0])
    error = np.sqrt(199 / 200 * ((without - without.mean()) ** 2).sum())
    assert (estimate.interval.high - estimate.value) / error == pytest.approx(1.972, rel=0.02)


def test_documents_whose_texts_are_in_several_parts_are_one_unit():
    random = np.random.default_rng(2)
    bottom = random.uniform(1, 3, size=(60, 1))
    top = bottom * np.repeat(random.uniform(0.2, 0.6, size=(20, 1)), 3, axis=0)
    names = np.repeat([f"d{k}" for k in range(20)], 3).tolist()
    merged = RatioParts(top[:31], bottom[:31], names[:31]).merge(RatioParts(top[31:], bottom[31:], names[31:]))
    whole, told = RatioParts(top, bottom, names).estimate(0), merged.estimate(0)
    assert (told.interval, told.interval.unit) == (whole.interval, "documents")
    untold = RatioParts(top, bottom).estimate(0).interval
    assert told.interval.high - told.interval.low > 1.4 * (untold.high - untold.low)
