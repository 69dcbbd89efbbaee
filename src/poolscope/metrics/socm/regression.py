"""The mean SOCM over all pairs from a sample of them, corrected by covariates whose means over all pairs are known.

Every covariate is a sum of products f(i)·g(j), or an inner product of two matrices, so its mean over all pairs follows
from sums over texts, without going through the pairs:

- (1 − d_μ)·f(i)·g(j), with 1 − d_μ = (1 + u·v)/2 for unit means u, v, and f, g from 1, the trace, its root, log length;
- the overlap tr Σ₁Σ₂ of the covariances, which says most about how near the two clouds are. Its mean needs one pooled
  covariance for the whole corpus.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.result import PairColumns
from poolscope.numbers.intervals import RegressionEstimate, regression_estimate
from poolscope.numbers.moments import TextMoments, unit_mean_factors

Array = NDArray[np.float64]
Corpus = tuple[TokenClouds, TextMoments]

# Which two of the features of `_features` make a term.
_TERMS = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (2, 2), (3, 3), (2, 3)]

# Rows of factors that are multiplied together.
_ROWS = 8192


def socm_regression(pairs: PairColumns, overlap: Array, left: Corpus, right: Corpus) -> RegressionEstimate | None:
    """Estimate the mean SOCM over all pairs (of one corpus if left and right are the same) from sampled pairs."""
    features = _features(*left), _features(*right)
    columns = [_term(pairs, features, left, right, *term) for term in _TERMS]
    columns.append((overlap, _mean_overlap(left, right)))
    covariates, means = zip(*columns, strict=True)
    return regression_estimate(pairs.socm, np.stack(covariates, axis=1), np.array(means))


def _features(clouds: TokenClouds, moments: TextMoments) -> list[Array]:
    return [np.ones(len(clouds)), moments.traces, np.sqrt(moments.traces), np.log(clouds.lengths)]


def _term(
    pairs: PairColumns, features: tuple[list[Array], list[Array]], left: Corpus, right: Corpus, p: int, q: int
) -> tuple[Array, float]:
    """(1 − d_μ)·(f_p(i) g_q(j) + f_q(i) g_p(j))/2 of the sampled pairs, and its mean over all pairs."""
    u, v = left[1].unit_means, right[1].unit_means
    orders = [(features[0][p], features[1][q]), (features[0][q], features[1][p])]
    values = (1 - pairs.d_mu) * sum(f[pairs.i] * g[pairs.j] for f, g in orders) / 2
    total = float(sum(f.sum() * g.sum() + (f @ u) @ (g @ v) for f, g in orders)) / 4
    # Pairs of a text with itself, where 1 − d_μ = 1, are in the total and not among the pairs.
    with_itself = float(features[0][p] @ features[0][q])
    return values, _pair_mean(total, with_itself, left, right)


def _mean_overlap(left: Corpus, right: Corpus) -> float:
    """Mean of tr ΣᵢΣⱼ over all pairs, from the sums of the covariances."""
    pooled, own = _pooled_covariance(left[0])
    other = pooled if left[0] is right[0] else _pooled_covariance(right[0])[0]
    return _pair_mean(float((pooled * other).sum()), own, left, right)


def _pooled_covariance(clouds: TokenClouds) -> tuple[Array, float]:
    """Sum of the covariances (d × d) of all texts, scaled to unit mean, and the sum of their squared norms."""
    pooled, own = np.zeros((clouds.dimension, clouds.dimension)), 0.0
    waiting: list[NDArray[np.float32]] = []
    for k, cloud in enumerate(clouds):
        _, (exact,), _ = unit_mean_factors(np.asarray(cloud, dtype=np.float64)[None])
        factor = exact.astype(np.float32)  # products in float32, as those of the sampled pairs
        small = factor @ factor.T if len(factor) < clouds.dimension else factor.T @ factor
        own += float(np.square(small, dtype=np.float64).sum())
        waiting.append(factor)
        # One product for many texts: adding d × d matrices text by text would take longer than multiplying.
        if k == len(clouds) - 1 or sum(map(len, waiting)) > _ROWS:
            rows = np.concatenate(waiting)
            pooled += rows.T @ rows
            waiting = []
    return pooled, own


def _pair_mean(total: float, with_itself: float, left: Corpus, right: Corpus) -> float:
    """Mean over pairs from the sum over all (i, j); within one corpus without the pairs of a text with itself."""
    if left[0] is right[0]:
        return (total - with_itself) / (len(left[0]) * (len(left[0]) - 1))
    return total / (len(left[0]) * len(right[0]))
