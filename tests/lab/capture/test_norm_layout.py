"""Norms found by watching a pass: tiny models of every layout, and the real one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests import zoo
from tests.tiny_models import tiny_model, tiny_tokenizer

from poolscope.errors import ModelError
from poolscope.lab.capture.norms import norm_layout, probe

POST, PRE, SANDWICH = "post-norm", "pre-norm", "sandwich-norm"
FAMILIES = {
    **dict.fromkeys(("BERT", "RoBERTa", "XLM-RoBERTa", "CamemBERT", "MPNet", "DistilBERT"), (POST, "LayerNorm")),
    **dict.fromkeys(("ELECTRA", "ALBERT", "NomicBERT", "DeBERTa-v2", "BART encoder"), (POST, "LayerNorm")),
    **dict.fromkeys(("ModernBERT", "GPT-2"), (PRE, "LayerNorm")),
    **dict.fromkeys(("T5 encoder", "Llama", "Mistral", "Mixtral", "Phi-3", "Qwen2", "Qwen3"), (PRE, "RMSNorm")),
    **dict.fromkeys(("Gemma 2", "Gemma 3"), (SANDWICH, "RMSNorm")),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # DeBERTa of transformers
@pytest.mark.parametrize("name", FAMILIES)
def test_layout_and_kind_of_every_family(name):
    model, tokenizer = zoo.family(name)
    with torch.no_grad():  # give every norm a gain and a bias of its own
        for seed, (path, parameter) in enumerate(model.named_parameters()):
            if "norm" in path.lower() or ".ln_" in path:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    layout = norm_layout((model, tokenizer))
    kinds, roles = {norm.kind for norm in layout.norms}, {norm.role for norm in layout.norms}
    assert (layout.layout, kinds) == (FAMILIES[name][0], {FAMILIES[name][1]})
    assert ("final" in roles) == (layout.layout != POST)
    assert ("query/key" in roles) == (name in {"Qwen3", "Gemma 3"})
    encoder = model.get_encoder() if name.endswith(" encoder") else model
    for norm in layout.norms:
        stored = encoder.get_submodule(norm.name)
        offset = 1.0 if name.startswith("Gemma") else 0.0
        np.testing.assert_allclose(norm.gain, stored.weight.detach().numpy() + offset, rtol=1e-3, atol=1e-3)
        bias = getattr(stored, "bias", None)
        np.testing.assert_allclose(norm.bias, 0 if bias is None else bias.detach().numpy(), rtol=1e-3, atol=1e-3)


def test_norms_of_the_branches_only_and_shared_norms():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    model = tiny_model("Olmo2", **sizes, num_key_value_heads=4)
    assert norm_layout((model, tiny_tokenizer())).layout == "branch-norm"
    shared = norm_layout(zoo.family("ALBERT"))
    assert [norm.layers for norm in shared.norms] == [(0,), (1, 2, 3), (1, 2, 3)]


def test_norms_without_gain():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    layout = norm_layout((tiny_model("Olmo", **sizes, num_key_value_heads=4), tiny_tokenizer()))
    assert layout.layout == "pre-norm"
    for norm in layout.norms:
        assert norm.kind == "LayerNorm"
        np.testing.assert_allclose(norm.gain, 1, rtol=1e-3)


def test_a_norm_that_only_scales_and_shifts():
    class NoNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))

        def forward(self, x):
            return x * self.weight + 1

    kind, gain, bias = probe(NoNorm(), like=torch.zeros(1, 1, 3))
    assert (kind, gain.tolist(), bias.tolist()) == ("affine", [2.0, 3.0, 4.0], [1.0, 1.0, 1.0])


def test_words_tables_and_dictionaries():
    layout = norm_layout(zoo.family("BERT"))
    assert str(layout) == "post-norm (7 LayerNorm, no final norm)"
    assert str(norm_layout(zoo.family("GPT-2"))) == "pre-norm (7 LayerNorm)"
    table = layout.to_table().to_pylist()
    assert [row["role"] for row in table] == ["embeddings"] + ["post"] * 6
    assert table[0]["size"] == 32
    assert table[3]["gain_mean"] == pytest.approx(1, rel=1e-3)
    assert layout.to_dict()["norms"][1]["layers"] == [1]


def test_models_without_torch_are_refused():
    with pytest.raises(ModelError, match=r"'function', .* attention"):
        norm_layout(lambda texts: [[[1.0]] for _ in texts])


@pytest.mark.model
def test_norms_of_the_built_in_model():
    layout = norm_layout("builtin:minilm")
    assert str(layout) == "post-norm (13 LayerNorm, no final norm)"
    assert layout.norms[-1].gain.mean() == pytest.approx(0.640, abs=0.001)
