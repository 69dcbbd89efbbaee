"""Means over pairs of texts, which are not independent where they share a text.

Arvesen (1969), Jackknifing U-statistics. Ann. Math. Statist. 40. Aronow, Samii, Assenova (2015), Cluster-robust
variance estimation for dyadic data. Political Analysis 23. HC3: MacKinnon, White (1985), J. Econometrics 29.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from poolscope.numbers import Array, Index
from poolscope.numbers.intervals.estimate import CORPUS, Estimate, Interval
from poolscope.numbers.intervals.left_out import left_out_error
from poolscope.numbers.intervals.student import Fit, around, skewness_of
from poolscope.numbers.intervals.units import FEWEST_OF_PAIRS, Units, too_few


def population_of_pairs(unit: str) -> str:
    """The population of an interval of a mean over pairs: other texts, drawn in whole units.

    >>> population_of_pairs("documents")
    'the population of texts (clustered by document)'
    """
    return f"the population of texts (clustered by {'query' if unit == 'queries' else unit[:-1]})"


def corpus_interval(values: Array, *, positive: bool = False) -> Interval | None:
    """Interval of the mean of independent draws; None for fewer than two. positive: see `jackknife_interval`."""
    if len(values) < 2:
        return None
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    return around(
        float(values.mean()),
        error,
        len(values) - 1,
        CORPUS,
        "pairs as independent draws",
        positive,
        unit="pairs",
        skewness=skewness_of(values - values.mean()),
    )


def jackknife_interval(
    sums: Sequence[Array],
    pairs_per_text: Sequence[int | Array],
    total: float,
    pairs: int,
    *,
    unit: str = "texts",
    positive: bool = False,
) -> Interval | None:
    """Interval of the mean over all pairs, leaving out one unit at a time; None where one is in every pair.

    sums: for each corpus (one, or two if crossed) the sum of the values over the pairs of each text, or other `unit`;
    pairs_per_text: in how many pairs it is, one number or one each. positive: no value is below 0, so no end is.
    """
    moved, smallest = [], min(len(s) for s in sums)
    for text_sums, each in zip(sums, pairs_per_text, strict=True):
        if np.any(pairs - each <= 0):
            return None
        without = (total - text_sums) / (pairs - each)
        moved.append((without.mean() - without) * np.sqrt((len(without) - 1) / len(without)))
    each_moved = np.concatenate(moved)
    error = float(np.sqrt((each_moved**2).sum()))
    # Two corpora have more texts than the smaller one, whose number the transformation of skewness goes by.
    skewness = skewness_of(each_moved) * float(np.sqrt(smallest / len(each_moved)))
    answers, method = population_of_pairs(unit), f"jackknife over {unit}"
    return around(total / pairs, error, smallest - 1, answers, method, positive, unit=unit, skewness=skewness)


def unit_jackknife(
    sums: Array, inside: Array, units: Units, total: float, pairs: int, *, positive: bool = False
) -> Estimate:
    """The mean over all pairs of texts, with its interval from leaving out one unit with all its texts at a time.

    sums: over the pairs of each text; inside: over the pairs within each unit, which `sums` counts twice.
    """
    if why := too_few(len(units), units.name, FEWEST_OF_PAIRS):
        return Estimate(total / pairs, no_interval=why)
    sizes, texts = units.sizes, len(units.of)
    gone = sizes * (texts - 1) - sizes * (sizes - 1) / 2
    if np.any(pairs - gone <= 0):
        return Estimate(total / pairs, no_interval=f"no interval: without one of the {units.name} no pair is left")
    mean, without = total / pairs, (total - units.sums(sums) + inside) / (pairs - gone)
    fit = Fit(mean, left_out_error(mean, without), len(units) - 1, skewness_of(without.mean() - without))
    found = fit.interval(units, method=f"jackknife over {units.name}")
    if found.interval is None:
        return found
    answers = population_of_pairs(units.name)
    low = max(found.interval.low, 0.0) if positive else found.interval.low
    return replace(found, interval=replace(found.interval, low=low, answers=answers))


def dyadic_interval(
    values: Array, i: Index, j: Index, *, crossed: bool, positive: bool = False, unit: str = "texts"
) -> Interval | None:
    """Interval of the mean over some pairs, robust to dependence between pairs that share a text.

    i and j (m) number the texts of each pair, or their documents (`unit`); a pair may be within one. Var = Σ_t D_t², up
    to (n − 1)/n: how far the mean moves when t with all its pairs is left out. A pair that shares no text with another
    counts once, any other for both of its texts: to count all of them once covers 0.90 of skewed values. None for fewer
    than 30, or where one is in every pair. positive: see `jackknife_interval`.
    """
    m = len(values)
    deviations = values - values.mean()
    inside = np.zeros(m, bool) if crossed else i == j
    # A pair within one unit is gone with it once.
    sides = [(i, deviations), (j, deviations)]
    if not crossed:
        sides = [(np.concatenate([i, j[~inside]]), np.concatenate([deviations, deviations[~inside]]))]
    count = min(len(np.unique(side)) for side, _ in sides)
    counts = [np.bincount(side) for side, _ in sides]
    if count < FEWEST_OF_PAIRS or any(count.max() >= m for count in counts):
        return None
    moved = [np.bincount(side, parts) / (m - gone) for (side, parts), gone in zip(sides, counts, strict=True)]
    each = np.concatenate([move[gone > 0] for move, gone in zip(moved, counts, strict=True)])
    # With few units the clustered sum can fall below what independent pairs would give; the larger one is shown.
    alone = float(deviations @ deviations) / (m - 1) ** 2
    lonely = ~inside & (counts[0][i] == 1) & (counts[-1][j] == 1)
    twice = float(deviations[lonely] @ deviations[lonely]) / (m - 1) ** 2
    error = np.sqrt(max(float(each @ each) - twice, alone) * (count - 1) / count)
    answers, method = population_of_pairs(unit), f"clustered by {unit[:-1]} (dyadic)"
    skewness = skewness_of(each) * float(np.sqrt(count / len(each)))
    return around(float(values.mean()), error, count - 1, answers, method, positive, unit=unit, skewness=skewness)


def pair_estimate(values: Array, i: Index, j: Index, *, floor: float | None = None, unit: str = "texts") -> Estimate:
    """The mean over pairs of texts of one corpus, with the interval of `dyadic_interval` or why it has none."""
    interval = dyadic_interval(values, i, j, crossed=False, unit=unit)
    count = len(np.unique(np.concatenate([i, j])))
    why = too_few(count, unit, FEWEST_OF_PAIRS) or f"no interval: one of the {unit} is in every pair"
    return Estimate(float(values.mean()), interval, floor, no_interval="" if interval else why)


@dataclass(frozen=True)
class RegressionEstimate:
    """The mean over all pairs of this corpus, predicted from covariates that are known for every pair."""

    mean: float
    interval: Interval
    explained: float


def regression_estimate(values: Array, covariates: Array, population_means: Array) -> RegressionEstimate | None:
    """Correct the sample mean by what the covariates say about the pairs that were not drawn.

    values (m), covariates (m × p), population_means (p): the means of the covariates over all pairs. `explained` is the
    share of the sample variance that the covariates explain. None if m is too small to fit them.

    The estimate is a weighted sum Σ aₖ vₖ, and its error √Σ (aₖ eₖ/(1 − hₖ))² (HC3): each residual e on its own, as
    pairs with large covariates have large ones, and raised by its leverage h, as they bend the fit to themselves.
    """
    m, p = covariates.shape
    if m < 5 * (p + 1):
        return None
    spreads = covariates.std(axis=0)
    spreads[spreads == 0] = 1.0
    basis, sizes, turn = np.linalg.svd((covariates - covariates.mean(axis=0)) / spreads, full_matrices=False)
    independent = sizes > 1e-10 * sizes[0]  # covariates may say the same, or nothing
    basis, sizes, turn = basis[:, independent], sizes[independent], turn[independent]
    deviations = values - values.mean()
    residuals = deviations - basis @ (basis.T @ deviations)
    shift = turn @ ((population_means - covariates.mean(axis=0)) / spreads) / sizes
    weights = 1 / m + basis @ shift
    leverage = 1 / m + (basis**2).sum(axis=1)
    # A pair that alone decides a slope has leverage 1 and residual 0, so it says nothing about the error.
    known = leverage < 1 - 1e-9
    error = np.sqrt(float(((weights * residuals)[known] ** 2 / (1 - leverage[known]) ** 2).sum()))
    total = float(deviations @ deviations)
    explained = 1 - float(residuals @ residuals) / total if total > 0 else 0.0
    estimate, freedom = float(weights @ values), m - len(sizes) - 1
    interval = around(estimate, error, freedom, CORPUS, "regression on covariates known for all pairs", unit="pairs")
    return RegressionEstimate(estimate, interval, explained)
