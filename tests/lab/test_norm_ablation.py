"""What replacing the gains and biases of norms does to tokens, and that the model is the same afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import zoo
from poolscope.errors import InputError
from poolscope.lab import norm_ablation as module
from poolscope.lab.capture.norms import REPLACEMENTS, Replacement, norm_layout, replaced_norms
from poolscope.lab.norm_ablation import NormAblation, norm_ablation
from tiny_models import TEXTS


def rough(name):
    """A model whose gains and biases vary much, as those of trained models do."""
    model, tokenizer = zoo.family(name)
    with torch.no_grad():
        for seed, (path, parameter) in enumerate(model.named_parameters()):
            if parameter.ndim == 1 and ("norm" in path.lower() or ".ln_" in path):
                generator = torch.Generator().manual_seed(seed)
                shift = 0.0 if path.endswith("bias") or name == "Gemma 3" else 1.0
                parameter.copy_(shift + torch.randn(parameter.shape, generator=generator) / 2)
    return model, tokenizer


def variations(ablation):
    return {
        str(replacement): [layer.variation.value for layer in statistics.layers]
        for replacement, statistics in zip(ablation.replacements, ablation.statistics, strict=True)
    }


def test_in_a_post_norm_model_equal_gains_and_no_bias_make_all_norms_equal():
    measured = variations(norm_ablation(rough("BERT"), TEXTS * 2, min_count=2))
    assert min(measured["as it is"]) > 0.02
    assert max(measured["gain → mean, bias → zero"]) < 1e-6
    assert max(measured["gain → one, bias → zero"]) < 1e-6
    assert min(measured["bias → zero"]) > 1e-3
    assert min(measured["gain → mean"]) > 1e-3


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Gemma 3"])
def test_in_a_pre_norm_model_only_the_output_behind_the_final_norm_becomes_equal(name):
    measured = variations(norm_ablation(rough(name), TEXTS * 2, min_count=2))["gain → mean, bias → zero"]
    assert min(measured[:-1]) > 0.02
    assert measured[-1] < 1e-6


@pytest.mark.parametrize("name", ["BERT", "Qwen3", "Gemma 3"])
def test_the_model_is_the_same_afterwards(name):
    pair = rough(name)
    before = {path: parameter.clone() for path, parameter in pair[0].state_dict().items()}
    ablation = norm_ablation(pair, TEXTS, replacements=REPLACEMENTS[3:], min_count=2)
    assert all(torch.equal(pair[0].state_dict()[path], value) for path, value in before.items())
    assert len(ablation.statistics) == 2


def test_the_model_is_restored_after_an_error(monkeypatch):
    pair = rough("BERT")
    before = {path: parameter.clone() for path, parameter in pair[0].state_dict().items()}

    def fail(*arguments, **choices):
        assert not pair[0].encoder.layer[0].output.LayerNorm.bias.any()
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "token_statistics", fail)
    with pytest.raises(RuntimeError, match="of memory"):
        norm_ablation(pair, TEXTS, replacements=[Replacement(bias="zero")])
    assert all(torch.equal(pair[0].state_dict()[path], value) for path, value in before.items())


def test_replaced_gains_are_the_effective_ones():
    pair = rough("Gemma 3")
    layout = norm_layout(pair)
    with replaced_norms([pair[0]], layout, Replacement(gain="mean")):
        inside = norm_layout(pair)
    for before, now in zip(layout.norms, inside.norms, strict=True):
        expected = before.gain if before.role == "query/key" else np.full_like(before.gain, before.gain.mean())
        np.testing.assert_allclose(now.gain, expected, rtol=1e-3, atol=1e-3)
    with replaced_norms([pair[0]], layout, Replacement(gain="one")):
        ones = [norm.gain for norm in norm_layout(pair).norms if norm.role != "query/key"]
    np.testing.assert_allclose(np.concatenate(ones), 1, rtol=1e-3)


def test_table_of_an_ablation(tmp_path):
    ablation = norm_ablation(rough("BERT"), TEXTS, replacements=REPLACEMENTS[:2], min_count=2)
    rows = ablation.to_table().to_pylist()
    assert [(row["replacement"], row["layer"]) for row in rows[:5]] == [("as it is", k) for k in range(4)] + [
        ("bias → zero", 0)
    ]
    assert ablation.to_dict()["norms"]["layout"] == "post-norm"
    assert ablation.headline()["replacements"] == 2
    ablation.save(tmp_path / "a.json")
    loaded = NormAblation.load(tmp_path / "a.json")
    assert (loaded.rows(), loaded.replacements) == (ablation.rows(), ablation.replacements)
    np.testing.assert_array_equal(loaded.norms.norms[0].gain, ablation.norms.norms[0].gain)
    with pytest.raises(InputError, match="gain='half'"):
        Replacement(gain="half")
