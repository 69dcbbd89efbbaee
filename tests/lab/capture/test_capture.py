"""Capture: every family against what the library itself reports, the model untouched, and clear refusals."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import zoo
from poolscope import encode
from poolscope.encoders import as_encoder
from poolscope.encoders.sites import attention_tap, fused_weights, product_norms
from poolscope.errors import InputError, ModelError
from poolscope.lab.capture import OpenModel, capture
from poolscope.lab.capture.model import Observer
from tiny_models import TEXTS, declare, save_model, tiny_model, tiny_tokenizer

PRE_NORM = {"ModernBERT", "EuroBERT", "T5 encoder", "GPT-2", "GPT-NeoX, sequential", "Llama", "Mistral", "Mixtral"}
PRE_NORM |= {"Phi-3", "Qwen2", "Qwen3", "Gemma 2", "Gemma 3"}


def by_text(model, texts=TEXTS, **options):
    return {text.position: text for batch in capture(model, texts, **options) for text in batch.texts()}


class Blind:
    """Watches a batch and keeps nothing."""

    def __init__(self, batch):
        pass

    def add(self, layer):
        pass


def hooks_of(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_every_family_shows_what_the_library_reports(name):
    model, tokenizer = zoo.family(name)
    found = by_text((model, tokenizer))
    assert sorted(found) == list(range(len(TEXTS)))
    for position in (0, 2, 3):
        states, weights = zoo.eager(model, tokenizer, TEXTS[position])
        layers = found[position].layers
        assert len(layers) == len(weights) == 3
        for layer, state, A in zip(layers, states, weights, strict=False):
            np.testing.assert_allclose(layer.A, A, atol=2e-5)
            np.testing.assert_allclose(layer.H, state, atol=1e-4)


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_the_pieces_of_every_family_fit_together(name):
    for text in by_text(zoo.family(name)).values():
        before = None
        for layer in text.layers:
            projections = layer.site.projections
            bare = name == "ModernBERT" and layer.number == 1  # its first layer has no norm before the attention
            assert layer.site.pre_norm == (name in PRE_NORM and not bare)
            assert layer.site.post_norm == (name in {"Gemma 2", "Gemma 3"})
            np.testing.assert_allclose(layer.A.sum(axis=-1), 1, atol=1e-5)
            np.testing.assert_allclose(layer.H + layer.Z, layer.Y, rtol=1e-6, atol=1e-6)
            if before is not None:
                np.testing.assert_array_equal(before.X, layer.H)
            if not layer.site.pre_norm:
                np.testing.assert_array_equal(layer.U, layer.H)
            if not layer.site.post_norm:
                # Biases shift all tokens alike, so that the deviations need the weights only.
                heads = layer.A @ (layer.U.astype(float) @ projections.value_weights) @ projections.output_weights
                ours, theirs = heads.sum(axis=0), layer.Z.astype(float)
                np.testing.assert_allclose(ours - ours.mean(0), theirs - theirs.mean(0), atol=2e-4)
            before = layer


def test_layers_that_share_their_weights_are_told_apart():
    model, tokenizer = zoo.family("ALBERT")
    opened = OpenModel((model, tokenizer))
    assert len(opened.sites) == 3
    assert len({id(site.block) for site in opened.sites}) == 1
    layers = by_text((model, tokenizer))[2].layers
    assert not np.allclose(layers[0].H, layers[1].H)
    groups = zoo.family("ALBERT", inner_group_num=2)[0]
    assert len(OpenModel((groups, tokenizer)).sites) == 6


def test_a_single_layer_is_found():
    assert len(OpenModel((tiny_model("Bert", num_hidden_layers=1), tiny_tokenizer())).sites) == 1
    assert len(OpenModel((tiny_model("Llama", num_hidden_layers=1), tiny_tokenizer())).sites) == 1


@pytest.mark.parametrize("name", ["BERT", "Mistral", "Gemma 3", "T5 encoder"])
def test_padding_never_leaks(name):
    model = zoo.family(name)
    together, alone = by_text(model, batch_tokens=10_000), by_text(model, batch_tokens=1)
    for position, text in together.items():
        for layer, own in zip(text.layers, alone[position].layers, strict=True):
            assert layer.A.shape == own.A.shape
            for letter in "HUZYXA":
                expected = getattr(own, letter)
                np.testing.assert_allclose(getattr(layer, letter), expected, atol=1e-5 * np.abs(expected).max())


def test_eager_and_fused_attention_give_the_same_weights():
    model, tokenizer = zoo.family("BERT")
    fused = by_text((model, tokenizer))
    model.set_attn_implementation("eager")
    for position, text in by_text((model, tokenizer)).items():
        for layer, other in zip(text.layers, fused[position].layers, strict=True):
            np.testing.assert_allclose(layer.A, other.A, atol=1e-5)


@pytest.mark.parametrize("name", ["BERT", "MPNet", "Llama", "Gemma 3"])
def test_the_model_is_as_before(name):
    model, tokenizer = zoo.family(name)
    model.train()
    reference = encode((copy.deepcopy(model), tokenizer), TEXTS)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    config = model.config.to_dict()
    batches = capture((model, tokenizer), TEXTS, batch_tokens=20)
    next(batches)
    assert hooks_of(model) == 0  # between two batches
    assert all(module.training for module in model.modules())
    np.testing.assert_array_equal(encode((model, tokenizer), TEXTS)[2], reference[2])
    batches.close()
    assert hooks_of(model) == 0
    assert model.config.to_dict() == config
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    np.testing.assert_array_equal(encode((model, tokenizer), TEXTS)[2], reference[2])


def test_the_model_is_as_before_after_an_error():
    model, tokenizer = zoo.family("BERT")
    reference = encode((model, tokenizer), TEXTS)[2]
    opened = OpenModel((model, tokenizer))

    class Failing:
        def add(self, layer):
            raise RuntimeError("stop")

    for parallel in (False, True):
        with pytest.raises(RuntimeError, match="stop"):
            list(opened.run(TEXTS, lambda batch: Failing(), parallel=parallel))
    assert hooks_of(model) == 0
    np.testing.assert_array_equal(encode((model, tokenizer), TEXTS)[2], reference)
    with pytest.raises(RuntimeError, match="inside"), attention_tap(lambda weights: None):
        raise RuntimeError("inside")


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "ModernBERT"])
def test_what_is_captured_is_what_is_encoded(name):
    """The pass that is watched gives the vectors of the pass that is not, bit for bit."""
    model = zoo.family(name)
    clouds = encode(model, TEXTS)
    opened = OpenModel(model)
    for batch in opened.run(TEXTS, Blind):
        start = 0
        for position, n in zip(batch.texts.positions, batch.texts.lengths, strict=True):
            np.testing.assert_array_equal(batch.output[start : start + n], clouds[int(position)])
            start += n
    assert opened.final_norm == (name != "BERT")


class Kernels(TorchFunctionMode):
    """Counts the calls of torch's own attention."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.nn.functional.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "ModernBERT"])
