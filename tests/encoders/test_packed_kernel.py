"""The compiled products and attention: against torch in double precision, and inside models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from poolscope import as_encoder
from poolscope.encoders import packed
from poolscope.numbers.bures.native import copy_name
from tiny_models import TEXTS, tiny_model, tiny_tokenizer


@pytest.fixture(autouse=True)
def one_core():
    """A core for itself, and the kernel; a folder that has lost it fails, since a skip would hide that."""
    if copy_name() not in ("v3", "v4"):
        pytest.skip("the kernel of encoders is for AVX2, which is missing here or not wanted (POOLSCOPE_KERNEL)")
    if packed.library() is None:
        pytest.fail("no kernel of encoders. Build it: python -m pip install --editable . (with gcc or clang)")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("count", [1, 5, 6, 301])
@pytest.mark.parametrize(("depth", "columns"), [(7, 16), (384, 48), (1_000, 32)])
def test_a_product_is_that_of_torch(count, depth, columns):
    torch.manual_seed(0)
    rows, weight, bias = torch.randn(2, count, depth), torch.randn(columns, depth), torch.randn(columns)
    for added in (bias, None):
        out = packed.product(rows, packed.panels(weight), added)
        exact = linear(rows.double(), weight.double(), None if added is None else added.double())
        assert out.shape == exact.shape
        assert (out - exact).abs().max() < 1e-5 * depth**0.5


def heads(rows, width):
    """Rows (tokens × heads * width) as attention takes them."""
    return rows.unflatten(1, (-1, width)).transpose(0, 1)[None]


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("size", [1, 20])  # with 20 most weights are 0 or 1
def test_attention_stays_within_each_text(width, size):
    torch.manual_seed(0)
    lengths = [1, 7, 16, 17, 401, 33]
    wide = torch.randn(sum(lengths), 3 * 2 * width)
    query, key, value = (heads(part, width) for part in wide.split(2 * width, dim=1))
    assert packed.attends(query, key, value)
    out = packed.attention(query * size, key, value, lengths=lengths, scale=0.3)
    parts = zip(*(row.double().split(lengths, dim=2) for row in (query * size, key, value)), strict=True)
    exact = torch.cat([scaled_dot_product_attention(*part, scale=0.3) for part in parts], dim=2)
    assert (out - exact).abs().max() < 1e-6 * max(1, 4 * size)
    key[0, 0, 1] = torch.nan  # of the second text
    first, second, *rest = packed.attention(query, key, value, lengths=lengths, scale=0.3).split(lengths, dim=2)
    assert second[0, 0].isnan().all()
    assert not any(part.isnan().any() for part in (first, second[0, 1], *rest))


def test_attention_of_other_kinds_is_refused():
    rows = torch.zeros(1, 2, 5, 16)
    assert packed.attends(rows, rows, rows)
    assert not packed.attends(rows.double(), rows.double(), rows.double())
    assert not packed.attends(rows, rows[:, :1], rows[:, :1])  # fewer heads of keys than of queries
    assert not packed.attends(*[torch.zeros(1, 2, 5, 8)] * 3)
    assert not packed.attends(*[torch.zeros(1, 2, 16, 5).transpose(2, 3)] * 3)


@pytest.mark.parametrize(
    ("kind", "threads", "used"),
    [("Bert", 1, {"product", "attention"}), ("Llama", 1, {"product"}), ("Bert", 2, set())],  # Llama looks back only
)
def test_a_model_gives_the_same_vectors(monkeypatch, kind, threads, used):
    calls = set()
    for name in ("product", "attention"):
        run = getattr(packed, name)
        monkeypatch.setattr(packed, name, lambda *a, run=run, name=name, **k: calls.add(name) or run(*a, **k))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    model = tiny_model(kind, hidden_size=32, intermediate_size=48)
    encoder = as_encoder((model, tiny_tokenizer()), batch_tokens=24)
    clouds = encoder.encode(TEXTS * 3)[-1]
    assert "product" in calls
    monkeypatch.setattr(packed, "_wins", lambda: False)
    plain = encoder.encode(TEXTS * 3)[-1]
    np.testing.assert_allclose(np.concatenate(list(clouds)), np.concatenate(list(plain)), atol=1e-5)
    calls.clear()
    monkeypatch.setattr(packed, "_wins", lambda: True)
    within = packed.packed_products(model, 9)
    torch.set_num_threads(threads)
    with torch.inference_mode(), packed.texts_alone(within, [4, 3]):
        ids = torch.tensor([[3, 4, 5, 6, 3, 4, 5]])
        model(input_ids=ids, position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2]]))
    assert calls == used


def test_rows_that_do_not_fit_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    layer = torch.nn.Linear(24, 32)
    with torch.inference_mode(), packed.packed_products(layer, 9):
        across = torch.randn(24, 7).t()
        torch.testing.assert_close(layer(across), layer(across.contiguous()))
        for rows in (torch.zeros(7, 24, dtype=torch.float64), torch.zeros(7, 23)):
            with pytest.raises(RuntimeError, match=r"dtype|shapes"):
                layer(rows)
