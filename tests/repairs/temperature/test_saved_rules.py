"""Rules that stay with a model: saved in its folder, honoured by poolscope and by the sentence-transformers module."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers

import zoo
from attention_by_hand import matrix
from poolscope import as_encoder, encode, tempscale
from poolscope.encoders.capabilities import current_role
from poolscope.errors import InputError, ModelError
from poolscope.evaluation import RetrievalTask, evaluate
from poolscope.numbers.ranking import unit_rows
from poolscope.repairs import ByRole, Repair, Steps, YarnLike, apply_saved, keep_rule
from poolscope.repairs.tune import tune
from tiny_models import TEXTS, declare, save_model, tiny_model, tiny_tokenizer

RULE = Steps((6, 10), (1.2, 0.8, 0.5))
BOTH = ByRole(query=0.6, document=RULE)


@pytest.fixture
def library():
    return pytest.importorskip("sentence_transformers")


@pytest.fixture
def sentence_transformer(library, tmp_path):
    return library.SentenceTransformer(str(declare(save_model(tmp_path / "plain"))), device="cpu")


def test_a_kept_rule_is_what_the_model_runs_at_from_now_on():
    model, tokenizer = zoo.family("BERT")
    plain = matrix(encode((model, tokenizer), TEXTS))
    with tempscale(model, RULE):
        expected = matrix(encode((model, tokenizer), TEXTS))
    applied = keep_rule(model, RULE)
    assert len(applied.layers) == 3
    encoder = as_encoder((model, tokenizer))
    np.testing.assert_array_equal(matrix(encoder.encode(TEXTS)[-1]), expected)
    assert encoder.card.temperature == RULE.to_dict()
    with tempscale(model, 1.0):
        np.testing.assert_array_equal(matrix(encoder.encode(TEXTS)[-1]), plain)
    np.testing.assert_array_equal(matrix(encoder.encode(TEXTS)[-1]), expected)


@pytest.mark.parametrize("architecture", ["Bert", "MPNet", "T5"])
def test_a_folder_is_loaded_with_its_rule_by_poolscope(architecture, tmp_path):
    folder = save_model(tmp_path / "plain", architecture)
    plain = as_encoder(folder)
    with tempscale(plain, RULE):
        expected = matrix(plain.encode(TEXTS)[-1])
    model = transformers.AutoModel.from_pretrained(folder)
    keep_rule(model, RULE)
    model.save_pretrained(tmp_path / "kept")
    tiny_tokenizer().save_pretrained(tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "config.json").read_text())["tempscale"] == RULE.to_dict()
    kept = as_encoder(tmp_path / "kept")
    assert kept.card.temperature == RULE.to_dict()
    np.testing.assert_allclose(matrix(kept.encode(TEXTS)[-1]), expected, atol=1e-5)
    two = as_encoder(tmp_path / "kept", device="cpu,cpu")
    np.testing.assert_allclose(matrix(two.encode(TEXTS)[-1]), expected, atol=1e-5)


def test_plain_transformers_needs_a_word(tmp_path):
    model, tokenizer = zoo.family("BERT")
    keep_rule(model, RULE)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path).eval()
    with pytest.warns(UserWarning, match="apply_saved"):
        encode((loaded, tokenizer), TEXTS)
    with tempscale(loaded, 0.5):  # chosen by hand: nothing to warn of
        encode((loaded, tokenizer), TEXTS)
    apply_saved(loaded)
    np.testing.assert_array_equal(matrix(encode((loaded, tokenizer), TEXTS)), matrix(encode((model, tokenizer), TEXTS)))
    with pytest.raises(InputError, match=r"model: .*BertModel"):
        apply_saved(zoo.family("BERT")[0])


def test_a_sentence_transformer_is_saved_and_loaded_with_its_rule(library, sentence_transformer, tmp_path):
    model = sentence_transformer
    with tempscale(model, RULE):
        expected = model.encode(TEXTS)
    assert not np.allclose(model.encode(TEXTS), expected, atol=1e-3)
    keep_rule(model, RULE)
    np.testing.assert_array_equal(model.encode(TEXTS), expected)
    model.save_pretrained(str(tmp_path / "kept"))
    with pytest.raises(ValueError, match="trust_remote_code"):
        library.SentenceTransformer(str(tmp_path / "kept"), device="cpu")
    loaded = library.SentenceTransformer(str(tmp_path / "kept"), device="cpu", trust_remote_code=True)
    assert type(loaded[0]).__name__ == "TempScaledTransformer"
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, atol=1e-6)
    for own in (loaded, tmp_path / "kept"):  # and poolscope reads the loaded model and the folder alike
        encoder = as_encoder(own)
        assert encoder.card.temperature == RULE.to_dict()
        means = np.stack([cloud.mean(axis=0) for cloud in encoder.encode(TEXTS)[-1]])
        np.testing.assert_allclose(means, expected, atol=1e-5)


def test_a_folder_of_poolscope_0_1_finds_its_first_module(library, sentence_transformer, tmp_path):
    """It stood with the integrations then."""
    keep_rule(sentence_transformer, RULE)
    expected = sentence_transformer.encode(TEXTS)
    sentence_transformer.save_pretrained(str(tmp_path / "kept"))
    modules = tmp_path / "kept" / "modules.json"
    now = "poolscope.repairs.temperature.module.TempScaledTransformer"
    assert now in modules.read_text()
    then = "poolscope.connect.integrations.tempscaled_transformer.TempScaledTransformer"
    modules.write_text(modules.read_text().replace(now, then))
    loaded = library.SentenceTransformer(str(tmp_path / "kept"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, atol=1e-6)


def test_queries_and_documents_of_a_sentence_transformer(library, sentence_transformer, tmp_path):
    model = sentence_transformer
    with tempscale(model, BOTH, role="query"):
        queries = model.encode(TEXTS)
    with tempscale(model, BOTH, role="document"):
        documents = model.encode(TEXTS)
    keep_rule(model, BOTH)
    model.save_pretrained(str(tmp_path / "kept"))
    loaded = library.SentenceTransformer(str(tmp_path / "kept"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(loaded.encode_query(TEXTS), queries, atol=1e-6)
    np.testing.assert_allclose(loaded.encode_document(TEXTS), documents, atol=1e-6)
    with pytest.raises(InputError, match="encode_query"):
        loaded.encode(TEXTS)
    for own in (loaded, tmp_path / "kept"):
        for role, expected in (("query", queries), ("document", documents)):
            means = [cloud.mean(axis=0) for cloud in encode(own, TEXTS, role=role)]
            np.testing.assert_allclose(np.stack(means), expected, atol=1e-5)
        with pytest.raises(InputError, match="role="):
            encode(own, TEXTS)


@pytest.mark.parametrize("kept", [False, True], ids=["plain", "with a rule of its own"])
def test_roles_of_a_sentence_transformer_inside_the_context(kept, sentence_transformer):
    model = sentence_transformer
    plain = model.encode(TEXTS)
    with tempscale(model, BOTH, role="query"):
        queries = model.encode(TEXTS)
    with tempscale(model, BOTH, role="document"):
        documents = model.encode(TEXTS)
    if kept:
        keep_rule(model, 1.0)
    with tempscale(model, BOTH):
        np.testing.assert_array_equal(model.encode_query(TEXTS), queries)
        np.testing.assert_array_equal(model.encode_document(TEXTS), documents)
        with pytest.raises(InputError, match="role: received None"):
            model.encode(TEXTS)
        with tempscale(model, ByRole(query=1.0, document=0.6)):
            np.testing.assert_array_equal(model.encode_query(TEXTS), plain)
        np.testing.assert_array_equal(model.encode_query(TEXTS), queries)
    np.testing.assert_array_equal(model.encode_query(TEXTS), plain)
    assert current_role() is None
    assert "forward_kwargs" not in vars(model[0])
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks


def test_a_kept_rule_by_role_is_honoured_wherever_poolscope_knows_the_role(sentence_transformer, tmp_path):
    """In repaired models, in evaluations, in the search, and in the probe by which a repair knows its model."""
    model = sentence_transformer
    with tempscale(model, BOTH, role="query"):
        queries = unit_rows(model.encode(TEXTS), "vectors")
    with tempscale(model, BOTH, role="document"):
        documents = unit_rows(model.encode(TEXTS), "vectors")
    keep_rule(model, BOTH)
    model.save_pretrained(str(tmp_path / "kept"))
    task = RetrievalTask(TEXTS, TEXTS, [(k, k) for k in range(len(TEXTS))])
    expected = task.score(queries, documents)
    for own in (model, str(tmp_path / "kept"), as_encoder(str(tmp_path / "kept"))):
        repaired = Repair().apply(own)
        np.testing.assert_allclose(repaired.encode_query(TEXTS), queries, atol=1e-5)
        np.testing.assert_allclose(repaired.encode_document(TEXTS), documents, atol=1e-5)
        assert evaluate(own, task).scores.tolist() == pytest.approx(expected.scores.tolist())
        assert repaired.clouds(TEXTS, role="query")[-1].provenance["model"]["temperature"] == {
            "kind": "constant",
            "tau": 0.6,
        }
    made = Repair().made_for(as_encoder(str(tmp_path / "kept")), {})
    np.testing.assert_allclose(made.apply(str(tmp_path / "kept")).encode_query(TEXTS), queries, atol=1e-5)
    found = tune(str(tmp_path / "kept"), task, temperatures=[0.5], poolings=["cls"], repairs=[], reranked=0)
    assert {trial.family for trial in found.trials} >= {"temperature", "pooling"}


def test_what_cannot_be_kept(library, sentence_transformer):
    model, tokenizer = zoo.family("BERT")
    for wrong in ((model, tokenizer), as_encoder((model, tokenizer)), torch.nn.Linear(2, 2)):
        with pytest.raises(InputError, match=f"model: received {type(wrong).__name__}"):
            keep_rule(wrong, 0.8)
    with pytest.raises(InputError, match="Steps"):
        keep_rule(model, lambda n: 0.8)
    with tempscale(model, 0.5), pytest.raises(ModelError, match="still open"):
        keep_rule(model, 0.8)
    assert getattr(model.config, "tempscale", None) is None
    with pytest.raises(ModelError, match="GptOss"):
        keep_rule(zoo.refused("gpt-oss")[0], 0.8)

    class Odd(type(sentence_transformer[0])):
        pass

    sentence_transformer[0].__class__ = Odd
    with pytest.raises(ModelError, match="Odd"):
        keep_rule(sentence_transformer, 0.8)


def test_a_damaged_rule_is_an_error(tmp_path):
    model = tiny_model("Bert")
    model.config.tempscale = {"kind": "polynomial", "degree": 3}
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"'polynomial'.*: constant, log, yarn, steps, by_role"):
        as_encoder(tmp_path)
    model.config.tempscale = YarnLike(0.1).to_dict() | {"extra": 1}
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="'yarn'"):
        as_encoder(tmp_path)
