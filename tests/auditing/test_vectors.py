"""Answers from the vectors: texts that repeat each other, and cut-offs that the pairs cannot place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit_data import bag_of_words, sentences, topics
from poolscope.auditing import questions
from poolscope.auditing.question import Thresholds
from poolscope.auditing.questions.decision import CERTAINTY
from poolscope.auditing.run import audit
from poolscope.encoders import as_encoder
from poolscope.metrics.neighbourhood import hubs
from poolscope.numbers.intervals import Estimate
from tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def encoder():
    return as_encoder((tiny_model(), tiny_tokenizer()))


# -- texts that repeat each other ---------------------------------------------------------------------------------


def test_texts_that_repeat_another_are_left_out_of_pairs_slopes_and_trials(encoder):
    texts = sentences(64)
    again = audit(encoder, [*texts, *(text.upper().replace(" ", "  ") for text in texts[:30])], trial_texts=32)
    once = audit(encoder, texts, trial_texts=32)
    for name in (
        "cut_off",
        "unrelated_score",
        "anisotropy",
        "length_slope",
        "split_half",
        "socm_neighbours",
        "socm",
        "concentration_ratio",
    ):
        assert again.numbers[name] == pytest.approx(once.numbers[name], abs=1e-6), name
    for key in ("scores", "cone", "long", "averaging"):
        assert "Left out: 30 texts that equal an earlier one" in again[key].verdict.evidence[-1]
        assert not any("Left out" in note for note in once[key].verdict.evidence)


def test_many_duplicates_are_to_be_merged_first():
    texts = topics(40)
    found = audit(bag_of_words, [*texts, *texts[:20]], thresholds={"cut_off_watch": -2, "cut_off_repair": -1})
    assert found["scores"].basis == "between texts"
    assert (found["hubs"].verdict.level, found["hubs"].basis) == ("repair", "counted")
    assert found["decision"].action.kind == "merge"
    assert found["decision"].verdict.sentence.startswith(
        "Clean the texts first: merge the duplicates: 40 texts equal to another but for case and blanks (table"
    )
    assert "certain" in found.numbers["certainty"]
    assert audit(bag_of_words, texts)["hubs"].verdict.level == "ok"


def test_only_equal_texts_are_surely_copies():
    corners = np.eye(8)
    counted = hubs(corners[[0, 0, 1, 1, 2, 3, 4, 5, 6, 7]], texts=["a", "a", "b", "c", "D", "d", *"efgh"])
    equal = "merge the duplicates: 4 texts equal to another but for case and blanks"
    others = "look at the 2 different texts that are near-duplicates by their vectors before merging any"
    expected = (
        (counted, 0.4, "merge", "equal texts", f"{equal}; {others} (table duplicates)"),
        (replace(counted, duplicates=((0, 1),)), 0.4, "merge", "counted", f"{equal} (table duplicates)"),
        (replace(counted, twins=()), 0.0, "undecided", "untried", "look at the 4 near-duplicates by their vectors"),
        (replace(counted, twins=()), 0.4, "merge", "equal texts", "merge the duplicates: 40.0% of all texts equal"),
    )
    for found, share, kind, basis, step in expected:
        action = questions.hubs._action(found, Thresholds(), share)
        assert (action.kind, action.step[: len(step)]) == (kind, step)
        assert questions.hubs.judge(found, Thresholds(), equal=share).basis == basis
    assert "certain" not in CERTAINTY["untried"]
    assert questions.hubs._of_the_shape(counted, 0.2).endswith("make by themselves (up to 20.0%).")


@pytest.mark.parametrize(("largest", "level"), [(0.25, "ok"), (0.35, "unchecked"), (0.45, "watch"), (0.55, "repair")])
def test_a_hub_that_matters_but_is_not_beyond_chance_cannot_be_told(largest, level):
    counted = hubs(np.eye(8)[[0, 1, 2, 3, 4, 5, 6, 7]])
    first = Estimate(largest, floor=0.2, floor_high=0.4)
    verdict = questions.hubs.judge(replace(counted, largest=first, antihubs=Estimate(0.0, floor=0.0)), Thresholds())
    assert verdict.level == level
    assert ("cannot be told" in verdict.sentence) == (level == "unchecked")


def test_different_texts_whose_equals_are_near_each_other_are_counted_once():
    counted = hubs(np.eye(8)[[0, 0, 0, 0, 1, 2, 3, 4, 5, 6]], texts=["a", "a", "b", "b", *"cdefgh"])
    assert "4 texts equal" in (step := questions.hubs._action(counted, Thresholds(), 0.4).step)
    assert "look at the 2 different texts" in step


def test_different_texts_in_a_narrow_cone_are_watched_and_not_merged_first():
    found = audit(lambda batch: [cloud + 30 for cloud in bag_of_words(batch)], topics(40))
    assert found.numbers["near_duplicates"] > 0.3
    assert found.numbers["equal_texts"] == 0
    assert found["hubs"].verdict.level == "watch"
    assert (found["hubs"].action.kind, found["hubs"].basis) == ("undecided", "untried")


def test_a_corpus_of_one_text_many_times_has_no_pairs():
    found = audit(bag_of_words, ["a b c d"] * 40)
    for key in ("scores", "cone", "long", "averaging"):
        assert found[key].verdict.sentence.startswith("Not applicable, because")


# -- the share of false hits --------------------------------------------------------------------------------------


def test_the_words_follow_the_share_of_false_hits():
    for share, words in ((0.01, "1 %"), (0.005, "0.5 %"), (0.1, "10 %")):
        scores = audit(bag_of_words, topics(40), thresholds={"false_hits": share})["scores"]
        assert scores.number_name == f"cut-off for {words} false hits"
        assert f"and {words} of random pairs still pass" in scores.verdict.sentence


def test_too_few_pairs_place_no_cut_off():
    limits = {"false_hits": 0.001, "cut_off_watch": -1.0}
    scores = audit(bag_of_words, topics(40), thresholds=limits)["scores"]
    assert scores.number_name == "highest score seen"
    assert "still pass" not in scores.verdict.sentence
    assert "780 pairs are too few" in scores.verdict.sentence
    assert (scores.verdict.level, scores.action) == ("unchecked", None)


def test_a_cut_off_of_few_pairs_is_unchecked():
    limits = {"cut_off_watch": -2, "cut_off_repair": -1}
    assert audit(bag_of_words, topics(12), thresholds=limits)["scores"].verdict.level == "unchecked"
    assert audit(bag_of_words, topics(40), thresholds=limits)["scores"].verdict.level == "watch"


def test_between_texts_no_cut_off_is_set():
    """Queries are shorter than texts and score lower: what was measured between texts may let none of them pass."""
    random = np.random.default_rng(0)
    vectors = np.repeat(random.normal(size=(60, 48)), 2, axis=0) + 0.3 * random.normal(size=(120, 48)) + 3
    found = audit(vectors)["scores"]
    assert (found.verdict.level, found.basis, found.action.kind) == ("watch", "between texts", "undecided")
    assert "--queries" in found.action.step


def test_vectors_that_mean_nothing_are_called_so():
    found = audit(np.random.default_rng(0).normal(size=(300, 64)))["neighbourhood"]
    assert found.verdict.level == "watch"
    assert "random vectors" in found.verdict.sentence
    assert not len(found.tables["outlying"])
    assert "outlying" not in found.action.step
