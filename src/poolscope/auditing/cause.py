"""A cause of misses: its symptom, its cures and its words. One object and one file each, in `causes/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cure import Cure
from poolscope.auditing.search import Search
from poolscope.extensions import add_row, load_extensions
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, Interval

Marks = NDArray[np.bool_]
Stage = Literal["index", "texts", "model"]
STAGES: tuple[Stage, ...] = ("index", "texts", "model")


@dataclass(frozen=True)
class Symptom:
    """The symptom of a cause on these texts: one number, and a mark for every text that has it.

    `number` has its interval and its floor. `texts` marks the texts that have the symptom, or `answers` the rows of the
    ledger (a query and a relevant text) where it goes by both; None where all have it. `values` fill the words;
    `examples` among them are a few names to look up. `defect`: it is wrong whatever the queries say.
    """

    number: Estimate
    texts: Marks | None = None
    answers: Marks | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    defect: bool = False

    def rows(self, search: Search) -> Marks | None:
        """The rows of the ledger that have the symptom; None where it is not one of some rows."""
        if self.answers is not None or self.texts is None or not len(search):
            return self.answers
        return np.asarray(self.texts[search.before.text])


@dataclass(frozen=True)
class Words:
    """The sentences of a cause, as templates. `number` is a label of at most 32 characters for the symptom's number.

    `present` and `absent` say what was seen, `unlooked` why the cause was not looked at. `form` is how the number is
    shown: "percent", "score", "times" or "signed". `marked` says what the symptom marks among the relevant texts, and
    `floor` what the floor of the number is.
    """

    present: str
    absent: str
    unlooked: str
    number: str
    form: str = "percent"
    marked: str = "{affected:count} of {answers:count relevant text} {affected:number has} this symptom."
    floor: str = "by chance"


@dataclass(frozen=True)
class Cause:
    """One cause. `symptom` measures it on a search; None where it does not apply to this search.

    `stage` is where it arises: what is wrong in the index or the texts is shown before what the model does, since all
    else is measured on it. `shared` are cures of other causes that help with this one too. They speak for it only where
    its texts are missed more often than others, since otherwise they help for another reason.
    """

    name: str
    title: str
    page: str
    symptom: Callable[[Search], Symptom | None]
    cures: tuple[Cure, ...]
    words: Words
    stage: Stage = "model"
    shared: tuple[Cure, ...] = ()


CAUSES: dict[str, Cause] = {}
SHOWN = 5
"""Rows that are named as examples."""


def register_cause(cause: Cause) -> Cause:
    """Add a cause of your own to the table; the audit then looks for it, and tries its cures."""
    added: Cause = add_row(CAUSES, cause, "the cause")
    return added


def all_causes() -> dict[str, Cause]:
    """List all causes in the order of the screen; causes of extensions come last."""
    import poolscope.auditing.causes  # noqa: F401 - it fills the table

    load_extensions()
    return CAUSES


def loss_of(marks: Marks, missed: Array, units: Index, *, unit: str = "texts", level: float = 0.95) -> Estimate:
    """What a symptom costs: how much more often its rows are missed, times their share of all rows.

    It is the share of all rows that would be found if those with the symptom were missed as seldom as the others. The
    interval is a jackknife over units, which `unit` names. Where no row has the symptom, or all have it, there is no
    other to compare with, and no value.

    >>> marks, missed = np.arange(100) < 20, (np.arange(100) % 2 == 0).astype(float)
    >>> round(loss_of(marks, missed, np.arange(100)).value_or_raise, 3)
    0.0
    """
    if not len(marks) or marks.all():
        return Estimate(None)
    rows = np.stack([marks, ~marks, marks * missed, ~marks * missed], axis=1).astype(float)
    sums = np.zeros((int(units.max()) + 1, 4))
    np.add.at(sums, units, rows)
    sums = sums[sums[:, :2].sum(axis=1) > 0]
    whole = sums.sum(axis=0)
    if whole[0] == 0:
        return Estimate(0.0, Interval(0.0, 0.0, level, "these queries", "counted: no row has it", unit))
    value, without = _loss(whole[None])[0], _loss(whole - sums)
    count = len(sums)
    touched = int((sums[:, 0] > 0).sum())
    share = whole[0] / whole[:2].sum()
    if touched < 2 or not np.isfinite(without).all():
        return Estimate(float(value), Interval(-share, share, level, "these queries", "bounds: too few have it", unit))
    from scipy import special

    error = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    reach = float(special.stdtrit(min(touched, count) - 1, (1 + level) / 2)) * error
    low, high = max(value - reach, -share), min(value + reach, share)
    answers, method = f"the population of {unit}", f"jackknife over {unit}"
    return Estimate(float(value), Interval(float(low), float(high), level, answers, method, unit))


def _loss(sums: Array) -> Array:
    """The loss from counts of rows with and without the symptom, and of missed ones (… × 4)."""
    with_it, others, missed_with, missed_others = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = missed_with / with_it - missed_others / others
        return np.asarray(with_it / (with_it + others) * rates)
