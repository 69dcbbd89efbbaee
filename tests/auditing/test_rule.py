"""The one rule, as a table of cases; and the numbers it goes by."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.auditing.cause import loss_of
from poolscope.auditing.rule import WHY, Rule, beyond_floor, decide
from poolscope.errors import InputError
from poolscope.evaluation.paired import CureTrial
from poolscope.numbers.intervals import Estimate, Interval


def number(value, low=None, high=None, floor=0.0):
    interval = None if low is None else Interval(low, high, 0.95, "the population of queries", "t", "queries")
    return Estimate(value, interval, floor=floor)


def trial(gain, low=None, high=None, smallest=0.02):
    return CureTrial(
        name="cure",
        queries=100,
        units=100,
        changed=20,
        before=0.5,
        after=0.5 + gain,
        gain=number(gain, low, high),
        found_before=80,
        found_after=80,
        found_gain=number(0.0),
        rescued=(),
        broken=(),
        p=0.5,
        smallest=smallest,
    )


PRESENT, ABSENT = number(0.3, 0.2, 0.4), number(0.0, 0.0, 0.05)
CASES = {
    "a defect whatever the queries say": (PRESENT, None, [], True, ("fix", "defect")),
    "a proven gain that matters": (PRESENT, None, [trial(0.03, 0.01, 0.05)], False, ("fix", "proven")),
    "a proven gain without a symptom": (ABSENT, None, [trial(0.03, 0.01, 0.05)], False, ("fix", "proven")),
    "a proven gain that is too small": (
        PRESENT,
        None,
        [trial(0.004, 0.001, 0.007)],
        False,
        ("ok", "cures win nothing"),
    ),
    "a gain whose interval holds 0": (PRESENT, None, [trial(0.05, -0.01, 0.11)], False, ("unchecked", "too few")),
    "no gain that matters is possible": (
        PRESENT,
        None,
        [trial(-0.01, -0.02, 0.005)],
        False,
        ("ok", "cures win nothing"),
    ),
    "missed more often": (PRESENT, number(0.1, 0.05, 0.15), [], False, ("look", "missed more often")),
    "missed as often": (PRESENT, number(0.0, -0.02, 0.004), [], False, ("ok", "costs nothing")),
    "missed more often, and no cure can win": (
        PRESENT,
        number(0.1, 0.05, 0.15),
        [trial(0.0, -0.01, 0.005)],
        False,
        ("look", "missed more often"),
    ),
    "no symptom": (ABSENT, number(0.1, 0.05, 0.15), [], False, ("ok", "no symptom")),
    "not looked at": (None, None, [], False, ("unchecked", "not looked at")),
    "nothing known of its cost": (PRESENT, None, [], False, ("unchecked", "too few")),
    "hardly a query changed, and a gain would have shown": (
        PRESENT,
        None,
        [trial(0.0, smallest=0.008)],
        False,
        ("ok", "cures win nothing"),
    ),
    "hardly a query changed, and a gain would not have shown": (
        PRESENT,
        None,
        [trial(0.0, smallest=0.05)],
        False,
        ("unchecked", "too few"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_level_follows_from_symptom_loss_and_trials_alone(case):
    symptom, loss, trials, defect, expected = CASES[case]
    ruling = decide(symptom=symptom, loss=loss, trials=trials, rule=Rule(), defect=defect)
    assert (ruling.level, ruling.reason) == expected
    assert ruling.sentence == WHY[ruling.reason]


def test_a_larger_gain_that_matters_turns_a_fix_into_no_fix():
    proven = [trial(0.03, 0.01, 0.05)]
    assert decide(symptom=PRESENT, loss=None, trials=proven, rule=Rule(matters=0.04)).level != "fix"


@pytest.mark.parametrize(
    ("symptom", "beyond"),
    [
        (number(0.2, 0.1, 0.3, floor=0.05), True),
        (number(0.2, 0.04, 0.3, floor=0.05), False),
        (Estimate(0.2, None, 0.1, 0.05, 0.25), False),
        (Estimate(0.2, None, 0.1, 0.05, 0.15), True),
        (Estimate(None), False),
    ],
)
def test_a_symptom_is_beyond_its_floor_with_its_interval_and_beyond_most_draws(symptom, beyond):
    assert beyond_floor(symptom) is beyond


@pytest.mark.parametrize("wrong", [{"k": 0}, {"matters": 0}, {"matters": 1.5}, {"level": 0.2}])
def test_numbers_of_the_rule_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError):
        Rule(**wrong)


def test_the_loss_is_the_share_that_would_be_found_if_rows_with_it_were_missed_as_seldom():
    marks = np.arange(200) < 50
    missed = np.where(marks, np.arange(200) % 2 == 0, np.arange(200) % 10 == 0).astype(float)
    loss = loss_of(marks, missed, np.arange(200))
    assert loss.value_or_raise == pytest.approx(0.25 * (0.5 - 0.1))
    assert loss.interval.low > 0


def test_the_interval_of_a_loss_covers_and_by_documents_is_wider():
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        marks = random.random(150) < 0.3
        missed = (random.random(150) < np.where(marks, 0.4, 0.2)).astype(float)
        loss = loss_of(marks, missed, np.arange(150))
        inside += loss.interval.low <= 0.3 * 0.2 <= loss.interval.high
    assert inside >= 0.92 * 400
    documents = np.arange(150) // 15
    marks, missed = np.repeat(random.random(10) < 0.5, 15), np.repeat(random.random(10) < 0.5, 15).astype(float)
    apart, together = loss_of(marks, missed, np.arange(150)), loss_of(marks, missed, documents)
    assert together.interval.high - together.interval.low > apart.interval.high - apart.interval.low
