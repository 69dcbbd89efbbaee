"""What one text gives against itself: the expectation, whoever stands beside it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.floor import sampling_floors
from poolscope.metrics.socm.pair import socm_pair


def texts_of(lengths, *, dimension=16, named=True, seed=0):
    random = np.random.default_rng(seed)
    arrays = [3 * random.normal(size=dimension) + random.normal(size=(n, dimension)) for n in lengths]
    return TokenClouds.from_arrays(arrays, texts=[f"text {k}" for k in range(len(lengths))] if named else None)


@pytest.mark.parametrize("named", [True, False], ids=["by words", "by vectors"])
def test_a_floor_hangs_on_the_text_and_the_seed_not_on_the_place(named):
    clouds = texts_of([5, 12, 30, 30, 80], named=named)
    order = np.array([3, 0, 4, 2, 1])
    usual, moved = (sampling_floors(each, np.arange(5)) for each in (clouds, clouds[order]))
    np.testing.assert_array_equal(moved.covariance_distance, usual.covariance_distance[order])
    np.testing.assert_array_equal(sampling_floors(clouds, np.array([4])).socm, usual.socm[4:])
    assert (sampling_floors(clouds, np.arange(5), seed=1).covariance_distance != usual.covariance_distance).all()


def test_the_floor_of_three_tokens_is_the_mean_over_all_draws():
    clouds = texts_of([3])
    draws = [clouds[0][list(tokens)] for tokens in product(range(3), repeat=3)]
    every = [socm_pair(left, right) for left in draws for right in draws]
    seeds = [sampling_floors(clouds, np.array([0]), seed=seed) for seed in range(400)]
    for floors, expected in (
        ([each.covariance_distance for each in seeds], [each.covariance_distance for each in every]),
        ([each.socm for each in seeds], [each.socm for each in every]),
    ):
        # A ratio of two means of eight draws is a little off: by 3 % here, and by less from ten tokens on.
        assert np.mean(floors) == pytest.approx(np.mean(expected), rel=0.05)


@pytest.mark.parametrize("tokens", [10, 40, 100])
def test_the_floor_is_the_mean_of_plain_draws_and_far_steadier(tokens):
    clouds = texts_of([tokens])
    random = np.random.default_rng(0)
    plain = [
        socm_pair(*(clouds[0][random.integers(tokens, size=tokens)] for _ in range(2))).covariance_distance
        for _ in range(2000)
    ]
    floors = np.concatenate([sampling_floors(clouds, np.array([0]), seed=s).covariance_distance for s in range(100)])
    assert floors.mean() == pytest.approx(np.mean(plain), rel=0.03)
    assert floors.std() < np.std(plain) / 2


def test_a_draw_whose_tokens_cancel_is_left_out():
    clouds = TokenClouds.from_arrays([np.outer([1.0, -1.0, 3.0, 5.0], [1.0, 2.0, 3.0])])
    floors = [sampling_floors(clouds, np.array([0]), seed=seed) for seed in range(50)]
    assert np.isfinite(floors).all()
    assert min(each.covariance_distance[0] for each in floors) > 0


def test_what_has_no_spread_has_no_floor():
    clouds = TokenClouds.from_arrays([np.ones((1, 4)), np.ones((6, 4))])
    assert sampling_floors(clouds, np.arange(2)).covariance_distance == pytest.approx([0, 0], abs=1e-12)
    assert len(sampling_floors(clouds, np.zeros(0, np.int64)).socm) == 0
