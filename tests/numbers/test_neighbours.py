"""Nearest texts of many: exact search block by block against the whole table, and an index whose recall is measured."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.selection import nearest
from poolscope.numbers.moments import text_moments
from poolscope.numbers.ranking import find_neighbours, nearest_neighbours


@pytest.fixture
def vectors():
    random = np.random.default_rng(0)
    return random.standard_normal((30, 12))[random.integers(30, size=1100)] + 0.7 * random.standard_normal((1100, 12))


def test_blocks_give_what_the_whole_table_gives(vectors):
    """Of 16,390 vectors the last 6 are a block of their own, fewer than the neighbours that are asked for."""
    for among in (None, vectors[:90] + 0.1, np.random.default_rng(1).standard_normal((16_390, 12))):
        expected, scores = nearest_neighbours(vectors, 9, among=among)
        searched = find_neighbours(vectors, 9, among=among, approximate=False)
        np.testing.assert_array_equal(searched.top, expected)
        np.testing.assert_allclose(searched.cosines, scores, atol=1e-6)
        assert searched.recall is None
        assert searched.words == ""


def test_equal_vectors_come_by_position():
    searched = find_neighbours(np.ones((9, 3)), 3)
    assert searched.top[0].tolist() == [1, 2, 3]
    assert searched.top[8].tolist() == [0, 1, 2]


def test_an_index_says_its_recall_and_its_cosines_are_exact(vectors):
    pytest.importorskip("faiss")
    exact = find_neighbours(vectors, 5, approximate=False)
    searched = find_neighbours(vectors, 5, approximate=True)
    shared = np.mean([len(np.intersect1d(a, b)) / 5 for a, b in zip(searched.top, exact.top, strict=True)])
    assert searched.recall.value == pytest.approx(shared, abs=0.02)
    assert searched.recall.value >= 0.99
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = np.einsum("id,ikd->ik", unit, unit[searched.top])
    np.testing.assert_allclose(searched.cosines, cosines, atol=1e-6)
    assert (searched.top != np.arange(len(vectors))[:, None]).all()
    assert "approximate: recall" in searched.words
    other = find_neighbours(vectors[:20], 3, among=vectors, approximate=True)
    np.testing.assert_array_equal(other.top[:, 0], np.arange(20))


def test_socm_of_neighbours_says_that_they_are_approximate(vectors):
    pytest.importorskip("faiss")
    clouds = TokenClouds.from_arrays(vectors[:120].reshape(60, 2, 12) + 1)
    assert socm(clouds, neighbours=2).kind.endswith("2 nearest neighbours")
    moments = text_moments(clouds)
    assert "approximate: recall" in nearest(clouds, clouds, 2, moments, moments, approximate=True).kind


def test_what_cannot_be_asked(vectors):
    for k in (0, 1100):
        with pytest.raises(InputError, match=rf"neighbours: received {k}; .* 1 to 1099"):
            find_neighbours(vectors, k)
