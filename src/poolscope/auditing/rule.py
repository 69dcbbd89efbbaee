"""The one rule: a level from a cause's symptom, the loss of its texts and the gains of its cures.

| level | when |
|---|---|
| fix | a defect; or a cure with a proven gain of at least what matters |
| look | the symptom is beyond its floor, and what has it is missed more often |
| ok | no symptom; or one that costs less than what matters, by its cures or by its texts |
| unchecked | not looked at, or too few queries to tell |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from poolscope.errors import InputError
from poolscope.evaluation.paired import CureTrial
from poolscope.numbers.intervals import Estimate
from poolscope.show.verdicts import Level

Reason = Literal[
    "defect",
    "proven",
    "missed more often",
    "no symptom",
    "cures win nothing",
    "costs nothing",
    "too few",
    "not looked at",
]
WHY: dict[Reason, str] = {
    "defect": "This is wrong whatever the queries say.",
    "proven": "A cure has a proven gain.",
    "missed more often": "Texts with this symptom are missed more often, but no cure is proven.",
    "no symptom": "There is no sign of it.",
    "cures win nothing": "No cure wins a gain that matters.",
    "costs nothing": "Texts with this symptom are found as often as others.",
    "too few": "There are too few queries to tell whether it costs anything.",
    "not looked at": "This was not looked at.",
}
"""The reason of a level, as a sentence."""


@dataclass(frozen=True)
class Rule:
    """The three numbers that everything goes by: the top k, the gain in nDCG@k that matters, the level of intervals."""

    k: int = 10
    matters: float = 0.01
    level: float = 0.95

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"top (k) is {self.k}. Use 1 or more, such as 10.")
        if not 0 < self.matters < 1:
            raise InputError(f"matters is {self.matters}. Use a gain between 0 and 1, such as 0.01.")
        if not 0.5 <= self.level < 1:
            raise InputError(f"level is {self.level}. Use 0.5 or more and less than 1, such as 0.95.")


@dataclass(frozen=True)
class Ruling:
    """A level, and the reason by which the rule came to it."""

    level: Level
    reason: Reason

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return WHY[self.reason]


def beyond_floor(symptom: Estimate) -> bool:
    """Is a symptom more than chance makes: does its interval lie above the floor, and it above 95 % of the draws?"""
    if symptom.value is None:
        return False
    low = symptom.value if symptom.interval is None else symptom.interval.low
    return low > (symptom.floor or 0.0) and symptom.value > (symptom.floor_high or symptom.floor or 0.0)


def decide(
    *,
    symptom: Estimate | None,
    loss: Estimate | None,
    trials: Sequence[CureTrial],
    rule: Rule,
    defect: bool = False,
) -> Ruling:
    """The level of a cause.

    Parameters
    ----------
    symptom
        The number of the symptom with its interval and its floor; None where the cause was not looked at.
    loss
        What the symptom costs: how much more often its texts are missed, times their share of all relevant texts. None
        where every text has it, or none is relevant.
    trials
        Those of its cures.
    rule
        The gain that matters.
    defect
        Is it wrong whatever the queries say?

    """
    if defect:
        return Ruling("fix", "defect")
    if any(trial.proven and trial.gain.value_or_raise >= rule.matters for trial in trials):
        return Ruling("fix", "proven")
    if symptom is None or symptom.value is None:
        return Ruling("unchecked", "not looked at")
    if not beyond_floor(symptom):
        return Ruling("ok", "no symptom")
    if loss is not None and loss.interval is not None and loss.interval.low > 0:
        return Ruling("look", "missed more often")
    if trials and all(trial.excludes(rule.matters) for trial in trials):
        return Ruling("ok", "cures win nothing")
    if loss is not None and loss.interval is not None and loss.interval.high < rule.matters:
        return Ruling("ok", "costs nothing")
    return Ruling("unchecked", "too few")
