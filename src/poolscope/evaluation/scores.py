"""A score with its interval, the paired difference of two scores, and a trial: scores before and after a change.

A mean over units has the interval of a share or of a mean, by documents where they are known, and so has a difference.
Spearman's ρ has a percentile bootstrap over units (Efron 1979), and the v-measure an interval from half-samples
(McCarthy 1969, Pseudo-replication: half samples): a bootstrap repeats units, which raises mutual information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy import special

from poolscope.errors import InputError
from poolscope.numbers import Array
from poolscope.numbers.intervals import (
    FEWEST_CHANGED,
    FEWEST_PAIRED,
    LEVEL,
    ON_THESE_TEXTS,
    Estimate,
    Interval,
    Units,
    mean_estimate,
    paired_difference,
    percentile_interval,
    share_estimate,
    signed,
    smallest_gain,
    too_few,
)
from poolscope.numbers.learning import STATISTICS
from poolscope.results import Result, bulk, transient
from poolscope.show.charts import histogram_figure
from poolscope.surface import as_array

# Points of a score that a repair of vectors must win to matter: of 100 queries two more find their text first instead
# of not at all. A trial that could not have seen them has not asked.
LEAST_GAIN = 0.02


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The score of one model on one task, with what it is made of.

    `observations` has one row a unit (query, pair or text). For a mean it is one column, the score of each unit; for
    Spearman's ρ the cosine and the gold score of each pair; for the v-measure the label of each text and its cluster
    from every start of k-means, with the `contrasts` between halves of the texts beside them. `others` holds further
    measures, one score a unit; `notes` says what was left out; `searched` counts the documents that each query was
    compared with. `digest` tells the texts and judgements from others, "" where they are not known, and `names` tells
    one unit from another, () likewise. `tied`: whether a relevant document of the query scores as much as another one;
    such a score is the mean over the orders of equal documents. `draws`: which of the units are one draw, such as the
    queries that share a relevant text; intervals are then over these draws.
    """

    task: str
    metric: str
    unit: str
    observations: Array = field(repr=False, metadata={"bulk": True, "required": True})
    statistic: str = "mean"
    others: Mapping[str, Array] = field(
        default_factory=dict, repr=False, metadata={"bulk": True, "key": "scores_of_others"}
    )
    notes: tuple[str, ...] = field(default=(), repr=False)
    searched: int | None = None
    contrasts: Array | None = bulk()
    digest: str = field(default="", repr=False)
    names: tuple[str, ...] = field(default=(), repr=False, metadata={"bulk": True})
    tied: NDArray[np.bool_] | None = bulk()
    draws: Units | None = bulk()

    def headline(self) -> dict[str, Any]:
        """Task, score with its interval, number of units."""
        numbers = {"task": self.task, "metric": self.metric, "score": self.score, self.unit: len(self.observations)}
        return numbers if self.searched is None else {**numbers, "documents": self.searched}

    def in_words(self) -> tuple[str, ...]:
        """The score, and how many units have all of it or nothing."""
        sentence = f"The model scores {self.value:.3f} on {self.task}, by {self.metric}."
        if self.statistic != "mean":
            return (sentence,)
        count, whole, none = len(self.scores), int((self.scores == 1).sum()), int((self.scores == 0).sum())
        return (sentence, f"Of the {count:,} {self.unit}, {whole:,} score 1 and {none:,} score 0.")

    def figure(self) -> Any:
        """How the scores of the units are spread; an error for a metric that is no mean over units."""
        title = f"{self.metric} of {self.task}, over {len(self.scores):,} {self.unit}"
        return histogram_figure(self.scores, title=title, across=self.metric, along=self.unit)

    @property
    def value(self) -> float:
        """The score over all units."""
        return float(STATISTICS[self.statistic](self.observations[None])[0])

    @property
    def score(self) -> Estimate:
        """The score with its 95 % interval."""
        return self.estimate()

    @property
    def scores(self) -> Array:
        """One score a unit; an error for a metric that is no mean over units."""
        if self.statistic != "mean":
            raise InputError(
                f"{self.metric} of {self.task} is no mean over {self.unit}, so there is no score for each. Use "
                f"compare_scores with the two evaluations."
            )
        return np.asarray(self.observations[:, 0])

    def averaged(self, other: Evaluation) -> Evaluation:
        """The mean of both, unit by unit: the same units, asked in another way."""
        others = {name: (scores + other.others[name]) / 2 for name, scores in self.others.items()}
        tied = None if self.tied is None or other.tied is None else self.tied | other.tied
        return replace(self, observations=((self.scores + other.scores) / 2)[:, None], others=others, tied=tied)

    def estimate(self, *, level: float = LEVEL, draws: int = 2000, seed: int = 0) -> Estimate:
        """The score with its interval: of a mean by unit, of ρ from a bootstrap, of the v-measure from half-samples.

        Without an interval for fewer than 10 units, and where half of the units have no score of their own.
        """
        if self.statistic == "mean":
            within = self.scores.min() >= 0 and self.scores.max() <= 1
            if within:
                return share_estimate(self.scores, units=self.draws, each=self.unit, level=level)
            return mean_estimate(self.scores, self.draws, each=self.unit, level=level)
        count, interval = len(self.observations), None
        why = too_few(count, self.unit)
        if not why and self.statistic == "v-measure" and self.contrasts is not None:
            interval = _half_sample_interval(self.value, self.contrasts, level, self.unit, bounds=(0.0, 1.0))
        elif not why and self.statistic != "v-measure":
            values = _bootstrap_draws(self.statistic, [self.observations], draws=draws, seed=seed)[0]
            interval = _drawn_interval(values, level, self.unit)
        if interval is None:
            why = why or f"no interval: half of the {count:,} {self.unit} differ too little for a score of their own"
        return Estimate(self.value, interval, no_interval=why)

    def interval(self, *, level: float = LEVEL, draws: int = 2000, seed: int = 0) -> Interval | None:
        """The interval of `estimate`."""
        return self.estimate(level=level, draws=draws, seed=seed).interval

    def why_no_interval(self) -> str:
        """The reason, where `interval` is None."""
        return self.estimate().no_interval

    def derived(self) -> dict[str, Any]:
        """Value, interval or why there is none, number of units, and the means of further measures."""
        score = self.estimate()
        return {
            "value": self.value,
            self.unit: len(self.observations),
            **({} if self.searched is None else {"documents": self.searched}),
            **({} if self.tied is None else {"tied_queries": int(self.tied.sum())}),
            "interval": score.interval,
            **({"no_interval": score.no_interval} if score.interval is None else {}),
            "others": {name: float(scores.mean()) for name, scores in self.others.items()},
        }


