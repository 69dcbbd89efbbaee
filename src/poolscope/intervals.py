"""Intervals for a mean over texts, or over pairs of texts.

Pairs that share a text are not independent, and two questions have two answers. For *this corpus*, randomly sampled
pairs are independent draws. For the *population of texts* that the corpus came from, the texts are the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CORPUS = "this corpus (sampled pairs as draws)"
POPULATION = "the population of texts (clustered by text)"


@dataclass(frozen=True)
class Interval:
    """A confidence interval: for what, by which method, at which level."""

    low: float
    high: float
    level: float
    answers: str
    method: str

    def __str__(self) -> str:
        return f"[{self.low:.4f}, {self.high:.4f}]"


def corpus_interval(values: Array, *, level: float = 0.95) -> Interval | None:
    """Plain interval of the mean of independent draws; None for fewer than two."""
    if len(values) < 2:
        return None
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    return _around(float(values.mean()), error, len(values) - 1, level, CORPUS, "pairs as independent draws")


def jackknife_interval(
    sums: Sequence[Array], pairs_per_text: Sequence[int], total: float, pairs: int, *, level: float = 0.95
) -> Interval | None:
    """Interval of the mean over all pairs, leaving out one text at a time; None where a text is in every pair.

    sums: for each corpus (one, or two if crossed) the sum of the values over the pairs of each text; pairs_per_text: in
    how many pairs a text of that corpus is.
    """
    variance, smallest = 0.0, min(len(s) for s in sums)
    for text_sums, each in zip(sums, pairs_per_text, strict=True):
        if pairs - each <= 0:
            return None
        without = (total - text_sums) / (pairs - each)
        variance += (len(without) - 1) / len(without) * float(((without - without.mean()) ** 2).sum())
    return _around(total / pairs, np.sqrt(variance), smallest - 1, level, POPULATION, "jackknife over texts")


def dyadic_interval(values: Array, i: Index, j: Index, *, crossed: bool, level: float = 0.95) -> Interval | None:
    """Interval of the mean over some pairs, robust to dependence between pairs that share a text.

    Var = (Σ_t (Σ_{pairs with t} e)² − Σ e²)/m², e the deviations from the mean. None for fewer than three texts.
    """
    deviations = values - values.mean()
    if crossed:
        clusters = [np.bincount(i, deviations), np.bincount(j, deviations)]
        texts = min(len(np.unique(i)), len(np.unique(j)))
    else:
        clusters = [np.bincount(np.concatenate([i, j]), np.concatenate([deviations, deviations]))]
        texts = len(np.unique(np.concatenate([i, j])))
    if texts < 3:
        return None
    shared = sum(float(cluster @ cluster) for cluster in clusters) - float(deviations @ deviations)
    # With few texts the clustered sum can fall below what independent pairs would give; the larger one is shown.
    variance = max(shared, float(deviations @ deviations)) / len(values) ** 2 * texts / (texts - 1)
    return _around(float(values.mean()), np.sqrt(variance), texts - 1, level, POPULATION, "clustered by text (dyadic)")


@dataclass(frozen=True)
class RegressionEstimate:
    """The mean over all pairs of this corpus, predicted from covariates that are known for every pair."""

    mean: float
    interval: Interval
    explained: float


def regression_estimate(
    values: Array, covariates: Array, population_means: Array, *, level: float = 0.95
) -> RegressionEstimate | None:
    """Correct the sample mean by what the covariates say about the pairs that were not drawn.

    values (m), covariates (m × p), population_means (p): the means of the covariates over all pairs. `explained` is the
    share of the sample variance that the covariates explain. None if m is too small to fit them.
    """
    m, p = covariates.shape
    if m < 5 * (p + 1):
        return None
    centred = covariates - covariates.mean(axis=0)
    slopes, *_ = np.linalg.lstsq(centred, values - values.mean(), rcond=None)
    residuals = values - values.mean() - centred @ slopes
    estimate = float(values.mean() + (population_means - covariates.mean(axis=0)) @ slopes)
    freedom = m - p - 1
    error = np.sqrt(float(residuals @ residuals) / freedom / m)
    total = float(((values - values.mean()) ** 2).sum())
    explained = 1 - float(residuals @ residuals) / total if total > 0 else 0.0
    interval = _around(estimate, error, freedom, level, CORPUS, "regression on covariates known for all pairs")
    return RegressionEstimate(estimate, interval, explained)


def bootstrap_interval(
    values: Array, *, level: float = 0.95, draws: int = 2000, seed: int = 0, unit: str = "texts"
) -> Interval | None:
    """Percentile bootstrap interval of the mean of `values`, one a unit (text, query); None for fewer than two.

    For a comparison before and after a repair pass the differences, one a query: that is the paired bootstrap.
    """
    if len(values) < 2:
        return None
    random = np.random.default_rng(seed)
    # Multinomial counts instead of copied values: one small product a block of draws.
    share = np.full(len(values), 1 / len(values))
    step = max(1, 2**23 // len(values))
    blocks = [min(step, draws - start) for start in range(0, draws, step)]
    means = np.concatenate([random.multinomial(len(values), share, size=size) @ values for size in blocks])
    low, high = np.quantile(means / len(values), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, f"the population of {unit}", f"bootstrap over {unit}")


def _around(centre: float, error: float, freedom: int, level: float, answers: str, method: str) -> Interval:
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * float(error)
    return Interval(centre - reach, centre + reach, level, answers, method)
