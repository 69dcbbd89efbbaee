"""Paired differences: their interval, the p of no change, and the smallest gain that would have shown.

Johnson (1978), Modified t tests and confidence intervals for asymmetrical populations. JASA 73. Fisher (1935), The
design of experiments, section 21: sign flips. Phipson, Smyth (2010): p-values are never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from poolscope.numbers import Array
from poolscope.numbers.intervals.estimate import LEVEL, Estimate
from poolscope.numbers.intervals.student import mean_of_units, skewness_of
from poolscope.numbers.intervals.units import (
    FEWEST_CHANGED,
    FEWEST_PAIRED,
    FEWEST_PAIRED_DOCUMENTS,
    Units,
    chosen_units,
)

_FLIPS = 9999
_EXACT_FLIPS = 13  # up to so many units that changed, all their signs are gone through
ONE_PLACE = 0.37
"""What a query wins in nDCG when its document goes from the second place to the first: 1 − 1/log₂ 3."""


@dataclass(frozen=True)
class PairedDifference:
    """After minus before over the same units: `change` with its interval, and the `p_value` of no change.

    `smallest_gain` is the smallest gain that units as many and as different as these would have shown in four of five
    cases. `count` values were compared, over `units` units named `unit`, of which `changed` changed.
    """

    change: Estimate
    p_value: float
    smallest_gain: float
    count: int
    unit: str
    units: int
    changed: int


def paired_difference(
    before: ArrayLike,
    after: ArrayLike,
    units: ArrayLike | Units | None = None,
    *,
    each: str = "queries",
    level: float = LEVEL,
) -> PairedDifference:
    """The mean of after − before, value by value, with its interval over units (the document of each, where known).

    There is no interval where no unit changed, and of fewer than 30 units (50 documents), whose differences are too
    skewed for one; p, from flipping the signs of whole units, is there for any number of them.

    >>> found = paired_difference(np.zeros(40), np.tile([0.0, 0.0, 0.1, 0.2], 10))
    >>> print(found.change, found.p_value, round(found.smallest_gain, 3))
    0.075 [0.048, 0.102] 0.0001 0.079
    >>> paired_difference(np.ones(40), np.ones(40)).change.no_interval
    'no interval: none of the 40 queries changed'
    """
    first, second = (np.asarray(side, dtype=np.float64) for side in (before, after))
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(f"received {first.shape} and {second.shape} values; needed: two equal lists of numbers.")
    differences = second - first
    chosen = chosen_units(len(differences), units, each=each)
    sums, changed = chosen.sums(differences), int((chosen.sums((differences != 0).astype(float)) > 0).sum())
    fit = mean_of_units(sums, chosen.sizes)
    if changed:
        # Johnson's modified t. Hall's transformation, which means have, covers 0.89 of differences that are mostly 0.
        shift = skewness_of(sums - fit.value * chosen.sizes) * fit.error / 6 / float(np.sqrt(fit.freedom + 1))
        moved = replace(fit, value=fit.value + shift)
        needed = FEWEST_PAIRED_DOCUMENTS if chosen.sizes.max() > 1 else FEWEST_PAIRED
        change = replace(moved.interval(chosen, level=level, needed=needed), value=fit.value)
    else:
        change = Estimate(0.0, no_interval=f"no interval: none of the {len(chosen):,} {chosen.name} changed")
    gain = smallest_gain(fit.error, fit.freedom, len(chosen), changed, level=level)
    return PairedDifference(change, sign_flip_p(sums), gain, len(differences), chosen.name, len(chosen), changed)


def sign_flip_p(sums: Array) -> float:
    """The share of sign flips of the units whose total is as far from 0 as that of `sums`: two-sided, never 0.

    All flips of up to 13 units that changed, 9,999 random ones of more. The units go by the size of their sums, so that
    their order changes nothing.

    >>> sign_flip_p(np.ones(6)), sign_flip_p(np.zeros(6))
    (0.03125, 1.0)
    """
    sizes = np.sort(np.abs(sums[sums != 0]))
    if not len(sizes):
        return 1.0
    reached = abs(float(sums.sum())) - 1e-9 * float(sizes.sum())
    if len(sizes) <= _EXACT_FLIPS:
        flips = 1 - 2 * (np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1)
        return float((np.abs(flips @ sizes) >= reached).mean())
    random, beyond, step = np.random.default_rng(0), 0, max(1, 2**22 // len(sizes))
    for start in range(0, _FLIPS, step):
        signs = random.integers(2, size=(min(step, _FLIPS - start), len(sizes)), dtype=np.int8)
        beyond += int((np.abs((2.0 * signs - 1) @ sizes) >= reached).sum())
    return (beyond + 1) / (_FLIPS + 1)


def smallest_gain(
    error: float, freedom: float, count: int, changed: int, *, level: float = LEVEL, power: float = 0.8
) -> float:
    """The smallest gain that `count` units with this error prove with this probability; infinite for one unit.

    g = (t + t_power)·error. A gain comes by steps, of units that go from the second place to the first, and these
    spread the differences further: g(s − g)/n is added to the squared error for a step s. Where fewer units changed
    than could prove anything, it is as many such steps as a sign test needs.
    """
    if count < 2:
        return float("inf")
    t = float(special.stdtrit(freedom, (1 + level) / 2)) + float(special.stdtrit(freedom, power))
    each = t**2 / count
    root = np.sqrt((each * ONE_PLACE) ** 2 + 4 * (1 + each) * (t * error) ** 2)
    gain = float((each * ONE_PLACE + root) / 2 / (1 + each))
    steps = float(np.ceil(np.log2(2 / (1 - level))))
    return gain if changed >= FEWEST_CHANGED else max(gain, steps / count * ONE_PLACE)
