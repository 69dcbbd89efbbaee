"""Re-ranking against the definition of the distance of Gaussians."""

from __future__ import annotations

import numpy as np
import pytest

from cloud_data import dense_distances, random_clouds
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool
from poolscope.numbers.ranking import rank_documents
from poolscope.repairs.search import gaussian_distances, rerank


def test_reranking_is_by_the_distance_of_the_gaussians():
    queries, documents = random_clouds(2, [4, 7, 5], 8), random_clouds(3, [6, 3, 9, 12, 5, 8], 8)
    relevant = [(query, document) for query in range(3) for document in range(6)]
    ranking = rank_documents(pool(queries), pool(documents), relevant, k=4)
    (found,) = rerank([ranking], queries, documents)
    for query in range(3):
        near = {int(d): 4 * sum(dense_distances(queries[query], documents[int(d)])) for d in ranking.top[query]}
        order = sorted(near, key=near.__getitem__)
        assert found.top[query].tolist() == order
        np.testing.assert_allclose(found.scores[query], [-near[d] for d in order], atol=1e-6)
    for (query, document), rank, old in zip(relevant, found.rank, ranking.rank, strict=True):
        place = np.flatnonzero(found.top[query] == document)
        assert rank == (place[0] + 1 if len(place) else old)
    assert found.rank.tolist() != ranking.rank.tolist()


def test_reranking_both_ways_is_that_of_each_and_measures_a_pair_once(monkeypatch):
    first, second = random_clouds(2, [4, 7, 5, 6], 8), random_clouds(3, [6, 3, 9, 12], 8)
    own, sides = [(k, k) for k in range(4)], (first, second)
    rankings = [rank_documents(pool(a), pool(b), own, k=3) for a, b in (sides, sides[::-1])]
    alone = [rerank([ranking], a, b)[0] for ranking, (a, b) in zip(rankings, (sides, sides[::-1]), strict=True)]
    measured = []

    def counted(queries, documents, pairs, **options):
        measured.extend(map(tuple, pairs.tolist()))
        return gaussian_distances(queries, documents, pairs, **options)

    monkeypatch.setattr("poolscope.repairs.search.gaussian_distances", counted)
    for together, one in zip(rerank(rankings, first, second), alone, strict=True):
        assert together.top.tolist() == one.top.tolist()
        assert together.rank.tolist() == one.rank.tolist()
        np.testing.assert_allclose(together.scores, one.scores, atol=1e-6)
    assert len(set(measured)) == len(measured) < 2 * 4 * 3


def test_reranking_without_covariances_keeps_the_order_of_the_cosine():
    queries, documents = random_clouds(2, [4, 7], 8), random_clouds(3, [6, 3, 9, 12], 8)
    ranking = rank_documents(pool(queries), pool(documents), [(0, 0), (1, 3)], k=4)
    assert rerank([ranking], queries, documents, weight=0.0)[0].top.tolist() == ranking.top.tolist()
    pairs = np.array([[0, 0], [1, 3]])
    double = gaussian_distances(queries, documents, pairs, weight=2.0)
    single = gaussian_distances(queries, documents, pairs)
    none = gaussian_distances(queries, documents, pairs, weight=0.0)
    np.testing.assert_allclose(double - single, single - none)


def test_reranking_refuses_other_clouds():
    queries, documents = random_clouds(2, [4, 7], 8), random_clouds(3, [6, 3, 9, 12], 8)
    ranking = rank_documents(pool(queries), pool(documents), [(0, 0)], k=2)
    with pytest.raises(InputError, match=r"2 queries .* 4 queries and 2 documents"):
        rerank([ranking], documents, queries)
    with pytest.raises(InputError, match="weight: received -1"):
        gaussian_distances(queries, documents, np.array([[0, 0]]), weight=-1)
