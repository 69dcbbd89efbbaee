"""A slope over a table whose rows and columns each have an effect of their own: a mixed model, by REML."""

from __future__ import annotations

import numpy as np
from scipy import optimize, stats

from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.intervals.estimate import LEVEL

_WIDEST = 12.0  # of the logarithm of a variance ratio, either way


def mixed_slope(values: Array, outcome: Array) -> Estimate | None:
    """The slope of outcome_ij = a + b·values_ij + row_i + column_j + error, rows and columns normal and independent.

    Variances are those of the largest restricted likelihood. The interval is Student's with one degree less than there
    are rows or columns, whichever are fewer, since a quantity that differs between models has no more independent
    values than there are models. None for fewer than 3 rows or columns, or values that do not differ.

    >>> rows, columns = np.mgrid[:5, :4].astype(float)
    >>> wave = np.cos(3 * rows + 5 * columns)
    >>> round(mixed_slope(wave, 2 * wave + rows - 3 * columns + 0.01 * np.sin(7 * rows * columns)).value_or_raise, 2)
    2.0
    """
    rows, columns = values.shape
    if min(rows, columns) < 3 or not np.ptp(values) > 0:
        return None
    X = np.stack([np.ones(values.size), values.ravel()], axis=1)
    y = outcome.ravel()
    shared = [np.kron(np.eye(rows), np.ones((columns, columns))), np.kron(np.ones((rows, rows)), np.eye(columns))]

    def fitted(ratios: Array) -> tuple[float, Array, Array]:
        """−2 · log of the restricted likelihood up to a number, the coefficients, and their covariance."""
        covariance = np.eye(len(y)) + sum(np.exp(ratio) * each for ratio, each in zip(ratios, shared, strict=True))
        root = np.linalg.cholesky(covariance)
        design, target = np.linalg.solve(root, X), np.linalg.solve(root, y)
        gram = design.T @ design
        coefficients = np.linalg.solve(gram, design.T @ target)
        rest = float(((target - design @ coefficients) ** 2).sum())
        variance = max(rest, 1e-300) / (len(y) - 2)
        fit = 2 * np.log(np.diag(root)).sum() + np.linalg.slogdet(gram)[1] + (len(y) - 2) * np.log(variance)
        return float(fit), coefficients, np.linalg.inv(gram) * variance

    starts = ([0.0, 0.0], [-6.0, 0.0], [0.0, -6.0], [-6.0, -6.0])
    bounds = [(-_WIDEST, _WIDEST)] * 2
    best = min(
        (optimize.minimize(lambda at: fitted(at)[0], start, method="L-BFGS-B", bounds=bounds) for start in starts),
        key=lambda found: found.fun,
    )
    _, coefficients, covariance = fitted(best.x)
    slope, error = float(coefficients[1]), float(np.sqrt(covariance[1, 1]))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, min(rows, columns) - 1)) * error
    around = Interval(slope - reach, slope + reach, LEVEL, "the population of rows and columns", "REML", "rows")
    return Estimate(slope, around)
