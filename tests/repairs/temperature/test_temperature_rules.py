"""Temperature rules: their formulas, what they refuse, and the way to a dictionary and back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from poolscope.errors import InputError
from poolscope.repairs import PUBLISHED_GRID, ByRole, Constant, LogLength, Steps, YarnLike, as_rule, fit_steps
from poolscope.repairs.temperature.rules import ByFunction, rule_from_dict

RULES = [
    Constant(0.8),
    LogLength(4.0),
    YarnLike(0.01),
    Steps((50, 100), (1.0, 0.9, 0.8)),
    ByRole(query=1, document=0.9),
]


def test_the_formulas():
    assert [Constant(0.5)(n) for n in (1, 10**6)] == [0.5, 0.5]
    for n in (2, 17, 512):
        # log n/τ times the logits, and 1/τ = 1 + λ log n, as the papers write them
        assert 1 / LogLength(3.0)(n) == pytest.approx(math.log(n) / 3.0)
        assert 1 / YarnLike(0.2)(n) == pytest.approx(1 + 0.2 * math.log(n))
    assert LogLength(3.0)(1) == YarnLike(0.2)(1) == 1
    steps = Steps((50, 100), (1.0, 0.9, 0.8))
    assert [steps(n) for n in (1, 49, 50, 99, 100, 9000)] == [1.0, 1.0, 0.9, 0.9, 0.8, 0.8]
    assert Steps((), (0.7,))(12) == 0.7
    assert PUBLISHED_GRID == (0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_to_a_dictionary_and_back(rule):
    kept = json.loads(json.dumps(rule.to_dict()))
    assert kept == rule.to_dict()
    assert rule_from_dict(kept) == as_rule(kept) == as_rule(rule) == rule
    assert rule.named


def test_functions_have_no_dictionary():
    rule = as_rule(lambda n: 1 / n)
    assert isinstance(rule, ByFunction)
    assert rule(4) == 0.25
    assert not rule.named
    assert not ByRole(query=1, document=rule).named
    for unnamed in (rule, ByRole(query=1, document=rule)):
        with pytest.raises(InputError, match=r"tau: .*function"):
            unnamed.to_dict()
    with pytest.raises(InputError, match=r"tau\(3\): received -1"):
        as_rule(lambda n: -1)(3)


def test_numbers_of_other_libraries_become_plain_ones():
    assert Constant(np.float32(0.5)).to_dict() == {"kind": "constant", "tau": 0.5}
    assert as_rule(np.float64(0.8)) == Constant(0.8)
    assert type(Steps((np.int64(5),), (np.float64(1), 0.5)).edges[0]) is int


def test_roles():
    rule = ByRole(query=0.9, document={"kind": "yarn", "rate": 0.1})
    assert rule.for_role("query") == Constant(0.9)
    assert rule.for_role("document") == YarnLike(0.1)
    assert Constant(0.9).for_role("query") == Constant(0.9)
    for role in (None, "title"):
        with pytest.raises(InputError, match="query, document"):
            rule.for_role(role)
    with pytest.raises(InputError, match="role="):
        rule(10)
    with pytest.raises(InputError, match=r"document: .*by role"):
        ByRole(query=1, document=rule)


def test_which_rules_change_nothing():
    neutral = [Constant(1), YarnLike(0), Steps((9,), (1, 1)), ByRole(query=1, document=YarnLike(0))]
    assert all(rule.neutral for rule in neutral)
    assert not any(rule.neutral for rule in [*RULES, as_rule(lambda n: 1)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(0),
        lambda: LogLength(float("nan")),
        lambda: YarnLike(-0.1),
        lambda: YarnLike(float("inf")),
        lambda: YarnLike("0.1"),
        lambda: Steps((50, 50), (1, 1, 1)),
        lambda: Steps((50.5,), (1, 1)),
        lambda: Steps((0,), (1, 1)),
        lambda: Steps((50,), (1,)),
        lambda: Steps((50,), (1, -1)),
        lambda: rule_from_dict({"tau": 1}),
        lambda: rule_from_dict({"kind": "constant", "rate": 1}),
    ],
)
def test_what_is_refused(make):
    with pytest.raises(InputError, match="received"):
        make()


def quality(lengths, *, gain, noise=0.1, seed=0):
    """Scores at τ = 1, 0.9, 0.8, 0.5: texts of 100 tokens and more gain at 0.8, none at the others."""
    scores = np.random.default_rng(seed).normal(0, noise, (len(lengths), 4))
    scores[:, 2] += np.where(np.asarray(lengths) >= 100, gain, -gain)
    return scores


def test_a_step_rule_is_fitted_where_the_gain_is_beyond_chance():
    lengths = np.random.default_rng(1).integers(5, 200, 400)
    found = fit_steps(lengths, quality(lengths, gain=0.2), temperatures=[1.0, 0.9, 0.8, 0.5], bins=[0, 50, 100, 200])
    assert found.rule == Steps((50, 100), (1.0, 1.0, 0.8))
    last = found.bins[-1]
    assert (last.best, last.chosen, last.texts) == (0.8, 0.8, int((lengths >= 100).sum()))
    assert 0.1 < last.interval.low < last.gain < last.interval.high
    assert last.interval.level == pytest.approx(1 - 0.05 / 9)  # three temperatures in three bins competed


def test_without_a_gain_nothing_is_changed():
    lengths = np.random.default_rng(1).integers(5, 200, 400)
    for seed in range(4):
        scores = quality(lengths, gain=0.0, noise=1.0, seed=seed)
        assert fit_steps(lengths, scores, temperatures=[1.0, 0.9, 0.8, 0.5], bins=4).rule.neutral


def test_bins_with_few_texts_are_merged_and_said():
    lengths = [10] * 30 + [60] * 3 + [120] * 30
    found = fit_steps(lengths, quality(lengths, gain=0.3), temperatures=[1.0, 0.9, 0.8, 0.5])
    assert found.rule == Steps((50,), (1.0, 0.8))
    assert any("merged" in note for note in found.notes)


def test_what_cannot_be_fitted():
    lengths, scores = [10, 20], [[1.0, 2.0], [1.0, 2.0]]
    for wrong in (([10], scores), (lengths, [[1.0], [2.0]]), ([0, 10], scores), ([1.5, 2.5], scores)):
        with pytest.raises(InputError, match="received"):
            fit_steps(*wrong, temperatures=[1.0, 0.8])
    with pytest.raises(InputError, match="not finite"):
        fit_steps(lengths, [[1.0, np.nan], [1.0, 1.0]], temperatures=[1.0, 0.8])
    with pytest.raises(InputError, match=r"\[0\.9, 0\.8\]; τ = 1"):
        fit_steps(lengths, scores, temperatures=[0.9, 0.8])
