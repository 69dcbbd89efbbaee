"""The decision: the proven cure with the largest gain, or that nothing is proven to help; data, never a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolscope.auditing.cure import Cost, Cure
from poolscope.auditing.ledger import Ledger
from poolscope.auditing.rule import Rule
from poolscope.auditing.words import fill
from poolscope.evaluation.paired import CureTrial
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result

_NOTHING = "Nothing that we tried is proven to help."
_REACH = "With {queries:count query}, only a gain of {smallest:score} or more would have shown."
_DEFECT = "Repair this first: {title}."
_SELF_MADE = "The queries are self-made: prove the gain with your own before you pay for it."
_GAIN = (
    "The gain in nDCG@{k:count} is {gain:signed} {gain:interval}: {rescued:count query} more found, "
    "{broken:count} lost."
)
_LEFT = "{left:count query} {left:number is} still missed after that."
DECISION_WORDS = (_NOTHING, _REACH, _DEFECT, _GAIN, _LEFT, _SELF_MADE)


@dataclass(frozen=True, repr=False, kw_only=True)
class Decision(Result):
    """What to do first.

    `kind` is "defect" (`defects` has title and sentence of each), "cure", "nothing" or "untried" (no queries). `step`
    names the cure, `does` says it as an imperative, `command` does it. `left` counts the queries that are missed after
    it. `smallest` is the smallest gain that the cure that came nearest would have shown.
    """

    kind: str
    step: str = ""
    does: str = ""
    gain: Estimate | None = None
    rescued: int = 0
    broken: int = 0
    cost: Cost | None = None
    command: str = ""
    left: int = 0
    queries: int = 0
    smallest: float | None = None
    self_made: bool = False
    defects: tuple[tuple[str, str], ...] = ()
    k: int = 10

    def seen(self) -> tuple[str, ...]:
        """The decision in a few short sentences."""
        if self.kind == "defect":
            return tuple(line for pair in self.defects for line in (fill(_DEFECT, {"title": pair[0]}), pair[1]))
        if self.kind == "cure":
            values = {"k": self.k, "gain": self.gain, "rescued": self.rescued, "broken": self.broken, "left": self.left}
            cost = () if self.cost is None else (self.cost.sentence(),)
            own = (_SELF_MADE,) if self.self_made else ()
            return (self.does, fill(_GAIN, values), *cost, *own, fill(_LEFT, values))
        if self.kind == "untried" or self.smallest is None:
            return ()
        return (_NOTHING, fill(_REACH, {"queries": self.queries, "smallest": self.smallest}))


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
) -> Decision:
    """Choose what to do first: a defect; else the proven cure that gains most, of equal gains the cheaper one."""
    found = tuple((finding.title, finding.sentence) for finding in defects)
    if ledger is None:
        return Decision(kind="defect" if found else "untried", defects=found, k=rule.k)
    missed = len(ledger.misses())
    nearest = max(trials, key=lambda trial: trial.gain.known, default=None)
    smallest = None if nearest is None else nearest.smallest
    common: dict[str, Any] = {"left": missed, "queries": ledger.queries, "smallest": smallest, "k": rule.k}
    if found:
        return Decision(kind="defect", defects=found, **common)
    proven = [trial for trial in trials if trial.proven and trial.gain.known >= rule.matters]
    if not proven:
        return Decision(kind="nothing", **common)
    best = min(proven, key=lambda trial: (-round(trial.gain.known, 3), costs[trial.name].weight))
    return Decision(
        kind="cure",
        step=best.name,
        does=fill(cures[best.name].does, values or {}),
        gain=best.gain,
        rescued=len(best.rescued),
        broken=len(best.broken),
        cost=costs[best.name],
        command=f"{command or 'poolscope fix AUDIT'} --cure {best.name}",
        **{**common, "left": missed - len(best.rescued) + len(best.broken)},
    )
