"""Who wins a search, by length: against counts by hand, with a known bias and with none."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from length_data import search
from poolscope.errors import InputError
from poolscope.metrics.length.search import retrieval_by_length
from poolscope.numbers.ranking import unit_rows


def test_shares_and_quality_are_those_counted_by_hand():
    asked, held, relevant, lengths = search()
    found = retrieval_by_length(asked, held, relevant, lengths, bins=[0, 100, 400], k=5)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (asked, held)]
    order = np.argsort(-(unit[0] @ unit[1].T), axis=1)
    rank = np.array([1 + list(order[k]).index(k) for k in range(60)])
    for row, member in zip(found.bins, (lengths < 100, lengths >= 100), strict=True):
        own = member[:60]
        assert (row.documents, row.queries) == (member.sum(), own.sum())
        assert row.hit.value == pytest.approx((rank[own] <= 5).mean())
        assert row.rank.value == pytest.approx(rank[own].mean())
        near = rank[own] <= 5
        assert row.ndcg.value == pytest.approx((near / np.log2(1 + rank[own])).mean())
        assert row.mrr.value == pytest.approx((near / rank[own]).mean())
        shares = []
        for k in range(60):
            wrong = [d for d in order[k, :5] if d != k]
            shares.append(member[wrong].mean())
        assert row.share.value == pytest.approx(np.mean(shares))
        expected = np.mean([(member.sum() - member[k]) / 299 for k in range(60)])
        assert row.expected == pytest.approx(expected)
        assert row.ratio.value == pytest.approx(np.mean(shares) / expected)
    assert found.shortest.documents == pytest.approx(60, abs=2)
    assert found.longest.documents == pytest.approx(60, abs=2)


def test_short_documents_that_crowd_the_top_are_seen():
    fair = retrieval_by_length(*search(), bins=4)
    assert fair.shortest.ratio.floor_low < 1 < fair.shortest.ratio.floor_high
    biased = retrieval_by_length(*search(bias=0.7), bins=4)
    assert biased.shortest.ratio.value > biased.shortest.ratio.floor_high
    rows = biased.rows()
    assert [row["bin"] for row in rows[-2:]] == [f"shortest fifth ({biased.shortest.label})", rows[-1]["bin"]]
    json.dumps(biased.to_dict(), allow_nan=False)


def test_several_relevant_documents_and_none():
    asked, held, _, lengths = search(queries=6)
    found = retrieval_by_length(asked, held, [(0, 0), (0, 1), (1, 1)], lengths, min_texts=1)
    assert sum(row.queries for row in found.bins) <= 3
    empty = [row for row in found.bins if row.queries == 0]
    assert empty
    assert empty[0].hit.value is None
    json.dumps(found.to_dict(), allow_nan=False)
    with pytest.raises(InputError, match=r"received 8 .* k = 10"):
        retrieval_by_length(asked, held[:8], [(0, 0)], lengths[:8])
    with pytest.raises(InputError, match=r"shape \(8,\)"):
        retrieval_by_length(asked, held, [(0, 0)], lengths[:8])


def test_what_cannot_be_judged_is_said():
    asked, held, relevant, lengths = search()
    same = retrieval_by_length(asked, held, relevant, np.full(300, 50))
    assert re.search(r"100% .* 50\b", same.unjudged)
    cut = np.minimum(lengths, 60)  # most documents are cut
    blind = retrieval_by_length(asked, held, relevant, cut)
    assert "no fifth" in blind.unjudged
    known = retrieval_by_length(asked, held, relevant, cut, truncated=lengths - cut)
    assert known.unjudged == ""
    assert (known.shortest.documents, known.longest.documents) == (
        (lengths <= np.quantile(lengths, 0.2)).sum(),
        (lengths >= np.quantile(lengths, 0.8)).sum(),
    )
    assert known.to_dict()["unjudged"] == ""
    everything = retrieval_by_length(asked[:1], held, [(0, k) for k in range(300)], lengths)
    assert "first 10 places" in everything.unjudged
    json.dumps(everything.to_dict(), allow_nan=False)
    with pytest.raises(InputError, match=r"truncated: .*shape \(1,\)"):
        retrieval_by_length(asked, held, relevant, lengths, truncated=[1])


def test_a_perfect_ranking_of_several_documents_scores_one():
    random = np.random.default_rng(0)
    topics = np.repeat(np.eye(10), 3, axis=0)
    held = topics + 0.01 * random.standard_normal(topics.shape)
    relevant = [(query, 3 * query + k) for query in range(10) for k in range(3)]
    found = retrieval_by_length(np.eye(10), held, relevant, np.arange(1, 31), bins=2, min_texts=1, k=5)
    for row in (*found.bins, found.shortest, found.longest):
        assert [part.value for part in (row.hit, row.ndcg, row.mrr, row.rank)] == [1, 1, 1, 1]
    # The third stands behind a document of another query; those that tie with it count half.
    documents = np.array([[1, 0.1], [1, 0.2], [1, 0.3], [1, 0.4], [1, 0.4], [0, 1]])
    mixed = retrieval_by_length(
        [[1, 0]], documents, [(0, 0), (0, 1), (0, 3)], np.arange(1, 7), min_texts=1, bins=1, k=2
    )
    assert mixed.bins[0].rank.value == pytest.approx(np.mean([1, 1, 2.5]))
    assert mixed.bins[0].ratio.value is None  # the first two are both relevant: nobody else to share them
    json.dumps(mixed.to_dict(), allow_nan=False)


def test_what_a_set_costs_the_others_is_what_leaving_it_out_wins_over_leaving_out_as_many():
    """By hand: leave the set out and search again, and leave as many wrong documents out at random, many times."""
    asked, held, relevant, lengths = search(bias=0.7)
    asked, relevant = asked[:40], np.asarray(relevant)[:40]
    k, short = 10, lengths <= np.quantile(lengths, 0.2)
    measured = retrieval_by_length(asked, held, relevant, lengths, k=k).shortest.cost
    random = np.random.default_rng(0)
    scores = unit_rows(asked, "asked") @ unit_rows(held, "held").T
    changes = []
    for query, document in relevant[~short[relevant[:, 1]]]:
        above = scores[query] >= scores[query, document]
        above[document] = False
        wrong = np.delete(np.arange(len(held)), document)
        left = [above[random.permutation(wrong)[short.sum() :]].sum() for _ in range(300)]
        changes.append(float((above & ~short).sum() < k) - np.mean(np.array(left) < k))
    assert measured.value == pytest.approx(np.mean(changes), abs=0.01)
    assert measured.interval.low > 0
