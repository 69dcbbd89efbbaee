"""Linear layers in bytes: near single precision, alone as in a batch, and only where they were asked for."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from poolscope import as_encoder, encode
from poolscope.encoders.int8 import in_int8
from poolscope.errors import InputError
from tiny_models import save_model, tiny_model, tiny_tokenizer

TEXTS = ["one two three", "four", "five six seven eight nine ten", "two two"]


@pytest.fixture(scope="module")
def layers():
    torch.manual_seed(0)
    exact = torch.nn.Sequential(torch.nn.Linear(48, 32), torch.nn.Linear(32, 16, bias=False))
    exact.device = torch.device("cpu")
    return exact, in_int8(copy.deepcopy(exact))


def test_rows_are_rounded_by_their_own_scale(layers):
    exact, rounded = layers
    rows = torch.randn(5, 7, 48) * torch.logspace(-3, 3, 7)[:, None]  # one scale for all would lose the small ones
    for values, others in ((exact[0](rows), rounded[0](rows)), (exact[1](rows[..., :32]), rounded[1](rows[..., :32]))):
        error = (others - values).norm(dim=-1) / values.norm(dim=-1)
        assert 0 < error.max() < 0.03
    assert torch.equal(rounded[0](rows)[2, 3], rounded[0](rows[2, 3][None])[0])
    assert torch.equal(rounded[0](torch.zeros(1, 48))[0], exact[0].bias)


def test_a_folder_in_bytes_is_near_single_precision(tmp_path):
    folder = save_model(tmp_path)
    exact, rounded = encode(folder, TEXTS), encode(folder, TEXTS, dtype="int8")
    assert rounded.provenance["model"]["dtype"] == "int8"
    assert rounded.provenance["model"]["parameters"] == exact.provenance["model"]["parameters"]
    moved = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(rounded, exact, strict=True)]
    assert 0 < max(moved) < 0.1


def test_a_loaded_model_stays_what_it_is():
    model, tokenizer = tiny_model("Bert"), tiny_tokenizer()
    before = encode((model, tokenizer), TEXTS)
    rounded = as_encoder((model, tokenizer), dtype="int8").encode(TEXTS)[-1]
    assert np.array_equal(encode((model, tokenizer), TEXTS)[0], before[0])
    assert not np.array_equal(rounded[0], before[0])


def test_a_model_without_linear_layers_is_refused():
    bare = torch.nn.Sequential(torch.nn.ReLU())
    bare.device = torch.device("cpu")
    with pytest.raises(InputError, match=r"--dtype int8: .*linear"):
        in_int8(bare)
    bare.device = torch.device("cuda")
    with pytest.raises(InputError, match=r"--dtype int8 .* cuda"):
        in_int8(bare)
