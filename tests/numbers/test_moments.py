from __future__ import annotations

import numpy as np
import pytest

from cloud_data import random_cloud, random_clouds
from poolscope.clouds import TokenClouds
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.numbers import moments

RANDOM = np.random.default_rng(0)
CLOUD = random_cloud(RANDOM, 7, 5)


def test_mean_and_spread_match_numpy_covariance():
    assert np.allclose(moments.mean(CLOUD), CLOUD.mean(axis=0), atol=1e-15)
    assert moments.spread(CLOUD) == pytest.approx(np.trace(np.cov(CLOUD.T, bias=True)), abs=1e-14)


def test_concentration_ratio_is_scale_free():
    expected = moments.spread(CLOUD) / (CLOUD.mean(axis=0) @ CLOUD.mean(axis=0))
    assert moments.concentration_ratio(CLOUD) == pytest.approx(expected, rel=1e-14)
    assert moments.concentration_ratio(17 * CLOUD) == pytest.approx(expected, rel=1e-14)


def test_factor_reproduces_covariance_of_the_scaled_cloud():
    unit, factor = moments.unit_mean_factor(CLOUD)
    scaled = CLOUD / np.linalg.norm(CLOUD.mean(axis=0))
    assert np.allclose(factor.T @ factor, np.cov(scaled.T, bias=True), atol=1e-14)
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-15)
    unit_stack, factor_stack, traces = moments.unit_mean_factors(np.stack([CLOUD, 2 * CLOUD]))
    assert np.allclose(factor_stack[1], factor, atol=1e-14)
    assert np.allclose(unit_stack[0], unit, atol=1e-15)
    assert traces == pytest.approx([(factor**2).sum()] * 2)


def test_within_text_cosine_is_the_mean_of_the_full_matrix():
    directions = CLOUD / np.linalg.norm(CLOUD, axis=1, keepdims=True)
    assert moments.within_text_cosine(CLOUD) == pytest.approx((directions @ directions.T).mean(), abs=1e-15)
    assert moments.within_text_cosine(CLOUD[:1]) == pytest.approx(1)


def test_weights_act_as_repeated_tokens():
    weights = np.array([1, 2, 0, 3, 1, 1, 1])
    repeated = np.repeat(CLOUD, weights, axis=0)
    for function in (moments.mean, moments.spread, moments.concentration_ratio):
        assert np.allclose(function(CLOUD, weights), function(repeated), atol=1e-13)
    unit, factor = moments.unit_mean_factor(CLOUD, weights)
    unit_repeated, factor_repeated = moments.unit_mean_factor(repeated)
    assert np.allclose(unit, unit_repeated, atol=1e-14)
    assert np.allclose(factor.T @ factor, factor_repeated.T @ factor_repeated, atol=1e-14)


def test_half_precision_is_computed_in_double():
    half = (100 + RANDOM.normal(size=(500, 4))).astype(np.float16)
    assert moments.spread(half) == pytest.approx(moments.spread(half.astype(np.float64)), rel=1e-15)


def test_text_moments_match_the_single_functions():
    clouds = random_clouds(3, [1, 4, 9], 6, dtype="float32")
    found = moments.text_moments(clouds)
    for k, cloud in enumerate(clouds):
        unit, factor = moments.unit_mean_factor(cloud)
        assert np.allclose(found.unit_means[k], unit, atol=1e-15)
        assert found.traces[k] == pytest.approx((factor**2).sum(), abs=1e-14)
        assert found.norms[k] == pytest.approx(np.linalg.norm(moments.mean(cloud)))


@pytest.mark.parametrize(
    ("cloud", "message"),
    [
        (np.empty((0, 3)), "no tokens"),
        ([[np.nan, 1.0]], "NaN or infinite"),
        ([[np.inf, 1.0]], "NaN or infinite"),
        ([[1.0, 0.0], [-1.0, 0.0]], "zero vector"),
    ],
)
def test_degenerate_clouds_are_named(cloud, message):
    with pytest.raises(DegenerateCloudError, match=message):
        moments.unit_mean_factor(cloud)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("n", [2, 40, 900])
def test_a_mean_that_is_only_rounding_is_no_mean(dtype, n):
    random = np.random.default_rng(n)
    cloud = (random.normal(size=(n, 12)) + 3).astype(dtype)
    centred = cloud - cloud.mean(axis=0)
    assert centred.dtype == dtype
    for function in (moments.unit_mean_factor, moments.concentration_ratio):
        assert function(cloud) is not None
        with pytest.raises(DegenerateCloudError, match="zero vector"):
            function(centred)
    with pytest.raises(DegenerateCloudError, match=r"text 1 .*zero vector"):
        moments.text_moments(TokenClouds.from_arrays([cloud, centred]))
    assert moments.unit_mean_factors(centred[None].astype(np.float64), dtype)[2][0] == np.inf


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_small_true_means_are_kept(dtype):
    # One token a thousand times as long as the others: the mean is a 4096th of it, and real.
    cloud = np.random.default_rng(1).normal(size=(4096, 8))
    cloud[0] *= 1000
    assert 1000 < moments.concentration_ratio(cloud.astype(dtype)) < 4096


@pytest.mark.parametrize("factor", [1e-300, 1e-160, 1e160, 1e300])
def test_scale_free_moments_take_any_size(factor):
    cloud = factor * CLOUD
    (unit, rows), (unit_of, rows_of) = moments.unit_mean_factor(cloud), moments.unit_mean_factor(CLOUD)
    assert np.allclose(unit, unit_of, atol=1e-15)
    assert np.allclose(rows, rows_of, atol=1e-14)
    assert moments.concentration_ratio(cloud) == pytest.approx(moments.concentration_ratio(CLOUD), rel=1e-13)
    assert moments.within_text_cosine(cloud) == pytest.approx(moments.within_text_cosine(CLOUD), rel=1e-13)
    found = moments.text_moments(TokenClouds.from_arrays([cloud]))
    assert found.norms[0] == pytest.approx(factor * np.linalg.norm(CLOUD.mean(axis=0)), rel=1e-13)
    stacked = moments.unit_mean_factors(np.stack([CLOUD, cloud]))
    assert np.allclose(stacked[1][1], stacked[1][0], atol=1e-14)
    if factor > 1:
        with pytest.raises(InputError, match=r"1e\+150"):
            moments.spread(cloud)


def test_zero_token_has_no_cosine():
    with pytest.raises(DegenerateCloudError, match="token 1 is"):
        moments.within_text_cosine([[1.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0]])
def test_bad_weights(weights):
    with pytest.raises(InputError, match="weights"):
        moments.mean([[1.0, 0.0], [0.0, 1.0]], weights)


def test_text_moments_name_the_text():
    clouds = random_clouds(0, [2, 2], 3)
    broken = TokenClouds.from_arrays([clouds[0], np.full((2, 3), np.nan)], ids=["good", "bad"])
    with pytest.raises(DegenerateCloudError, match=r"text 1 \(id 'bad'\)"):
        moments.text_moments(broken)
