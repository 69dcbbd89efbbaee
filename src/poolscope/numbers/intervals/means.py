"""Means, shares and ratios, with intervals over units.

A share is Clopper and Pearson's (1934, Biometrika 26) at the effective number of units of Korn and Graubard (1998,
Survey Methodology 24); a ratio of two means is Fieller's (1954, JRSS B 16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from poolscope.numbers import Array
from poolscope.numbers.intervals.estimate import LEVEL, Estimate, Interval
from poolscope.numbers.intervals.student import mean_of_units, skewness_of
from poolscope.numbers.intervals.units import FEWEST_DOCUMENTS, Units, chosen_units, too_few


def mean_estimate(
    values: Array, units: ArrayLike | Units | None = None, *, each: str = "texts", level: float = LEVEL
) -> Estimate:
    """Mean of values with its interval over units (the document of each value, where known); no value for none.

    >>> print(mean_estimate(np.arange(10.0)))
    4.500 [2.334, 6.666]
    >>> mean_estimate(np.arange(10.0), ["a"] * 6 + list("bcde")).no_interval
    'no interval: 5 documents, 30 are needed'
    """
    if not len(values):
        return Estimate(None)
    chosen = chosen_units(len(values), units, each=each)
    sums, sizes = chosen.sums(values), chosen.sizes
    fit = mean_of_units(sums, sizes)
    if sizes.max() > 1:
        return fit.interval(chosen, level=level, needed=FEWEST_DOCUMENTS)
    return replace(fit, skewness=skewness_of(sums - fit.value * sizes)).interval(chosen, level=level)


def share_estimate(
    part: Array,
    whole: Array | None = None,
    units: ArrayLike | Units | None = None,
    *,
    each: str = "queries",
    level: float = LEVEL,
    most: int | None = None,
) -> Estimate:
    """Σ part/Σ whole of 0 ≤ part ≤ whole (1, if left out), with its interval over units; no value for none.

    A share of units that have something or not, a mean of scores from 0 to 1, the share of the tokens that were cut.
    The interval is that of Clopper and Pearson for the number of independent draws that would give the variance by unit
    (CR2) that these have (Korn and Graubard): it stays within 0 and 1, and of few units that were all found it says
    that others may not be. These draws are at most as many as there are values that are 0 or 1, or units whose parts
    are of unequal wholes; scores, which differ less than zeros and ones, count for more. Where all values are 0, or all
    are whole, each unit counts as one draw. `most`: how many values there are, where these are sums of several.

    >>> print(share_estimate(np.array([1.0, 0.0] * 50)), share_estimate(np.ones(10)))
    0.500 [0.398, 0.602] 1.000 [0.692, 1.000]
    """
    total = float(len(part) if whole is None else whole.sum())
    if not total > 0:
        return Estimate(None)
    chosen = chosen_units(len(part), units, each=each)
    sizes = chosen.sizes if whole is None else chosen.sums(whole)
    fit = mean_of_units(chosen.sums(part), sizes)
    share = min(max(fit.value, 0.0), 1.0)
    if why := too_few(len(chosen), chosen.name):
        return Estimate(share, no_interval=why)
    count, spread = most or len(part), share * (1 - share)
    effective = float(len(chosen))
    if spread > 0:
        if not fit.error > 0:
            return fit.interval(chosen, level=level)  # which says why there is none
        freedom, binary = fit.freedom, whole is None and bool(np.isin(part, (0.0, 1.0)).all())
        if not binary:
            # Units that have nothing of it say nothing of how far those that have some differ, and the other way round.
            parts = chosen.sums(part)
            freedom = min(freedom, max(min((parts > 0).sum(), (parts < sizes).sum()) - 1, 1))
        wider = float(special.stdtrit(count - 1, (1 + level) / 2) / special.stdtrit(freedom, (1 + level) / 2))
        effective = (1 + spread / fit.error**2) * wider**2
        if whole is None and len(chosen) == len(part):
            # No values from 0 to 1 differ more than zeros and ones do, so independent ones count for so many at least.
            effective = max(effective, count)
        if whole is not None and most is None:
            # A unit of great size that is all cut, or not at all, may not have been drawn yet.
            effective = min(effective, len(chosen))
        elif most is not None or binary:
            effective = min(effective, count)
    low, high = clopper_pearson(share, effective, level)
    answers, method = f"the population of {chosen.name}", "Clopper-Pearson, at the effective number of units"
    return Estimate(share, Interval(low, high, level, answers, method, chosen.name))


def share_of(number: float, count: int, *, each: str = "queries") -> Estimate:
    """The share of `number` among `count` independent units, by Clopper and Pearson; no value for none."""
    if not count:
        return Estimate(None)
    share = number / count
    if why := too_few(count, each):
        return Estimate(share, no_interval=why)
    low, high = clopper_pearson(share, count, LEVEL)
    return Estimate(share, Interval(low, high, LEVEL, f"the population of {each}", "Clopper-Pearson", each))


def clopper_pearson(share: float, count: float, level: float) -> tuple[float, float]:
    """The shares that a binomial test of so many draws, also of a broken number of them, does not reject."""
    tail, found = (1 - level) / 2, share * count
    low = float(special.betaincinv(found, count - found + 1, tail)) if found > 0 else 0.0
    high = float(special.betaincinv(found + 1, count - found, 1 - tail)) if found < count else 1.0
    return min(low, share), max(high, share)


def ratio_estimate(top: Array, bottom: Array, units: ArrayLike | Units | None = None) -> Estimate:
    """The ratio of two means over the same units, both estimated, with the interval of Fieller; no value for none.

    The interval holds every ratio θ for which the mean of top − θ·bottom is not told from 0. None where the mean below
    is not told from 0: then no ratio is excluded on one side.

    >>> print(ratio_estimate(np.arange(1.0, 13), np.full(12, 2.0)))
    3.250 [2.105, 4.395]
    """
    if not len(top) or not np.mean(bottom):
        return Estimate(None)
    chosen = chosen_units(len(top), units, each="queries")
    value = float(np.mean(top) / np.mean(bottom))
    if why := too_few(len(chosen), chosen.name):
        return Estimate(value, no_interval=why)
    above, below, sizes = chosen.sums(top), chosen.sums(bottom), chosen.sizes
    fit = mean_of_units(above - value * below, sizes)
    if not fit.error > 0:
        return Estimate(value, no_interval=fit.interval(chosen).no_interval)  # the fit is of what the ratio leaves
    # Variances and the covariance of both means, by unit.
    shares = sizes / sizes.sum()
    moved = [(part - part.sum() * shares) / np.sqrt(1 - shares) / sizes.sum() for part in (above, below)]
    (tt, tb), (_, bb) = (np.array(moved) @ np.array(moved).T).tolist()
    square = float(special.stdtrit(fit.freedom, (1 + LEVEL) / 2)) ** 2
    t, b = float(np.mean(top)), float(np.mean(bottom))
    a, half, c = b * b - square * bb, t * b - square * tb, t * t - square * tt
    if a <= 0:
        return Estimate(value, no_interval=f"no interval: the {chosen.name} do not tell what is divided by from 0")
    reach = float(np.sqrt(max(half * half - a * c, 0.0)))
    ends = (half - reach) / a, (half + reach) / a
    return Estimate(value, Interval(*ends, LEVEL, f"the population of {chosen.name}", "Fieller", chosen.name))


@dataclass
class RatioParts:
    """A numerator and a denominator of each text, both arrays of one shape (texts × …), and its document, where known.

    Two of them merge, so the ratio and its interval are the same in one part and in several.

    >>> parts = RatioParts(np.arange(1.0, 13)[:, None], np.full((12, 1), 2.0))
    >>> print(parts.estimate(0))
    3.250 [2.105, 4.395]
    >>> RatioParts(parts.top, parts.bottom, list("aabbccddeeff")).estimate(0).no_interval
    'no interval: 6 documents, 10 are needed'
    """

    top: Array
    bottom: Array
    documents: Sequence[str | None] = ()

    @cached_property
    def units(self) -> Units:
        """The unit of each text; one whose document is not known is one by itself."""
        names = [f"text {k}" if name is None else f"document {name}" for k, name in enumerate(self._named())]
        return chosen_units(len(names), names)

    def merge(self, other: RatioParts) -> RatioParts:
        """Of the texts of both."""
        top, bottom = (np.concatenate(pair) for pair in ((self.top, other.top), (self.bottom, other.bottom)))
        return RatioParts(top, bottom, [*self._named(), *other._named()])

    def _named(self) -> Sequence[str | None]:
        return self.documents or [None] * len(self.top)

    def estimate(self, index: Any, *, floor: float | None = None) -> Estimate:
        """Σ top/Σ bottom at that place of the arrays, with the interval of `ratio_estimate`."""
        place = (slice(None), *index) if isinstance(index, tuple) else (slice(None), index)
        return replace(ratio_estimate(self.top[place], self.bottom[place], self.units), floor=floor)
