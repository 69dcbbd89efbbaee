"""The answers about vectors are about those that the model itself gives, or say that they are not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit_data import sentences
from command_line import run
from poolscope import as_encoder, audit, encode
from poolscope.auditing import material
from poolscope.errors import ModelError
from poolscope.numbers.pooling import pool
from poolscope.numbers.ranking import unit_rows
from poolscope.stores.store import Store
from poolscope.stores.writer import encode_to_store
from poolscope.texts import read_texts
from tiny_models import add_dense, save_model

TEXTS = sentences(60)
OF_VECTORS = ("scores", "cone", "short", "long", "position", "averaging", "hubs")
NOT_OWN = "not the model's own vectors"


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return str(add_dense(save_model(tmp_path_factory.mktemp("dense"))))


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory):
    return str(add_dense(save_model(tmp_path_factory.mktemp("pickled")), pooling="cls", readable=False))


@pytest.fixture(scope="module")
def finished(dense):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(dense, device="cpu").encode(TEXTS, normalize_embeddings=True)


@pytest.fixture(scope="module")
def audited(dense):
    return audit(dense, TEXTS)


def mean_cosine(vectors):
    return float((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)].mean())


# -- a Dense layer behind the pooling ---------------------------------------------------------------------------------


def test_an_audit_is_about_the_vectors_after_a_dense_layer(audited, finished):
    np.testing.assert_allclose(audited.subject.vectors, finished, atol=1e-5)
    assert audited.numbers["anisotropy"] == pytest.approx(mean_cosine(finished), abs=1e-5)
    assert audited.numbers["unrelated_score"] == pytest.approx(mean_cosine(finished), abs=1e-5)
    means = unit_rows(pool(audited.subject.clouds), "means")
    assert audited.numbers["anisotropy"] > mean_cosine(means) + 0.02  # the means would have told something else
    assert audited.provenance["settings"]["own_vectors"] is True
    assert not any(NOT_OWN in answer.verdict.sentence for answer in audited.answers)


def test_trials_and_probes_go_through_the_dense_layer_too(audited, finished):
    task = audited.subject.halves
    width = finished.shape[1]
    assert {side.shape[1] for side in task.vectors} == {task.learnt_from.shape[1]} == {width}
    assert audited.subject.encoded(TEXTS[:2]).shape[1] == width
    assert audited["position"].verdict.value is not None


def test_socm_stays_that_of_the_tokens(audited, dense):
    clouds = encode(dense, TEXTS)
    np.testing.assert_allclose(audited.subject.moments.unit_means, unit_rows(pool(clouds), "means"), atol=1e-5)
    assert (
        "SOCM and the hidden share (question 8) are of the tokens before that" in audited["pooling"].verdict.evidence[1]
    )
    assert "mean pooling, then Dense" in audited["pooling"].verdict.sentence


def test_what_cannot_be_computed_is_named_in_every_answer_about_vectors(unreadable):
    result = audit(unreadable, TEXTS)
    assert any("Vectors are means of the tokens and not the model's own" in note for note in result.corpus["notes"])
    for key in OF_VECTORS:
        answer = result[key]
        assert answer.numbers, key
        assert NOT_OWN in answer.verdict.sentence, key
        assert any("applies Dense after pooling" in line for line in answer.verdict.evidence), key
    assert "declares cls pooling, then Dense, which cannot be computed here" in result["pooling"].verdict.sentence
    assert NOT_OWN not in result["truncation"].verdict.sentence
    assert result.provenance["settings"]["own_vectors"] is False


def test_ready_clouds_say_what_they_lack(dense):
    result = audit(encode(dense, TEXTS))
    assert NOT_OWN in result["cone"].verdict.sentence
    assert any("not the model's own" in note for note in result.corpus["notes"])


def test_a_planned_audit_keeps_the_finished_vectors(dense, finished, monkeypatch):
    monkeypatch.setattr(material, "LEAST", 20)
    monkeypatch.setattr(material, "_BATCH", 20)
    monkeypatch.setattr(material, "_COMPARED", 10)
    result = audit(dense, TEXTS, precision=0.4, trial_texts=0)
    profile = result.subject.whole.profile
    assert profile.texts == len(TEXTS)
    assert profile.mean_cosine == pytest.approx(mean_cosine(finished), abs=1e-5)


# -- stores and commands ----------------------------------------------------------------------------------------------


def test_a_store_of_vectors_holds_the_finished_ones(dense, unreadable, finished, tmp_path):
    texts = read_texts(TEXTS)
    kept = encode_to_store(as_encoder(dense), texts, tmp_path / "vectors", keep="vectors")
    np.testing.assert_allclose(unit_rows(kept.vectors().vectors, "vectors"), finished, atol=1e-5)
    assert kept.vector_notes() == ()
    assert kept.manifest.identity()["what is kept"] == "vectors, then Dense"
    with pytest.raises(ModelError, match="own vectors cannot be computed here"):
        encode_to_store(as_encoder(unreadable), texts, tmp_path / "refused", keep="vectors")
    assert not (tmp_path / "refused").exists()
    moments = encode_to_store(as_encoder(dense), texts, tmp_path / "moments", keep="moments")
    assert NOT_OWN in moments.vector_notes()[0]


def test_commands_use_the_finished_vectors_or_say_that_they_do_not(dense, finished, tmp_path):
    place = tmp_path / "texts.txt"
    place.write_text("\n".join(TEXTS))
    printed = run("cone", dense, place, "--json", tmp_path / "cone.json")
    measured = json.loads((tmp_path / "cone.json").read_text())
    assert measured["mean_cosine"]["value"] == pytest.approx(mean_cosine(finished), abs=1e-5)
    assert "the vectors went through it" in printed
    run("encode", dense, place, "-o", tmp_path / "store")
    assert Store.open(tmp_path / "store").own_vectors is False
    for command in ("cone", "scores", "profile", "length"):
        assert "not the model's own" in " ".join(run(command, tmp_path / "store").split()), command
