"""Loading: loaded models are left as they were, folders are recognised, nothing unsafe or missing slips through."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import transformers

from poolscope.encoders import as_encoder, encode
from poolscope.encoders.tokens import Vocabulary, check_vocabulary
from poolscope.errors import ModelError
from tiny_models import TEXTS, declare, save_model, tiny_model, tiny_tokenizer, write

# -- loaded models ----------------------------------------------------------------------------------------------


def test_a_loaded_model_in_training_mode_is_used_without_dropout_and_left_as_it_was():
    model, tokenizer = tiny_model("Bert"), tiny_tokenizer()
    quiet = encode((model, tokenizer), TEXTS)
    model.train()
    model.embeddings.eval()
    clouds = encode((model, tokenizer), TEXTS)
    np.testing.assert_array_equal(clouds[0], quiet[0])
    assert model.training
    assert model.encoder.training
    assert not model.embeddings.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_revision_of_a_loaded_model_follows_its_weights_and_vocabulary():
    model, tokenizer = tiny_model("Bert"), tiny_tokenizer()
    first = as_encoder((model, tokenizer)).card.revision
    assert as_encoder((copy.deepcopy(model), tiny_tokenizer())).card.revision == first
    tokenizer.add_tokens(["zebra"])
    assert as_encoder((model, tokenizer)).card.revision != first
    with torch.no_grad():
        model.encoder.layer[0].output.dense.bias += 1
    assert as_encoder((model, tiny_tokenizer())).card.revision != first


def test_the_revision_of_a_folder_follows_its_files(tmp_path):
    first = as_encoder(save_model(tmp_path / "a")).card.revision
    assert as_encoder(save_model(tmp_path / "b")).card.revision == first
    assert as_encoder(save_model(tmp_path / "c", seed=1)).card.revision != first


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"]
)
def test_the_revision_of_a_folder_follows_every_setting(name, tmp_path):
    folder = declare(save_model(tmp_path / "a"), pooling={"pooling_mode_mean_tokens": True}, bert={"max_seq_length": 9})
    (folder / "README.md").write_text("of no account", encoding="utf-8")
    first = as_encoder(folder).card.revision
    (folder / "README.md").write_text("still of no account", encoding="utf-8")
    assert as_encoder(folder).card.revision == first
    (folder / name).write_text((folder / name).read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert as_encoder(folder).card.revision != first


def test_another_precision_or_device_is_given_to_a_copy():
    model, tokenizer = tiny_model("Bert"), tiny_tokenizer()
    double = encode((model, tokenizer), TEXTS, dtype="float64", device="cpu")
    assert (double.dtype, model.dtype) == (np.float64, torch.float32)
    np.testing.assert_allclose(double[0], encode((model, tokenizer), TEXTS)[0], atol=2e-5)
    brain = encode((model, tokenizer), TEXTS, dtype="bfloat16")
    assert brain.dtype == np.float32  # numpy has no bfloat16; nothing is lost
    assert brain.provenance["model"]["dtype"] == "bfloat16"
    assert 0 < np.abs(brain[0] - double[0]).max() < 0.5


def test_a_folder_in_another_precision(tmp_path):
    folder = save_model(tmp_path)
    assert encode(folder, TEXTS).dtype == np.float32
    assert encode(folder, TEXTS, dtype="float64").dtype == np.float64
    half = tiny_model("Bert").half()
    half.save_pretrained(folder)
    assert encode(folder, TEXTS).dtype == np.float32  # on a CPU half precision gains nothing


# -- safety ------------------------------------------------------------------------------------------------------


def test_pickled_weights_only_when_allowed(tmp_path):
    folder = save_model(tmp_path)
    expected = encode(folder, TEXTS)
    (folder / "model.safetensors").unlink()
    torch.save(tiny_model("Bert").state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*pickled.*allow_pickle=True"):
        encode(folder, TEXTS)
    np.testing.assert_array_equal(encode(folder, TEXTS, allow_pickle=True)[0], expected[0])


def test_safetensors_win_over_a_pickle_beside_them(tmp_path):
    folder = save_model(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle that must never be opened")
    assert len(encode(folder, TEXTS)) == len(encode(folder, TEXTS, allow_pickle=True)) == len(TEXTS)


def test_code_of_the_model_is_not_run_unless_asked(tmp_path, monkeypatch):
    folder = save_model(tmp_path / "model")
    expected = encode(folder, TEXTS)
    witness = tmp_path / "the code ran"
    (folder / "modeling_own.py").write_text(
        f"open({str(witness)!r}, 'w').close()\nfrom transformers import BertConfig, BertModel\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n\n"
        "class OwnModel(BertModel):\n    config_class = OwnConfig\n"
    )
    config = tiny_model("Bert").config.to_dict()
    own = {"AutoConfig": "modeling_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    write(folder / "config.json", {**config, "model_type": "own", "architectures": ["OwnModel"], "auto_map": own})
    with pytest.raises(ModelError, match=r"--trust-remote-code \(trust_remote_code=True\)"):
        encode(folder, TEXTS)
    assert not witness.exists()
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    np.testing.assert_array_equal(encode(folder, TEXTS, trust_remote_code=True)[0], expected[0])
    assert witness.exists()


def test_missing_weights_are_not_made_up(tmp_path):
    folder = save_model(tmp_path)
    config = transformers.BertConfig.from_pretrained(folder)
    config.num_hidden_layers = 3
    config.save_pretrained(folder)
    with pytest.raises(ModelError, match=r"16 weights .*encoder\.layer\.2\."):
        encode(folder, TEXTS)


def test_a_missing_pooler_does_no_harm(tmp_path):
    folder = save_model(tmp_path)
    expected = encode(folder, TEXTS)
    without = tiny_model("Bert")
    without.pooler = None
    without.save_pretrained(folder)
    np.testing.assert_array_equal(encode(folder, TEXTS)[0], expected[0])


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_files_are_named(damage, tmp_path):
    folder = save_model(tmp_path)
    (folder / damage).write_text("{ not what it should be")
    with pytest.raises(ModelError):
        encode(folder, TEXTS)


def test_a_folder_without_weights(tmp_path):
    folder = save_model(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no weights .*model\.safetensors"):
        encode(folder, TEXTS)


# -- the tokenizer is the model's -----------------------------------------------------------------------------------


def test_a_folder_without_tokenizer_files_is_refused(tmp_path):
    folder = save_model(tmp_path / "model")
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    with pytest.raises(ModelError, match=r"tokenizer .*\d+ entries"):
        as_encoder(folder)


def test_a_tokenizer_that_reaches_less_than_half_of_the_table_is_refused():
    tokenizer = tiny_tokenizer()
    known = len(tokenizer)
    padded = tiny_model("Bert", vocab_size=2 * known)
    assert len(encode((padded, tokenizer), TEXTS)) == len(TEXTS)
    with pytest.raises(ModelError, match=rf"{known} entries, 4 .* {2 * known + 1} token"):
        as_encoder((tiny_model("Bert", vocab_size=2 * known + 1), tokenizer))


def test_a_vocabulary_of_special_tokens_alone_is_refused_without_a_table_too():
    check_vocabulary(Vocabulary(str, 6, frozenset(range(5))), None, name="m")
    with pytest.raises(ModelError, match="5 entries, 5 "):
        check_vocabulary(Vocabulary(str, 5, frozenset(range(5))), None, name="m")


# -- damaged declarations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", {"a": 1}),
        ("modules.json", [{"idx": 0}]),
        ("modules.json", ["Transformer"]),
        ("1_Pooling/config.json", ["mean"]),
        ("sentence_bert_config.json", [1]),
        ("config_sentence_transformers.json", "text"),
        ("config.json", [1]),
    ],
)
def test_declarations_of_another_shape_are_named(file, content, tmp_path):
    folder = declare(save_model(tmp_path / "model"))
    write(folder / file, content)
    with pytest.raises(ModelError, match=f"{file}: it must"):
        as_encoder(folder)
