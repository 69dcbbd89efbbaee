"""Texts as distributions of their vectors: dropout at work for the time being, words left out, orders of texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poolscope import as_encoder, read_texts
from poolscope.encoders.capabilities import attention_of
from poolscope.errors import InputError
from poolscope.lab.papers import sampled
from poolscope.lab.papers.cell import Material
from poolscope.numbers.pooling import MeanPooling
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(5)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(8, 20, size=20)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return as_encoder(save_model(tmp_path_factory.mktemp("model") / "tiny"))


def test_vectors_vary_by_dropout_alone_and_the_model_is_as_it_was(encoder):
    before = encoder.encode(TEXTS)[-1]
    clouds = sampled.dropout_clouds(encoder, TEXTS, passes=40)
    assert clouds.lengths.tolist() == [40] * len(TEXTS)
    after = encoder.encode(TEXTS)[-1]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert not any(module.training for module in attention_of(encoder)[0].modules())
    again = sampled.dropout_clouds(encoder, TEXTS, passes=40)
    np.testing.assert_array_equal(clouds[3], again[3])
    means = MeanPooling().transform(before)
    for own, mean in zip(clouds, means, strict=True):
        assert np.asarray(own).std(axis=0).min() > 0
        assert np.corrcoef(np.asarray(own).mean(axis=0), mean)[0, 1] > 0.9


def test_without_dropout_there_is_nothing_to_sample(encoder, tmp_path):
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    other = as_encoder(save_model(tmp_path / "still", **still))
    with pytest.raises(InputError, match="no dropout"):
        sampled.dropout_clouds(other, TEXTS)
    outcome = sampled.texts_as_distributions(Material(other, read_texts(TEXTS), {}, cache=False))
    assert [row["samples"] for row in outcome.rows] == ["tokens", "words left out"]
    assert "no dropout" in outcome.notes[0]


def test_a_tenth_of_the_words_is_left_out(encoder):
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "the", "dog", "ran"]
    left = sampled._some(words, np.random.default_rng(0))
    assert len(left) == 9
    clouds = sampled.changed_clouds(encoder, TEXTS, passes=3)
    assert clouds.lengths.tolist() == [3] * len(TEXTS)


def test_texts_as_distributions(encoder):
    torch.manual_seed(0)
    rows = sampled.texts_as_distributions(Material(encoder, read_texts(TEXTS), {}, cache=False)).rows
    assert [row["samples"] for row in rows] == ["tokens", "draws of dropout", "words left out"]
    for row in rows[1:]:
        assert row["trace"].value < rows[0]["trace"].value  # vectors of one text lie closer than its tokens
        assert -1 <= row["trace_order_as_tokens"] <= 1
        assert -1 <= row["socm_order_as_tokens"] <= 1
