"""Poolings against their formulas; what the sketch of the covariance promises."""

from __future__ import annotations

import numpy as np
import pytest

from cloud_data import moments, random_clouds, root
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.numbers.bures import bures_wasserstein
from poolscope.numbers.pooling import (
    POOLINGS,
    LastTwoPooling,
    MeanPooling,
    SecondOrderPooling,
    SifPooling,
    SpreadPooling,
    make_pooling,
    pool,
)


@pytest.fixture(scope="module")
def clouds() -> TokenClouds:
    return random_clouds(0, [5, 1, 9, 30, 3], 12)


def with_ids(ids: list[list[int]]) -> TokenClouds:
    random = np.random.default_rng(0)
    rows = [np.array(row, dtype=np.int32) for row in ids]
    return TokenClouds.from_arrays([random.normal(size=(len(row), 4)) for row in rows], token_ids=rows)


def test_the_simple_poolings(clouds):
    expected = {
        "mean": [X.mean(axis=0) for X in clouds],
        "cls": [X[0] for X in clouds],
        "last": [X[-1] for X in clouds],
        "max": [X.max(axis=0) for X in clouds],
        "position": [np.average(X, axis=0, weights=np.arange(1, len(X) + 1)) for X in clouds],
    }
    for name, vectors in expected.items():
        np.testing.assert_allclose(pool(clouds, name), vectors, err_msg=name)


def test_sif_weighs_by_the_frequency_in_the_corpus():
    corpus = with_ids([[1, 1, 1], [1, 2], [3, 4, 5]])
    pooling = SifPooling(a=0.5).fit(corpus)
    np.testing.assert_allclose(pooling.weights(np.array([1, 2, 9], np.int32)), [0.5 / (0.5 + 4 / 8), 0.5 / 0.625, 1.0])
    new = with_ids([[1, 2, 9]])
    weights = np.array([0.5, 0.8, 1.0])
    np.testing.assert_allclose(pooling.transform(new)[0], weights @ new[0] / weights.sum())


def test_sif_needs_ids_and_a_positive_number(clouds):
    with pytest.raises(InputError, match=r"sif: text 0 .* ids"):
        pool(clouds, "sif")
    with pytest.raises(InputError, match="a: received 0"):
        SifPooling(a=0).fit(with_ids([[1, 2]]))
    with pytest.raises(InputError, match=r"SifPooling.* not fitted"):
        SifPooling().transform(with_ids([[1, 2]]))


def test_mean_and_spread_is_the_distance_of_diagonal_gaussians(clouds):
    vectors = pool(clouds, "mean + spread")
    assert vectors.shape == (5, 24)
    for i, j in [(0, 2), (0, 1), (3, 4)]:
        (mean_i, cov_i), (mean_j, cov_j) = moments(clouds[i]), moments(clouds[j])
        diagonal = ((np.sqrt(np.diag(cov_i)) - np.sqrt(np.diag(cov_j))) ** 2).sum()
        expected = ((mean_i - mean_j) ** 2).sum() + diagonal
        assert ((vectors[i] - vectors[j]) ** 2).sum() == pytest.approx(expected)
    np.testing.assert_allclose(SpreadPooling(weight=0.0).transform(clouds)[:, 12:], 0)


def test_the_full_sketch_holds_the_whole_covariance(clouds):
    """With as many directions as dimensions the vector is (u, svec of the root of Σ), and its length 1 + tr Σ."""
    vectors = SecondOrderPooling(rank=12).fit(clouds).transform(clouds)
    assert vectors.shape == (5, 12 + 78 + 1)
    for i, j in [(0, 2), (0, 1), (3, 4)]:
        (mean_i, cov_i), (mean_j, cov_j) = moments(clouds[i]), moments(clouds[j])
        roots = ((root(cov_i) - root(cov_j)) ** 2).sum()
        assert ((vectors[i] - vectors[j]) ** 2).sum() == pytest.approx(((mean_i - mean_j) ** 2).sum() + roots)
        assert (vectors[i] ** 2).sum() == pytest.approx(1 + np.trace(cov_i))
        scaled = [X / np.linalg.norm(X.mean(axis=0)) for X in (clouds[i], clouds[j])]
        bures = bures_wasserstein(*scaled)
        assert bures - 1e-9 <= roots <= 2 * bures + 1e-9


def test_a_short_sketch_keeps_the_length_and_the_leading_directions(clouds):
    pooling = SecondOrderPooling(rank=3, weight=0.5).fit(clouds)
    vectors = pooling.transform(clouds)
    assert vectors.shape == (5, 12 + 6 + 1)
    for k in range(5):
        assert (vectors[k] ** 2).sum() == pytest.approx(1 + 0.25 * np.trace(moments(clouds[k])[1]))
    mean_covariance = sum(moments(X)[1] for X in clouds)
    kept = np.linalg.eigvalsh(mean_covariance)[-3:].sum() / np.trace(mean_covariance)
    assert float(pooling.kept_) == pytest.approx(kept)


def test_the_sketch_does_not_depend_on_the_order_of_tokens_or_on_a_common_scale(clouds):
    pooling = SecondOrderPooling(rank=4).fit(clouds)
    X = clouds[3]
    turned = np.random.default_rng(0).permutation(X) * 3
    np.testing.assert_allclose(pooling.vector(turned, None), pooling.vector(X, None), atol=1e-7)


def test_second_order_refusals(clouds):
    with pytest.raises(InputError, match=r"rank: received 13; .* 1 to 12"):
        SecondOrderPooling(rank=13).fit(clouds)
    with pytest.raises(InputError, match="weight: received -1"):
        SpreadPooling(weight=-1).transform(clouds)
    with pytest.raises(InputError, match=r"SecondOrderPooling.* not fitted"):
        SecondOrderPooling().transform(clouds)


def test_last2avg_takes_two_layers(clouds):
    other = random_clouds(1, [5, 1, 9, 30, 3], 12)
    found = pool({-1: clouds, -2: other}, "last2avg")
    np.testing.assert_allclose(found, (pool(clouds) + pool(other)) / 2)
    np.testing.assert_allclose(MeanPooling().transform({-1: clouds, -2: other}), pool(clouds))
    with pytest.raises(InputError, match=r"shape \(5, 12\) and \(4, 12\)"):
        pool({-1: clouds, -2: other[:4]}, "last2avg")
    with pytest.raises(InputError, match=r"last2avg: .*one layer"):
        pool(clouds, "last2avg")
    with pytest.raises(InputError, match="two layers"):
        LastTwoPooling().vector(clouds[0], None)


def test_names():
    assert all(make_pooling(name).name == name for name in POOLINGS)
    with pytest.raises(InputError, match=r"pooling: received 'median'; .*: mean, cls"):
        make_pooling("median")
