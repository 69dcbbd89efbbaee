"""A score with its interval, and the paired difference of two scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolscope.errors import InputError
from poolscope.evaluation.statistics import STATISTICS, Array, bootstrap_draws, half_sample_interval
from poolscope.numbers.intervals import Interval, bootstrap_interval, percentile_interval
from poolscope.results import plain

# A bootstrap over fewer units knows too little of their spread: of 95 % intervals, 90 % hold the truth at 10 normal
# units, 80 % at 4, and two units that both gain never leave any doubt.
FEWEST_UNITS = 10
# The fewest changes that a two-sided sign test at 5 % tells from chance: all alike, 2/2⁶ = 0.03, but 2/2⁵ = 0.06.
FEWEST_CHANGED = 6


@dataclass(frozen=True)
class Evaluation:
    """The score of one model on one task, with what it is made of.

    `observations` has one row a unit (query, pair or text). For a mean it is one column, the score of each unit; for
    Spearman's ρ the cosine and the gold score of each pair; for the v-measure the label of each text and its cluster
    from every start of k-means, with the `contrasts` between halves of the texts beside them. `others` holds further
    measures, one score a unit; `notes` says what was left out; `searched` counts the documents that each query was
    compared with. `digest` tells the texts and judgements from others, "" where they are not known.
    """

    task: str
    metric: str
    unit: str
    observations: Array = field(repr=False)
    statistic: str = "mean"
    others: Mapping[str, Array] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    searched: int | None = None
    contrasts: Array | None = field(default=None, repr=False)
    digest: str = field(default="", repr=False)

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
        """Percentile bootstrap interval over units; for the v-measure from half-samples of the texts.

        None for fewer than 10 units and where all have one score: `why_no_interval` says so.
        """
        if len(self.observations) < FEWEST_UNITS or self._constant:
            return None
        if self.statistic == "mean":
            return bootstrap_interval(self.scores, level=level, draws=draws, seed=seed, unit=self.unit)
        if self.statistic == "v-measure":
            if self.contrasts is None:
                return None
            return half_sample_interval(self.value, self.contrasts, level, self.unit, bounds=(0.0, 1.0))
        values = bootstrap_draws(self.statistic, [self.observations], draws=draws, seed=seed)[0]
        return _drawn_interval(values, level, self.unit)

    @property
    def _constant(self) -> bool:
        return self.statistic == "mean" and float(np.ptp(self.observations)) == 0

    def why_no_interval(self) -> str:
        """The reason, where `interval` is None."""
        count = len(self.observations)
        if count < FEWEST_UNITS:
            return f"no interval: {count} {self.unit}, needed: {FEWEST_UNITS}"
        if self._constant:
            return f"no interval: all {count:,} {self.unit} have the same score"
        return f"no interval: half of the {count:,} {self.unit} differ too little for a score of their own"

    def to_dict(self) -> dict[str, Any]:
        """Value, interval and further measures; the single units left out."""
        interval = self.interval()
        return {
            "task": self.task,
            "metric": self.metric,
            "value": self.value,
            self.unit: len(self.observations),
            **({} if self.searched is None else {"documents": self.searched}),
            "interval": plain(interval),
            **({"no_interval": self.why_no_interval()} if interval is None else {}),
            "others": {name: float(scores.mean()) for name, scores in self.others.items()},
            "notes": list(self.notes),
            "digest": self.digest,
        }


@dataclass(frozen=True)
class Difference:
    """After minus before, over the same units: positive means better. The interval is paired (see `compare_scores`).

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

    Two evaluations of one task, or two lists of scores of the same queries. Clusters are compared by half-samples of
    the texts, the same for both sides, each clustered anew.

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
        interval = _paired_interval(*sides, level=level, draws=draws, seed=seed)
    changed = int((sides[0].observations != sides[1].observations).any(axis=1).sum())
    return Difference(mean, interval, sides[0].metric, sides[0].unit, len(sides[0].observations), changed)


def _paired_interval(before: Evaluation, after: Evaluation, *, level: float, draws: int, seed: int) -> Interval | None:
    if before.statistic == "v-measure":
        if before.contrasts is None or after.contrasts is None:
            return None
        mean = after.value - before.value
        return half_sample_interval(mean, after.contrasts - before.contrasts, level, before.unit)
    pair = [before.observations, after.observations]
    values = bootstrap_draws(before.statistic, pair, draws=draws, seed=seed)
    return _drawn_interval(values[1] - values[0], level, before.unit)


def _drawn_interval(values: Array, level: float, unit: str) -> Interval | None:
    """None where a draw has no value (all its units alike): too few units for an interval."""
    return percentile_interval(values, level=level, unit=unit) if np.isfinite(values).all() else None


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
    if before.digest and after.digest and before.digest != after.digest:
        raise InputError(
            f"received evaluations of {before.task} on different texts or judgements ({len(before.observations):,} "
            f"{before.unit} each); a difference is paired, {before.unit} by {before.unit}. Evaluate both models on one "
            f"task: the same texts, labels and halves."
        )
    if before.observations.shape != after.observations.shape:
        raise InputError(
            f"received evaluations of {before.observations.shape} and {after.observations.shape} observations; both "
            f"need equally many starts of k-means. Evaluate both models on one task."
        )
