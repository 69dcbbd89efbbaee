"""Weights that are laid out once and texts that are not padded: the same numbers, and nothing that a model is told."""

from __future__ import annotations

from contextlib import nullcontext
from functools import wraps

import numpy as np
import pytest
import torch

from poolscope import as_encoder, tempscale
from poolscope.encoders import packed
from tiny_models import TEXTS as TINY
from tiny_models import tiny_model, tiny_tokenizer


def test_the_copies_give_the_same_products(monkeypatch):
    monkeypatch.setattr(packed, "_wins", lambda: True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.Linear(40, 24, bias=False))
    rows = torch.randn(3, 7, 24)
    with torch.inference_mode():
        plain = model(rows)
        within = packed.packed_products(model, 3)
        model[0].weight.data.zero_()
        with within:
            assert torch.allclose(model(rows), plain, atol=1e-5)
        assert not torch.allclose(model(rows), plain, atol=1e-5)
    assert isinstance(packed.packed_products(model, 2), nullcontext)
    assert isinstance(packed.packed_products(model.double(), 9), nullcontext)


TEXTS = [*TINY, "the mat", "the dog sat", "a dog ran", "the <pad> cat"] * 2


def both_ways(monkeypatch, encoder, **settings):
    """The clouds of the ordinary way, those of the other one, and the shapes of its batches."""
    clouds, shapes = [], []
    forward = type(encoder.backend.models[0]).forward
    monkeypatch.setattr(
        type(encoder.backend.models[0]),
        "forward",
        wraps(forward)(lambda *args, **given: shapes.append(given["input_ids"].shape) or forward(*args, **given)),
    )
    for wins in (False, True):
        monkeypatch.setattr(packed, "_wins", lambda wins=wins: wins)
        shapes.clear()
        clouds.append(encoder.encode(TEXTS, **settings))
    return *clouds, shapes


def assert_equal(one, other):
    for layer in one:
        np.testing.assert_allclose(np.concatenate(list(one[layer])), np.concatenate(list(other[layer])), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "start"),
    [("Bert", 0), ("Roberta", 2), ("DistilBert", 0), ("NomicBert", 0), ("Llama", 0)]
    + [(kind, None) for kind in ("MPNet", "ModernBert", "T5")],
)
def test_a_model_gives_the_same_vectors_of_all_layers(monkeypatch, kind, start):
    model = tiny_model(kind)
    encoder = as_encoder((model, tiny_tokenizer()), batch_tokens=40)
    plain, other, shapes = both_ways(monkeypatch, encoder, layers=[0, 1, 2])
    assert_equal(plain, other)
    assert packed.first_position(model) == start
    run = shapes[-len(encoder.plan(TEXTS)) :]  # without the trial
    assert any(rows > 1 for rows, _ in run) == (start != 0)  # RoBERTa gives <pad> no position of its own
    assert (max(width for _, width in run) > max(map(len, plain[2]))) == (start is not None)


def test_whoever_watches_or_scales_a_model_sees_padded_texts(monkeypatch):
    model = tiny_model("Bert")
    encoder, seen = as_encoder((model, tiny_tokenizer()), batch_tokens=24), []
    assert packed.first_position(model) == 0
    hook = model.encoder.layer[0].register_forward_hook(lambda module, args, output: seen.append(output.shape[0]))
    assert_equal(*both_ways(monkeypatch, encoder)[:2])
    assert max(seen) > 1
    hook.remove()
    with tempscale(model, lambda n: 0.5 + n / 10):
        plain, other, shapes = both_ways(monkeypatch, encoder)
        assert_equal(plain, other)
        assert max(rows for rows, _ in shapes) > 1


def test_a_row_that_a_model_does_not_take_is_padded(monkeypatch):
    model = tiny_model("ModernBert")  # its windows come with a mask
    packed._starts[model] = 0
    assert_equal(*both_ways(monkeypatch, as_encoder((model, tiny_tokenizer()), batch_tokens=24))[:2])
    assert packed.first_position(model) is None


def test_windows_which_only_a_long_row_would_mask_are_not_tried():
    model = tiny_model("Llama")
    model.config.sliding_window = 16
    assert packed.first_position(model) is None


def test_rows_have_room_for_more_tokens_than_padded_batches(monkeypatch):
    monkeypatch.setattr(packed, "_wins", lambda: True)
    encoder = as_encoder((tiny_model("Bert"), tiny_tokenizer()))
    sizes = [int(batch.mask.sum()) for batch in encoder.plan(TEXTS * 600)]
    assert len(sizes) >= 12
    assert max(sizes) > 1_500
    assert max(sizes) - min(sizes) < 40
    encoder = as_encoder((tiny_model("Bert"), tiny_tokenizer()), batch_tokens=500)
    assert max(batch.ids.size for batch in encoder.plan(TEXTS * 600)) <= 500
