"""Where relevant and wrong texts of queries lie, and the threshold between them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.errors import InputError
from poolscope.metrics.queries import QueryScores, query_scores


def planted(queries=80, texts=300, signal=1.0, seed=0, dimension=32):
    """Queries that are their relevant text with noise, among others."""
    random = np.random.default_rng(seed)
    held = random.normal(size=(texts, dimension))
    asked = signal * held[:queries] + random.normal(size=(queries, dimension))
    return asked, held, np.stack([np.arange(queries)] * 2, axis=1)


def cosines(asked, held):
    left, right = (table / np.linalg.norm(table, axis=1, keepdims=True) for table in (asked, held))
    return left @ right.T


def test_threshold_recall_and_precision_are_those_of_the_whole_table():
    asked, held, relevant = planted()
    result, scores = query_scores(asked, held, relevant), cosines(asked, held)
    right = np.zeros(scores.shape, bool)
    right[tuple(relevant.T)] = True
    cut = result.threshold.value
    assert np.mean(scores[~right] >= cut) <= 0.01
    assert np.mean(scores[~right] >= cut - 2e-3) > 0.01  # the lowest such threshold, up to a bin of the histogram
    assert result.recall.value == pytest.approx(np.mean(scores[right] >= cut))
    assert result.precision.value == pytest.approx((scores[right] >= cut).sum() / (scores >= cut).sum())
    assert result.passing == pytest.approx((scores >= cut).sum() / 80)
    assert result.relevant.value == pytest.approx(scores[right].mean(), abs=1e-6)
    assert result.wrong.value == pytest.approx(scores[~right].mean(), abs=1e-6)
    assert (result.relevant_pairs, result.wrong_pairs, result.left_out) == (80, 80 * 299, 0)


def test_intervals_hold_the_truth_for_other_queries():
    """The truth is that of very many queries about the same texts."""
    random = np.random.default_rng(1)
    held = random.normal(size=(200, 32))

    def ask(count):
        target = random.integers(200, size=count)
        return held[target] + 1.2 * random.normal(size=(count, 32)), np.stack([np.arange(count), target], axis=1)

    many, judged = ask(2000)
    truth = query_scores(many, held, judged)
    hits = {"threshold": 0, "recall": 0, "precision": 0}
    for _ in range(40):
        few, named = ask(40)
        result = query_scores(few, held, named)
        for name in hits:
            interval = getattr(result, name).interval
            hits[name] += interval.low <= getattr(truth, name).value <= interval.high
    assert all(count >= 35 for count in hits.values()), hits


def test_the_interval_of_the_threshold_is_read_off_at_the_ends_of_the_share_above_it():
    """By hand: shares of each query, left out in turn; their mean has the plain end below, that of its log above."""
    asked, held, relevant = planted(20, 200)
    result, scores = query_scores(asked, held, relevant), cosines(asked, held)
    wrong = np.array([np.delete(scores[k], k) for k in range(20)])
    above = (wrong >= result.threshold.value).mean(axis=1)
    reach = stats.t.ppf(0.975, 19) * above.std(ddof=1) / np.sqrt(20)
    shares = above.mean() * np.exp(reach / above.mean()), max(above.mean() - reach, 0)
    ends = np.quantile(wrong, [1 - share for share in shares])
    assert (result.threshold.interval.low, result.threshold.interval.high) == pytest.approx(tuple(ends), abs=0.004)


def test_the_threshold_of_few_queries_holds_the_truth_where_some_are_near_everything():
    """Queries that say more or less of what all texts share: a bootstrap of the threshold held it in 84 %."""
    random = np.random.default_rng(4)
    held = random.normal(size=(200, 32)) + 2 * np.eye(32)[0]

    def ask(count):
        target = random.integers(200, size=count)
        general = (random.exponential(size=(count, 1)) - 2) * np.eye(32)[0]
        asked = held[target] + random.normal(size=(count, 32)) + general
        return asked, np.stack([np.arange(count), target], axis=1)

    many, judged = ask(2000)
    truth = query_scores(many, held, judged).threshold.value
    found = [query_scores(few, held, named).threshold.interval for few, named in (ask(12) for _ in range(80))]
    assert np.mean([each.low <= truth <= each.high for each in found]) >= 0.91


def test_texts_of_the_document_of_a_relevant_one_are_neither_right_nor_wrong():
    asked, held, relevant = planted(20, 60)
    result = query_scores(asked, held, relevant, groups=np.arange(60) // 3)
    assert (result.relevant_pairs, result.left_out) == (20, 40)
    assert result.wrong_pairs == 20 * 57


def test_few_queries_have_no_interval_and_few_pairs_no_place():
    result = query_scores(*planted(5, 12))
    assert result.recall.interval is result.threshold.interval is None
    assert not result.placed
    assert result.threshold.value >= 0
    enough = query_scores(*planted(12, 12))
    assert enough.recall.interval is not None
    assert enough.threshold.interval is None  # of 132 wrong pairs 1 % is one


def test_the_result_can_be_kept(tmp_path):
    result = query_scores(*planted())
    result.save(tmp_path / "scores.json")
    loaded = QueryScores.load(tmp_path / "scores.json")
    assert loaded.recall == result.recall
    assert loaded.rows() == result.rows()
    assert sum(row["relevant"] for row in result.rows()) == 80
    assert result.figure().data


def test_a_share_that_is_none_is_refused():
    with pytest.raises(InputError, match="false_hits"):
        query_scores(*planted(), false_hits=1.0)


def test_where_no_wrong_text_passes_all_that_pass_are_right():
    """However few pass: here one query in thirty. All are of one document, which is one draw and has no interval."""
    own = np.full(30, 0.1)
    own[0] = 0.9
    queries = np.eye(31)[:30]
    texts = own[:, None] * queries + np.sqrt(1 - own**2)[:, None] * np.eye(31)[30]
    groups = np.zeros(30, dtype=int)  # one document, of which no text is a wrong answer to any query
    texts, groups = np.vstack([texts, 0.5 * queries[1] + np.sqrt(0.75) * queries[2]]), np.append(groups, 1)
    found = query_scores(queries, texts, [(k, k) for k in range(30)], groups=groups)
    assert found.precision.value == 1
    for estimate in (found.recall, found.precision, found.relevant, found.threshold):
        assert estimate.interval is None
        assert "1 documents" in estimate.no_interval