def test_attention_from_the_weights_is_that_of_the_kernel(name):
    """Only the first batch, which is checked by it, calls the kernel for what the weights give already."""
    opened = OpenModel(zoo.family(name), batch_tokens=16)
    outputs, calls = [], []
    for own in (True, False):
        with Kernels() as kernels:
            passes = list(opened.run(TEXTS, Blind, own=own))
        outputs.append(np.concatenate([done.output for done in passes]))
        calls.append(kernels.count)
    np.testing.assert_allclose(outputs[1], outputs[0], atol=1e-5)
    assert len(passes) > 1
    assert calls == [3 * len(passes), 3]


def test_a_row_without_weights_is_left_to_the_kernel():
    query, key, value = torch.randn(3, 1, 2, 4, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    attention = partial(torch.nn.functional.scaled_dot_product_attention, query, key, value, attn_mask=mask)
    with Kernels() as kernels, attention_tap(lambda weights: weights()):
        found = attention()
    assert kernels.count == 1
    torch.testing.assert_close(found, attention(), equal_nan=True)


def test_arguments_of_attention_may_come_by_position():
    query, key, value = torch.randn(3, 1, 2, 4, 8, generator=torch.Generator().manual_seed(0))
    attention = partial(torch.nn.functional.scaled_dot_product_attention, query, key, value, None, 0.0, True)
    with Kernels() as kernels, attention_tap(lambda weights: weights()):
        found = attention()
    assert kernels.count == 0
    torch.testing.assert_close(found, attention())


@pytest.mark.parametrize("cores", [1, 2])
def test_one_batch_alone_goes_on_with_the_kernel_however_many_go_together(monkeypatch, cores):
    opened, kept, threads = OpenModel(zoo.family("BERT"), batch_tokens=16), [], torch.get_num_threads()
    watching = Observer.watching

    def noted(self, visitor, *, own=True):
        kept.append(own)
        return watching(self, visitor, own=own)

    monkeypatch.setattr(Observer, "watching", noted)
    torch.set_num_threads(cores)
    try:
        list(opened.run(TEXTS, Blind, own=False, parallel=True))
    finally:
        torch.set_num_threads(threads)
    assert len(kept) > 2
    assert kept.count(True) == 1


def test_a_prompt_that_is_not_pooled_is_marked(tmp_path):
    folder = save_model(tmp_path)
    declare(folder, pooling={"pooling_mode": "mean", "include_prompt": False}, prompts={"query": "query : "})
    text = by_text(str(folder), [TEXTS[0]], role="query")[0]
    clouds = encode(str(folder), [TEXTS[0]], role="query")
    assert text.pooled.tolist() == [False] * 3 + [True] * 7
    assert text.layers[0].A.shape[-1] == 10
    np.testing.assert_array_equal(text.layers[-1].X[text.pooled], clouds[0])


def test_truncation_is_counted():
    (batch,) = capture(zoo.family("BERT"), TEXTS[2:3], max_length=6)
    assert batch.batch.truncated.tolist() == [13]
    assert batch.batch.lengths.tolist() == [6]


def test_chosen_layers():
    found = by_text(zoo.family("BERT"), layers=[1, -1])
    assert [layer.number for layer in found[0].layers] == [1, 3]
    with pytest.raises(InputError, match="layer 0,"):
        by_text(zoo.family("BERT"), layers=[0])
    with pytest.raises(InputError, match="layers: received"):
        by_text(zoo.family("BERT"), layers=[4])


def test_half_precision_and_sentence_transformers(tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = declare(save_model(tmp_path))
    exact = by_text(SentenceTransformer(str(folder), device="cpu"))
    half = by_text(str(folder), dtype="bfloat16", device="cpu")
    assert half[0].layers[0].A.dtype == np.float32
    mpnet = by_text(zoo.family("MPNet"), dtype="float16", device="cpu")  # softmax in half precision, seen as it is
    assert mpnet[0].layers[0].A.dtype == np.float32
    np.testing.assert_allclose(mpnet[0].layers[0].A.sum(axis=-1), 1, atol=1e-2)
    np.testing.assert_allclose(half[0].layers[0].A, exact[0].layers[0].A, atol=0.03)


@pytest.mark.parametrize("name", zoo.REFUSED)
def test_a_hidden_piece_is_named(name):
    model, tokenizer = zoo.refused(name)
    with pytest.raises(ModelError, match=rf"{type(model).__name__}.*cannot show.*{zoo.REFUSED[name][2]}"):
        OpenModel((model, tokenizer))
    assert hooks_of(model) == 0


def test_a_kernel_that_hides_the_weights_is_named():
    model, tokenizer = zoo.family("BERT")
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    def secret(module, query, key, value, attention_mask, **options):
        scores = torch.einsum("bhid,bhjd->bhij", query, key) * module.scaling + attention_mask
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        return (weights @ value).transpose(1, 2), None

    AttentionInterface.register("secret", secret)
    AttentionMaskInterface.register("secret", eager_mask)
    model.set_attn_implementation("secret")
    with pytest.raises(ModelError, match=r"A.*'secret'.*attn_implementation='sdpa'"):
        OpenModel((model, tokenizer))


def test_a_wrong_value_projection_is_refused():
    """The pieces are checked with numbers: a hook that changes the values between the two projections is noticed."""
    model, tokenizer = zoo.family("BERT")
    handle = model.encoder.layer[1].attention.self.value.register_forward_hook(lambda m, a, output: output * 1.1)
    with pytest.raises(ModelError, match="W_V"):
        OpenModel((model, tokenizer))
    handle.remove()
    opened = OpenModel((model, tokenizer))
    model.encoder.layer[1].attention.self.value.register_forward_hook(lambda m, a, output: output * 1.1)
    with pytest.raises(ModelError, match="layer 2"):
        list(opened.run(TEXTS, Blind))


def test_a_changed_residual_is_refused():
    model, tokenizer = zoo.family("BERT")
    opened = OpenModel((model, tokenizer))
    model.encoder.layer[0].attention.output.LayerNorm.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    with pytest.raises(ModelError, match="layer 1"):
        list(opened.run(TEXTS, Blind))


def test_a_changed_step_is_refused():
    model, tokenizer = zoo.family("BERT")
    opened = OpenModel((model, tokenizer))
    model.encoder.layer[2].register_forward_pre_hook(lambda m, args: (args[0] * 2, *args[1:]), prepend=True)
    with pytest.raises(ModelError, match="into layer 3"):
        list(opened.run(TEXTS, Blind))


def test_models_without_layers_are_refused():
    with pytest.raises(ModelError, match=r"'arrays', .*attention.*torch"):
        OpenModel([np.ones((2, 3))])
    with pytest.raises(InputError, match="texts"):
        list(capture(zoo.family("BERT"), []))


@pytest.mark.parametrize("case", ["plain", "causal", "bool mask", "float mask", "grouped", "scaled"])
def test_fused_weights_are_those_of_the_kernel(case):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 4, 6, 8, generator=generator) for _ in range(3))
    options = {
        "plain": {},
        "causal": {"is_causal": True},
        "bool mask": {"attn_mask": torch.rand(2, 1, 6, 6, generator=generator) > 0.3},
        "float mask": {"attn_mask": torch.randn(2, 4, 6, 6, generator=generator)},
        "grouped": {"enable_gqa": True},
        "scaled": {"scale": 0.1},
    }[case]
    if case == "grouped":
        key, value = key[:, :2], value[:, :2]
    if case == "bool mask":
        options["attn_mask"] |= torch.eye(6, dtype=torch.bool)
    kernel = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
    weights = fused_weights(query, key, value, **options)
    values = value.repeat_interleave(4 // value.shape[1], dim=1)
    torch.testing.assert_close(weights @ values, kernel, atol=1e-5, rtol=1e-5)


def test_norms_of_thin_products_are_those_of_the_full_ones():
    random = np.random.default_rng(0)
    left, right = random.standard_normal((3, 30, 4)), random.standard_normal((3, 4, 20))

    def check():
        norms = product_norms(left.swapaxes(1, 2) @ left, right @ right.swapaxes(1, 2))
        np.testing.assert_allclose(norms, np.linalg.norm(left @ right, ord=2, axis=(1, 2)), rtol=1e-12)

    check()
    left[0, :, 1:3], left[1] = 0, 0  # as where a part of a head was pruned, or all of it
    check()
    for name in ("BERT", "GPT-2", "Qwen3", "ModernBERT", "GPT-NeoX, sequential"):
        projections = OpenModel(zoo.family(name)).sites[1].projections
        dense = np.linalg.norm(projections.value_weights @ projections.output_weights, ord=2, axis=(1, 2))
        np.testing.assert_allclose(projections.norms, dense, rtol=1e-10)
        np.testing.assert_allclose(
            projections.value_norms, np.linalg.norm(projections.value_weights, ord=2, axis=(1, 2)), rtol=1e-10
        )


def test_the_support_matrix_is_the_tested_one():
    from support_matrix import BEGIN, DOCUMENT, END, matrix

    text = Path(DOCUMENT).read_text(encoding="utf-8")
    written = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert written.strip() == matrix().strip(), "write it anew: python tests/support_matrix.py"


def test_an_encoder_is_taken_as_it_is():
    encoder = as_encoder(zoo.family("BERT"), max_length=5)
    assert OpenModel(encoder).encoder is encoder
