"""The decision: the proven cure with the largest gain, or that nothing is proven to help; data, never a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolscope.auditing.cure import Cost, Cure
from poolscope.auditing.ledger import Ledger
from poolscope.auditing.power import shown_sentence
from poolscope.auditing.rule import Rule
from poolscope.auditing.words import fill
from poolscope.evaluation.paired import CureTrial
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result

_NOTHING = "Nothing that we tried is proven to help."
_NEAREST = "The best try was {label}: nDCG@{k:count} changed by {gain:signed} {gain:interval}."
_DEFECT = "Repair this first: {title}."
_DEFECT_TOO = "Repair this too: {title}."
_BESIDES = "Also proven: {label}, with a gain in nDCG@{k:count} of {gain:signed} {gain:interval}."
_SELF_MADE = "The queries are self-made: prove the gain with your own before you pay for it."
_GAIN = (
    "The gain in nDCG@{k:count} is {gain:signed} {gain:interval}: {rescued:count query} more found, "
    "{broken:count} lost."
)
_LEFT = "{left:count query} {left:number is} still missed after that."
_LEFT_OF_PART = "{left:count} of the {queries:count query} that we tried {left:number is} still missed after that."
DECISION_WORDS = (_NOTHING, _NEAREST, _DEFECT, _DEFECT_TOO, _BESIDES, _GAIN, _LEFT, _LEFT_OF_PART, _SELF_MADE)


@dataclass(frozen=True, repr=False, kw_only=True)
class Decision(Result):
    """What to do first.

    `kind` is "defect" (`defects` has title and sentence of each), "cure", "nothing" or "untried" (no queries). `step`
    names the cure, `does` says it as an imperative, `command` does it; a defect has them where a cure is at hand.
    `gain` is that of the proven cure named `label`, or where none is proven of the one that came nearest, on so many
    `queries`: not all where it was tried on a `part`. `left` counts those that are missed after the step. `smallest` is
    the smallest gain that this cure would have shown, with so many `units` of its interval.
    """

    kind: str
    step: str = ""
    does: str = ""
    label: str = ""
    gain: Estimate | None = None
    rescued: int = 0
    broken: int = 0
    cost: Cost | None = None
    command: str = ""
    left: int = 0
    queries: int = 0
    part: bool = False
    smallest: float | None = None
    units: int = 0
    unit: str = "queries"
    self_made: bool = False
    defects: tuple[tuple[str, str], ...] = ()
    k: int = 10

    def in_words(self) -> tuple[str, ...]:
        """The decision in a few short sentences."""
        values = {"k": self.k, "label": self.label, "gain": self.gain, "rescued": self.rescued, "broken": self.broken}
        values |= {"left": self.left, "queries": self.queries, "smallest": self.smallest}
        if self.kind == "defect":
            besides = (fill(_BESIDES, values),) if self.label else ()
            does = (self.does,) if self.does else ()
            return (
                *(
                    line
                    for place, (title, sentence) in enumerate(self.defects)
                    for line in (fill(_DEFECT_TOO if place else _DEFECT, {"title": title}), sentence)
                ),
                *does,
                *besides,
            )
        if self.kind == "cure":
            cost = () if self.cost is None else (self.cost.sentence(),)
            own = (_SELF_MADE,) if self.self_made else ()
            return (self.does, fill(_GAIN, values), *cost, *own, fill(_LEFT_OF_PART if self.part else _LEFT, values))
        if self.kind == "untried" or self.smallest is None:
            return ()
        return (
            _NOTHING,
            fill(_NEAREST, values),
            shown_sentence(self.queries, self.smallest, units=self.units, unit=self.unit),
        )


def decide_first(
    trials: Sequence[CureTrial],
    cures: Mapping[str, Cure],
    costs: Mapping[str, Cost],
    ledger: Ledger | None,
    *,
    rule: Rule,
    defects: Sequence[Any] = (),
    values: Mapping[str, object] | None = None,
    command: str = "",
    unit: str = "queries",
) -> Decision:
    """Choose what to do first: a defect; else the proven cure that gains most, of equal gains the cheaper one."""
    found = tuple((finding.title, finding.sentence) for finding in defects)
    cured = next((name for finding in defects for name in finding.cures), "")
    repair: dict[str, Any] = {} if not cured else _step(cures[cured], values, command)
    if ledger is None:
        return Decision(kind="defect" if found else "untried", defects=found, k=rule.k, **repair)
    missed = len(ledger.misses())
    proven = [trial for trial in trials if trial.proven and trial.gain.value_or_raise >= rule.matters]
    best = min(proven, key=lambda trial: (-round(trial.gain.value_or_raise, 3), costs[trial.name].weight), default=None)
    if best is None:  # of those with an interval, where there are any
        best = max(trials, key=lambda trial: (trial.gain.interval is not None, trial.gain.value_or_raise), default=None)
    common: dict[str, Any] = {"left": missed, "queries": ledger.queries, "k": rule.k, "unit": unit}
    if best is not None:
        common |= {"label": cures[best.name].label, "gain": best.gain, "smallest": best.smallest, "units": best.units}
        common |= {"queries": best.queries, "part": best.queries < ledger.queries}
    if found:
        named = {"label": "", "gain": None} if not proven or best is None or best.name == cured else {}
        return Decision(kind="defect", defects=found, **{**common, **named}, **repair)
    if best is None or not proven:
        return Decision(kind="nothing", **common)
    return Decision(
        kind="cure",
        rescued=len(best.rescued),
        broken=len(best.broken),
        cost=costs[best.name],
        **{**common, "left": best.queries - best.found_after},
        **_step(cures[best.name], values, command),
    )


def _step(cure: Cure, values: Mapping[str, object] | None, command: str) -> dict[str, Any]:
    """The name of a cure, what it does, and the command that does it."""
    return {
        "step": cure.name,
        "does": fill(cure.does, values or {}),
        "command": f"{command or 'poolscope fix AUDIT'} --cure {cure.name}",
    }
