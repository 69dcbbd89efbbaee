"""Any statistic, by leaving out one unit at a time.

MacKinnon, Nielsen, Webb (2023), Fast and reliable jackknife and bootstrap methods for cluster-robust inference. J.
Applied Econometrics 38 (CV3).
"""

from __future__ import annotations

import numpy as np

from poolscope.numbers import Array
from poolscope.numbers.intervals.estimate import LEVEL, Estimate, Interval
from poolscope.numbers.intervals.means import clopper_pearson
from poolscope.numbers.intervals.student import around
from poolscope.numbers.intervals.units import too_few


def percentile_interval(draws: Array, *, unit: str, level: float = LEVEL) -> Interval:
    """The central part of bootstrap draws over units."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, f"the population of {unit}", f"bootstrap over {unit}", unit)


def leave_one_out_interval(value: float, without: Array, *, texts: int | None = None, size: int = 1) -> Interval | None:
    """Interval of a statistic from its values without each text in turn, or without groups of `size` of `texts` texts.

    Var = (N − s)²/(N s) · variance of the values; for a mean this is the t interval. All groups must have one size.
    None for fewer than three.

    >>> x = np.array([1.0, 2.0, 4.0, 5.0])
    >>> print(leave_one_out_interval(3.0, (12 - x) / 3))
    [0.0948, 5.9052]
    """
    count = len(without)
    if count < 3 or not np.isfinite(without).all():
        return None
    whole = count if texts is None else texts
    error = (whole - size) * np.sqrt(float(without.var(ddof=1)) / (whole * size))
    method = "jackknife over texts" if size == 1 else f"jackknife over {count} groups of {size} texts"
    return around(value, error, count - 1, "the population of texts", method, unit="texts")


def left_out_estimate(value: float, without: Array, sizes: Array | None = None, *, unit: str = "texts") -> Estimate:
    """A statistic with its interval from its values without each unit in turn; units may differ in size.

    With θ_j the value without unit j of G, the variance is (G − 1)/G · Σ (θ_j − θ)² (MacKinnon, Nielsen and Webb 2023,
    CV3), whatever the units have in common. Units of size 0 count for nothing. There is no interval for fewer than ten
    units, and where the statistic is not defined without one of them.

    >>> from poolscope.numbers.intervals import mean_estimate
    >>> x = np.arange(20.0)
    >>> print(left_out_estimate(9.5, (x.sum() - x) / 19), mean_estimate(x))
    9.500 [6.731, 12.269] 9.500 [6.731, 12.269]
    """
    if not np.isfinite(value):
        return Estimate(None)
    sizes = np.ones(len(without)) if sizes is None else sizes
    without = without[sizes > 0]
    count = len(without)
    if why := too_few(count, unit):
        return Estimate(value, no_interval=why)
    if not np.isfinite(without).all():
        return Estimate(value, no_interval=f"no interval: without some {unit} the number is not defined")
    error = left_out_error(value, without)
    interval = around(value, error, count - 1, f"the population of {unit}", f"jackknife over {unit}", unit=unit)
    return Estimate(value, interval)


def left_out_share(value: float, without: Array, *, unit: str) -> Estimate:
    """A number from 0 to 1 with its interval from its values without each unit in turn.

    The error is that of `left_out_estimate`, and the interval Clopper and Pearson's for as many draws as would have
    it, so it stays within 0 and 1. Where the number is 0 or 1, each unit counts as one draw.

    >>> from poolscope.numbers.intervals import share_estimate
    >>> x = np.tile([1.0, 0.0], 50)
    >>> print(left_out_share(0.5, (x.sum() - x) / 99, unit="queries"), share_estimate(x))
    0.500 [0.398, 0.602] 0.500 [0.398, 0.602]
    """
    count = len(without)
    if why := too_few(count, unit):
        return Estimate(value, no_interval=why)
    if not np.isfinite(without).all():
        return Estimate(value, no_interval=f"no interval: without some {unit} the number is not defined")
    spread, error = value * (1 - value), left_out_error(value, without)
    if spread > 0 and not error > 0:
        return Estimate(value, no_interval=f"no interval: all {count:,} {unit} have one value")
    low, high = clopper_pearson(value, 1 + spread / error**2 if spread > 0 else count, LEVEL)
    method = f"Clopper-Pearson, by jackknife over {unit}"
    return Estimate(value, Interval(low, high, LEVEL, f"the population of {unit}", method, unit))


def left_out_error(value: float, without: Array) -> float:
    """The standard error from the values without each unit, of any size."""
    return float(np.sqrt(((without - value) ** 2).sum() * (len(without) - 1) / len(without)))
