"""Exact optimal transport against closed forms and an independent solver, and the shares of two moments."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from cloud_data import random_cloud, random_clouds
from poolscope import TokenClouds, socm_pair
from poolscope.errors import InputError

pytest.importorskip("ot")
from poolscope.lab.transport import TransportResult, exact_wasserstein, surrogate_factor, transport
from poolscope.numbers.moments import unit_mean_factor

LENGTHS = [6, 9, 4, 12, 7, 5]


def unit_mean(cloud):
    return np.asarray(cloud) / np.linalg.norm(np.mean(cloud, axis=0))


def test_equal_numbers_of_tokens_are_an_assignment():
    random = np.random.default_rng(0)
    for n in (1, 2, 7, 20):
        X, Y = random_cloud(random, n, 6), random_cloud(random, n, 6)
        cost = cdist(unit_mean(X), unit_mean(Y), "sqeuclidean")
        assert exact_wasserstein(X, Y) == pytest.approx(cost[linear_sum_assignment(cost)].sum() / n, rel=1e-12)


def test_unequal_numbers_split_tokens():
    """3 against 2 tokens is the assignment of 6 against 6, each token repeated."""
    random = np.random.default_rng(1)
    X, Y = random_cloud(random, 3, 4), random_cloud(random, 2, 4)
    repeated = exact_wasserstein(np.repeat(X, 2, axis=0), np.repeat(Y, 3, axis=0))
    assert exact_wasserstein(X, Y) == pytest.approx(repeated, rel=1e-12)
    assert exact_wasserstein(X, np.repeat(X, 4, axis=0)) == pytest.approx(0, abs=1e-15)


def test_the_gaussian_value_is_a_lower_bound_and_is_reached_by_positive_maps():
    random = np.random.default_rng(2)
    for _ in range(10):
        X, Y = random_cloud(random, 9, 4), random_cloud(random, 6, 4)
        assert exact_wasserstein(X, Y) >= socm_pair(X, Y).squared_wasserstein - 1e-12
    A = random.normal(size=(4, 4))
    image = (X - X.mean(axis=0)) @ (A @ A.T) + random.normal(size=4)
    assert exact_wasserstein(X, image) == pytest.approx(socm_pair(X, image).squared_wasserstein, rel=1e-10)


def test_surrogates_keep_two_moments_and_nothing_else():
    random = np.random.default_rng(3)
    for n, d in ((8, 5), (4, 9), (1, 3), (6, 5)):
        _, F = unit_mean_factor(random_cloud(random, n, d))
        fresh = surrogate_factor(F, random)
        assert fresh.shape == F.shape
        np.testing.assert_allclose(fresh.T @ fresh, F.T @ F, atol=1e-12)
        np.testing.assert_allclose(fresh.sum(axis=0), 0, atol=1e-12)
        if n > 2:
            assert np.abs(fresh - F).max() > 1e-3


@pytest.fixture(scope="module")
def result():
    return transport(
        {0: random_clouds(4, [6, 9, 4, 12, 7, 5], 5), 3: random_clouds(5, [6, 9, 4, 12, 7, 5], 5)}, pairs=40
    )


def test_shares_are_ratios_of_sums_over_the_same_pairs(result):
    clouds = random_clouds(5, LENGTHS, 5)
    entry = result[3]
    for row in range(40):
        i, j = int(entry.i[row]), int(entry.j[row])
        expected = socm_pair(clouds[i], clouds[j])
        assert entry.exact[row] == pytest.approx(exact_wasserstein(clouds[i], clouds[j]), rel=1e-6)
        assert entry.gaussian[row] == pytest.approx(expected.squared_wasserstein, rel=1e-5)
        assert entry.mean_distance[row] == pytest.approx(4 * expected.mean_distance, rel=1e-6)
    assert entry.two_moments.value == pytest.approx(entry.gaussian.sum() / entry.exact.sum())
    assert entry.means.value < entry.two_moments.value < 1
    assert entry.two_moments.interval is None
    assert "6 texts, 30 " in entry.two_moments.no_interval
    assert (entry.surrogate >= entry.gaussian - 1e-6).all()
    assert entry.beyond.value == pytest.approx(1 - entry.surrogate.sum() / entry.exact.sum())
    np.testing.assert_array_equal(result[0].i, entry.i)


def test_lists_that_two_moments_describe_fully_have_a_share_of_one():
    """Every cloud is a stretched copy of one cloud: optimal transport is linear, as between Gaussians."""
    base = np.random.default_rng(6).normal(size=(10, 3))
    base -= base.mean(axis=0)
    clouds = TokenClouds.from_arrays(
        [base * stretch + 1.0 for stretch in np.random.default_rng(7).uniform(0.2, 2, (5, 3))]
    )
    entry = transport(clouds, pairs=20)[-1]
    assert entry.two_moments.value == pytest.approx(1, abs=1e-6)
    # The surrogates are not copies of one cloud: in them two moments see less.
    assert entry.two_moments_surrogate.value < 0.95
    assert entry.beyond.value < 0


def test_a_third_moment_shows():
    """Two lists with equal means and covariances: two moments see nothing of the distance."""
    left = np.array([[1.0, 1], [1, -1]])
    right = np.array([[1.0, np.sqrt(2)], [1, 0], [1, 0], [1, -np.sqrt(2)]])
    clouds = TokenClouds.from_arrays([left, right])
    entry = transport(clouds, pairs=3)[-1]
    assert entry.two_moments.value == pytest.approx(0, abs=1e-6)
    assert entry.exact[0] == pytest.approx(((np.sqrt(2) - 1) ** 2 + 1) / 2)
    assert entry.two_moments.interval is None  # two texts only


def test_structure_beyond_two_moments_is_told_from_few_tokens():
    """Lists of two tight groups against lists of three, equal in mean and covariance: more apart than random lists."""
    random = np.random.default_rng(8)
    two = np.repeat([-1.0, 1.0], 18)
    three = np.repeat([-np.sqrt(1.5), 0.0, np.sqrt(1.5)], 12)
    clouds = TokenClouds.from_arrays(
        [np.column_stack([np.full(36, 3.0), shape + 0.01 * random.normal(size=36)]) for shape in [two, three] * 4]
    )
    entry = transport(clouds, pairs=60)[-1]
    assert entry.beyond.value > 0


def test_the_result_is_json_a_table_and_a_figure(result, tmp_path):
    stored = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [entry["layer"] for entry in stored["layers"]] == [0, 3]
    assert len(stored["layers"][0]["exact"]) == 40
    assert result.headline() == {"texts": 6, "pairs": 40, "layer": 3, "two_moments": result[3].two_moments}
    assert result.to_table().column("two_moments").to_pylist() == [entry.two_moments.value for entry in result.layers]
    result.save(tmp_path / "r.json")
    loaded = TransportResult.load(tmp_path / "r.json")
    np.testing.assert_array_equal(loaded[3].exact, result[3].exact)
    assert loaded[0].beyond == result[0].beyond
    figure = result.figure()
    assert [trace.name for trace in figure.data] == ["two moments", "two moments, random lists", "means alone"]
    assert list(figure.data[0].y) == [entry.two_moments.value for entry in result.layers]


def test_the_figure_names_the_model_of_the_clouds():
    clouds = random_clouds(0, [2, 3, 4], 4)
    named = TokenClouds.from_arrays(list(clouds), provenance={"model": {"name": "org/mine"}})
    for part, name in ((clouds, ""), (named, "org/mine")):
        result = transport(part, pairs=3)
        assert result.model == name
        assert ("mine" in result.figure().layout.title.text) == bool(name)


@pytest.mark.parametrize("pairs", ["x", 2.5, 1, None])
def test_pairs_are_a_number(pairs):
    with pytest.raises(InputError, match=f"pairs: received {re.escape(repr(pairs))}"):
        transport(random_clouds(0, [2, 3, 4], 4), pairs=pairs)


def test_what_does_not_fit_is_refused(result):
    with pytest.raises(InputError, match=r"\[2, 3\] texts"):
        transport({0: random_clouds(0, [2, 3], 4), 1: random_clouds(0, [2, 3, 4], 4)})
    with pytest.raises(InputError, match="layer: received 1"):
        result[1]
    with pytest.raises(InputError, match="equal clouds"):
        transport(TokenClouds.from_arrays([[[1.0, 0]], [[1.0, 0]]]), pairs=3)
