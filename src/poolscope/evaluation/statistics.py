"""The statistics behind scores, and their intervals: the bootstrap over units, and half-samples for the v-measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, t

from poolscope.numbers.intervals import Interval

Array = NDArray[np.float64]

# Numbers held at a time while resampling.
_BLOCK = 2**22


def bootstrap_draws(statistic: str, sides: Sequence[Array], *, draws: int, seed: int) -> list[Array]:
    """The statistic of the observations of each side (units × columns) for every draw; all sides are drawn alike."""
    random = np.random.default_rng(seed)
    units = len(sides[0])
    step = max(1, _BLOCK // units)
    parts: list[list[Array]] = [[] for _ in sides]
    for start in range(0, draws, step):
        chosen = random.integers(units, size=(min(step, draws - start), units))
        for part, observations in zip(parts, sides, strict=True):
            part.append(STATISTICS[statistic](observations[chosen]))
    return [np.concatenate(part) for part in parts]


def half_sample_interval(
    value: float, contrasts: Array, level: float, unit: str, *, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Interval:
    """value ± t·s, with s² the mean of squared contrasts: half the difference of a score between two halves.

    For a mean, each squared contrast estimates the variance of the whole. Unlike a bootstrap it repeats no unit, which
    would raise mutual information, and what half the units alone do to the score is in both halves and cancels.
    Both ends are kept within `bounds`: a v-measure cannot lie outside of 0 to 1, a difference of two can.
    """
    reach = float(t.ppf((1 + level) / 2, len(contrasts) - 1)) * float(np.sqrt((contrasts**2).mean()))
    low, high = max(value - reach, bounds[0]), min(value + reach, bounds[1])
    return Interval(low, high, level, f"the population of {unit}", f"half-samples of {unit}")


def _mean(samples: Array) -> Array:
    return np.asarray(samples[..., 0].mean(axis=1))


def _spearman(samples: Array) -> Array:
    """Spearman's ρ of both columns, ties by mean ranks; NaN where a column is constant (draws × units × 2)."""
    ranks = rankdata(samples, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    cross = (ranks[..., 0] * ranks[..., 1]).sum(axis=1)
    norms = np.sqrt((ranks**2).sum(axis=1)).prod(axis=1)
    return np.asarray(np.divide(cross, norms, out=np.full(len(cross), np.nan), where=norms > 0))


def _v_measure(samples: Array) -> Array:
    """Harmonic mean of homogeneity and completeness, 2·I(L; K)/(H(L) + H(K)); 1 where both entropies are 0.

    samples (draws × units × (1 + starts)) holds the label of each unit and its cluster from every start of k-means, as
    whole numbers from 0; the mean over starts.
    """
    starts = range(1, samples.shape[2])
    return np.asarray(np.mean([_v_of_one(samples[..., 0], samples[..., start]) for start in starts], axis=0))


def _v_of_one(first: Array, second: Array) -> Array:
    labels, clusters = first.astype(np.int64), second.astype(np.int64)
    draws, units = labels.shape
    shape = (draws, int(labels.max()) + 1, int(clusters.max()) + 1)
    cell = (np.arange(draws)[:, None] * shape[1] + labels) * shape[2] + clusters
    joint = np.bincount(cell.ravel(), minlength=int(np.prod(shape))).reshape(shape) / units
    label_entropy, cluster_entropy = _entropy(joint.sum(axis=2)), _entropy(joint.sum(axis=1))
    total = label_entropy + cluster_entropy
    shared = total - _entropy(joint.reshape(draws, -1))
    return np.asarray(np.divide(2 * shared, total, out=np.ones(draws), where=total > 0))


def _entropy(shares: Array) -> Array:
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(-(shares * logs).sum(axis=1))


STATISTICS: Mapping[str, Callable[[Array], Array]] = {"mean": _mean, "Spearman": _spearman, "v-measure": _v_measure}
