"""A trial: the scores of a task before and after something was done, unit by unit, and what the difference says.

`tune` and the audit try repairs alike; what they try, and on which texts, is their own affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.errors import InputError
from poolscope.evaluation.scores import Difference, Evaluation, compare_scores
from poolscope.numbers.intervals import Interval
from poolscope.results import Result, transient


@dataclass(frozen=True, repr=False)
class Trial(Result):
    """What was tried (`name`, of which `family`), what came of it (`sentence`), and the scores behind that.

    `before` and `after` are the scores unit by unit, `difference` is paired; all three are None where nothing could be
    tried, and `sentence` says why. What it costs: `reads` is the tokens that the model reads, as a multiple of those it
    reads as it is, and `width` the numbers of a vector (None: not counted). `repair` is what was fitted for the trial,
    None for what is no repair of vectors; no file keeps it.

    >>> import numpy as np
    >>> before = Evaluation("a task", "nDCG@10", "queries", np.linspace(0, 0.5, 24)[:, None])
    >>> after = Evaluation("a task", "nDCG@10", "queries", np.linspace(0.25, 0.75, 24)[:, None])
    >>> trial = compared("mean removal", before, after, doing="removing the mean")
    >>> trial.sentence, trial.gain
    ('removing the mean helps (+0.250 nDCG@10 on 24 queries).', 0.25)
    """

    name: str
    sentence: str = field(repr=False)
    before: Evaluation | None = field(default=None, repr=False)
    after: Evaluation | None = field(default=None, repr=False)
    difference: Difference | None = field(default=None, repr=False)
    evidence: tuple[str, ...] = field(default=(), repr=False)
    family: str = ""
    reads: float | None = None
    width: int | None = None
    repair: Any = transient()

    def headline(self) -> dict[str, Any]:
        """The score after, and the difference with its interval."""
        row: dict[str, Any] = {"name": self.name, "family": self.family}
        if self.after is not None and self.difference is not None:
            row |= {
                "score": self.after.value,
                "difference": replace(self.difference.change, interval=possible_interval(self.before, self.difference)),
            }
        return row

    def seen(self) -> tuple[str, ...]:
        """What came of it."""
        return (self.sentence[:1].upper() + self.sentence[1:],)

    @property
    def evaluation(self) -> Evaluation:
        """The scores after; an error where nothing was tried."""
        if self.after is None:
            raise InputError(f"{self.name}: it has no scores, since {self.sentence}")
        return self.after

    @property
    def change(self) -> Difference:
        """The difference; an error where nothing was tried."""
        if self.difference is None:
            raise InputError(f"{self.name}: it has no difference, since {self.sentence}")
        return self.difference

    @property
    def gain(self) -> float:
        """What was won, 0 where that is not proven."""
        return self.difference.mean if self.difference is not None and self.difference.proves_gain else 0.0

    def could_tell(self, least: float) -> bool:
        """Was it tried, on queries enough to see a gain of `least`?"""
        return self.difference is not None and self.difference.could_tell(least)

    def reach(self, least: float) -> str:
        """A sentence where the trial met too few queries for a gain of `least`; empty otherwise."""
        return "" if self.difference is None or self.gain > 0 else self.difference.reach(least)

    def numbers(self, name: str) -> dict[str, Any]:
        """The difference under a name, with its interval."""
        if self.difference is None:
            return {f"{name}_gain": None}
        gain = self.difference.smallest_gain()
        return {
            f"{name}_gain": self.difference.mean,
            f"{name}_gain_interval": possible_interval(self.before, self.difference),
            f"{name}_smallest_gain": gain if np.isfinite(gain) else None,
        }

    def table(self, name: str) -> Mapping[str, pa.Table]:
        """The scores query by query as a table of that name; none where nothing was tried.

        A digest names the query, so that two audits are paired only where they asked the same.
        """
        if self.before is None or self.after is None:
            return {}
        columns = {"before": self.before.scores, "after": self.after.scores}
        return {name: pa.table({"query": list(self.before.names), **columns})}


def possible_interval(before: Evaluation | None, difference: Difference) -> Interval | None:
    """The interval of a difference as it is shown: a mean of scores from 0 to 1 ends at neither less nor more.

    What a trial could have told goes by the whole interval.
    """
    interval = difference.interval
    if interval is None or before is None or before.statistic != "mean":
        return interval
    if before.scores.min() < 0 or before.scores.max() > 1:
        return interval
    lowest, highest = min(-before.value, difference.mean), max(1 - before.value, difference.mean)
    return replace(interval, low=max(interval.low, lowest), high=min(interval.high, highest))


def compared(
    name: str,
    before: Evaluation,
    after: Evaluation,
    *,
    doing: str = "",
    level: float = 0.95,
    units: str = "",
    family: str = "",
    repair: Any = None,
) -> Trial:
    """The trial of two evaluations of one task, with an interval of that level.

    `doing` names the deed and `units` the units in words, where the name of either says too little.
    """
    difference = compare_scores(before, after, level=level)
    if difference.proves_gain:
        outcome = "helps"
    elif difference.proves_loss:
        outcome = "hurts"
    else:
        outcome = "changes nothing that can be told from chance"
    metric = before.metric
    change = f"{difference.mean:+z.3f} {metric} on {difference.count} {units or before.unit}"
    possible = replace(difference, change=replace(difference.change, interval=possible_interval(before, difference)))
    scores = f"{before.value:.3f} before, {after.value:.3f} after, difference {possible} ({level:.0%} interval)"
    evidence = f"{name[:1].upper()}{name[1:]}, on {before.task}: {metric} {scores}."
    family = family if repair is None else repair.family
    return Trial(
        name, f"{doing or name} {outcome} ({change}).", before, after, difference, (evidence,), family, repair=repair
    )
