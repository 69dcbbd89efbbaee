"""Attention temperature: every family against a softmax written by hand, padded on either side, at several τ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import zoo
from attention_by_hand import LOWEST, STEPS, batch, by_hand, implementation, run, threads, untouched
from poolscope import tempscale
from poolscope.lab.capture import capture
from poolscope.repairs import Steps
from poolscope.repairs.temperature.switch import token_counts
from tiny_models import TEXTS, tiny_model, tiny_tokenizer


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


def layer_one(model, **options):
    """The attention weights of the first layer by text, in float64."""
    found = {text.position: text for done in capture(model, TEXTS, layers=[1], **options) for text in done.texts()}
    return {position: text.layers[0].A.astype(np.float64) for position, text in found.items()}


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_every_family_equals_a_softmax_by_hand(name):
    model, tokenizer = zoo.family(name)
    own = model.config._attn_implementation
    for side, temperatures in (("right", (0.5, 0.8, STEPS)), ("left", (STEPS,))):
        inputs = batch(tokenizer, side)
        plain = run(model, inputs)
        for tau in temperatures:
            expected = by_hand(model, inputs, tau if callable(tau) else lambda n, tau=tau: tau)
            assert (expected - plain).abs().max() > 0.05, "the temperature must matter"
            for kind in {own, "eager"}:
                with implementation(model, kind), tempscale(model, tau) as applied:
                    found = run(model, inputs)
                torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)
        assert torch.equal(run(model, inputs), plain)
    assert len(applied.layers) == (1 if name == "ALBERT" else 3)
    assert untouched(model)


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_capture_sees_the_scaled_attention_of_every_family(name):
    """The weights at τ are those at 1 to the power 1/τ, normalised: no logits are needed to know them."""
    model, tokenizer = zoo.family(name)
    plain = layer_one((model, tokenizer))
    for rule in (lambda n: 0.5, STEPS):
        with tempscale(model, rule):
            scaled = layer_one((model, tokenizer))
        for position, A in plain.items():
            powers = A ** (1 / rule(A.shape[-1]))
            np.testing.assert_allclose(scaled[position], powers / powers.sum(-1, keepdims=True), atol=2e-5)


@pytest.mark.parametrize("name", ["MPNet", "DeBERTa-v2", "Mistral", "ModernBERT", "Gemma 3", "GPT-2", "T5 encoder"])
def test_masks_stay_masks_at_any_temperature(name):
    """Rows in which all is masked, at temperatures that would take the mask beyond the numbers or to nothing."""
    model, tokenizer = zoo.family(name)
    for side in ("left", "right"):
        inputs = batch(tokenizer, side)
        for tau in (0.05, 1000.0):
            with tempscale(model, tau):
                assert torch.isfinite(run(model, inputs)).all()
    with tempscale(model, STEPS):
        together = run(model, batch(tokenizer))
        alone = torch.cat([run(model, batch(tokenizer, texts=[text])) for text in TEXTS])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    ("architecture", "settings"),
    [("Deberta", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}), ("GPTNeoX", {})],
)
def test_families_that_capture_does_not_show(architecture, settings):
    model, inputs = tiny_model(architecture, **zoo._PLAIN, **settings), batch(tiny_tokenizer())
    with tempscale(model, STEPS):
        found = run(model, inputs)
    torch.testing.assert_close(found, by_hand(model, inputs, STEPS), rtol=0, atol=2e-4)
    assert untouched(model)


@pytest.mark.parametrize("name", ["BERT", "MPNet", "T5 encoder", "Gemma 2"])
def test_a_temperature_of_one_changes_no_bit(name):
    model, tokenizer = zoo.family(name)
    inputs = batch(tokenizer)
    plain = run(model, inputs)
    for tau in (1, Steps((6,), (1.0, 1.0)), lambda n: 1.0):
        with tempscale(model, tau):
            assert torch.equal(run(model, inputs), plain)


def test_tokens_are_counted_from_any_mask():
    rows = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1]]).bool()
    full = rows[:, None, None, :].expand(2, 1, 4, 4)
    causal = full & torch.ones(4, 4).tril().bool()
    window = causal & torch.ones(4, 4).triu(-1).bool()
    for mask in (full, causal, window, full[:, :, :1], full.long(), (full & rows[:, None, :, None])):
        assert token_counts(mask).tolist() == [3, 2]
        additive = torch.where(mask.bool(), 0.0, LOWEST)
        assert token_counts(additive).tolist() == [3, 2]
        assert token_counts(torch.where(mask.bool(), 0.0, -10_000.0)).tolist() == [3, 2]
