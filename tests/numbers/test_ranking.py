"""Retrieval by cosine against a table of all scores, and against quality by hand."""

from __future__ import annotations

from itertools import permutations

import ir_measures
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
        above=np.array([0, 2, 11]),
        ties=np.array([1, 1, 1]),
    )
    ideal = 1 + 1 / np.log2(3)
    np.testing.assert_allclose(found.ndcg(10), [(1 + 1 / 2) / ideal, 0, np.nan])
    np.testing.assert_allclose(found.ndcg(1), [1, 0, np.nan])
    np.testing.assert_allclose(found.mrr(10), [1, 0, np.nan])
    np.testing.assert_allclose(found.mrr(20), [1, 1 / 12, np.nan])
    np.testing.assert_allclose(found.recall(2), [0.5, 0, np.nan])
    np.testing.assert_allclose(found.precision(4), [0.5, 0, np.nan])
    np.testing.assert_allclose(found.average_precision(), [(1 + 2 / 3) / 2, 1 / 12, np.nan])
    np.testing.assert_allclose(found.average_precision(2), [1 / 2, 0, np.nan])
    np.testing.assert_allclose(found.found(2), [1, 0, np.nan])
    np.testing.assert_allclose(found.found(12), [1, 1, np.nan])
    np.testing.assert_allclose(found.best_rank(), [1, 12, np.nan])
    assert found.tied.tolist() == [False, False, False]


