"""Slopes and differences of means, by least squares with errors by unit.

CR2 with Satterthwaite's degrees of freedom: Bell, McCaffrey (2002), Survey Methodology 28; Pustejovsky, Tipton (2018),
JBES 36. Without units a difference is Welch's (1947, Biometrika 34). Two kinds of units: Cameron, Gelbach, Miller
(2011), Robust inference with multiway clustering. JBES 29.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poolscope.numbers import Array, Index
from poolscope.numbers.intervals.estimate import LEVEL, Estimate
from poolscope.numbers.intervals.student import Fit
from poolscope.numbers.intervals.units import FEWEST_UNITS, Units, chosen_units


def _least_squares(design: Array, values: Array, of: Index) -> tuple[Array, Array, Array]:
    """Coefficients of least squares, their CR2 variances by unit, and Satterthwaite's degrees of freedom.

    design (n × p, of full rank), values (n), of (n): the unit of each row. With X the design, M = (XᵀX)⁻¹, e the
    residuals and A = (I − X_g M X_gᵀ)^(−1/2) of a unit g, Var = Σ_g (M X_gᵀ A e_g)². The degrees of freedom are
    (tr B)²/tr B² of that quadratic form, for independent values of one variance.
    """
    basis, sizes, turn = np.linalg.svd(design, full_matrices=False)
    back = turn.T / sizes  # M = back backᵀ, and `basis` is X M^(1/2)
    coefficients = back @ (basis.T @ values)
    residuals = values - design @ coefficients
    counts = np.bincount(of)
    adjusted = np.empty_like(basis)  # A X M^(1/2), unit by unit
    alone = counts[of] == 1
    adjusted[alone] = basis[alone] * _inverse_root(1 - (basis[alone] ** 2).sum(axis=1))[:, None]
    order = np.argsort(of, kind="stable")
    bounds = np.append(0, np.cumsum(counts))
    for unit in np.flatnonzero(counts > 1):
        rows = order[bounds[unit] : bounds[unit + 1]]
        left, strengths, right = np.linalg.svd(basis[rows], full_matrices=False)
        adjusted[rows] = (left * (strengths * _inverse_root(1 - strengths**2))) @ right
    weights = adjusted @ back.T  # of each residual in each coefficient
    moved = _by_unit(weights * residuals[:, None], of)
    variances = (moved**2).sum(axis=0)
    squares = _by_unit(weights**2, of)
    freedoms = np.empty(len(variances))
    for number in range(len(variances)):
        onto = _by_unit(basis * weights[:, number : number + 1], of)
        lost = (onto**2).sum(axis=1)
        own = squares[:, number]
        trace = float(own.sum() - lost.sum())
        both = float((own**2).sum() - 2 * (own * lost).sum() + ((onto.T @ onto) ** 2).sum())
        freedoms[number] = trace**2 / both if both > 0 else 1.0
    return coefficients, variances, np.maximum(freedoms, 1.0)


def _inverse_root(values: Array) -> Array:
    """1/√v, and 0 where nothing is left: a unit that alone decides a coefficient says nothing of its error."""
    return np.where(values > 1e-9, 1 / np.sqrt(np.maximum(values, 1e-9)), 0.0)


def _by_unit(rows: Array, of: Index) -> Array:
    return np.stack([np.bincount(of, column) for column in rows.T], axis=1)


def regression_slopes(
    values: Array, covariates: Array, units: ArrayLike | Units | None = None
) -> tuple[list[Estimate], float]:
    """What one standard deviation of each covariate adds while the others are held fixed, and the share explained.

    values (n), covariates (n × p), units (n): the document of each. Errors are CR2 by unit. A slope has no value where
    a covariate does not vary or follows from the others.

    >>> x = np.array([[0.0, 1], [1, 0], [2, 1], [3, 0], [4, 2], [5, 0]])
    >>> slopes, explained = regression_slopes(2 * x[:, 0] / x[:, 0].std(), x)
    >>> round(slopes[0].value_or_raise, 6), abs(round(slopes[1].value_or_raise, 6)), round(explained, 6)
    (2.0, 0.0, 1.0)
    """
    count, number = covariates.shape
    spreads = covariates.std(axis=0)
    if (spreads == 0).any() or count <= number + 1:
        return [Estimate(None)] * number, 0.0
    design = np.column_stack([np.ones(count), (covariates - covariates.mean(axis=0)) / spreads])
    sizes = np.linalg.svd(design, compute_uv=False)
    if sizes[-1] < 1e-6 * sizes[0]:
        return [Estimate(None)] * number, 0.0
    chosen = chosen_units(count, units)
    slopes, variances, freedoms = _least_squares(design, values, chosen.of)
    residuals, deviations = values - design @ slopes, values - values.mean()
    total = float(deviations @ deviations)
    fits = zip(slopes[1:], np.sqrt(variances[1:]), freedoms[1:], strict=True)
    estimates = [Fit(*map(float, fit)).interval(chosen, method="regression, CR2") for fit in fits]
    return estimates, 1 - float(residuals @ residuals) / total if total > 0 else 0.0


def difference_of_means(
    left: Array,
    right: Array,
    left_units: ArrayLike | None = None,
    right_units: ArrayLike | None = None,
    *,
    each: str = "texts",
) -> Estimate:
    """Mean of one group minus that of another; no value for groups of fewer than two.

    Without units this is Welch's interval; with them, a unit may have values in both groups.

    >>> print(difference_of_means(np.arange(10.0) + 5, np.arange(10.0)))
    5.000 [2.155, 7.845]
    """
    if len(left) < 2 or len(right) < 2:
        return Estimate(None)
    named = None if left_units is None or right_units is None else np.concatenate([left_units, right_units])
    affected = np.repeat([1.0, 0.0], [len(left), len(right)])
    return rate_difference(np.concatenate([left, right]), affected, named, each=each)


def rate_difference(
    values: ArrayLike, affected: ArrayLike, *units: ArrayLike | None, each: str = "texts", level: float = LEVEL
) -> Estimate:
    """Mean of the affected values minus that of the others; no value where one side has fewer than two.

    values (n) are rates or anything else, affected (n) 1 or 0. `units`: none, one, or two names of units for each value
    (its query and its document); with two the errors are clustered both ways, V = V₁ + V₂ − V₁₂.

    >>> missed, short = np.tile([1.0, 0, 0, 1], 10), np.tile([1.0, 1, 0, 0], 10)
    >>> rate_difference(missed, short).value
    0.0
    """
    numbers, sides = np.asarray(values, dtype=np.float64), np.asarray(affected, dtype=np.float64)
    if min(sides.sum(), (1 - sides).sum()) < 2:
        return Estimate(None)
    design = np.column_stack([np.ones(len(sides)), sides])
    known = [np.unique(np.asarray(names), return_inverse=True)[1] for names in units if names is not None]
    value = float(numbers[sides > 0].mean() - numbers[sides == 0].mean())
    if not known:
        chosen = chosen_units(len(numbers), each=each)
        fit, few = _welch(numbers[sides > 0], numbers[sides == 0]), int(min(sides.sum(), (1 - sides).sum()))
    elif len(known) < 2:
        chosen = chosen_units(len(numbers), known[0], each=each)
        _, variances, freedoms = _least_squares(design, numbers, chosen.of)
        fit = Fit(value, _error(variances[1], numbers), float(freedoms[1]))
        few = min(len(np.unique(chosen.of[sides == side])) for side in (0, 1))
    else:
        both = np.unique(np.stack(known), axis=1, return_inverse=True)[1].ravel()
        fits = [_least_squares(design, numbers, of) for of in (*known, both)]
        first, second, shared = (float(variances[1]) for _, variances, _ in fits)
        variance = max(first + second - shared, first, second)
        chosen = Units("queries and documents", min(known, key=lambda of: int(of.max())))
        fit = Fit(value, _error(variance, numbers), min(float(freedoms[1]) for _, _, freedoms in fits[:2]))
        few = min(len(np.unique(of[sides == side])) for of in known for side in (0, 1))
    if few < FEWEST_UNITS // 2:
        why = f"no interval: {few} {chosen.name} on one side, {FEWEST_UNITS // 2} are needed"
        return Estimate(value, no_interval=why)
    method = "CR2, Satterthwaite" if known else "Welch"
    return fit.interval(chosen, level=level, method=method)


def _welch(left: Array, right: Array) -> Fit:
    squares = np.array([group.var(ddof=1) / len(group) for group in (left, right)])
    value, total = float(left.mean() - right.mean()), float(squares.sum())
    error = _error(total, np.concatenate([left, right]))
    freedom = total**2 / float((squares**2 / [len(left) - 1, len(right) - 1]).sum()) if error else 1.0
    return Fit(value, error, freedom)


def _error(variance: float, values: Array) -> float:
    """The root of a variance, 0 where it is rounding."""
    return float(np.sqrt(variance)) if variance > 1e-24 * float(np.abs(values).max()) ** 2 else 0.0
