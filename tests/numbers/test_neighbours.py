"""Nearest texts of many: exact search block by block against the whole table, and an index whose recall is measured."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.socm import selection
from poolscope.metrics.socm.measure import socm
from poolscope.numbers import ranking
from poolscope.numbers.ranking import find_neighbours, nearest_neighbours


@pytest.fixture
def vectors():
    random = np.random.default_rng(0)
    return random.standard_normal((30, 12))[random.integers(30, size=700)] + 0.7 * random.standard_normal((700, 12))


@pytest.mark.parametrize(("rows", "columns"), [(1024, 16384), (64, 50), (7, 3)])
def test_blocks_give_what_the_whole_table_gives(vectors, monkeypatch, rows, columns):
    monkeypatch.setattr(ranking, "_ROWS", rows)
    monkeypatch.setattr(ranking, "_COLUMNS", columns)
    for among in (None, vectors[:90] + 0.1):
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


def test_socm_of_neighbours_says_that_they_are_approximate(vectors, monkeypatch):
    pytest.importorskip("faiss")
    clouds = TokenClouds.from_arrays(vectors[:120].reshape(60, 2, 12) + 1)
    assert socm(clouds, neighbours=2).kind == "each text with its 2 nearest neighbours"
    monkeypatch.setattr(ranking, "APPROXIMATE_FROM", 10)
    result = socm(clouds, neighbours=2)
    assert "approximate: recall" in result.kind
    assert result.provenance["settings"]["pairs"] == result.kind
    assert selection.find_neighbours is find_neighbours


def test_what_cannot_be_asked(vectors):
    for k in (0, 700):
        with pytest.raises(InputError, match=f"neighbours: received {k}; allowed is 1 to 699"):
            find_neighbours(vectors, k)
