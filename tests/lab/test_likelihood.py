"""The likelihood of a continuation after a compressed context, on a tiny decoder with random weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from poolscope import context_likelihood
from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import unembedding_of
from poolscope.encoders.decoders import is_causal
from poolscope.errors import InputError, ModelError
from poolscope.lab.capture.continuation import context_tokens
from tiny_models import ARCHITECTURES, SPECIAL, WORDS, save_model, tiny_model, tiny_tokenizer

TEXT = "the red dog ran fast under the blue tree and the slow cat sat on a mat"
TEXTS = [
    TEXT,
    " ".join(reversed(TEXT.split())),
    "a cat",
    "the dog ran on and on and on and the cat sat under a red tree",
]


def tiny_decoder(name="Llama", **settings):
    torch.manual_seed(0)
    ids = {"vocab_size": len(SPECIAL) + len(WORDS), "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    config = getattr(transformers, f"{name}Config")(**{**ids, **ARCHITECTURES[name], **settings})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    return model


@pytest.fixture(scope="module")
def decoder():
    return tiny_decoder(), tiny_tokenizer()


def by_hand(model, ids, context):
    """Log-likelihood of what follows the context and one more token, by the head of transformers."""
    with torch.inference_mode():
        scores = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    return float(np.mean([scores[k - 1, ids[k]] for k in range(context + 1, len(ids))]))


def test_full_and_truncated_and_no_context_are_those_of_transformers(decoder):
    model, _ = decoder
    result = context_likelihood(decoder, TEXTS, ratios=[4], context=8, continuation=5)
    assert (result.texts, result.short) == (3, 1)
    lead, ids, kept = context_tokens(as_encoder(decoder), TEXTS, 13)
    assert kept.tolist() == [0, 1, 3]
    assert lead.tolist() == [0]  # <s> stays before every context
    values = dict(zip(result.forms, result.values.T, strict=True))
    for row, tokens in enumerate(ids.tolist()):
        assert values["full"][row] == pytest.approx(by_hand(model, [0, *tokens], 9), abs=1e-5)
        # Rotary positions are relative, but for the first token, which stays at its place: compare with a mask.
        states = model.get_input_embeddings()(torch.tensor([[0, *tokens[6:]]]))
        places = torch.tensor([[0, *range(7, 14)]])
        with torch.inference_mode():
            scores = model(inputs_embeds=states, position_ids=places).logits[0].log_softmax(-1)
        last = np.mean([scores[k - 1, tokens[k + 5]] for k in range(4, 8)])
        assert values["last:4"][row] == pytest.approx(float(last), abs=1e-5)


def test_windows_of_equal_tokens_are_their_means(decoder):
    """A context of one word again and again: every window is that word, at the position of the centre."""
    model, _ = decoder
    texts = ["cat " * 8 + "the dog ran fast", "dog " * 8 + "the cat sat slow"]
    result = context_likelihood(decoder, texts, ratios=[4], context=8, continuation=4)
    values = dict(zip(result.forms, result.values.T, strict=True))
    np.testing.assert_allclose(values["mean:4"], values["adaptive:4"], atol=1)  # cuts of equal tokens are free
    _, ids, _ = context_tokens(as_encoder(decoder), texts, 12)
    for row, tokens in enumerate(ids.tolist()):
        states = model.get_input_embeddings()(torch.tensor([[0, tokens[0], tokens[0], *tokens[8:]]]))
        places = torch.tensor([[0, 2, 6, 9, 10, 11, 12]])
        with torch.inference_mode():
            scores = model(inputs_embeds=states, position_ids=places).logits[0].log_softmax(-1)
        expected = np.mean([scores[k - 1, tokens[k + 5]] for k in range(4, 7)])
        assert values["mean:4"][row] == pytest.approx(float(expected), abs=1e-5)


def test_what_is_kept_lies_between_none_and_full(decoder):
    result = context_likelihood(decoder, TEXTS, ratios=[2, 4], context=8, continuation=5)
    row = result.ratios[0]
    values = dict(zip(result.forms, result.values.T, strict=True))
    gain = (values["full"] - values["none"]).sum()
    assert row.kept.value == pytest.approx((values["mean:2"] - values["none"]).sum() / gain)
    assert row.compressed.value == pytest.approx((values["mean:2"] - values["full"]).mean())
    assert row.states == 4
    assert len(result.figure().data) == 3
    assert type(result).from_dict(result.to_dict(arrays=True)).to_dict() == result.to_dict()


def test_the_output_words_are_read_from_where_they_are(decoder, tmp_path):
    model, tokenizer = decoder
    head = model.lm_head.weight.detach().numpy()
    np.testing.assert_array_equal(unembedding_of(as_encoder(decoder)), head)
    model.save_pretrained(tmp_path / "whole")
    tokenizer.save_pretrained(tmp_path / "whole")
    np.testing.assert_array_equal(unembedding_of(as_encoder(tmp_path / "whole")), head)
    bare = as_encoder(save_model(tmp_path / "bare", "Llama"))
    with pytest.raises(ModelError, match=r"/bare: .* next word"):
        unembedding_of(bare)
    tied = as_encoder((tiny_model("Llama", tie_word_embeddings=True), tokenizer))
    assert unembedding_of(tied).shape == (25, 16)


def test_encoders_and_short_texts_are_refused(decoder):
    assert is_causal(as_encoder(decoder))
    assert not is_causal(as_encoder((tiny_model("Bert"), tiny_tokenizer())))
    with pytest.raises(ModelError, match="no decoder"):
        context_likelihood((tiny_model("Bert"), tiny_tokenizer()), TEXTS, ratios=[4], context=8, continuation=5)
    with pytest.raises(InputError, match=r"0 of 1 .* 13 tokens"):
        context_likelihood(decoder, ["a cat"], ratios=[4], context=8, continuation=5)
    with pytest.raises(InputError, match="two windows"):
        context_likelihood(decoder, TEXTS, ratios=[8], context=8, continuation=5)
