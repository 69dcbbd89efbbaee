"""Semantic shift: its numbers by hand, texts that are long or mixed by construction, and texts of one length."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planted import word_vector
from poolscope.errors import InputError
from poolscope.lab.length.shift import SemanticShift, semantic_shift, sentences_of, shift_of
from poolscope.numbers.intervals import Estimate, Interval, regression_slopes


def encoded(texts):
    """Bags of words, with a little that all texts share."""
    return np.array([np.mean([word_vector(word) for word in text.split()], axis=0) + 0.15 for text in texts])


def speech(random, subjects, sentences):
    """Sentences of six words, each of one of the subjects in turn; a subject has three words."""
    parts = []
    for k in range(sentences):
        words = [f"s{subjects[k % len(subjects)]}w{number}" for number in random.integers(3, size=6)]
        parts.append(" ".join(words).capitalize() + ".")
    return " ".join(parts)


def test_local_evolution_and_dispersion_by_hand():
    random = np.random.default_rng(0)
    rows = random.normal(size=(5, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    local, dispersion = shift_of(rows)
    assert local == pytest.approx(np.mean([1 - cosines[k, k + 1] for k in range(4)]))
    assert dispersion == pytest.approx(1 - cosines[np.triu_indices(5, 1)].mean())
    assert np.linalg.norm(rows.mean(axis=0)) ** 2 == pytest.approx(1 - 4 / 5 * dispersion)


def test_sentences():
    assert sentences_of("One two three. Four five six! Seven.") == ["One two three.", "Four five six!", "Seven."]
    assert sentences_of("A heading\n\nof some words here.") == ["A heading\n\nof some words here."]
    assert sentences_of("") == []


def measured(texts, **settings):
    lengths = [len(text.split()) for text in texts]
    return semantic_shift(encoded(texts), lengths, texts, encoded, **settings)


def test_mixed_texts_of_about_one_length_are_called_mixed():
    """Every text has nine to eleven sentences, of one subject to eight: the more, the nearer to what all share."""
    random = np.random.default_rng(0)
    texts = []
    for k in range(80):
        subjects = random.permutation(200)[: 1 + k % 8]
        texts.append(f"{speech(random, subjects, 8)} {speech(random, subjects[:1], 1 + k % 3)}")
    result = measured(texts)
    assert result.cause == "mixed"
    assert result.by_shift.interval.low > 0
    assert "perhaps length" in result.sentence()  # the intervals overlap
    surely = dataclasses.replace(result, by_length=result.by_length.scaled(0.01))
    assert "than length" in surely.sentence()


def test_long_texts_that_do_not_shift_are_not_called_mixed():
    random = np.random.default_rng(1)
    texts = [speech(random, [k], 2 + k % 14) for k in range(80)]
    assert measured(texts).cause in ("", "long")


def test_length_is_not_blamed_where_all_long_texts_are_mixed():
    random = np.random.default_rng(3)
    texts = []
    for k in range(80):
        sentences = 2 + k % 14
        subjects = random.permutation(200)[:sentences] if sentences >= 6 else [k]
        texts.append(speech(random, subjects, sentences))
    result = measured(texts)
    assert result.cause != "long"
    assert "than mixed" not in result.sentence()
    assert result.mixing.interval.low <= 0
    supposed = dataclasses.replace(
        result, by_length=Estimate(0.05, Interval(0.04, 0.06, 0.95, "a slope", "by hand", "texts"))
    )
    assert supposed.cause == ""
    assert "more mixed" in supposed.sentence()
    assert dataclasses.replace(supposed, mixing=supposed.by_length).cause == "long"


def test_made_texts_are_of_one_length_and_shift_in_order():
    random = np.random.default_rng(2)
    texts = [speech(random, [k // 4 * 2, k // 4 * 2 + 1], 6) for k in range(96)]
    groups = np.repeat(np.arange(24), 4)
    rows = {row.label: row for row in measured(texts, groups=groups).made}
    assert set(rows) == {"one text", "several texts", "one sentence repeated", "one document"}
    assert rows["one text"].words == rows["several texts"].words  # the same sentences
    assert rows["one sentence repeated"].shift.value == pytest.approx(0, abs=1e-6)
    assert rows["one text"].shift.value < rows["several texts"].shift.value
    assert (
        rows["one sentence repeated"].cosine.value < rows["one text"].cosine.value < rows["several texts"].cosine.value
    )
    assert rows["one document"].shift.value < rows["several texts"].shift.value


def test_the_repeated_sentence_decides_nothing():
    random = np.random.default_rng(2)
    texts = [speech(random, [k // 2, 100 + k], 6) for k in range(60)]
    whole, fewer = measured(texts), measured(texts, repeated=False)
    assert [row for row in whole.made if row.label != "one sentence repeated"] == list(fewer.made)
    assert len(fewer.made) == len(whole.made) - 1
    assert (fewer.cause, fewer.sentence(), fewer.mixing) == (whole.cause, whole.sentence(), whole.mixing)


def test_what_was_cut_off_is_not_measured():
    random = np.random.default_rng(3)
    texts = [speech(random, [k], 3) + " " + speech(random, [500 + k, 600 + k], 6) for k in range(40)]
    whole, part = measured(texts), measured(texts, read=np.full(40, 1 / 3))
    assert part.shift.value < whole.shift.value


def test_too_few_texts_of_two_sentences_are_refused():
    with pytest.raises(InputError, match=r" 0 have .* 20 "):
        measured(["one sentence alone"] * 30)


def test_the_result_is_kept_whole(tmp_path):
    random = np.random.default_rng(4)
    result = measured([speech(random, [k], 2 + k % 5) for k in range(30)])
    result.save(tmp_path / "shift.json")
    again = SemanticShift.load(tmp_path / "shift.json")
    assert again.to_dict(arrays=True) == result.to_dict(arrays=True)


def test_slopes_of_a_regression_hold_their_level():
    """Errors that grow with a covariate: 95 % intervals hold the truth in 95 % of draws, give or take."""
    random, held = np.random.default_rng(5), 0
    for _ in range(400):
        covariates = random.normal(size=(60, 2)) @ [[1, 0.6], [0, 0.8]]
        values = 0.5 * covariates[:, 1] + random.normal(size=60) * (0.5 + np.abs(covariates[:, 1]))
        slopes, _ = regression_slopes(values, covariates)
        truth = 0.5 * covariates[:, 1].std()
        held += slopes[1].interval.low <= truth <= slopes[1].interval.high
    assert 0.92 <= held / 400 <= 0.98


def test_covariates_that_follow_from_each_other_have_no_slopes():
    x = np.arange(30.0)
    assert regression_slopes(x, np.stack([x, 2 * x], axis=1))[0][0].value is None
    assert regression_slopes(x, np.stack([x, np.ones(30)], axis=1))[0][1].value is None
