"""The answers about vectors are about those that the model itself gives, or say that they are not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit_data import sentences
from command_line import run
from poolscope import as_encoder, audit, encode
from poolscope.auditing import material
from poolscope.auditing.searches import K, cloud_trial
from poolscope.errors import ModelError
from poolscope.numbers.pooling import pool
from poolscope.numbers.ranking import unit_rows
from poolscope.stores.store import Store
from poolscope.stores.writer import encode_to_store
from poolscope.texts import read_texts
from tiny_models import WORDS, add_dense, declare, save_model

# Said again with the last word changed, so that one half finds the other, though not always first.
_SAID = sentences(60, low=4, high=20)
TEXTS = [f"{text} {text.rsplit(' ', 1)[0]} {WORDS[k % 17]}" for k, text in enumerate(_SAID)]
OF_VECTORS = ("scores", "cone", "short", "long", "position", "averaging", "hubs")
NOT_OWN = "not the model's own vectors"


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return str(add_dense(save_model(tmp_path_factory.mktemp("dense"))))


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory):
    return str(add_dense(save_model(tmp_path_factory.mktemp("pickled")), pooling="cls", readable=False))


@pytest.fixture(scope="module")
def first_token(tmp_path_factory):
    folder = save_model(tmp_path_factory.mktemp("cls"))
    return str(declare(folder, pooling={"pooling_mode": "cls"}, after=["Normalize"]))


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


# -- another pooling than the mean ------------------------------------------------------------------------------------


def test_a_cls_model_is_told_which_numbers_are_of_its_means(first_token):
    result = audit(first_token, TEXTS)
    np.testing.assert_allclose(
        result.subject.vectors, unit_rows(np.array([cloud[0] for cloud in encode(first_token, TEXTS)]), "x"), atol=1e-5
    )
    assert not any("which this model does not use" in line for line in result["position"].verdict.evidence)
    note = result["pooling"].verdict.evidence[0]
    assert "The numbers describe" not in note
    assert "SOCM and the hidden share (question 8) describe the mean of its tokens" in note
    assert "The other answers are about the model's own vectors." in note
    sentence = result["averaging"].verdict.sentence
    assert "by their clouds, not by their means alone," in sentence
    assert "Averages miss" not in sentence


def test_mistakes_that_the_means_alone_put_right_are_told(first_token):
    texts = read_texts(TEXTS)
    queries = {f"{' '.join(text.split()[:4])} tree": [texts.ids[k]] for k, text in enumerate(TEXTS[:15])}
    result = audit(first_token, texts, queries=queries)
    wrong, task = result.subject.mistakes, result.subject.query_task
    asking, searched = (unit_rows(pool(clouds), "means") for clouds in task.clouds)
    places = {int(text): place for place, text in enumerate(task.texts)}
    cosine = [
        np.array([asking[q] @ searched[places[int(text)]] for q, text in zip(wrong.query, side, strict=True)])
        for side in (wrong.relevant, wrong.wrong)
    ]
    assert len(wrong)
    assert wrong.by_means.tolist() == (cosine[0] > cosine[1]).tolist()
    assert any(f"(their means alone {wrong.by_means.mean():.0%})" in x for x in result["averaging"].verdict.evidence)


def test_the_means_are_not_counted_as_a_gain_of_the_clouds(first_token):
    subject = audit(first_token, TEXTS).subject
    task = subject.search
    means = [unit_rows(pool(clouds), "means") for clouds in task.clouds]
    by_hand = []
    for way in (0, 1):
        own, mean = (np.stack([sides[way], sides[1 - way]]) for sides in (task.vectors, means))
        scores = []
        for k in range(len(own[0])):
            top = np.argsort(-(own[1] @ own[0][k]), kind="stable")[:K]
            order = top[np.argsort(-(mean[1][top] @ mean[0][k]), kind="stable")]
            place = np.flatnonzero(order == k)
            scores.append(1 / np.log2(place[0] + 2) if len(place) else 0.0)
        by_hand.append(np.mean(scores))
    trial = cloud_trial(subject)
    assert trial.before.value == pytest.approx(np.mean(by_hand), abs=1e-6)
    assert trial.before.value != pytest.approx(task.before.value, abs=1e-6)  # the model as it is