@dataclass(frozen=True, repr=False)
class Difference(Result):
    """After minus before, over the same units: positive means better. The interval is paired (see `compare_scores`).

    `change` is the difference of the scores, with its interval. `count` units were compared, and `changed` of them are
    not what they were (score, cosine or cluster). `p_value` is that of no change, from flipping the signs of units
    (documents where they are known), and `smallest` the smallest gain that they would have shown in four of five cases;
    both are None for what is no mean over units.
    """

    change: Estimate
    metric: str
    unit: str
    count: int
    changed: int
    p_value: float | None = None
    smallest: float | None = None

    def meaning(self) -> str:
        """What the difference allows to say, as the end of a sentence."""
        if self.proves_gain or self.proves_loss:
            return f"a {'gain' if self.proves_gain else 'loss'} beyond chance"
        return self.shortage() or "this may be chance"

    def in_words(self) -> tuple[str, ...]:
        """The difference and what it allows to say."""
        sentence = f"The {self.metric} changes by {signed(self.mean)}"
        smallest = self.smallest_gain()
        if self.interval is None and self.shortage() is None:
            return (f"{sentence} ({self.change.no_interval or 'no interval'}).",)
        if self.proves_gain or self.proves_loss or smallest >= 1:  # no score gains more
            return (f"{sentence}: {self.meaning()}.",)
        return (
            f"{sentence}: {self.meaning()}.",
            f"{self.count:,} {self.unit} only show gains of {smallest:.3f} or more.",
        )

    @property
    def mean(self) -> float:
        """The difference itself; for a mean over units the mean of their differences."""
        return float("nan") if self.change.value is None else self.change.value

    @property
    def interval(self) -> Interval | None:
        """Of the difference."""
        return self.change.interval

    @property
    def proves_gain(self) -> bool:
        """Does the interval exclude no gain, over units enough to prove anything?"""
        return self.interval is not None and self.interval.low > 0 and self.shortage() is None

    @property
    def proves_loss(self) -> bool:
        """Does the interval exclude no loss, over units enough to prove anything?"""
        return self.interval is not None and self.interval.high < 0 and self.shortage() is None

    def smallest_gain(self) -> float:
        """The smallest gain that units as many and as different as these prove in four of five cases.

        >>> found = compare_scores(np.zeros(100), np.tile([0.1, -0.1], 50))
        >>> round(found.smallest_gain(), 3)
        0.044
        """
        if self.smallest is not None:
            return self.smallest
        if self.interval is None:
            return float("inf")
        error = (self.interval.high - self.interval.low) / 2 / float(special.ndtri((1 + self.interval.level) / 2))
        return smallest_gain(error, np.inf, self.count, self.changed, level=self.interval.level)

    def could_tell(self, least: float) -> bool:
        """Would a gain of `least` have been seen, or is it excluded? Otherwise the question has not been asked."""
        if self.count < FEWEST_PAIRED or (self.interval is None and self.changed > 0):
            return False
        excluded = self.interval is not None and self.interval.high < least and self.changed >= FEWEST_CHANGED
        return excluded or self.smallest_gain() <= least

    def reach(self, least: float) -> str:
        """A sentence where these units were too few for a gain of `least`; empty where they could tell."""
        if self.could_tell(least):
            return ""
        gain = self.smallest_gain()
        smallest = f"only show gains of {gain:.3f} {self.metric} or more" if gain < 1 else "cannot show any gain"
        few = f"Only {self.changed} of {self.count:,} {self.unit} changed, and {FEWEST_CHANGED} are needed. "
        changed = few if self.count >= FEWEST_PAIRED and self.changed < FEWEST_CHANGED else ""
        return f"{changed}{self.count:,} {self.unit} {smallest}; {least:g} would be worth having."

    def units_to_tell(self, least: float) -> float:
        """About how many units as different as these would tell a gain of `least`; infinite without an interval."""
        return self.count * (self.smallest_gain() / least) ** 2

    def shortage(self) -> str | None:
        """Say why there are too few units, or too few that changed, to prove anything; None if there are enough."""
        if self.count >= FEWEST_PAIRED and self.changed >= FEWEST_CHANGED:
            return None
        return (
            f"too few to prove anything ({self.count:,} {self.unit}, {self.changed:,} of them changed; needed: "
            f"{FEWEST_PAIRED} and {FEWEST_CHANGED})"
        )

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.mean:+z.4f}".replace("-", "−") + f" ({self.change.no_interval or 'no interval'})"
        over = f" over {self.unit}" if self.unit in ("documents", "query groups", ON_THESE_TEXTS) else ""
        ends = f"[{self.interval.low:+z.4f}, {self.interval.high:+z.4f}]"
        return f"{self.mean:+z.4f} {ends}".replace("-", "−") + over


