"""Repairs for decoders: what they take from the model, and that `tune` proves them like all others."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import TokenClouds, tune
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool
from poolscope.repairs import EmbedFilter, Repair
from poolscope.repairs.registry import candidates
from tiny_models import WORDS, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def decoder():
    return tiny_model("Llama", tie_word_embeddings=True), tiny_tokenizer()


def long_texts(count):
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS[:12], size=20)) for _ in range(count)]


def test_the_filter_keeps_the_middle_of_the_spectrum():
    random = np.random.default_rng(0)
    table, vectors = random.normal(size=(40, 8)), random.normal(size=(6, 8))
    _, _, directions = np.linalg.svd(table, full_matrices=False)
    kept = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) @ directions[2:6].T
    expected = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    found = EmbedFilter(0.25, 0.75).with_table(table).fit(vectors).transform(vectors)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-5)


def test_the_table_is_that_of_the_decoder(decoder):
    encoder = as_encoder(decoder)
    prepared = EmbedFilter(0.25, 0.75).prepared(encoder)
    table = decoder[0].get_input_embeddings().weight.detach().numpy()
    np.testing.assert_allclose(prepared.basis_, EmbedFilter(0.25, 0.75).with_table(table).basis_, atol=1e-6)
    assert EmbedFilter().prepared(as_encoder((tiny_model("Bert"), tiny_tokenizer()))) is None
    with pytest.raises(InputError, match="with_table"):
        EmbedFilter().fit(np.eye(4))
    with pytest.raises(InputError, match="low, high"):
        EmbedFilter(0.9, 0.1).with_table(table)


def test_tune_tries_it_for_decoders_only(decoder, tmp_path):
    filters = [part for part in candidates("vectors") if isinstance(part, EmbedFilter)]
    assert len(filters) == 3
    poolings = ["mean without first"]
    result = tune(decoder, long_texts(24), temperatures=[], poolings=poolings, repairs=filters, reranked=0)
    names = [trial.name for trial in result.trials]
    assert {part.label for part in filters} | set(poolings) <= set(names)
    fitted = next(trial.repair for trial in result.trials if trial.name == filters[0].label)
    fitted.save(tmp_path / "repair.safetensors")
    vectors = np.random.default_rng(0).normal(size=(3, 16))
    np.testing.assert_array_equal(Repair.load(tmp_path / "repair.safetensors").finish(vectors), fitted.finish(vectors))
    encoder = (tiny_model("Bert"), tiny_tokenizer())
    other = tune(encoder, long_texts(24), temperatures=[], poolings=["max"], repairs=filters[:1], reranked=0)
    assert any("embed filter" in note for note in other.notes)


def test_the_first_token_is_left_out():
    clouds = TokenClouds.from_arrays([[[100.0, 0.0], [1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]])
    assert pool(clouds, "mean without first").tolist() == [[2.0, 3.0], [5.0, 6.0]]
