"""Null models and probes on models of which the answer is known, and on the embedded model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from length_data import context_free_model, word_model, word_texts
from poolscope import as_encoder, encode, length_profile, read_texts
from poolscope.errors import InputError
from poolscope.lab.length.mechanism import length_mechanism, measure_texts
from poolscope.lab.length.probes import join_probe, length_nulls, repetition_probe, truncation_probe
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.ranking import unit_rows

TEXTS = word_texts()


def cosine_of(vectors):
    unit = unit_rows(vectors, "v").astype(float)
    return ((unit @ unit.T).sum() - len(unit)) / (len(unit) * (len(unit) - 1))


def test_without_context_and_positions_averaging_explains_everything():
    found = length_nulls(as_encoder(context_free_model(positions=0.0)), TEXTS)
    assert (found.chunk, found.limit) == (16, 64)
    assert [row.tokens for row in found.averaging] == [16, 32, 64, 128]
    assert [row.chunks for row in found.averaging] == [1, 2, 4, 8]
    assert [row.beyond for row in found.averaging] == [False, False, False, True]
    for row in found.averaging:
        assert row.averaged.value == pytest.approx(row.full.value, abs=1e-6)
        assert row.placed.value == pytest.approx(row.full.value, abs=1e-6)
    assert found.last.tokens == 64
    assert found.explained == pytest.approx(1)
    assert " 100% " in found.in_words()[2]
    for row in found.positions:
        assert row.change.value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("high", "doubted"), [(0.01, True), (-0.01, False)])
def test_more_than_all_of_the_rise_is_said_with_its_doubt(high, doubted):
    found = length_nulls(as_encoder(context_free_model(positions=0.0)), TEXTS)
    more = Estimate(found.last.averaged.value + 0.2)
    excess = Estimate(-0.2, Interval(-0.3, high, 0.95, "the population of texts", "jackknife", "texts"))
    rows = (*found.averaging[:2], replace(found.last, averaged=more, excess=excess), *found.averaging[3:])
    told = replace(found, averaging=rows).in_words()[2]
    assert "more than all" in told
    assert ("within chance" in told) == doubted


def test_without_context_positions_explain_the_rest():
    found = length_nulls(as_encoder(context_free_model(positions=3.0)), TEXTS)
    for row in found.averaging:
        assert row.placed.value == pytest.approx(row.full.value, abs=1e-6)
    assert abs(found.averaging[-1].excess.value) > 1e-3
    assert [row.offset for row in found.positions] == [0, 16, 32, 64, 112]
    assert [row.beyond for row in found.positions] == [False, False, False, True, True]
    assert found.positions[0].change.value == 0
    assert any(abs(row.change.value) > 1e-3 for row in found.positions)
    assert " 16 tokens" in " ".join(found.in_words())


def test_values_are_those_of_texts_encoded_by_hand():
    pair = word_model()
    found = length_nulls(as_encoder(pair), TEXTS, documents=20, seed=1)
    assert found.documents == 20
    long = [text for text in TEXTS if len(text.split()) >= 126]
    assert len(long) >= 20
    everyone = length_nulls(as_encoder(pair), long, documents=10**6)
    words = [text.split() for text in long]
    for row in everyone.averaging:
        whole = encode(pair, [" ".join(text[: row.tokens - 2]) for text in words], max_length=128)
        assert row.full.value == pytest.approx(cosine_of([cloud.mean(axis=0) for cloud in whole]), abs=1e-5)
        chunks = []
        for k in range(row.chunks):
            clouds = encode(pair, [" ".join(text[14 * k : 14 * (k + 1)]) for text in words])
            chunks.append([cloud.mean(axis=0) for cloud in clouds])
        assert row.averaged.value == pytest.approx(cosine_of(np.mean(chunks, axis=0)), abs=1e-5)
        assert row.excess.value == pytest.approx(row.full.value - row.averaged.value, abs=1e-9)
    other = everyone.other
    assert (other.tokens, other.chunks, other.placed) == (64, 2, None)
    halves = [encode(pair, [" ".join(text[30 * k : 30 * (k + 1)]) for text in words]) for k in range(2)]
    pooled = np.mean([[cloud.mean(axis=0) for cloud in clouds] for clouds in halves], axis=0)
    assert other.averaged.value == pytest.approx(cosine_of(pooled), abs=1e-5)
    assert other.full.value == everyone.last.full.value
    assert everyone.encoded_tokens > len(long) * 128
    json.dumps(everyone.to_dict(), allow_nan=False)


def test_models_without_absolute_positions_say_so():
    found = length_nulls(as_encoder(word_model("Llama")), TEXTS, documents=20)
    assert found.positions is None
    assert found.averaging[-1].placed is None
    assert found.explained_placed is None
    assert "moved" in found.notes[0]


@pytest.mark.parametrize(("limit", "tokens"), [(32, 32), (100, 64), (128, 128)])
def test_null_models_judge_at_the_limit_in_force(limit, tokens):
    found = length_nulls(as_encoder(word_model(), max_length=limit), TEXTS, documents=20, chunk=16)
    assert (found.limit, found.last.tokens) == (limit, tokens)
    assert [row.beyond for row in found.averaging] == [row.tokens > limit for row in found.averaging]
    assert [row.beyond for row in found.positions] == [row.offset + 16 > limit for row in found.positions]
    assert found.other.tokens == tokens
    assert found.other.chunks == (4 if tokens == 32 else tokens // 32)


def test_null_models_need_long_texts():
    encoder = as_encoder(word_model())
    with pytest.raises(InputError, match=r"20 .* 32 tokens"):
        length_nulls(encoder, TEXTS[:10])
    with pytest.raises(InputError, match="chunk: received 2"):
        length_nulls(encoder, TEXTS, chunk=2)
    with pytest.raises(InputError, match=r"64 tokens, .* 40"):
        length_nulls(encoder, TEXTS, chunk=40)


# -- probes -------------------------------------------------------------------------------------------------------


def test_truncation_holds_the_texts_fixed():
    pair = word_model()
    found = truncation_probe(as_encoder(pair), TEXTS, most_texts=10**6)
    assert [row.tokens for row in found.steps] == [16, 32, 64]
    long = [text for text in TEXTS if len(text.split()) >= 62]
    assert found.texts == len(long)
    expected = []
    for row in found.steps:
        clouds = encode(pair, long, max_length=int(row.tokens))
        expected.append(cosine_of([cloud.mean(axis=0) for cloud in clouds]))
        assert row.cosine.value == pytest.approx(expected[-1], abs=1e-5)
    assert found.slope.value == pytest.approx(np.polyfit([4, 5, 6], expected, 1)[0], abs=1e-5)
    assert found.slope.interval.low < found.slope.value < found.slope.interval.high
    assert found.encoded_tokens == len(long) * (16 + 32 + 64)
    assert "per doubling" in found.sentence()
    with pytest.raises(InputError, match=r"20 .* 32 tokens"):
        truncation_probe(as_encoder(pair), TEXTS[:5])


def test_one_word_again_and_again():
    pair = word_model()
    found = repetition_probe(as_encoder(pair))
    assert [row.times for row in found.steps] == [1, 2, 4, 8, 16, 32]
    for row in found.steps:
        clouds = encode(pair, [" ".join([word] * row.times) for word in ("dog", "cat")])
        assert row.cosine.value == pytest.approx(cosine_of([cloud.mean(axis=0) for cloud in clouds]), abs=1e-5)
    assert found.slope.interval is None
    flat = repetition_probe(as_encoder(context_free_model(positions=0.0)), words=("w1", "w2"))
    assert flat.slope.value == pytest.approx(0, abs=1e-6)


def test_joined_texts_beside_averages_of_their_parts():
    short = [text for text in word_texts(300, most=16) if text]
    found = join_probe(as_encoder(context_free_model(positions=0.0)), short)
    assert [row.times for row in found.steps[:3]] == [1, 2, 4]
    assert found.steps[0].averaged.value == pytest.approx(found.steps[0].cosine.value, abs=1e-6)
    values = [row.cosine.value for row in found.steps]
    assert values == sorted(values)
    assert found.slope.interval.low > 0
    with pytest.raises(InputError, match=r"texts: received 30, .* 64 tokens"):
        join_probe(as_encoder(word_model()), short[:30])


def test_no_text_is_joined_twice(monkeypatch):
    from poolscope.encoders.batching import TokenInputs

    seen = []
    encode_rows = TokenInputs.encode
    monkeypatch.setattr(
        TokenInputs, "encode", lambda self, rows, **more: seen.append(rows) or encode_rows(self, rows, **more)
    )
    # Every text says one word of its own, so that a text in two inputs would be seen.
    texts = [f"w{k // 40} w{k % 40}" for k in range(200)]
    found = join_probe(as_encoder(word_model()), texts)
    assert (found.texts, found.steps[-1].times) == (25, 8)
    joined = [tuple(row[k : k + 2]) for row in seen[-1] for k in range(0, len(row), 2)]
    assert len(joined) == len(set(joined)) == 200


# -- the embedded model -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm():
    return as_encoder("builtin:minilm", max_length=128)


@pytest.fixture(scope="module")
def docstrings():
    texts = read_texts("builtin:docstrings", limit=150)
    return [" ".join(text.split()[:100]) for text in texts]


@pytest.fixture(scope="module")
def measured(minilm, docstrings):
    return measure_texts(minilm, docstrings)


@pytest.mark.model
def test_on_the_embedded_model_the_cosine_rises_and_the_bound_fails(measured):
    profile = length_profile(measured.vectors, measured.lengths, bins=3)
    assert profile.slope.value > profile.slope.floor_high
    assert profile.slope.interval.low > 0
    found = length_mechanism(measured, profile)
    first, last = found.bins[0], found.bins[-1]
    assert last.sigma_a.value > first.sigma_a.value  # it grows with n, against the bound, which falls
    assert last.bound.value < first.bound.value
    assert last.frobenius.value < first.frobenius.value
    assert last.bound_fails.value == 1
    assert last.words.value > first.words.value


@pytest.mark.model
def test_on_the_embedded_model_averaging_gives_most_of_the_rise(minilm, docstrings, measured):
    nulls = length_nulls(minilm, docstrings, documents=20, chunk=32)
    assert nulls.averaging[-1].full.value > nulls.averaging[0].full.value
    assert nulls.explained > 0.5
    assert nulls.limit == 128  # where this run cuts, not what the model declares
    assert nulls.last.tokens == 128
    assert (nulls.other.tokens, nulls.other.chunks) == (128, 2)
    beyond = [row for row in nulls.positions if row.beyond]
    assert max(row.cosine.value for row in beyond) > nulls.positions[0].cosine.value + 0.05


def test_documents_are_the_unit_of_probes_where_they_are_known():
    """Two texts a document: each as a unit of its own would count 60 draws where there are 30."""
    model, groups = as_encoder(context_free_model(positions=0.0)), [f"d{k // 2}" for k in range(len(TEXTS))]
    nulls, cut = length_nulls(model, TEXTS, groups=groups), truncation_probe(model, TEXTS, groups=groups)
    found = [row.excess for row in nulls.averaging[1:]] + [row.full for row in nulls.averaging] + [cut.slope]
    assert {one.interval.unit for one in found} == {"documents"}
    joined = join_probe(model, [" ".join(text.split()[:8]) for text in TEXTS * 2], groups=groups * 2)
    assert "documents" in joined.slope.no_interval
