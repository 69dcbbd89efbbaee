"""A relevant segment at the start, the middle and the end of long documents."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from length_data import context_free_model, word_texts
from poolscope import as_encoder, length_report, read_pairs
from poolscope.errors import InputError
from poolscope.lab.length.position import _filler, _relevant, position_probe


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
