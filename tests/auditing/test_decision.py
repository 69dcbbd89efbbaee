"""The decision from the other nine answers: what comes first, how sure it is, and when there is too little to tell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from audit_data import bag_of_words, sentences
from poolscope.auditing.basis import Basis
from poolscope.auditing.decision import CERTAINTY, answer_decision, ranked
from poolscope.auditing.length import _position_judgement
from poolscope.auditing.result import NOT_APPLICABLE, Action, Answer
from poolscope.auditing.run import audit
from poolscope.auditing.thresholds import Thresholds
from poolscope.auditing.trials import Trial, judged_by
from poolscope.evaluation import Difference
from poolscope.numbers.intervals import Interval
from poolscope.verdicts import Verdict
from tiny_models import tiny_model, tiny_tokenizer

INTERVAL = Interval(0.4, 0.6, 0.95, "the population of texts", "bootstrap")


@pytest.fixture(scope="module")
def found():
    return audit((tiny_model(), tiny_tokenizer()), sentences(64))


def test_the_page_lists_every_basis_in_the_words_of_the_screen():
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    for basis, words in CERTAINTY.items():
        assert f"| `{basis}` | {words} |" in page


def answer(key, level="repair", *, kind="repair", basis="interval"):
    action = Action(kind, "do it", "poolscope tune", "little")
    return Answer(1, key, "?", Verdict(level, "…", 0.5, INTERVAL), {}, "audit.md", action=action, basis=basis)


def test_few_texts_are_too_little_to_tell():
    found = audit(bag_of_words, ["a b c"])["decision"]
    assert found.verdict.sentence.startswith("Too little to tell")
    assert "Only 0 of 9 questions could be asked" in found.verdict.sentence
    assert "because a distribution of scores needs three different texts" in found.verdict.sentence
    assert found.action.kind == found.numbers["decision"] == "undecided"
    assert "could not be asked" in found.numbers["certainty"]
    assert sum("Not applicable" in note for note in found.verdict.evidence) == 9


def test_a_step_from_few_answers_says_how_few_they_are(found):
    left = [Answer(k, "cone", "?", Verdict("ok", f"{NOT_APPLICABLE}reasons."), {}, "audit.md") for k in range(2, 10)]
    decided = answer_decision(found.subject, [answer("scores", basis="interval"), *left])
    assert decided.verdict.sentence.startswith("Repair first")
    assert "Only 1 of 9 questions could be asked of these texts; number 2 could not, because reasons." in (
        decided.verdict.sentence
    )


def test_every_basis_has_words_of_its_own():
    assert set(CERTAINTY) == set(get_args(Basis))
    assert len(set(CERTAINTY.values())) == len(CERTAINTY)


def test_a_level_above_ok_rests_on_something_and_the_table_says_on_what(found):
    for each in found.answers[:-1]:
        assert (each.basis is None) == (each.verdict.level == "ok"), each.key
    open_answers = ranked(found.answers[:-1])
    assert found.tables["actions"]["certainty"].to_pylist() == [CERTAINTY[each.basis] for each in open_answers]
    assert [each["basis"] for each in found.to_dict()["answers"]] == [each.basis for each in found.answers]


def difference(mean, low, high):
    interval = Interval(low, high, 0.99, "queries", "by hand")
    return Difference(mean, interval, "nDCG@10", "queries", 100, 100)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([(0.05, 0.01, 0.09), (0.0, -0.1, 0.1)], ("repair", "trial")),
        ([(0.005, 0.001, 0.009)], ("watch", "small gain")),
        ([(0.05, -0.01, 0.09), None], ("watch", "no cure")),
        ([None, None], ("watch", "untried")),
    ],
)
def test_trials_say_what_a_level_rests_on(gains, expected):
    trials = [Trial("a cure", "…", difference=gain and difference(*gain)) for gain in gains]
    assert judged_by(trials, 0.01) == expected


def test_what_is_found_as_well_all_the_same_is_watched_and_called_harmless():
    unknown = SimpleNamespace(rank_change=SimpleNamespace(interval=Interval(-1, 2, 0.95, "queries", "by hand")))
    falls = SimpleNamespace(rank_change=SimpleNamespace(interval=Interval(1, 2, 0.95, "queries", "by hand")))
    judged = _position_judgement(Thresholds(), unknown, 0.5, INTERVAL)
    assert judged == ("watch", "harmless")
    assert _position_judgement(Thresholds(), falls, 0.5, INTERVAL) == ("repair", "interval")


@pytest.mark.parametrize(("kind", "expected"), [("configure", "configure"), ("repair", "change")])
def test_a_wrong_pooling_comes_before_another_model(found, kind, expected):
    many = [answer(key, kind="re-chunk") for key in ("scores", "position", "short", "scores")]
    decided = answer_decision(found.subject, [answer("pooling", kind=kind), *many])
    assert decided.action.kind == expected
