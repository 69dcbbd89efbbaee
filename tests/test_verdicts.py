"""Verdicts: three levels in their order."""

from __future__ import annotations

import json

import pytest

from poolscope.errors import InputError
from poolscope.numbers.intervals import Interval
from poolscope.verdicts import LEVELS, Verdict, worst_level


def test_levels_are_ordered():
    for i, low in enumerate(LEVELS):
        for j, high in enumerate(LEVELS):
            assert Verdict(high, "…").at_least(low) == (j >= i)


def test_the_worst_of_many():
    assert worst_level([]) == "ok"
    assert worst_level([Verdict("watch", "…"), Verdict("repair", "…"), Verdict("ok", "…")]) == "repair"
    assert worst_level([Verdict("ok"), Verdict("unchecked")]) == "unchecked"
    assert worst_level([Verdict("watch"), Verdict("unchecked")]) == "watch"


def test_a_verdict_becomes_json():
    interval = Interval(0.1, 0.3, 0.95, "the population of texts", "bootstrap over texts")
    content = Verdict("watch", "look", 0.2, interval, floor=float("nan"), evidence=("seen",)).to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["interval"]["low"] == 0.1
    assert content["floor"] is None


def test_an_unknown_level_is_refused():
    with pytest.raises(InputError, match="received 'fine'; allowed: ok, unchecked, watch, repair"):
        Verdict("fine", "…")
