"""One pass: vectors, attention and input embeddings against a computation by hand; the mechanism by bin."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from length_data import word_model, word_texts
from poolscope import encode, layers, length_profile
from poolscope.errors import InputError
from poolscope.lab.length.attention import score_bound, score_variances
from poolscope.lab.length.mechanism import length_mechanism, measure_texts

TEXTS = ["w0", *word_texts(60, most=62)]


@pytest.fixture(scope="module")
def pair():
    return word_model()


@pytest.fixture(scope="module")
def measured(pair):
    return measure_texts(pair, TEXTS)


def test_vectors_and_spreads_are_those_of_the_clouds(pair, measured):
    clouds = encode(pair, TEXTS)
    np.testing.assert_allclose(measured.vectors, [cloud.mean(axis=0) for cloud in clouds], atol=1e-5)
    np.testing.assert_allclose(measured.spread, [cloud.var(axis=0).sum() for cloud in clouds], rtol=1e-4)
    np.testing.assert_array_equal(measured.lengths, clouds.lengths)
    assert measured.truncated.sum() == 0
    assert measure_texts(pair, TEXTS, max_length=8).truncated.max() == max(len(text.split()) for text in TEXTS) - 6


def test_attention_is_that_of_the_last_layer(pair, measured):
    found = layers(pair, TEXTS, socm_texts=0)
    np.testing.assert_allclose(measured.attention.sigma_a, found["sigma_a"][:, -1], rtol=1e-5)
    frobenius = found["lambda"][:, -1] / found.norms[-1] ** 2
    np.testing.assert_allclose(measured.attention.frobenius, frobenius, rtol=1e-5)


def test_score_variance_is_that_of_the_scores(pair, measured):
    model, tokenizer = pair
    encoded = tokenizer(TEXTS[5], return_tensors="pt")
    layer, n = model.encoder.layer[-1].attention.self, encoded["input_ids"].shape[1]
    with torch.inference_mode():
        hidden = model(**encoded, output_hidden_states=True).hidden_states[-2]
        query, key = (part(hidden).view(n, 2, 8).transpose(0, 1) for part in (layer.query, layer.key))
    scores = (query @ key.transpose(1, 2) / 8**0.5).numpy()
    expected = scores.var(axis=-1, ddof=1).mean(axis=-1)
    np.testing.assert_allclose(measured.attention.score_variance[5], expected, rtol=1e-3)
    bound = np.sqrt(n / (2 * np.sqrt(1 + np.exp(-2 * expected)) * (n - 1) ** 1.5 + 1))
    np.testing.assert_allclose(measured.attention.bound[5], bound, rtol=1e-3)


def test_masked_and_vanished_weights_have_no_score():
    weights = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]])
    last = np.log([0.2, 0.3, 0.5]).var(ddof=1)
    np.testing.assert_allclose(score_variances(weights), [last / 2])  # rows with two entries or more
    assert np.isnan(score_variances(np.eye(3)[None])).all()


def test_the_bound_falls_with_length_and_rises_with_variance():
    lengths = [score_bound(n, np.array([1.0]))[0] for n in (4, 16, 64, 256)]
    assert lengths == sorted(lengths, reverse=True)
    variances = score_bound(50, np.array([0.0, 0.5, 1.0, 3.0]))
    assert (np.diff(variances) > 0).all()


def test_word_averages_leave_special_tokens_out(pair, measured):
    model, tokenizer = pair
    table = model.get_input_embeddings().weight.detach().numpy()
    for k in (0, 7, 20):
        ids = tokenizer(TEXTS[k], add_special_tokens=False)["input_ids"]
        np.testing.assert_allclose(measured.words[k], table[ids].mean(axis=0), rtol=1e-5, atol=1e-6)
    blank = measure_texts(pair, ["", "w1"])
    np.testing.assert_allclose(blank.words[0], table[[1, 2]].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_the_mechanism_by_bin(measured):
    profile = length_profile(measured.vectors, measured.lengths, bins=3)
    found = length_mechanism(measured, profile)
    for number, row in enumerate(found.bins):
        member = profile.assignment == number
        assert row.sigma_a.value == pytest.approx(measured.attention.sigma_a[member].mean())
        assert row.bound.value == pytest.approx(measured.attention.bound[member].mean())
        above = measured.attention.sigma_a[member] > measured.attention.bound[member]
        assert row.bound_fails.value == pytest.approx(above.mean())
        assert row.high_frequency.value == pytest.approx(measured.spread[member].mean())
        assert row.sigma_a.interval.low < row.sigma_a.value < row.sigma_a.interval.high
    assert found.bins[0].words.value < found.bins[-1].words.value  # averages of more words are more alike
    assert found.words_slope.interval.low > 0
    sentences = " ".join(found.in_words())
    assert "σₐ" in sentences
    assert "published bound" in sentences
    assert "word embeddings" in sentences
    assert found.rows()[0]["sigma_a_low"] == found.bins[0].sigma_a.interval.low
    json.dumps(found.to_dict(), allow_nan=False)
    with pytest.raises(InputError, match="same texts"):
        length_mechanism(measured, length_profile(measured.vectors[:-1], measured.lengths[:-1]))


def test_texts_of_one_token_have_no_attention_to_speak_of():
    from tiny_models import tiny_model, tiny_tokenizer

    found = measure_texts((tiny_model(), tiny_tokenizer(template=None)), ["cat", "dog ran"])
    assert np.isnan(found.attention.sigma_a[0]).all()
    assert np.isfinite(found.attention.sigma_a[1]).all()


def test_a_model_without_layers_says_what_is_missing():
    found = measure_texts(lambda texts: [np.eye(3)[: 1 + len(text) % 3] for text in texts], TEXTS)
    assert found.attention is None
    assert found.words is None
    assert "attention" in found.notes[0]
    assert "word embeddings" in found.notes[1]
    mechanism = length_mechanism(found, length_profile(found.vectors, found.lengths, bins=[1, 2, 3], min_texts=1))
    assert mechanism.bins[0].sigma_a.value is None
    assert mechanism.words_slope.value is None
    assert mechanism.bins[0].high_frequency.value == 0


def test_a_static_table_is_its_own_input():
    found = measure_texts("builtin:wordllama", ["one two three", "four five"])
    np.testing.assert_array_equal(found.words, found.vectors)
