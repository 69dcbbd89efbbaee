"""Hubs: k-occurrences against brute force, skewness against scipy, the floor, duplicates and twins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.errors import InputError
from poolscope.metrics.neighbourhood import hubs, skewness
from poolscope.numbers.intervals import leave_one_out_interval
from poolscope.numbers.ranking import GaussianLike, find_neighbours, unit_rows


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(200, 10))


def test_occurrences_are_those_of_a_loop(vectors):
    found = hubs(vectors, k=5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    table = unit @ unit.T
    np.fill_diagonal(table, -2)
    counts = np.zeros(200, int)
    for row in table:
        counts[np.argsort(-row)[:5]] += 1
    assert found.occurrences.tolist() == counts.tolist()
    assert found.occurrences.mean() == 5
    assert found.antihubs.value == (counts == 0).mean()
    assert found.largest.value == counts.max() / 199
    assert found.nearest.tolist() == table.argmax(axis=1).tolist()
    assert counts[found.first(1)[0]] == counts.max()
    assert set(found.never()) == set(np.flatnonzero(counts == 0).tolist())


def test_skewness_is_that_of_scipy_and_0_for_equal_counts(vectors):
    counts = hubs(vectors, k=5).occurrences
    assert skewness(counts) == pytest.approx(stats.skew(counts))
    assert skewness([3, 3, 3]) == 0


def test_the_interval_of_the_skewness_counts_anew_without_each_text(vectors):
    """Counts that are only drawn anew keep their neighbours, and held the true skewness in 84 % of narrow cones."""
    few = vectors[:40] + 0.5
    found = hubs(few, k=5)
    left = [find_neighbours(np.delete(few, number, axis=0), 5).top for number in range(40)]
    without = np.array([skewness(np.bincount(top.ravel(), minlength=39)) for top in left])
    np.testing.assert_allclose(found.skewness_without, without, atol=1e-9)
    assert found.skewness.interval == leave_one_out_interval(found.skewness.value, found.skewness_without)


def test_the_interval_of_queries_counts_anew_without_each_text_too(vectors):
    """Their counts drawn anew held the skewness that others give in 72 to 94 %."""
    few, queries = vectors[:40] + 0.5, vectors[40:] + 0.5
    found = hubs(few, k=5, queries=queries)
    left = [find_neighbours(queries, 5, among=np.delete(few, number, axis=0)).top for number in range(40)]
    without = np.array([skewness(np.bincount(top.ravel(), minlength=39)) for top in left])
    np.testing.assert_allclose(found.skewness_without, without, atol=1e-9)
    assert found.skewness.interval == leave_one_out_interval(found.skewness.value, found.skewness_without)
    assert hubs(few, k=5, queries=queries[:29]).skewness.interval is None


def test_intervals_of_queries_hold_what_other_texts_and_queries_give():
    """In a narrow cone, where a bootstrap of the counts held it in 76 %."""
    random = np.random.default_rng(12)
    spectrum, shared = np.geomspace(1, 0.1, 60), np.eye(60)[0]
    found = []
    for seed in range(120):
        texts, queries = (random.normal(size=(count, 60)) * spectrum + shared for count in (501, 40))
        found.append(hubs(texts, queries=queries, seed=seed).skewness)
    truth = np.mean([each.value for each in found])
    assert np.mean([each.interval.low <= truth <= each.interval.high for each in found]) >= 0.92


def test_the_floor_has_the_mean_and_the_covariance_of_the_vectors():
    random = np.random.default_rng(8)
    # Of many dimensions: in few, bringing the draws to length 1 changes their covariance.
    unit = unit_rows(random.normal(size=(1500, 60)) * np.geomspace(3, 0.5, 60) + np.eye(60)[0] * 4, "vectors")
    drawn = GaussianLike(unit).draw(random)
    np.testing.assert_allclose(drawn.mean(axis=0), unit.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(unit.T), atol=0.008)
    assert np.cov(unit.T).max() > 0.03


def test_gaussian_vectors_are_no_more_hubby_than_their_floor():
    """What the floor is for: the interval of Gaussian vectors reaches it."""
    random = np.random.default_rng(5)
    spectrum = np.geomspace(1, 0.05, 20)
    beyond = []
    for seed in range(12):
        found = hubs(random.normal(size=(150, 20)) * spectrum + 0.2, k=5, seed=seed)
        beyond.append(found.skewness.interval.low > found.skewness.floor)
    assert np.mean(beyond) <= 0.25


def test_the_floor_of_few_texts_is_that_of_the_many_they_stand_for():
    """Their own covariance would give too small a first hub where they vary most along their mean (by a quarter)."""
    random = np.random.default_rng(11)
    spectrum = np.concatenate([[0.068], np.geomspace(0.02, 0.001, 127)])
    vectors = [0.49 * np.eye(128)[0] + random.normal(size=(120, 128)) * np.sqrt(spectrum) for _ in range(10)]
    found = [hubs(each, seed=seed) for seed, each in enumerate(vectors)]
    own, floor = (np.mean([getattr(each.largest, name) for each in found]) for name in ("value", "floor"))
    assert 0.9 < floor / own < 1.1


def test_texts_that_hold_only_what_all_share_are_hubs_beyond_the_floor():
    random = np.random.default_rng(6)
    shared = 3 * np.eye(60)[0]
    vectors = random.normal(size=(300, 60)) + shared
    vectors[:4] = shared + 0.05 * random.normal(size=(4, 60))  # what all others share, and nothing else
    found = hubs(vectors, k=5)
    assert set(found.first(4)) == {0, 1, 2, 3}
    assert found.skewness.interval.low > found.skewness.floor
    assert found.largest.value > 3 * found.largest.floor


def test_near_duplicates_and_twins_are_grouped():
    random = np.random.default_rng(7)
    vectors = random.normal(size=(40, 16))
    vectors[[5, 9]] = vectors[3] * [[2.0], [0.5]]  # the same direction
    vectors[20] = vectors[21] + 0.01 * random.normal(size=16)
    texts = [f"text {k}" for k in range(40)]
    texts[30], texts[31] = "Same  Words", "same words"
    found = hubs(vectors, texts=texts)
    assert found.duplicates == ((3, 5, 9), (20, 21))
    assert found.duplicate_share == 5 / 40
    assert found.twins == ((30, 31),)
    assert hubs(vectors, texts=texts, duplicate_cosine=0.99999).duplicates == ((3, 5, 9),)
    assert hubs(vectors).twins == ()


def test_of_many_texts_some_are_drawn_and_positions_count_in_the_corpus(vectors):
    found = hubs(vectors, k=3, most=60, seed=1)
    assert found.texts == 60
    assert set(found.first(5)) <= set(found.positions.tolist())
    part = hubs(vectors[found.positions], k=3)
    assert part.occurrences.tolist() == found.occurrences.tolist()
    assert found.nearest.tolist() == found.positions[part.nearest].tolist()


def test_few_texts_lower_k_and_one_is_an_error():
    assert hubs(np.eye(3) + 0.1).k == 1
    assert hubs([[1.0, 0.0], [0.0, 1.0]]).skewness.interval is None
    with pytest.raises(InputError, match="received 1 vectors"):
        hubs([[1.0, 0.0]])
    with pytest.raises(InputError, match="k: received 0"):
        hubs(np.eye(3) + 0.1, k=0)


def test_many_texts_are_searched_by_an_index_whose_recall_is_told(monkeypatch):
    pytest.importorskip("faiss")
    vectors = np.random.default_rng(3).normal(size=(400, 12))
    exact = hubs(vectors, k=5)
    monkeypatch.setattr("poolscope.numbers.ranking.APPROXIMATE_FROM", 300)
    indexed = hubs(vectors, k=5)
    assert exact.recall is None
    assert indexed.recall.value >= 0.99
    assert np.abs(indexed.occurrences - exact.occurrences).sum() <= 0.02 * exact.occurrences.sum()
    assert np.array_equal(hubs(vectors, k=5, queries=vectors[:9]).positions, exact.positions)
