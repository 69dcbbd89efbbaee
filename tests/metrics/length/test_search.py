"""Who wins a search, by length: against counts by hand, with a known bias and with none."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from length_data import context_free_model, labelled, search, word_texts
from poolscope import as_encoder, length_report, read_pairs
from poolscope.errors import InputError
from poolscope.metrics.length.bins import labels_by_length
from poolscope.metrics.length.search import _filler, _relevant, position_probe, retrieval_by_length
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


# -- position -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs():
    texts = [text for text in word_texts(80, most=60) if len(text.split()) >= 30]
    return read_pairs({"query": [" ".join(text.split()[:6]) for text in texts], "document": texts})


def test_order_means_nothing_to_a_model_without_positions(pairs):
    found = position_probe(as_encoder(context_free_model(positions=0.0)), pairs, queries=20)
    longest = max(len(text.split()) for text in pairs.documents.texts)
    assert (found.queries, found.segment, found.tokens) == (20, longest // 4, longest)
    for row in found.places:
        assert row.change.value == pytest.approx(0, abs=1e-6)
        assert row.rank.value == found.places[0].rank.value
    assert found.places[0].rank.value < 10  # of 21: the segment is found
    assert found.encoded_tokens == 20 * 4 * longest + 20 * 6
    assert 2 <= found.among <= 21


def test_a_model_that_drowns_the_end_is_caught():
    words = [f"w{k}" for k in range(40)]
    texts = [" ".join([word] * 16 + list(np.random.default_rng(k).choice(words, 30))) for k, word in enumerate(words)]
    pairs = read_pairs({"query": [" ".join([word] * 6) for word in words], "document": texts})
    model, tokenizer = context_free_model(positions=0.0)
    place = model.embeddings.position_embeddings.weight.data
    place[:, 0] = 1.0 * torch.clamp(torch.arange(128) - 30, min=0)  # from the middle on, positions outshout words
    found = position_probe(as_encoder((model, tokenizer)), pairs, queries=20)
    assert found.places[-1].change.interval.high < 0
    first, last = (found.places[k].similarity.value for k in (0, -1))
    assert found.lost.value == pytest.approx((first - last) / (first - found.unrelated), rel=0.02)
    assert found.lost.interval.method == "Fieller"
    assert "of its lead" in found.in_words()[1]
    json.dumps(found.to_dict(), allow_nan=False)


def test_position_probes_that_cannot_be_made(pairs):
    encoder = as_encoder(context_free_model())
    with pytest.raises(InputError, match="positions: received"):
        position_probe(encoder, pairs, positions=[0.5])
    with pytest.raises(InputError, match="segment: received 64"):
        position_probe(encoder, pairs, segment=64)
    with pytest.raises(InputError, match=r"pairs: received 5, .* 10 "):
        position_probe(encoder, pairs.sample(5))


def test_relevant_documents_fill_nothing(pairs):
    texts, asked = list(pairs.documents), list(pairs.queries)
    # Every document is relevant to two queries, its own and that of its neighbour.
    twice = read_pairs({"query": asked * 2, "document": [*texts, *texts[1:], texts[0]]})
    documents, relevant = [np.full(len(text.split()), k) for k, text in enumerate(texts)], _relevant(twice)
    for query in range(len(asked)):
        filler, used = _filler(documents, relevant[query], 64, np.random.default_rng(query).permutation(len(documents)))
        assert len(filler) == 64
        assert set(filler.tolist()) == used
        assert set(relevant[query]) == {query, (query + 1) % len(texts)}
        assert used.isdisjoint(relevant[query])
    single = position_probe(as_encoder(context_free_model()), pairs, queries=20)
    both = position_probe(as_encoder(context_free_model()), twice, queries=20)
    assert both.among < single.among < 21  # fillers that hold an answer are no foils


def test_a_filler_that_holds_the_answer_is_no_foil():
    words = [f"w{k}" for k in range(12)]
    told = read_pairs({"query": words, "document": [" ".join([word] * 40) for word in words]})
    found = position_probe(as_encoder(context_free_model(positions=0.0)), told, segment=32)
    assert found.among < 13  # a filler of 64 tokens holds two documents of 40
    assert found.places[0].rank.value == 1  # 32 tokens of the answer lose only against fillers with more of it


def test_documents_that_cannot_fill_are_said():
    words = " ".join(f"w{k % 40}" for k in range(200))
    one = read_pairs({"query": [f"w{k} w1" for k in range(12)], "document": [words] * 12})
    other = read_pairs({"query": [f"w{k} w1" for k in range(13)], "document": [words] * 12 + ["w3 w4"]})
    encoder = as_encoder(context_free_model())
    for pairs in (one, other):
        with pytest.raises(InputError, match=r"12 .* 16 .* 0 .* 64 tokens"):
            position_probe(encoder, pairs)
    report = length_report(encoder, word_texts(), pairs=other, probes=False)
    assert report.position is None
    assert any("measured: pairs: " in note for note in report.notes)


def test_a_query_that_cannot_be_filled_for_is_left_out(pairs):
    texts, asked = list(pairs.documents), list(pairs.queries)
    everything = read_pairs({"query": [*asked, *["w1 w2 w3"] * len(texts)], "document": [*texts, *texts]})
    encoder = as_encoder(context_free_model())
    assert len(everything.queries) == len(asked) + 1
    assert position_probe(encoder, everything, queries=1000) == position_probe(encoder, pairs, queries=1000)


# -- labels -------------------------------------------------------------------------------------------------------


def test_labels_that_long_texts_lose():
    found = labels_by_length(*labelled(3.0), bins=[0, 100, 200])
    short, long = found.bins
    assert short.accuracy.value > 0.85 > long.accuracy.value
    assert long.entropy.value > short.entropy.value
    assert found.difference.value == pytest.approx(long.accuracy.value - short.accuracy.value)
    assert 0.2 < short.accuracy.floor < 0.5
    assert found.rows()[0]["accuracy_floor"] == short.accuracy.floor
    fair = labels_by_length(*labelled(0.3), bins=[0, 100, 200])
    assert (fair.labels, fair.dropped, fair.converged) == (3, 0, True)
    json.dumps(fair.to_dict(), allow_nan=False)


def test_rare_labels_are_left_out_and_counted():
    vectors, lengths, labels = labelled(0.3)
    labels[:3] = ["rare"] * 3
    found = labels_by_length(vectors, lengths, labels, bins=1)
    assert (found.texts, found.dropped, found.labels) == (297, 3, 3)
    assert re.match(r"3 texts .* 5\b", found.notes[-1])
    assert found.difference.value is None


def test_a_missing_label_is_no_class():
    vectors, lengths, labels = labelled(0.3)
    holed = [None if k % 3 == 0 else float("nan") if k % 3 == 1 else label for k, label in enumerate(labels)]
    found = labels_by_length(vectors, lengths, holed, bins=1)
    assert (found.texts, found.dropped, found.labels) == (100, 200, 3)
    assert found.notes[-1].startswith("200 texts ")
    with pytest.raises(InputError, match=r"labels: received 2 .* 1 have"):
        labels_by_length(vectors, lengths, [None if k % 2 else "a" for k in range(300)])


def test_labels_that_cannot_be_predicted():
    vectors, lengths, labels = labelled(0.3, count=30)
    with pytest.raises(InputError, match="29 for 30"):
        labels_by_length(vectors, lengths, labels[:-1])
    with pytest.raises(InputError, match="labels: received 1 "):
        labels_by_length(vectors, lengths, ["a"] * 30)


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