def compare_scores(
    before: Evaluation | ArrayLike,
    after: Evaluation | ArrayLike,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Difference:
    """The difference of two scores over the same units, so what they share cancels; its interval is paired.

    Two evaluations of one task, or two lists of scores of the same queries. A mean over units has the interval of
    Johnson's modified t by unit (`paired_difference`), from 30 units on; for Spearman's ρ both sides are resampled by
    the same units. Clusters are compared by half-samples of the texts, the same for both sides, each clustered again.

    Parameters
    ----------
    before, after : Evaluation or array-like
        What `evaluate` gives for the same task, or one score a query.
    level : float
        Of the interval.
    draws, seed : int
        Of the bootstrap, where there is one.

    Returns
    -------
    Difference
        The mean change with its interval; `proves_gain` and `proves_loss` say what it proves.

    Examples
    --------
    >>> found = compare_scores([0.0, 0.5, 0.75, 0.5] * 10, [0.5, 0.75, 0.75, 0.5] * 10)
    >>> print(found, found.p_value)
    +0.1875 [+0.1208, +0.2551] 0.0001
    >>> found.mean, found.proves_gain
    (0.1875, True)

    """
    sides = [_as_evaluation(side) for side in (before, after)]
    _check_pair(*sides)
    first, second = sides
    count, changed = len(first.observations), int((first.observations != second.observations).any(axis=1).sum())
    if first.statistic == "mean":
        units = first.draws if first.draws is not None else second.draws
        found = paired_difference(first.scores, second.scores, units, each=first.unit, level=level)
        return Difference(
            found.change, first.metric, found.unit, found.units, found.changed, found.p_value, found.smallest_gain
        )
    why = too_few(count, first.unit) or ("" if changed else f"no interval: none of the {count:,} {first.unit} changed")
    interval = None if why else _paired_interval(first, second, level=level, draws=draws, seed=seed)
    change = Estimate(second.value - first.value, interval, no_interval=why)
    return Difference(change, first.metric, first.unit, count, changed)


def _paired_interval(before: Evaluation, after: Evaluation, *, level: float, draws: int, seed: int) -> Interval | None:
    if before.statistic == "v-measure":
        if before.contrasts is None or after.contrasts is None:
            return None
        mean = after.value - before.value
        return _half_sample_interval(mean, after.contrasts - before.contrasts, level, before.unit)
    pair = [before.observations, after.observations]
    values = _bootstrap_draws(before.statistic, pair, draws=draws, seed=seed)
    return _drawn_interval(values[1] - values[0], level, before.unit)


def _drawn_interval(values: Array, level: float, unit: str) -> Interval | None:
    """None where a draw has no value (all its units alike): too few units for an interval."""
    return percentile_interval(values, level=level, unit=unit) if np.isfinite(values).all() else None


def _as_evaluation(side: Evaluation | ArrayLike) -> Evaluation:
    if isinstance(side, Evaluation):
        return side
    scores = as_array(side, "scores", float)
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


# -- intervals of statistics --------------------------------------------------------------------------

# Numbers held at a time while resampling.
_BLOCK = 2**22


def _bootstrap_draws(statistic: str, sides: Sequence[Array], *, draws: int, seed: int) -> list[Array]:
    """The statistic of the observations of each side (units × columns) for every draw; all sides are drawn alike."""
    random = np.random.default_rng(seed)
    order = np.lexsort(np.concatenate([side.T for side in sides])[::-1])  # so that it is no matter of place
    sides, units = [side[order] for side in sides], len(sides[0])
    step = max(1, _BLOCK // units)
    parts: list[list[Array]] = [[] for _ in sides]
    for start in range(0, draws, step):
        chosen = random.integers(units, size=(min(step, draws - start), units))
        for part, observations in zip(parts, sides, strict=True):
            part.append(STATISTICS[statistic](observations[chosen]))
    return [np.concatenate(part) for part in parts]


def _half_sample_interval(
    value: float, contrasts: Array, level: float, unit: str, *, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Interval:
    """value ± t·s, with s² the mean of squared contrasts: half the difference of a score between two halves.

    For a mean, each squared contrast estimates the variance of the whole. Unlike a bootstrap it repeats no unit, which
    would raise mutual information, and what half the units alone do to the score is in both halves and cancels.
    Both ends are kept within `bounds`: a v-measure cannot lie outside of 0 to 1, a difference of two can.
    """
    reach = float(special.stdtrit(len(contrasts) - 1, (1 + level) / 2)) * float(np.sqrt((contrasts**2).mean()))
    low, high = max(value - reach, bounds[0]), min(value + reach, bounds[1])
    return Interval(low, high, level, f"the population of {unit}", f"half-samples of {unit}", unit)


# -- trials: before and after something was done ----------------------------------------------------------------------
#
# `tune` and the audit try repairs alike; what they try, and on which texts, is their own affair.


@dataclass(frozen=True, repr=False)
class Trial(Result):
    """One trial: its `name` and `family`, its result as a `sentence`, and the scores before and after.

    `before` and `after` are the scores unit by unit, `difference` is paired; all three are None where nothing could be
    tried, and `sentence` says why. What it costs: `reads` is the tokens that the model reads, as a multiple of those it
    reads as it is, and `width` the numbers of a vector (None: not counted). `repair` is what was fitted for the trial,
    None for what is no repair of vectors; no file keeps it.

    >>> import numpy as np
    >>> before = Evaluation("a task", "nDCG@10", "queries", np.linspace(0, 0.5, 40)[:, None])
    >>> after = Evaluation("a task", "nDCG@10", "queries", np.linspace(0.25, 0.95, 40)[:, None])
    >>> trial = compared("mean removal", before, after)
    >>> trial.sentence, round(trial.gain, 6)
    ('mean removal helps (+0.350 nDCG@10 on 40 queries).', 0.35)
    """

    name: str
    sentence: str = field(repr=False)
    before: Evaluation | None = field(default=None, repr=False)
    after: Evaluation | None = field(default=None, repr=False)
    difference: Difference | None = field(default=None, repr=False)
    evidence: tuple[str, ...] = field(default=(), repr=False)
    family: str = ""
    reads: float | None = None
    width: int | None = None
    repair: Any = transient()

    def headline(self) -> dict[str, Any]:
        """The score after, and the difference with its interval."""
        row: dict[str, Any] = {"name": self.name, "family": self.family}
        if self.after is not None and self.difference is not None:
            row |= {
                "score": self.after.value,
                "difference": replace(self.difference.change, interval=possible_interval(self.before, self.difference)),
            }
        return row

    def in_words(self) -> tuple[str, ...]:
        """What came of it."""
        return (self.sentence[:1].upper() + self.sentence[1:],)

    @property
    def evaluation(self) -> Evaluation:
        """The scores after; an error where nothing was tried."""
        if self.after is None:
            raise InputError(f"{self.name}: it has no scores, since {self.sentence}")
        return self.after

    @property
    def change(self) -> Difference:
        """The difference; an error where nothing was tried."""
        if self.difference is None:
            raise InputError(f"{self.name}: it has no difference, since {self.sentence}")
        return self.difference

    @property
    def gain(self) -> float:
        """What was won, 0 where that is not proven."""
        return self.difference.mean if self.difference is not None and self.difference.proves_gain else 0.0

    def could_tell(self, least: float) -> bool:
        """Was it tried, on queries enough to see a gain of `least`?"""
        return self.difference is not None and self.difference.could_tell(least)

    def reach(self, least: float) -> str:
        """A sentence where the trial met too few queries for a gain of `least`; empty otherwise."""
        return "" if self.difference is None or self.gain > 0 else self.difference.reach(least)

    def advice(self, least: float) -> str:
        """Say what the trial showed, and whether so few queries could have shown a gain of `least`."""
        return f"{self.in_words()[0]} {self.reach(least)}".rstrip()

    def numbers(self, name: str) -> dict[str, Any]:
        """The difference under a name, with its interval."""
        if self.difference is None:
            return {f"{name}_gain": None}
        gain = self.difference.smallest_gain()
        return {
            f"{name}_gain": self.difference.mean,
            f"{name}_gain_interval": possible_interval(self.before, self.difference),
            f"{name}_smallest_gain": gain if np.isfinite(gain) else None,
        }

    def table(self, name: str) -> Mapping[str, pa.Table]:
        """The scores query by query as a table of that name; none where nothing was tried.

        A digest names the query, so that two audits are paired only where they asked the same.
        """
        if self.before is None or self.after is None:
            return {}
        columns = {"before": self.before.scores, "after": self.after.scores}
        return {name: pa.table({"query": list(self.before.names), **columns})}


def possible_interval(before: Evaluation | None, difference: Difference) -> Interval | None:
    """The interval of a difference as it is shown: a mean of scores from 0 to 1 ends at neither less nor more.

    What a trial could have told goes by the whole interval.
    """
    interval = difference.interval
    if interval is None or before is None or before.statistic != "mean":
        return interval
    if before.scores.min() < 0 or before.scores.max() > 1:
        return interval
    lowest, highest = min(-before.value, difference.mean), max(1 - before.value, difference.mean)
    return replace(interval, low=max(interval.low, lowest), high=min(interval.high, highest))


def compared(
    name: str,
    before: Evaluation,
    after: Evaluation,
    *,
    level: float = 0.95,
    units: str = "",
    family: str = "",
    repair: Any = None,
) -> Trial:
    """The trial of two evaluations of one task, with an interval of that level.

    `units` are the units in words, where their name says too little.
    """
    difference = compare_scores(before, after, level=level)
    if difference.proves_gain:
        outcome = "helps"
    elif difference.proves_loss:
        outcome = "hurts"
    else:
        outcome = "changes nothing that can be told from chance"
    metric = before.metric
    change = f"{signed(difference.mean)} {metric} on {difference.count} {units or before.unit}"
    possible = replace(difference, change=replace(difference.change, interval=possible_interval(before, difference)))
    scores = f"{before.value:.3f} before, {after.value:.3f} after, difference {possible} ({level:.0%} interval)"
    evidence = f"{name[:1].upper()}{name[1:]}, on {before.task}: {metric} {scores}."
    family = family if repair is None else repair.family
    return Trial(name, f"{name} {outcome} ({change}).", before, after, difference, (evidence,), family, repair=repair)
