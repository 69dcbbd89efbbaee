"""Inputs put together from tokens: what is encoded is what the tokenizer would give, at the positions asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from length_data import word_model, word_texts
from poolscope import as_encoder, encode
from poolscope.encoders.batching import TokenInputs
from poolscope.errors import InputError, ModelError
from tiny_models import declare, save_model

TEXTS = word_texts(8, most=60)


@pytest.fixture(scope="module")
def pair():
    return word_model()


@pytest.fixture(scope="module")
def inputs(pair):
    return TokenInputs(as_encoder(pair))


def means(clouds):
    return np.stack([cloud.mean(axis=0, dtype=float) for cloud in clouds])


def test_whole_texts_are_those_of_the_encoder(pair, inputs):
    rows = inputs.content(TEXTS)
    assert [len(row) for row in rows] == [len(text.split()) for text in TEXTS]
    assert (inputs.added, inputs.limit, inputs.positions) == (2, 64, 128)
    np.testing.assert_allclose(inputs.encode(rows), means(encode(pair, TEXTS)), atol=1e-5)


def test_a_cut_is_the_truncation_of_the_tokenizer(pair, inputs):
    cut = [inputs.cut(row, 10) for row in inputs.content(TEXTS)]
    np.testing.assert_allclose(inputs.encode(cut), means(encode(pair, TEXTS, max_length=10)), atol=1e-5)
    assert len(inputs.cut(cut[0], 1)) == 0


def test_prompts_stay_in_front_and_out_of_the_cloud(tmp_path):
    folder = save_model(tmp_path)
    declare(folder, pooling={"pooling_mode": "mean", "include_prompt": False}, prompts={"query": "query : "})
    texts = ["the cat sat", "a dog"]
    asked = TokenInputs(as_encoder(str(folder), role="query"))
    assert asked.added == 4
    assert [len(row) for row in asked.content(texts)] == [3, 2]
    expected = means(encode(str(folder), texts, role="query"))
    np.testing.assert_allclose(asked.encode(asked.content(texts)), expected, atol=1e-5)


def test_a_tokenizer_that_adds_nothing(tmp_path):
    from tiny_models import tiny_model, tiny_tokenizer

    pair = (tiny_model("GPT2"), tiny_tokenizer(template=None))
    inputs = TokenInputs(as_encoder(pair))
    assert inputs.added == 0
    np.testing.assert_allclose(inputs.encode(inputs.content(["cat dog"])), means(encode(pair, ["cat dog"])), atol=1e-5)


def test_moved_tokens_stand_at_other_positions(pair, inputs):
    model, _ = pair
    row = inputs.content([TEXTS[0]])[0][:10]
    ids = torch.tensor([[1, *row.tolist(), 2]])
    positions = torch.arange(12) + torch.tensor([0, *[50] * 11])  # [CLS] stays
    with torch.inference_mode():
        expected = model(input_ids=ids, position_ids=positions[None]).last_hidden_state[0].mean(dim=0)
    with inputs.moved(50):
        moved = inputs.encode([row, row[:3]])
    np.testing.assert_allclose(moved[0], expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(inputs.encode([row]), means(encode(pair, [" ".join(TEXTS[0].split()[:10])])), atol=1e-5)


def test_positions_that_cannot_be_moved():
    inputs = TokenInputs(as_encoder(word_model("Llama")))
    assert inputs.position_tables() == []
    with pytest.raises(ModelError, match=r"LlamaModel .*absolute"), inputs.moved(3):
        pass


def test_what_cannot_be_done_is_named(inputs):
    with pytest.raises(ModelError, match=r"'function', .* tokens"):
        TokenInputs(as_encoder(lambda texts: [[[1.0]] for _ in texts]))
    with pytest.raises(InputError, match=r"130 tokens; .* 128 positions"):
        inputs.encode([np.full(128, 5, dtype=np.int32)])


def test_an_input_is_encoded_once_at_each_position(pair):
    inputs = TokenInputs(as_encoder(pair))
    inputs.remember(TEXTS[:1], np.zeros((1, inputs.encoder.card.dimension)))
    rows = [inputs.cut(row, inputs.limit) for row in inputs.content(TEXTS[:3])]
    first = inputs.encode(rows)
    assert not first[0].any()  # what was remembered
    read = inputs.encoded
    assert read == sum(len(row) + inputs.added for row in rows[1:])
    np.testing.assert_array_equal(inputs.encode([rows[2], rows[1]]), first[[2, 1]])
    assert inputs.encoded == read
    with inputs.moved(3):
        assert not np.allclose(inputs.encode(rows[1:]), first[1:], atol=1e-5)
    assert inputs.encoded == 2 * read
