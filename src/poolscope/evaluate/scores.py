"""A score with its interval, and the paired difference of two scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from poolscope.errors import InputError
from poolscope.intervals import Interval, bootstrap_interval
from poolscope.results import plain

Array = NDArray[np.float64]

# Numbers held at a time while resampling.
_BLOCK = 2**22
# A bootstrap over fewer units knows too little of their spread: of 95 % intervals, 90 % hold the truth at 10 normal
# units, 80 % at 4, and two units that both gain never leave any doubt.
FEWEST_UNITS = 10
# The fewest changes that a two-sided sign test at 5 % tells from chance: all alike, 2/2⁶ = 0.03, but 2/2⁵ = 0.06.
FEWEST_CHANGED = 6


@dataclass(frozen=True)
class Evaluation:
    """The score of one model on one task, with what it is made of.

    `observations` has one row a unit (query, pair or text). For a mean it is one column, the score of each unit; for
    Spearman's ρ the cosine and the gold score of each pair; for the v-measure the label and the cluster of each text.
    `others` holds further measures, one score a unit; `notes` says what was left out.
    """

    task: str
    metric: str
    unit: str
    observations: Array = field(repr=False)
    statistic: str = "mean"
    others: Mapping[str, Array] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The score over all units."""
        return float(STATISTICS[self.statistic](self.observations[None])[0])

    @property
    def scores(self) -> Array:
        """One score a unit; an error for a metric that is no mean over units."""
        if self.statistic != "mean":
            raise InputError(
                f"{self.metric} of {self.task} is no mean over {self.unit}, so there is no score for each. Use "
                f"compare_scores with the two evaluations."
            )
        return np.asarray(self.observations[:, 0])

    def interval(self, *, level: float = 0.95, draws: int = 2000, seed: int = 0) -> Interval | None:
        """Percentile bootstrap interval over units; None for fewer than two."""
        if self.statistic == "mean":
            return bootstrap_interval(self.scores, level=level, draws=draws, seed=seed, unit=self.unit)
        values = _resampled([self], draws=draws, seed=seed)[0]
        return _percentiles(values, level, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """Value, interval and further measures; the single units left out."""
        return {
            "task": self.task,
            "metric": self.metric,
            "value": self.value,
            self.unit: len(self.observations),
            "interval": plain(self.interval()),
            "others": {name: float(scores.mean()) for name, scores in self.others.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Difference:
    """After minus before, over the same units: positive means better. The interval is that of the paired bootstrap.

    `count` units were compared, and `changed` of them are not what they were (score, cosine or cluster).
    """

    mean: float
    interval: Interval | None
    metric: str
    unit: str
    count: int
    changed: int

    @property
    def proves_gain(self) -> bool:
        """Does the interval exclude no gain, over units enough to prove anything?"""
        return self.interval is not None and self.interval.low > 0 and self.shortage() is None

    @property
    def proves_loss(self) -> bool:
        """Does the interval exclude no loss, over units enough to prove anything?"""
        return self.interval is not None and self.interval.high < 0 and self.shortage() is None

    def shortage(self, units: int = FEWEST_UNITS) -> str | None:
        """Why these units, or those that changed, are too few to prove anything; None where they suffice."""
        if self.count >= units and self.changed >= FEWEST_CHANGED:
            return None
        return (
            f"too few to prove anything ({self.count:,} {self.unit}, {self.changed:,} of them changed; needed: "
            f"{units} and {FEWEST_CHANGED})"
        )

    def __str__(self) -> str:
        interval = "no interval" if self.interval is None else f"[{self.interval.low:+.4f}, {self.interval.high:+.4f}]"
        return f"{self.mean:+.4f} {interval}"


def compare_scores(
    before: Evaluation | ArrayLike,
    after: Evaluation | ArrayLike,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Difference:
    """The paired bootstrap: both sides are resampled by the same units, so what they share cancels.

    Two evaluations of one task, or two lists of scores of the same queries.

    >>> found = compare_scores([0.0, 0.5, 1.0, 0.5] * 3, [0.25, 0.75, 1.25, 0.75] * 3)
    >>> found.mean, found.interval.low, found.proves_gain
    (0.25, 0.25, True)
    """
    sides = [_as_evaluation(side) for side in (before, after)]
    _check_pair(*sides)
    if sides[0].statistic == "mean":
        differences = sides[1].scores - sides[0].scores
        mean = float(differences.mean())
        interval = bootstrap_interval(differences, level=level, draws=draws, seed=seed, unit=sides[0].unit)
    else:
        mean = sides[1].value - sides[0].value
        values = _resampled(sides, draws=draws, seed=seed)
        interval = _percentiles(values[1] - values[0], level, sides[0].unit)
    changed = int((sides[0].observations != sides[1].observations).any(axis=1).sum())
    return Difference(mean, interval, sides[0].metric, sides[0].unit, len(sides[0].observations), changed)


def _as_evaluation(side: Evaluation | ArrayLike) -> Evaluation:
    if isinstance(side, Evaluation):
        return side
    scores = np.asarray(side, dtype=np.float64)
    if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
        raise InputError(
            f"received scores of shape {scores.shape}; allowed: an Evaluation, or one finite number a query. Leave out "
            f"queries without a score, in both lists."
        )
    return Evaluation("scores", "score", "queries", scores[:, None])


def _check_pair(before: Evaluation, after: Evaluation) -> None:
    kinds = [(side.task, side.metric, len(side.observations)) for side in (before, after)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"received evaluations of {kinds[0]} and {kinds[1]} (task, metric, number of {before.unit}); a difference "
            f"needs the same task on the same {before.unit}. Evaluate both models on one task."
        )


def _resampled(sides: list[Evaluation], *, draws: int, seed: int) -> list[Array]:
    """The statistic of each side for every draw; all sides are drawn alike."""
    random = np.random.default_rng(seed)
    units = len(sides[0].observations)
    step = max(1, _BLOCK // units)
    parts: list[list[Array]] = [[] for _ in sides]
    for start in range(0, draws, step):
        chosen = random.integers(units, size=(min(step, draws - start), units))
        for part, side in zip(parts, sides, strict=True):
            part.append(STATISTICS[side.statistic](side.observations[chosen]))
    return [np.concatenate(part) for part in parts]


def _percentiles(values: Array, level: float, unit: str) -> Interval | None:
    """None where a draw has no value (all its units alike): too few units for an interval."""
    if not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, f"the population of {unit}", f"bootstrap over {unit}")


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

    samples (draws × units × 2) holds the label and the cluster of each unit as whole numbers from 0.
    """
    draws, units, _ = samples.shape
    labels, clusters = samples[..., 0].astype(np.int64), samples[..., 1].astype(np.int64)
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
