"""Student's t with the error by unit, and without skewness: what most intervals here are made of.

Bell, McCaffrey (2002), Bias reduction in standard errors for linear regression with multi-stage samples. Survey
Methodology 28. Hall (1992), On the removal of skewness by transformation. JRSS B 54.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from poolscope.numbers import Array
from poolscope.numbers.intervals.estimate import LEVEL, Estimate, Interval
from poolscope.numbers.intervals.units import FEWEST_UNITS, Units, too_few


@dataclass(frozen=True)
class Fit:
    """A number with its standard error and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float
    skewness: float = 0.0  # of what the units add to the number, where the interval shall follow it

    def interval(self, units: Units, *, level: float = LEVEL, method: str = "", needed: int = FEWEST_UNITS) -> Estimate:
        """The estimate with the interval of Student's t, or with the reason for none."""
        why = too_few(len(units), units.name, needed)
        if not why and not self.error > 0:
            why = f"no interval: all {len(units):,} {units.name} have one value"
        if why:
            return Estimate(self.value, no_interval=why)
        t = float(special.stdtrit(self.freedom, (1 + level) / 2))
        low, high = (self.value - self.error * self.unskewed(end) for end in (t, -t))
        name = method or ("CR2, Satterthwaite" if units.sizes.max() > 1 else "Student's t")
        name = f"{name}, skewness removed" if self.skewness else name
        return Estimate(self.value, Interval(low, high, level, f"the population of {units.name}", name, units.name))

    def unskewed(self, t: float) -> float:
        """Where Student's ratio stands when its transformation without skewness is at t (Hall 1992, equation 2.3)."""
        root = float(np.sqrt(self.freedom + 1))
        if abs(self.skewness) < 1e-6:
            return t
        inner = 1 + self.skewness / root * (t - self.skewness / (6 * root))
        return float(3 * root / self.skewness * (np.cbrt(inner) - 1))


def mean_of_units(sums: Array, sizes: Array) -> Fit:
    """The mean Σ sums/Σ sizes over units with its CR2 error, in closed form.

    With m the mean and w the share of a unit in all sizes, Var = Σ (sum − m·size)²/(1 − w)/(Σ sizes)². For units of one
    size this is the error of Student's t, and the degrees of freedom are units − 1.
    """
    total = float(sizes.sum())
    mean, shares = float(sums.sum()) / total, sizes / total
    if len(sizes) < 2 or shares.max() >= 1:
        return Fit(mean, 0.0, 1.0)
    deviations = sums - mean * sizes
    rounding = 1e-13 * (np.abs(sums) + np.abs(mean) * sizes)
    deviations[np.abs(deviations) <= rounding] = 0.0
    error = float(np.sqrt((deviations**2 / (1 - shares)).sum())) / total
    # Satterthwaite: (tr B)²/tr B² of the quadratic form that the variance is, for independent values of one variance.
    cross = shares**2 / (1 - shares)
    squares = float((shares**2).sum() + cross.sum() ** 2 - (cross**2).sum())
    return Fit(mean, error, 1 / squares)


def skewness_of(deviations: Array) -> float:
    """The adjusted Fisher–Pearson coefficient of values whose mean is 0; 0 for fewer than three, or equal ones."""
    count, square = len(deviations), float((deviations**2).mean())
    if count < 3 or not square > 0:
        return 0.0
    return float((deviations**3).mean() / square**1.5 * np.sqrt(count * (count - 1)) / (count - 2))


def around(
    centre: float,
    error: float,
    freedom: float,
    answers: str,
    method: str,
    positive: bool = False,
    *,
    unit: str,
    skewness: float = 0.0,
) -> Interval:
    """By Student's t; `positive`: of a mean of values ≥ 0; `skewness`: of what units add to it, removed (Hall 1992)."""
    fit, t = Fit(centre, float(error), freedom, skewness), float(special.stdtrit(freedom, (1 + LEVEL) / 2))
    low, high = (float(centre - fit.error * fit.unskewed(end)) for end in (t, -t))
    low = max(low, 0.0) if positive else low
    return Interval(low, high, LEVEL, answers, f"{method}, skewness removed" if skewness else method, unit)
