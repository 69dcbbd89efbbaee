"""A score with its interval, the paired difference of two scores, and a trial: scores before and after a change.

A mean over units has an interval that holds its level for few and skewed scores, and so has a difference of means.
Spearman's ρ has a bootstrap interval over units, and the v-measure one from half-samples: a bootstrap repeats units,
which raises mutual information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from scipy import special

from poolscope.charts import histogram_figure
from poolscope.errors import InputError
from poolscope.numbers import Array
from poolscope.numbers.intervals import (
    Estimate,
    Interval,
    bounded_interval,
    paired_interval,
    percentile_interval,
    signed,
)
from poolscope.numbers.learning import STATISTICS
from poolscope.results import Result, bulk, transient
from poolscope.surface import as_array

# A bootstrap over fewer units knows too little of their spread: of 95 % intervals, 90 % hold the truth at 10 normal
# units, 80 % at 4, and two units that both gain never leave any doubt.
FEWEST_UNITS = 10
# The fewest changes that a two-sided sign test at 5 % tells from chance: all alike, 2/2⁶ = 0.03, but 2/2⁵ = 0.06.
FEWEST_CHANGED = 6
# What a query wins in nDCG when its document goes from the second place to the first: 1 − 1/log₂ 3.
_ONE_PLACE = 0.37
# The most that a unit is supposed to change where no unit of a sample has shown it, as a share of the scale: in nDCG, a
# document that goes from the first place to the third.
UNSEEN = 0.5
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
    one unit from another, () likewise.
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

    def headline(self) -> dict[str, Any]:
        """Task, score with its interval, number of units."""
        numbers = {"task": self.task, "metric": self.metric, "score": self.score, self.unit: len(self.observations)}
        return numbers if self.searched is None else {**numbers, "documents": self.searched}

    def seen(self) -> tuple[str, ...]:
        """The score, and how many units have all of it or nothing."""
        told = f"The model scores {self.value:.3f} on {self.task}, by {self.metric}."
        if self.statistic != "mean":
            return (told,)
        count, whole, none = len(self.scores), int((self.scores == 1).sum()), int((self.scores == 0).sum())
        return (told, f"Of the {count:,} {self.unit}, {whole:,} score 1 and {none:,} score 0.")

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
        return Estimate(self.value, self.interval())

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
        return replace(self, observations=((self.scores + other.scores) / 2)[:, None], others=others)

    def interval(self, *, level: float = 0.95, draws: int = 2000, seed: int = 0) -> Interval | None:
        """For a mean of scores from 0 to 1 (`bounded_interval`), ρ from a bootstrap, the v-measure from half-samples.

        Scores of your own beyond 0 or 1 count as bounds themselves. None for fewer than 10 units, and where half of
        the units have no score of their own: `why_no_interval` says so.
        """
        if len(self.observations) < FEWEST_UNITS:
            return None
        if self.statistic == "mean":
            least, most = min(0.0, float(self.scores.min())), max(1.0, float(self.scores.max()))
            return bounded_interval(self.scores, least, most, level=level, draws=draws, seed=seed, unit=self.unit)
        if self.statistic == "v-measure":
            if self.contrasts is None:
                return None
            return _half_sample_interval(self.value, self.contrasts, level, self.unit, bounds=(0.0, 1.0))
        values = _bootstrap_draws(self.statistic, [self.observations], draws=draws, seed=seed)[0]
        return _drawn_interval(values, level, self.unit)

    def why_no_interval(self) -> str:
        """The reason, where `interval` is None."""
        count = len(self.observations)
        if count < FEWEST_UNITS:
            return f"no interval: {count} {self.unit}, needed: {FEWEST_UNITS}"
        return f"no interval: half of the {count:,} {self.unit} differ too little for a score of their own"

    def derived(self) -> dict[str, Any]:
        """Value, interval or why there is none, number of units, and the means of further measures."""
        interval = self.interval()
        return {
            "value": self.value,
            self.unit: len(self.observations),
            **({} if self.searched is None else {"documents": self.searched}),
            "interval": interval,
            **({"no_interval": self.why_no_interval()} if interval is None else {}),
            "others": {name: float(scores.mean()) for name, scores in self.others.items()},
        }


@dataclass(frozen=True, repr=False)
class Difference(Result):
    """After minus before, over the same units: positive means better. The interval is paired (see `compare_scores`).

    `change` is the difference of the scores, with its interval. `count` units were compared, and `changed` of them are
    not what they were (score, cosine or cluster).
    """

    change: Estimate
    metric: str
    unit: str
    count: int
    changed: int

    def meaning(self) -> str:
        """What the difference allows to say, as the end of a sentence."""
        if self.proves_gain or self.proves_loss:
            return f"a {'gain' if self.proves_gain else 'loss'} beyond chance"
        smallest, units = self.smallest_gain(), f"{self.count:,} {self.unit}"
        seen = f"; the smallest gain {units} could have shown is {smallest:.3f}" if np.isfinite(smallest) else ""
        return f"{self.shortage() or 'no difference that can be told from chance'}{seen}"

    def seen(self) -> tuple[str, ...]:
        """The difference and what it allows to say."""
        return (f"The {self.metric} changes by {signed(self.mean)}: {self.meaning()}.",)

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

    def smallest_gain(self, power: float = 0.8) -> float:
        """The smallest gain that units as many and as different as these prove with this probability.

        g = (z + z_power)·error, with the error of the interval; infinite without one. A gain comes by steps, of units
        that go from the second place to the first, and these spread the differences further: g(s − g)/n is added to the
        squared error for a step s. Where fewer units changed than could prove anything, it is as many such steps as
        prove a gain that nothing goes against, log(2/(1 − level))/log(1 + 2s): 7 at 95 %.

        >>> found = compare_scores(np.zeros(100), np.tile([0.1, -0.1], 50))
        >>> round(found.smallest_gain(), 3), round(found.smallest_gain(0.5), 3)
        (0.044, 0.028)
        """
        if self.interval is None:
            return float("inf")
        z = float(special.ndtri((1 + self.interval.level) / 2))
        reach, error = z + float(special.ndtri(power)), (self.interval.high - self.interval.low) / 2 / z
        each = reach**2 / self.count
        seen = (each * _ONE_PLACE + np.sqrt((each * _ONE_PLACE) ** 2 + 4 * (1 + each) * (reach * error) ** 2)) / 2
        seen = float(seen / (1 + each))
        steps = float(np.log(2 / (1 - self.interval.level)) / np.log1p(_ONE_PLACE / UNSEEN))
        return seen if self.changed >= FEWEST_CHANGED else max(seen, steps / self.count * _ONE_PLACE)

    def could_tell(self, least: float) -> bool:
        """Would a gain of `least` have been seen, or is it excluded? Otherwise the question has not been asked."""
        if self.interval is None or self.count < FEWEST_UNITS:
            return False
        excluded = self.interval.high < least and self.changed >= FEWEST_CHANGED
        return excluded or self.smallest_gain() <= least

    def reach(self, least: float) -> str:
        """A sentence where these units were too few for a gain of `least`; empty where they could tell."""
        if self.could_tell(least):
            return ""
        gain = self.smallest_gain()
        smallest = f"{gain:.3f} {self.metric}" if np.isfinite(gain) else "any size"
        few = f"Too few {self.unit} to tell"
        if self.count >= FEWEST_UNITS and self.changed < FEWEST_CHANGED:
            few = f"Too few {self.unit} changed to tell ({self.changed} of {self.count:,}; {FEWEST_CHANGED} are needed)"
        return f"{few}: the smallest gain they could have shown is {smallest}, and {least:g} matters."

    def units_to_tell(self, least: float) -> float:
        """About how many units as different as these would tell a gain of `least`; infinite without an interval."""
        return self.count * (self.smallest_gain() / least) ** 2

    def shortage(self, units: int = FEWEST_UNITS) -> str | None:
        """Why these units, or those that changed, are too few to prove anything; None where they suffice."""
        if self.count >= units and self.changed >= FEWEST_CHANGED:
            return None
        return (
            f"too few to prove anything ({self.count:,} {self.unit}, {self.changed:,} of them changed; needed: "
            f"{units} and {FEWEST_CHANGED})"
        )

    def __str__(self) -> str:
        interval = (
            "no interval" if self.interval is None else f"[{self.interval.low:+z.4f}, {self.interval.high:+z.4f}]"
        )
        return f"{self.mean:+z.4f} {interval}"


def compare_scores(
    before: Evaluation | ArrayLike,
    after: Evaluation | ArrayLike,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Difference:
    """The difference of two scores over the same units, so what they share cancels; its interval is paired.

    Two evaluations of one task, or two lists of scores of the same queries. A mean over units has an interval that
    holds its level from about 20 units on (`paired_interval`); for Spearman's ρ both sides are resampled by the same
    units. Clusters are compared by half-samples of the texts, the same for both sides, each clustered anew.

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
    >>> found
    Difference(change 0.188 [0.1025, 0.2571], metric score, unit queries, count 40, changed 20)
    >>> found.mean, found.proves_gain
    (0.1875, True)

    """
    sides = [_as_evaluation(side) for side in (before, after)]
    _check_pair(*sides)
    if sides[0].statistic == "mean":
        differences = sides[1].scores - sides[0].scores
        mean = float(differences.mean())
        scale = float(np.ptp(np.concatenate([*(side.scores for side in sides), [0.0, 1.0]])))
        bounds = {"unseen": UNSEEN * scale, "most": scale}
        interval = paired_interval(differences, level=level, draws=draws, seed=seed, unit=sides[0].unit, **bounds)
    else:
        mean = sides[1].value - sides[0].value
        interval = _paired_interval(*sides, level=level, draws=draws, seed=seed)
    changed = int((sides[0].observations != sides[1].observations).any(axis=1).sum())
    return Difference(Estimate(mean, interval), sides[0].metric, sides[0].unit, len(sides[0].observations), changed)


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
    units = len(sides[0])
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
    return Interval(low, high, level, f"the population of {unit}", f"half-samples of {unit}")


# -- trials: before and after something was done ----------------------------------------------------------------------
#
# `tune` and the audit try repairs alike; what they try, and on which texts, is their own affair.


@dataclass(frozen=True, repr=False)
class Trial(Result):
    """What was tried (`name`, of which `family`), what came of it (`sentence`), and the scores behind that.

    `before` and `after` are the scores unit by unit, `difference` is paired; all three are None where nothing could be
    tried, and `sentence` says why. What it costs: `reads` is the tokens that the model reads, as a multiple of those it
    reads as it is, and `width` the numbers of a vector (None: not counted). `repair` is what was fitted for the trial,
    None for what is no repair of vectors; no file keeps it.

    >>> import numpy as np
    >>> before = Evaluation("a task", "nDCG@10", "queries", np.linspace(0, 0.5, 24)[:, None])
    >>> after = Evaluation("a task", "nDCG@10", "queries", np.linspace(0.25, 0.75, 24)[:, None])
    >>> trial = compared("mean removal", before, after, doing="removing the mean")
    >>> trial.sentence, trial.gain
    ('removing the mean helps (+0.250 nDCG@10 on 24 queries).', 0.25)
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

    def seen(self) -> tuple[str, ...]:
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
        """What came of it, and where a gain of `least` could not have been seen, that."""
        return f"{self.seen()[0]} {self.reach(least)}".rstrip()

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
    doing: str = "",
    level: float = 0.95,
    units: str = "",
    family: str = "",
    repair: Any = None,
) -> Trial:
    """The trial of two evaluations of one task, with an interval of that level.

    `doing` names the deed and `units` the units in words, where the name of either says too little.
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
    return Trial(
        name, f"{doing or name} {outcome} ({change}).", before, after, difference, (evidence,), family, repair=repair
    )
