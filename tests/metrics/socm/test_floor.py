"""The permutation floor of d_Σ: exact distances of deals, p uniform and no excess where nothing differs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.metrics.socm.floor import deal_distances, dealt_pairs
from poolscope.metrics.socm.pair import socm_pair
from poolscope.texts import read_texts


@pytest.mark.parametrize(("first", "second", "dimension"), [(10, 7, 64), (1, 5, 8), (60, 60, 96), (70, 80, 32)])
def test_distances_of_deals_are_those_of_their_clouds(first, second, dimension):
    random = np.random.default_rng(0)
    tokens = random.normal(size=dimension) + random.normal(size=(first + second, dimension))
    orders = np.array([random.permutation(first + second) for _ in range(12)])
    pairs = [socm_pair(tokens[order[:first]], tokens[order[first:]]) for order in orders]
    mean_distance, covariance_distance = deal_distances(tokens, orders, first)
    np.testing.assert_allclose(mean_distance, [pair.mean_distance for pair in pairs], atol=1e-12)
    np.testing.assert_allclose(covariance_distance, [pair.covariance_distance for pair in pairs], atol=1e-6)


@pytest.mark.parametrize("tokens", [10, 60, 250])
@pytest.mark.parametrize("model", ["builtin:minilm", "builtin:wordllama"])
def test_halves_of_one_text_do_not_differ(model, tokens):
    """p is uniform, and the mean excess is 0 within four standard errors."""
    random = np.random.default_rng(tokens)
    clouds = as_encoder(model).encode(read_texts("builtin:manuals").texts[:300])[-1]
    long = np.flatnonzero(clouds.lengths >= tokens)
    halves = []
    for text in np.resize(long, 240):
        chosen = random.permutation(int(clouds.lengths[text]))[:tokens]
        halves += [np.asarray(clouds[int(text)])[part] for part in np.split(chosen, 2)]
    observed, dealt = dealt_pairs(TokenClouds.from_arrays(halves), np.arange(len(halves)).reshape(-1, 2))
    spaced = dealt.p - random.random(len(dealt.p)) / 40  # p has 40 values
    assert stats.kstest(spaced, "uniform").pvalue > 0.001
    excess = observed - dealt.floor
    assert abs(excess.mean()) < 4 * excess.std() / np.sqrt(len(excess))


def test_clouds_that_spread_otherwise_differ_whatever_the_order_of_the_texts():
    random = np.random.default_rng(0)
    arrays = [1 + scale * random.normal(size=(40, 16)) for scale in (0.2, 0.8, 0.2)]
    clouds = TokenClouds.from_arrays(arrays, texts=["a", "b", "c"])
    _, dealt = dealt_pairs(clouds, np.array([[0, 1], [0, 2]]))
    assert dealt.p[0] == 1 / 40
    _, moved = dealt_pairs(clouds[np.array([2, 1, 0])], np.array([[1, 2], [0, 2]]))
    np.testing.assert_allclose(moved.floor, dealt.floor, rtol=1e-9)
    np.testing.assert_array_equal(moved.p, dealt.p)
