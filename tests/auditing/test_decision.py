"""The decision from the other nine answers: what comes first, how sure it is, and when there is too little to tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from audit_data import bag_of_words, sentences
from poolscope.auditing.question import NOT_APPLICABLE, QUESTIONS, Action, Answer, Thresholds
from poolscope.auditing.questions import position
from poolscope.auditing.questions.decision import CERTAINTY, SELF_MADE, certainty, ranked
from poolscope.auditing.run import audit
from poolscope.auditing.searches import decided_by, judged_by, texts_on_trial
from poolscope.evaluation import Difference, Evaluation, Trial, compare_scores
from poolscope.evaluation.scores import possible_interval
from poolscope.metrics.length.search import PositionProbe, SegmentRow
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.verdicts import Basis, Verdict
from tiny_models import tiny_model, tiny_tokenizer

INTERVAL = Interval(0.4, 0.6, 0.95, "the population of texts", "bootstrap")


@pytest.fixture(scope="module")
def found():
    return audit((tiny_model(), tiny_tokenizer()), sentences(64))


def test_the_page_lists_every_basis_in_the_words_of_the_screen():
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    for basis, words in CERTAINTY.items():
        assert f"| `{basis}` | {words} |" in page
    for basis, words in SELF_MADE.items():
        assert f"| `{basis}`, without `--queries` | {words} |" in page


def answer(key, level="repair", *, kind="repair", basis="interval"):
    action = Action(kind, "do it", "poolscope tune", "little")
    return Answer(key, Verdict(level, "…", 0.5, INTERVAL, basis=basis), action=action, number=1)


def decide(subject, answers):
    return QUESTIONS["decision"].answer(subject, answers)


def test_few_texts_are_too_little_to_tell():
    found = audit(bag_of_words, ["a b c"])["decision"]
    assert found.verdict.sentence.startswith("Too little to tell")
    assert found.verdict.level == "unchecked"
    assert "Only 0 of 9 questions could be answered" in found.verdict.sentence
    assert "three different texts" in found.verdict.sentence
    assert found.action.kind == found.numbers["decision"] == "undecided"
    assert "could not be answered" in found.numbers["certainty"]
    assert sum("Not applicable" in note for note in found.verdict.evidence) == 9


def test_a_step_from_few_answers_says_how_few_they_are(found):
    left = [Answer("cone", Verdict("unchecked", f"{NOT_APPLICABLE}reasons."), number=k) for k in range(2, 10)]
    decided = decide(found.subject, [answer("scores", basis="interval"), *left])
    assert decided.verdict.sentence.startswith("Repair first")
    assert "question 2 could not, because reasons" in (decided.verdict.sentence)


def test_every_basis_has_words_of_its_own():
    assert set(CERTAINTY) == set(get_args(Basis))
    assert len(set(CERTAINTY.values())) == len(CERTAINTY)


def test_a_win_on_halves_of_texts_is_less_sure_than_one_on_queries_of_the_user(found):
    for basis in SELF_MADE:
        won = answer("cone", basis=basis)
        assert certainty(won, asked=True).startswith("high")
        decided = decide(found.subject, [won])
        assert decided.numbers["certainty"] == SELF_MADE[basis]
        assert "How sure? Moderate:" in decided.verdict.sentence
        assert "on self-made queries" in decided.verdict.sentence
        own = decide(replace(found.subject, queries=[]), [won])
        assert own.numbers["certainty"] == own.tables["actions"]["certainty"][0].as_py() == CERTAINTY[basis]


def test_a_level_above_ok_rests_on_something_and_the_table_says_on_what(found):
    for each in found.answers[:-1]:
        assert (each.basis is not None) == each.verdict.at_least("watch"), each.key
    open_answers = ranked(found.answers[:-1])
    assert found.tables["actions"]["certainty"].to_pylist() == [certainty(each, asked=False) for each in open_answers]
    assert [each["basis"] for each in found.to_dict()["answers"]] == [each.basis for each in found.answers]


def difference(mean, low, high):
    interval = Interval(low, high, 0.99, "queries", "by hand")
    return Difference(Estimate(mean, interval), "nDCG@10", "queries", 100, 100)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([(0.05, 0.01, 0.09), (0.0, -0.1, 0.1)], ("repair", "trial")),
        ([(0.005, 0.001, 0.009)], ("watch", "small gain")),
        ([(0.05, -0.01, 0.09), None], ("watch", "too few")),
        ([(0.002, -0.001, 0.005), None], ("watch", "no cure")),
        ([(-0.15, -0.2, -0.1)], ("watch", "no cure")),
        ([None, None], ("watch", "untried")),
    ],
)
def test_trials_say_what_a_level_rests_on(gains, expected):
    trials = [Trial("a cure", "…", difference=gain and difference(*gain)) for gain in gains]
    judged = judged_by(trials, 0.01)
    assert (judged.level, judged.basis) == expected


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        ((0.05, 0.01, 0.09), "repair"),
        ((0.005, 0.001, 0.009), "watch"),
        ((0.002, -0.001, 0.005), "ok"),
        ((-0.15, -0.2, -0.1), "ok"),
        ((0.02, -0.03, 0.07), "unchecked"),
        (None, "unchecked"),
    ],
)
def test_a_trial_that_could_not_have_seen_the_gain_that_matters_has_not_been_asked(gain, expected):
    trial = Trial("a cure", "…", difference=gain and difference(*gain))
    assert decided_by(trial, 0.01).level == expected
    assert (trial.reach(0.01) != "") == (expected == "unchecked" and gain is not None)


def test_more_texts_are_advised_by_the_share_of_those_on_trial_that_could_be_used(found):
    """A trial takes a sixth of the texts, 60 to 400, and at most every second one: here 32 of 64."""
    subject = found.subject
    assert (len(subject.distinct), texts_on_trial(subject)) == (64, 32)

    def advised(units, used, **settings):
        change = replace(difference(0.2, -0.1, 0.5), count=used)
        least = change.smallest_gain() * np.sqrt(used / units)  # so that as many units would tell
        assert change.units_to_tell(least) == pytest.approx(units)
        return replace(subject, **settings).more_on_trial([Trial("a cure", "…", difference=change)], least).step

    assert advised(50, 32) == "audit more texts, 100 or so: too few are on trial to tell"
    assert advised(50, 16) == "audit more texts, 600 or so: too few are on trial to tell"  # 100 on trial
    assert advised(250, 16).startswith("audit more texts with --trial 500 or so: even 400 on trial")
    assert advised(14, 8, trial_texts=16).startswith("put 30 texts on trial")


def test_queries_of_which_none_changed_are_no_proof_that_none_ever_would():
    few, many = (compare_scores(np.zeros(count), np.zeros(count)) for count in (50, 400))
    assert not few.could_tell(0.01)
    assert many.could_tell(0.01)


def test_the_decision_lists_everything_that_is_open_and_what_it_rests_on(found):
    open_answers = [
        replace(answer("scores", "watch", kind="repair"), number=1, title="Unrelated pairs"),
        replace(answer("long", "watch", kind="keep", basis="no cure"), number=6, title="Long texts"),
        replace(answer("hubs", "watch", kind="re-chunk", basis="counted"), number=9, title="Hubs"),
    ]
    fine = [Answer(key, Verdict("ok", "…", 0.5), number=2) for key in ("cone", "short", "position")]
    decided = decide(found.subject, [*open_answers, *fine])
    sentence = decided.verdict.sentence
    assert "watch 3 things; first question 1 (try a repair)" in sentence
    assert sentence.endswith("(9 Hubs).")
    assert any("watch, keep: do it (moderate:" in note for note in decided.verdict.evidence)
    assert decided.verdict.value == 2  # what is kept is watched, and asks for nothing
    alone = decide(found.subject, [open_answers[1], *fine])
    assert (alone.verdict.level, alone.verdict.value) == ("watch", 0)
    assert "watch one thing" in alone.verdict.sentence
    assert "Also open" not in decide(found.subject, [*open_answers[:2], *fine]).verdict.sentence


def cut_off(level="repair", renews="texts"):
    """Texts beyond the limit of the model, counted: they must be cut anew, whatever else is done."""
    counted = replace(answer("truncation", level, kind="re-chunk", basis="counted"), number=4, title="Cut off")
    return replace(counted, action=replace(counted.action, renews=renews))


AGAIN = "has to be tried again after that."


def test_texts_that_are_surely_cut_anew_come_before_what_is_learnt_from_them(found):
    repair = replace(answer("cone", basis="trial"), number=2)
    setting = answer("scores", kind="configure")
    sentence = decide(found.subject, [setting, repair, cut_off()]).verdict.sentence
    assert sentence.startswith("Re-chunk first")
    assert f"change with question 4: what they ask for, such as a cut-off or a repair, {AGAIN}" in sentence
    merge = replace(answer("hubs", kind="merge", basis="counted"), number=9)
    order = ranked([setting, repair, cut_off(), merge, answer("pooling", kind="configure")])
    assert [each.key for each in order] == ["pooling", "hubs", "truncation", "scores", "cone"]
    assert [each.key for each in ranked([repair, cut_off(renews="")])] == ["cone", "truncation"]  # by what it costs


def test_a_more_serious_repair_comes_first_and_is_to_be_tried_again(found):
    repair = replace(answer("cone", basis="trial"), number=2)
    sentence = decide(found.subject, [repair, cut_off("watch")]).verdict.sentence
    assert sentence.startswith("Repair first")
    assert AGAIN in sentence
    kept = replace(answer("long", "watch", kind="keep", basis="no cure"), number=6)
    assert AGAIN not in decide(found.subject, [cut_off(), kept]).verdict.sentence  # nothing else is to be done


def test_stored_vectors_that_are_made_anew_come_before_what_was_measured_on_them(found):
    stale = replace(answer("drift", kind="configure"), number=15)
    stale = replace(stale, action=replace(stale.action, renews="vectors"))
    others = [
        answer("scores", kind="configure"),
        replace(answer("hubs", kind="merge", basis="counted"), number=9),
    ]
    decided = decide(found.subject, [*others, stale])
    assert decided.tables["actions"]["question"].to_pylist() == [15, 9, 1]
    assert "hold for the vectors as they are, and change with question 15" in decided.verdict.sentence
    assert AGAIN in decided.verdict.sentence
    many = [answer(name) for name in ("cone", "long", "position")]
    assert decide(found.subject, [*others, *many, stale]).action.kind == "configure"  # nothing against the model
    assert AGAIN not in decide(found.subject, [stale]).verdict.sentence


@pytest.mark.parametrize(("basis", "told"), [("counted", True), ("declared", False)])
def test_other_numbers_are_not_those_of_a_runtime_that_does_something_else(found, basis, told):
    level = "repair" if basis == "counted" else "watch"
    pooled = replace(answer("pooling", level, kind="configure", basis=basis), number=3)
    sentence = decide(found.subject, [answer("scores", kind="configure"), pooled]).verdict.sentence
    assert ("not of those of your runtime, which gives such vectors after question 3" in sentence) == told
    assert AGAIN not in sentence  # they hold for the vectors that the runtime should give


def test_numbers_of_texts_that_are_cut_off_say_nothing_against_the_model(found):
    many = [answer(name) for name in ("scores", "cone", "long", "position")]
    assert decide(found.subject, [*many, cut_off()]).action.kind == "re-chunk"
    assert decide(found.subject, [*many, cut_off(renews="")]).action.kind == "change"


def test_keeping_says_what_it_rests_on(found):
    fine = [Answer(key, Verdict("ok", "…", 0.5), number=k) for k, key in enumerate(("scores", "cone", "long"), 1)]
    left = Answer("position", Verdict("unchecked", f"{NOT_APPLICABLE}reasons."), number=7)
    decided = decide(found.subject, [*fine, left])
    assert decided.action.kind == "keep"
    assert "3 of 4 answers are ok, and question 7" in decided.verdict.sentence


def probe(rank_change):
    """A segment that loses half of its similarity at the end."""
    still = Estimate(0.0, Interval(0.0, 0.0, 0.95, "queries", "by hand"))
    start = SegmentRow(0.0, Estimate(0.5), Estimate(2.0), Estimate(0.5), still, still)
    lost = Estimate(-0.25, Interval(-0.3, -0.2, 0.95, "queries", "by hand"))
    end = SegmentRow(1.0, Estimate(0.25), Estimate(4.0), Estimate(0.1), lost, Estimate(1.5, rank_change))
    return PositionProbe(20, 16, 64, 21, (start, end), 0)


def test_what_is_found_as_well_all_the_same_is_watched_and_called_harmless():
    unknown = position.judge(probe(Interval(-1, 2, 0.95, "queries", "by hand")), Thresholds())
    falls = position.judge(probe(Interval(1, 2, 0.95, "queries", "by hand")), Thresholds())
    assert (unknown.level, unknown.basis) == ("watch", "harmless")
    assert (falls.level, falls.basis) == ("repair", "interval")


@pytest.mark.parametrize(
    ("key", "kind", "expected"), [("pooling", "configure", "configure"), ("cone", "repair", "change")]
)
def test_a_wrong_pooling_comes_before_another_model(found, key, kind, expected):
    many = [answer(name, kind="re-chunk") for name in ("scores", "position", "short", "scores")]
    decided = decide(found.subject, [answer(key, kind=kind), *many])
    assert decided.action.kind == expected


def test_a_trial_in_which_hardly_a_query_changed_says_so():
    before, after = np.full(60, 0.945), np.full(60, 0.945)
    after[0] = 1.0
    trial = Trial("a cure", "…", difference=compare_scores(before, after))
    assert "(1 of 60; 6 are needed)" in trial.reach(0.02)


@pytest.mark.parametrize(("score", "low", "high"), [(0.945, -0.08, 0.055), (0.03, -0.03, 0.08), (0.5, -0.08, 0.08)])
def test_a_shown_interval_stays_within_what_is_possible(score, low, high):
    before = Evaluation("a task", "nDCG@10", "queries", np.full((20, 1), score))
    shown = possible_interval(before, difference(0.0, -0.08, 0.08))
    assert (shown.low, shown.high) == pytest.approx((low, high))
