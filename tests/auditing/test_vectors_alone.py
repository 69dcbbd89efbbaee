"""An audit of vectors without a model: what they tell is answered, the rest names the command that would."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from audit_data import bag_of_words, topics
from command_line import run
from poolscope import audit, read_vectors
from poolscope.auditing.question import QUESTIONS
from poolscope.encoders import as_encoder
from poolscope.errors import InputError

TEXTS = topics(60)
VECTORS = np.array([cloud.mean(axis=0) for cloud in bag_of_words(TEXTS)])
OF_TOKENS = {"pooling", "truncation", "short", "position", "averaging"}


@pytest.fixture(scope="module")
def alone():
    return audit(VECTORS)


@pytest.fixture(scope="module")
def with_texts():
    return audit(VECTORS, TEXTS)


def test_what_vectors_tell_is_what_the_model_would_have_told(with_texts):
    model = audit(bag_of_words, TEXTS, trial_texts=0)
    for name in ("cut_off", "unrelated_score", "anisotropy", "hub_skewness", "antihubs", "near_duplicates"):
        assert with_texts.numbers[name] == pytest.approx(model.numbers[name], abs=1e-5), name
    for key in ("scores", "hubs"):
        assert with_texts[key].verdict.level == model[key].verdict.level


def test_questions_about_tokens_name_their_door(alone):
    for key in OF_TOKENS:
        assert alone[key].verdict.level == "unchecked"
        assert f"`{QUESTIONS[key].door}` answers it" in alone[key].verdict.sentence
    assert alone["long"].verdict.level == "unchecked"


def test_texts_bring_lengths_in_words_and_equal_texts(with_texts):
    texts = [" ".join(["a", "b", "c"][: 1 + k % 3] * (1 + k)) for k in range(60)]
    found = audit(VECTORS, texts)
    assert found["long"].verdict.value is not None
    assert "words" in found["long"].verdict.evidence[0]
    assert audit(VECTORS, [*texts[:40], *texts[:20]]).numbers["equal_texts"] == pytest.approx(40 / 60)


def test_groups_of_the_source_are_used(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=VECTORS, labels=np.arange(60) // 6)
    found = audit(tmp_path / "v.npz")
    assert found.numbers["score_pairs"] == 60 * 59 // 2 - 10 * 15
    assert any("10 documents" in note for note in found.corpus["notes"])


def test_its_folder_is_an_audit_like_any_other(with_texts, tmp_path):
    folder = with_texts.save(tmp_path / "audit")
    loaded = type(with_texts).load(folder)
    assert loaded.verdicts == with_texts.verdicts
    assert loaded.corpus["tokens"] is None
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "60 vectors of dimension 24, without their tokens" in page


def test_the_command_line_takes_vectors_with_and_without_texts(tmp_path):
    np.save(tmp_path / "v.npy", VECTORS)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    printed = run("audit", tmp_path / "v.npy", "--no-files")
    assert "60 vectors of dimension 24" in printed
    run("audit", tmp_path / "v.npy", tmp_path / "texts.txt", "--no-files", "--json", tmp_path / "a.json")
    answers = {each["key"]: each for each in json.loads((tmp_path / "a.json").read_text())["answers"]}
    assert answers["scores"]["value"] is not None
    assert "skewness" in run("hubs", tmp_path / "v.npy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 8}, "max_length, which are for a model"),
        ({"vectors": VECTORS}, "vectors, which are for a model"),
        ({"distance": "euclid"}, "distance: received 'euclid'; allowed"),
    ],
)
def test_options_of_a_model_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        audit(VECTORS, **options)


def test_options_of_vectors_are_refused_with_a_model(tmp_path):
    with pytest.raises(InputError, match="distance: received 'dot' with a model"):
        audit(bag_of_words, TEXTS, distance="dot")
    with pytest.raises(InputError, match="--vector-column: this is for vectors alone"):
        run("audit", "builtin:minilm", "--vector-column", "v", "--no-files")
    with pytest.raises(InputError, match=r"poolscope\.audit\(vectors, texts\)"):
        as_encoder(VECTORS)


def test_vectors_that_were_read_are_taken(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=VECTORS, texts=TEXTS)
    found = audit(read_vectors(tmp_path / "v.npz"))
    assert found.corpus["digest"] == audit(VECTORS, TEXTS).corpus["digest"] is not None


@pytest.mark.parametrize(
    ("vectors", "level"),
    [
        (np.ones((30, 4)), "unchecked"),
        (np.outer(np.arange(1.0, 31.0) / 7, [0.3, -1.7, 2.1, 0.9]), "unchecked"),
        (np.repeat([[1.0, 2.0, 3.0, 4.0], [4.0, 1.0, 0.0, 2.0]], 15, axis=0), "ok"),
    ],
    ids=["constant", "parallel", "two"],
)
def test_vectors_that_hardly_differ_have_an_answer(vectors, level, tmp_path):
    result = audit(vectors)
    assert result["space"].verdict.level == level
    assert (level == "unchecked") == ("one direction" in result["space"].verdict.sentence)
    result.save(tmp_path / "audit")


def test_the_decision_counts_every_question_of_the_screen(with_texts):
    fine = [replace(each, verdict=replace(each.verdict, level="ok")) for each in with_texts.answers[:-1]]
    answers = [own if own.key in OF_TOKENS else ok for own, ok in zip(with_texts.answers[:-1], fine, strict=True)]
    sentence = QUESTIONS["decision"].answer(with_texts.subject, answers).verdict.sentence
    assert f"({len(answers) - len(OF_TOKENS)} of {len(answers)} answers are ok, and questions 3, " in sentence
    assert "need the model)" in sentence


def test_a_cut_off_above_what_is_nearest_is_not_proposed_and_the_model_is_asked_for(tmp_path):
    """Every third row lies elsewhere: pairs of these rows set the cut-off, and most other texts have none so near."""
    vectors = np.random.default_rng(0).normal(size=(300, 8))
    vectors[::3] += 4
    path = tmp_path / "v.npz"
    np.savez(path, vectors=vectors, texts=[f"text {k}" for k in range(300)])
    found = audit(path)
    scores = found["scores"]
    assert scores.verdict.value > found.numbers["nearest_score"]
    assert "Most texts would lose even their nearest text there" in scores.verdict.sentence
    assert scores.action.step.startswith("let no cut-off decide")
    assert (scores.action.kind, "mean direction" in scores.action.step) == ("configure", False)  # it was not tried
    assert found["decision"].action.command == f"poolscope audit {path} --reference MODEL"
    assert "once it is named (--reference MODEL)" in found["decision"].verdict.sentence
    np.savez(path, vectors=vectors)  # without texts no model can be held against them
    assert found["decision"].action.kind == audit(path)["decision"].action.kind
    assert audit(path)["decision"].action.command is None


def test_vectors_without_texts_are_not_called_texts(alone, with_texts):
    for found, items in ((alone, "60 vectors"), (with_texts, "60 texts")):
        answers = [replace(each, verdict=replace(each.verdict, level="ok")) for each in found.answers[:-1]]
        verdict = QUESTIONS["decision"].answer(found.subject, answers).verdict
        assert f"nothing to repair on these {items} (" in verdict.sentence
        assert verdict.evidence[0].endswith(f"on these {items.split()[1]}.")


def test_vectors_that_pass_are_held_against_their_model_next(tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, vectors=VECTORS, texts=TEXTS)
    found = audit(path)
    answers = [replace(each, verdict=replace(each.verdict, level="ok")) for each in found.answers[:-1]]
    decision = QUESTIONS["decision"].answer(found.subject, answers)
    assert (decision.action.kind, decision.action.command) == ("keep", f"poolscope audit {path} --reference MODEL")


def test_copies_of_another_length_are_judged_too():
    vectors = np.random.default_rng(0).normal(size=(100, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [f"text {k}" for k in range(100)]
    stored = np.concatenate([vectors, 3 * vectors[:40]])
    answer = audit(stored, [*texts, *texts[:40]], distance="dot")["norms"]
    assert "40 of 140 vectors" in answer.verdict.sentence
    assert answer.verdict.level == "repair"


def test_lengths_around_1_are_no_mixture():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(400, 8))
    vectors *= (np.exp(random.normal(0, 0.015, 400)) / np.linalg.norm(vectors, axis=1))[:, None]
    assert "do not have the length 1" not in audit(vectors, distance="dot")["norms"].verdict.sentence


def test_one_vector_of_another_length_among_thousands_is_counted():
    vectors = np.random.default_rng(0).normal(size=(3000, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[7] *= 1.05
    answer = audit(vectors, distance="dot")["norms"]
    assert answer.verdict.level == "ok"
    assert "1 of 3,000 vectors (0.0%) do not have the length 1" in answer.verdict.sentence
    assert answer.tables["other_lengths"].to_pydict() == {"id": ["7"], "length": [pytest.approx(1.05)]}


@pytest.mark.parametrize(
    ("raw", "distance", "level"),
    [(40, "dot", "repair"), (40, "cosine", "ok"), (120, "dot", "watch"), (2, "dot", "ok"), (119, "dot", "watch")],
)
def test_vectors_that_are_partly_normalised_are_a_mixture(raw, distance, level):
    """All of them at other lengths may be what a model was trained for; some of them are not."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(120, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[:raw] *= random.uniform(2, 8, (raw, 1))
    answer = audit(vectors, distance=distance)["norms"]
    found, mixed = answer.verdict, raw in (2, 40)
    assert found.level == level
    share = f"{raw} of 120 vectors ({raw / 120:.1%}) do not have the length 1, and the others do."
    assert (share in found.sentence) == (mixed and distance == "dot")
    assert answer.tables["other_lengths"]["id"].to_pylist() == [str(k) for k in range(raw if mixed else 0)]
    if level != "ok":
        assert ("bring the vectors that do not have the length 1 to it" in answer.action.step) == mixed


def test_the_number_of_rows_is_the_one_that_was_judged():
    vectors = np.random.default_rng(0).normal(size=(100, 8))
    clean = audit(vectors)["rows"]
    vectors[10:20] = vectors[:10]
    shared = audit(vectors)["rows"]
    assert (clean.number_name, clean.verdict.value) == ("rows that are broken", 0)
    assert (shared.verdict.level, shared.number_name, shared.verdict.value) == (
        "watch",
        "rows that share a vector",
        0.2,
    )
