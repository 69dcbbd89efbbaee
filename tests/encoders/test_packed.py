"""Products with weights that are laid out once: the same numbers, from copies that live as long as a run."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from poolscope import as_encoder
from poolscope.encoders import packed
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


@pytest.mark.parametrize("kind", ["Bert", "Llama", "T5"])
def test_a_model_gives_the_same_vectors(monkeypatch, kind):
    encoder = as_encoder((tiny_model(kind), tiny_tokenizer()), batch_tokens=8)
    texts = ["the cat sat on the mat", "a dog", "the dog sat", "the mat"]
    clouds = []
    for wins in (False, True):
        monkeypatch.setattr(packed, "_wins", lambda wins=wins: wins)
        clouds.append(encoder.encode(texts)[-1])
    for one, other in zip(*clouds, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
