"""Retrieval by cosine against a table of all scores, and against quality by hand."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.errors import InputError
from poolscope.numbers.ranking import Ranking, nearest_neighbours, rank_documents, rank_scores, wrong_above


@pytest.fixture
def task():
    """40 queries, 150 documents, judgements of several documents a query."""
    random = np.random.default_rng(3)
    queries, documents = random.normal(size=(40, 6)), random.normal(size=(150, 6)) * 5
    judged = np.unique(random.integers([40, 150], size=(90, 2)), axis=0)
    return queries, documents, random.permutation(judged)


def all_cosines(left, right):
    return (left / np.linalg.norm(left, axis=1, keepdims=True)) @ (right / np.linalg.norm(right, axis=1)[:, None]).T


def test_ranks_and_top_are_those_of_a_full_sort(task):
    queries, documents, judged = task
    found = rank_documents(queries, documents, judged, k=7)
    order = np.argsort(-all_cosines(queries, documents), axis=1)
    assert np.array_equal(found.top, order[:, :7])
    for query, document, rank in zip(found.query, found.document, found.rank, strict=True):
        assert order[query, int(rank) - 1] == document
    assert np.array_equal(np.stack([found.query, found.document], axis=1), judged)


def test_queries_in_several_blocks_are_answered_as_alone():
    """4,200 × 4,100 scores are more than are held at a time: the last queries stand in a second block."""
    random = np.random.default_rng(5)
    queries, documents = random.normal(size=(4200, 3)), random.normal(size=(4100, 3))
    last = np.stack([np.arange(4050, 4200), random.integers(4100, size=150)], axis=1)
    sets = random.random((4100, 2)) < 0.3
    whole, alone = (rank_documents(queries[k:], documents, last - [k, 0], k=4) for k in (0, 4050))
    assert np.array_equal(whole.top[4050:], alone.top)
    assert np.array_equal(whole.rank, alone.rank)
    for one, other in zip(*(wrong_above(queries[k:], documents, last - [k, 0], sets) for k in (0, 4050)), strict=True):
        assert np.array_equal(one, other)
    neighbours = (nearest_neighbours(queries[k:], 4, among=documents)[0] for k in (0, 4050))
    assert np.array_equal(next(neighbours)[4050:], next(neighbours))
    own = nearest_neighbours(queries, 1)[0][:, 0]
    assert (own != np.arange(4200)).all()


def test_scores_are_cosines_best_first(task):
    queries, documents, judged = task
    found = rank_documents(queries, documents, judged, k=5)
    expected = -np.sort(-all_cosines(queries, documents), axis=1)[:, :5]
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)


def test_quality_by_hand():
    """Query 0: relevant at 1 and 3; query 1: relevant at 12; query 2: nothing judged."""
    found = Ranking(
        top=np.zeros((3, 1), dtype=np.int64),
        scores=np.zeros((3, 1)),
        query=np.array([0, 0, 1]),
        document=np.array([5, 6, 7]),
        rank=np.array([1.0, 3.0, 12.0]),
    )
    ideal = 1 + 1 / np.log2(3)
    np.testing.assert_allclose(found.ndcg(10), [(1 + 1 / 2) / ideal, 0, np.nan])
    np.testing.assert_allclose(found.ndcg(1), [1, 0, np.nan])
    np.testing.assert_allclose(found.mrr(10), [1, 0, np.nan])
    np.testing.assert_allclose(found.mrr(20), [1, 1 / 12, np.nan])
    np.testing.assert_allclose(found.recall(2), [0.5, 0, np.nan])
    np.testing.assert_allclose(found.hit(2), [1, 0, np.nan])
    np.testing.assert_allclose(found.hit(12), [1, 1, np.nan])


def test_a_tie_counts_half():
    found = rank_documents([[1.0, 0.0]], [[2.0, 0.0], [3.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [(0, 1)])
    assert found.rank.tolist() == [2.0]
    assert found.top[0].tolist() == [0, 1, 2, 3]


def test_neighbours_leave_the_text_itself_out(task):
    _, documents, _ = task
    top, scores = nearest_neighbours(documents, 3)
    cosines = all_cosines(documents, documents)
    np.fill_diagonal(cosines, -np.inf)
    assert np.array_equal(top, np.argsort(-cosines, axis=1)[:, :3])
    np.testing.assert_allclose(scores, -np.sort(-cosines, axis=1)[:, :3], atol=1e-6)


@pytest.mark.parametrize(
    ("queries", "documents", "relevant", "message"),
    [
        ([[1.0, 0.0]], [[1.0, 0.0, 0.0]], [(0, 0)], "dimension 2 .* dimension 3"),
        ([[0.0, 0.0]], [[1.0, 0.0]], [(0, 0)], "queries: row 0 .* no direction"),
        ([[1.0, 0.0]], [[1.0, 0.0], [np.nan, 1.0]], [(0, 0)], "documents: row 1"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [(0, 1)], r"entry 0 is \(0, 1\)"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [(-1, 0)], r"entry 0 is \(-1, 0\)"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [(0, 0), (0, 0)], "stands twice"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [], "at least one"),
        ([1.0, 0.0], [[1.0, 0.0]], [(0, 0)], r"queries: received float64 of shape \(2,\)"),
    ],
)
def test_what_cannot_be_ranked_is_named(queries, documents, relevant, message):
    with pytest.raises(InputError, match=message):
        rank_documents(queries, documents, relevant)


def test_neighbours_among_other_vectors(task):
    queries, documents, _ = task
    top, _ = nearest_neighbours(queries, 4, among=documents)
    assert np.array_equal(top, np.argsort(-all_cosines(queries, documents), axis=1)[:, :4])


@pytest.mark.parametrize("k", [0, 3])
def test_neighbours_need_other_vectors(k):
    with pytest.raises(InputError, match=f"received {k}; allowed is 1 to 2"):
        nearest_neighbours(np.eye(3), k)


def test_grades_weigh_what_is_found():
    """By hand, linear gains: grades 3, 1 and 2 at ranks 2, 1 and beyond k."""
    ranking = rank_scores([[0.5, 0.9, 0.1, 0.4]], [(0, 0), (0, 1), (0, 2)], k=2)
    gained = 1 / np.log2(2) + 3 / np.log2(3)
    best = 3 / np.log2(2) + 2 / np.log2(3)
    assert ranking.ndcg(2, grades=[3, 1, 2])[0] == pytest.approx(gained / best)
    assert ranking.ndcg(2, grades=[2, 2, 2])[0] == pytest.approx(ranking.ndcg(2)[0])
    assert ranking.ndcg(2, grades=[1.5e308, 0.5e308, 1e308])[0] == pytest.approx(gained / best)


def test_of_a_document_that_was_named_the_best_chunk_counts_and_the_others_are_in_nobodys_way():
    """Chunks 0, 2 and 3 are of one document, chunk 4 answers on its own, chunk 1 is wrong."""
    ranking = rank_scores([[0.9, 0.8, 0.7, 0.6, 0.5, 0.1]], [(0, 0), (0, 2), (0, 3), (0, 4)])
    kept = ranking.best_of([7, 7, 7, 9])
    condensed = ranking.condensed(kept)
    assert kept.tolist() == [0, 3]
    assert condensed.document.tolist() == [0, 4]
    assert condensed.rank.tolist() == [1.0, 3.0]  # behind the first and the wrong one
    assert condensed.recall(3).tolist() == [1.0]
    assert ranking.recall(3).tolist() == [0.5]


def test_what_is_taken_out_of_one_query_stays_in_another():
    ranking = rank_scores([[0.9, 0.8, 0.7], [0.9, 0.8, 0.7]], [(0, 0), (0, 1), (1, 2)])
    assert ranking.condensed(ranking.best_of([0, 0, 1])).rank.tolist() == [1.0, 3.0]