def test_the_rank_of_a_tie_is_its_middle():
    found = rank_documents([[1.0, 0.0]], [[2.0, 0.0], [3.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [(0, 1)])
    assert found.rank.tolist() == [2.0]
    assert (found.above.tolist(), found.ties.tolist(), found.tied.tolist()) == ([0], [3], [True])
    assert found.top[0].tolist() == [0, 1, 2, 3]


def test_relevant_documents_that_tie_take_places_one_after_the_other():
    """Halves of ranks gave nDCG 0.93 and MRR 0.67 for two, 0.82 and 0.18 for ten."""
    for count in (2, 10):
        found = rank_documents([[1.0, 0.0]], [[1.0, 0.0]] * count + [[0.0, 1.0]] * 3, [(0, k) for k in range(count)])
        measures = (found.ndcg(10), found.mrr(10), found.recall(10), found.average_precision(), found.found(1))
        assert [part.tolist() for part in measures] == [[1.0]] * 5
        assert found.best_rank().tolist() == [1.0]
        assert found.rank.tolist() == [(count + 1) / 2] * count


def every_order(scores):
    """All orders of the documents that their scores allow, each once."""
    orders = (np.array(order) for order in permutations(range(len(scores))))
    return [order for order in orders if (np.diff(np.asarray(scores)[order]) <= 0).all()]


@pytest.mark.parametrize("seed", range(12))
def test_every_measure_of_a_tie_is_the_mean_over_all_orders(seed):
    """Each order alone is a ranking without ties, whose measures are those of trec_eval (next test)."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, 3, size=(3, 7)) / 4
    chosen = random.random(scores.shape) < 0.4
    chosen[np.arange(3), random.integers(7, size=3)] = True
    judged = random.permutation(np.argwhere(chosen))
    grades = random.integers(1, 4, size=len(judged))
    found = rank_scores(scores, judged)
    for query in range(3):
        own = judged[:, 0] == query
        alone = []
        for order in every_order(scores[query]):
            place = np.empty(7)
            place[order] = np.arange(7)
            alone.append(rank_scores(-place[None], judged[own] * [0, 1]))
        for k in (1, 2, 3, 5, 7, 10):
            measures = {
                "graded": (found.ndcg(k, grades=grades), [one.ndcg(k, grades=grades[own]) for one in alone]),
                "precision": (found.precision(k), [one.precision(k) for one in alone]),
                **{
                    name: (getattr(found, name)(k), [getattr(one, name)(k) for one in alone])
                    for name in ("ndcg", "mrr", "recall", "found", "average_precision")
                },
            }
            for name, (expected, orders) in measures.items():
                assert expected[query] == pytest.approx(np.mean(orders), abs=1e-13), (name, k)
        assert found.mrr(None)[query] == pytest.approx(np.mean([one.mrr(None) for one in alone]))
        assert found.average_precision()[query] == pytest.approx(np.mean([one.average_precision() for one in alone]))
        best = np.array([one.best_rank()[0] for one in alone])
        assert found.best_rank()[query] == pytest.approx(best.mean())
        np.testing.assert_allclose(found.rank[own], np.mean([one.rank for one in alone], axis=0))
        assert found.tied[query] == (np.ptp([one.rank for one in alone], axis=0) > 0).any()


def test_without_ties_the_measures_are_those_of_ir_measures_and_ranx():
    import ranx

    random = np.random.default_rng(0)
    scores = random.permutation(60 * 80).reshape(60, 80) / 4800
    chosen = random.random(scores.shape) < random.random((60, 1)) * 0.4
    chosen[:, 0] = True
    judged = np.argwhere(chosen)
    grades = random.integers(1, 4, size=len(judged))
    found = rank_scores(scores, judged)
    assert not found.tied.any()
    for grade in (np.ones_like(grades), grades):
        qrels = {f"q{q:02}": {} for q in range(60)}
        for (query, document), worth in zip(judged.tolist(), grade.tolist(), strict=True):
            qrels[f"q{query:02}"][f"d{document}"] = worth
        run = {f"q{q:02}": {f"d{d}": float(s) for d, s in enumerate(row)} for q, row in enumerate(scores)}
        mine = {
            "nDCG@10": found.ndcg(10, grades=grade),
            "RR@10": found.mrr(10),
            "RR": found.mrr(None),
            "R@10": found.recall(10),
            "P@10": found.precision(10),
            "AP": found.average_precision(),
            "AP@10": found.average_precision(10),
            "Success@1": found.found(1),
        }
        measures = {ir_measures.parse_measure(name): name for name in mine}
        theirs = {name: np.full(60, np.nan) for name in mine}
        for one in ir_measures.iter_calc(list(measures), qrels, run):
            theirs[measures[one.measure]][int(one.query_id[1:])] = one.value
        for name, values in mine.items():
            np.testing.assert_allclose(values, theirs[name], atol=1e-6, err_msg=name)  # trec_eval has 32-bit scores
        names = {"ndcg@10": "nDCG@10", "mrr@10": "RR@10", "recall@10": "R@10", "precision@10": "P@10", "map": "AP"}
        ranx_scores = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), list(names), return_mean=False)
        for name, own in names.items():
            np.testing.assert_allclose(ranx_scores[name], mine[own], atol=1e-9, err_msg=name)


def test_equal_documents_tie_wherever_they_stand():
    """A product of matrices rounds equal columns apart: 8 to 25 % of these cosines differed in the last digit."""
    random = np.random.default_rng(2)
    for documents, queries, dimension in ((57, 13, 384), (516, 30, 384), (20, 5, 33)):
        half = random.normal(size=(documents, dimension))
        twice = np.concatenate([half, half[::-1]])
        every = np.stack(np.divmod(np.arange(queries * documents), documents), axis=1)
        found = rank_documents(random.normal(size=(queries, dimension)), twice, every)
        assert (found.ties % 2 == 0).all()
        assert (found.above % 2 == 0).all()


def test_many_relevant_documents_of_a_query_are_counted_as_few_are():
    """Rows with many judgements are sorted, others compared with each."""
    random = np.random.default_rng(4)
    scores = random.integers(0, 9, size=(3, 90)) / 8
    judged = np.argwhere(random.random(scores.shape) < np.array([[0.05], [0.5], [0.9]]))
    sorted_or_compared = rank_scores(scores, judged)
    own = scores[judged[:, 0], judged[:, 1]][:, None]
    assert sorted_or_compared.above.tolist() == (scores[judged[:, 0]] > own).sum(axis=1).tolist()
    assert sorted_or_compared.ties.tolist() == (scores[judged[:, 0]] == own).sum(axis=1).tolist()


def test_relevant_documents_ranked_among_the_irrelevant_ones_only():
    found = rank_scores([[0.9, 0.8, 0.8, 0.8, 0.5, 0.5]], [(0, 0), (0, 1), (0, 2), (0, 4)]).among_irrelevant()
    assert found.above.tolist() == [0, 0, 0, 1]
    assert found.ties.tolist() == [1, 2, 2, 2]
    assert found.rank.tolist() == [1.0, 1.5, 1.5, 2.5]


def test_equal_chunks_of_one_answer_are_one_place():
    """Chunks 0 and 1 are one answer and tie with a wrong one: it is as likely first as that answer."""
    ranking = rank_scores([[0.9, 0.9, 0.9, 0.1]], [(0, 0), (0, 1)])
    condensed = ranking.condensed(ranking.best_of([5, 5]))
    assert (condensed.above.tolist(), condensed.ties.tolist()) == ([0], [2])
    assert condensed.found(1).tolist() == [0.5]


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
        ([[0.0, 0.0]], [[1.0, 0.0]], [(0, 0)], "queries: row 1 .* direction"),
        ([[1e200, 0.0]], [[1.0, 0.0]], [(0, 0)], r"queries: row 1 .* 1e\+200"),
        ([[1e-200, 0.0]], [[1.0, 0.0]], [(0, 0)], r"queries: row 1 .* 1e-200"),
        ([[1.0, 0.0]], [[1.0, 0.0], [np.nan, 1.0]], [(0, 0)], "documents: row 2"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [(0, 1)], r"entry 0 is \(0, 1\)"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [(-1, 0)], r"entry 0 is \(-1, 0\)"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [(0, 0), (0, 0)], "is there twice"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [], "least one"),
        ([1.0, 0.0], [[1.0, 0.0]], [(0, 0)], r"queries: .*shape \(2,\)"),
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
    with pytest.raises(InputError, match=rf"received {k}; .* 1 to 2"):
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
