"""Distances that float32 products cannot tell: they are computed in float64."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from cloud_data import by_pair, dense_singular, random_clouds
from poolscope.clouds import TokenClouds
from poolscope.numbers.bures import all_pairs, distances, factors, given_pairs, nuclear_norm


def sinks(seed: int, lengths: list[int], d: int, *, size: float) -> TokenClouds:
    """Clouds whose first token is the same in all texts and `size` times as long as the others."""
    random = np.random.default_rng(seed)
    sink = random.normal(size=d)
    sink *= size / np.linalg.norm(sink)
    return TokenClouds.from_arrays(
        [np.concatenate([sink[None], random.normal(size=(n - 1, d)) / np.sqrt(d)]) for n in lengths]
    )


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_small_distances_beside_a_large_shared_direction(route, size):
    clouds = sinks(1, [31, 31, 31, 30, 12, 12, 4, 90, 90], 96, size=size)
    for (i, j), (_, bures, _) in by_pair(all_pairs(clouds)).items():
        expected = dense_singular(clouds[i], clouds[j])
        assert bures / 4 == pytest.approx(expected, abs=1e-6, rel=1e-3)
    wanted = np.array([(0, 1), (4, 5), (8, 7)])
    for rows, piece in given_pairs(clouds, wanted):
        for (i, j), bures in zip(wanted[rows], piece.bures, strict=True):
            # A large sink is taken out of the products, which leaves the rounding of the rest; beside a small one,
            # float32 is good enough.
            tight = 2e-8 if size > 10 else 1e-5
            assert bures / 4 == pytest.approx(dense_singular(clouds[i], clouds[j]), rel=tight)


def test_a_shared_direction_is_seen_only_where_it_is():
    ordinary, large = random_clouds(3, [9, 30, 12], 24), sinks(4, [9, 30, 12], 24, size=1000)
    assert factors.shared_direction(ordinary) is None
    sink = large[0][0] / np.linalg.norm(large[0][0])
    assert abs(factors.shared_direction(large) @ sink) == pytest.approx(1, abs=1e-5)
    assert factors.shared_direction(TokenClouds.from_arrays([np.ones((1, 4)), np.ones((3, 4))])) is None


def test_large_shared_directions_need_no_second_computation(route, monkeypatch):
    def refuse(F, G):
        raise AssertionError("a pair was computed again")

    monkeypatch.setattr(distances, "nuclear_norm", refuse)
    clouds = sinks(6, [31, 31, 12, 90, 5], 96, size=300)
    assert len(by_pair(all_pairs(clouds))) == 10


def test_a_text_without_the_shared_direction_is_still_exact(route):
    whole = sinks(5, [31, 30, 12, 12, 20, 25], 96, size=1000)
    stray = np.random.default_rng(0).normal(size=(15, 96)) + 1
    clouds = TokenClouds.from_arrays([*whole, stray, stray[:1], np.tile(whole[0][:1], (4, 1)) + 1e-3 * np.eye(4, 96)])
    assert factors.shared_direction(clouds) is not None
    for (i, j), (_, bures, _) in by_pair(all_pairs(clouds)).items():
        assert bures / 4 == pytest.approx(dense_singular(clouds[i], clouds[j]), abs=1e-6, rel=1e-3)


def test_a_shared_sink_against_mpmath_in_forty_digits(route):
    clouds = sinks(2, [5, 5], 7, size=1000)
    (bures,) = (value[1] for value in by_pair(all_pairs(clouds)).values())
    with mpmath.workdps(40):
        thin = []
        for cloud in clouds:
            matrix = mpmath.matrix(cloud.tolist())
            centre = mpmath.ones(1, 5) * matrix / 5
            thin.append((matrix - mpmath.ones(5, 1) * centre) / mpmath.norm(centre) / mpmath.sqrt(5))
        traces = sum(mpmath.norm(factor) ** 2 for factor in thin)
        exact = traces - 2 * sum(mpmath.svd_r(thin[0] * thin[1].T, compute_uv=False))
    assert float(exact) < 1e-4
    assert bures == pytest.approx(float(exact), rel=1e-8)


@pytest.mark.parametrize(
    "clouds",
    [
        random_clouds(20, [2, 2, 3, 3, 9, 30, 31, 120], 300),
        random_clouds(21, [90, 100, 110, 120], 24),
        sinks(22, [2, 2, 8, 8, 31, 31, 64], 300, size=1000),
        sinks(23, [60, 60, 250, 250], 260, size=30),
    ],
    ids=["random", "n>d", "sinks", "long"],
)
def test_float32_products_stay_within_their_error_bound(route, clouds, monkeypatch):
    monkeypatch.setattr(distances, "_ABSOLUTE", np.inf)
    for piece in all_pairs(clouds):
        for i, j, bures, error in zip(piece.i, piece.j, piece.bures, piece.error, strict=True):
            assert abs(bures - 4 * dense_singular(clouds[int(i)], clouds[int(j)])) <= error


def test_ordinary_pairs_are_not_computed_twice_and_equal_texts_are_zero(route, monkeypatch):
    again = []
    monkeypatch.setattr(distances, "nuclear_norm", lambda F, G: again.append(F) or nuclear_norm(F, G))
    clouds = random_clouds(24, [1, 2, 3, 8, 13, 30, 7, 7, 40, 2], 96)
    doubled = TokenClouds.from_arrays([*clouds, *clouds])
    found = by_pair(all_pairs(doubled))
    assert not again
    assert all(found[k, k + len(clouds)][1] == 0 for k in range(len(clouds)))
