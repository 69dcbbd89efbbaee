"""Trials: the same queries before and after a cure, and what the difference proves.

Several cures are tried on the same queries, so their intervals hold together: of all cures, the chance that any
interval misses the true gain is at most 1 − level. An interval comes from random weights of the units (queries, or
documents where these are known), as the Bayesian bootstrap has them (Rubin 1981, The Bayesian bootstrap. Annals of
Statistics 9). One more unit has its weight too: one that was not drawn, and that loses, or gains, as much as one in
twenty of the changes that were seen. At the end of the possible range it would be the bound of Gaffke (2005, Three test
statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable. Mathematical Methods of
Statistics 14; Learned-Miller and Thomas 2019, arXiv:1905.06208). Without it, large changes of few queries are missed
where a cure happens to show none. All cures share the weights, so cures that do nearly the same count as little more
than one.

The p of no change comes from flipping the signs of the differences, shared in the same way (Westfall and Young 1993;
Romano and Wolf 2005).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from poolscope.evaluation.outcome import Outcome
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import (
    FEWEST_CHANGED,
    FEWEST_PAIRED,
    ONE_PLACE,
    Estimate,
    Interval,
    too_few,
)
from poolscope.results import Result

POWER = 0.8
"""The chance that a trial shows the smallest gain that it is said to be able to show."""
_LARGE = 0.95  # of all changes, those beyond this quantile tell how much a unit that was not drawn may change
_DRAWS = 4999
_NUMBERS = 2**22  # random numbers at a time


@dataclass(frozen=True)
class Attempt:
    """A cure and the two outcomes of a trial. `queries` are the positions of the queries that were asked.

    `looks` counts how often the trial could end: one that ends at its first look where nothing is gained has two.
    `stopped` says that it ended there.
    """

    name: str
    before: Outcome
    after: Outcome
    queries: Index | None = None
    looks: int = 1
    stopped: bool = False

    def differences(self, statistic: str, count: int) -> Array:
        """After minus before of every query of the whole search; NaN where a query was not asked."""
        change = getattr(self.after, statistic) - getattr(self.before, statistic)
        if self.queries is None:
            return np.asarray(change)
        whole = np.full(count, np.nan)
        whole[self.queries] = change
        return whole


@dataclass(frozen=True, repr=False, kw_only=True)
class CureTrial(Result):
    """Before and after one cure, on the same queries.

    `gain` is the change of the mean nDCG@k and `found_gain` that of the share of queries found; their intervals hold
    for all cures of the audit together. `rescued` and `broken` are positions of queries: missed before and found after,
    and the other way round. `p` is the chance of so large a change of any cure where none changes anything. `smallest`
    is the smallest gain that these queries would have shown in four of five cases. `stopped`: a first part of the
    queries gained nothing, so that the others were not asked.
    """

    name: str
    queries: int
    units: int
    changed: int
    before: float
    after: float
    gain: Estimate
    found_before: int
    found_after: int
    found_gain: Estimate
    rescued: tuple[int, ...] = field(repr=False)
    broken: tuple[int, ...] = field(repr=False)
    p: float
    smallest: float
    stopped: bool = False

    def in_words(self) -> tuple[str, ...]:
        """What the cure changes."""
        change = f"{self.name}: the mean changes from {self.before:.3f} to {self.after:.3f}, {self.gain}."
        return (change, f"{len(self.rescued)} queries more are found, {len(self.broken)} lost.")

    @property
    def proven(self) -> bool:
        """Is the whole interval of the gain above 0?"""
        return self.gain.interval is not None and self.gain.interval.low > 0

    def excludes(self, gain: float) -> bool:
        """Is a gain of this size excluded: by the interval, or because it would have shown?"""
        if self.gain.interval is not None:
            return self.gain.interval.high < gain
        return self.smallest < gain


def run_trials(
    attempts: Sequence[Attempt],
    units: Index,
    *,
    unit: str = "queries",
    level: float = 0.95,
    draws: int = _DRAWS,
    seed: int = 0,
) -> list[CureTrial]:
    """The trial of each cure; intervals and p hold for all of them together.

    Parameters
    ----------
    attempts
        The cures with their outcomes, on the same queries or on a part of them.
    units
        The unit of each query of the whole search: queries of one unit, such as a document, count as one draw.
    unit
        What the units are, in one word.
    level
        Of the intervals, for all cures together.
    draws, seed
        How many times weights and signs are drawn, and the seed.

    """
    if not attempts:
        return []
    tables = {
        name: np.stack([attempt.differences(name, len(units)) for attempt in attempts], axis=1)
        for name in ("ndcg", "found")
    }
    looks = np.array([attempt.looks for attempt in attempts])
    families = {name: Family.of(table, units, unit, looks) for name, table in tables.items()}
    p = families["ndcg"].corrected_p(draws=draws, seed=seed)
    bounds = {name: families[name].bounds(level, draws=draws, seed=seed) for name in ("ndcg", "found")}
    gains, found = (families[name].estimates(level, *bounds[name]) for name in ("ndcg", "found"))
    smallest = families["ndcg"].smallest(bounds["ndcg"][0])
    return [
        _trial(attempt, gains[k], found[k], p[k], smallest[k], int(np.unique(units[measured]).size))
        for k, (attempt, measured) in enumerate(zip(attempts, ~np.isnan(tables["ndcg"]).T, strict=True))
    ]


def _trial(attempt: Attempt, gain: Estimate, found: Estimate, p: float, smallest: float, units: int) -> CureTrial:
    before, after = attempt.before, attempt.after
    queries = np.arange(len(before.ndcg)) if attempt.queries is None else attempt.queries
    hit, hit_after = before.found >= 0.5, after.found >= 0.5
    return CureTrial(
        name=attempt.name,
        queries=len(queries),
        units=units,
        changed=int((before.ndcg != after.ndcg).sum()),
        before=float(before.ndcg.mean()),
        after=float(after.ndcg.mean()),
        gain=gain,
        found_before=int(hit.sum()),
        found_after=int(hit_after.sum()),
        found_gain=found,
        rescued=tuple(queries[~hit & hit_after].tolist()),
        broken=tuple(queries[hit & ~hit_after].tolist()),
        p=min(1.0, float(p) * (attempt.looks if attempt.stopped else 1)),  # the later look would have had its p too
        smallest=float(smallest),
        stopped=attempt.stopped,
    )


@dataclass(frozen=True)
class Family:
    """Differences of several cures (columns) on the same queries, summed over units.

    `sums` and `sizes` (units × cures): the sum of the differences of a unit, and its queries; `unit` is what the units
    are, and `looks` how often the trial of each cure could end (None: once).
    """

    unit: str
    sums: Array
    sizes: Array
    looks: Index | None = None

    @classmethod
    def of(cls, differences: Array, units: Index, unit: str, looks: Index | None = None) -> Family:
        """From the differences of every query (queries × cures; NaN: not asked) and the unit of each."""
        measured = ~np.isnan(differences)
        sums, sizes = np.zeros((2, int(units.max()) + 1, differences.shape[1]))
        np.add.at(sums, units, np.where(measured, differences, 0.0))
        np.add.at(sizes, units, measured.astype(float))
        return cls(unit, sums, sizes, looks)

    @property
    def queries(self) -> Array:
        """How many queries each cure was tried on."""
        return np.asarray(self.sizes.sum(axis=0))

    @property
    def units(self) -> Index:
        """How many units have queries that each cure was tried on."""
        return np.asarray((self.sizes > 0).sum(axis=0))

    @property
    def changed(self) -> Index:
        """How many units each cure changes."""
        return np.asarray((self.sums != 0).sum(axis=0))

    @property
    def means(self) -> Array:
        """The mean difference of each cure over its queries."""
        return np.asarray(self.sums.sum(axis=0) / np.maximum(self.queries, 1))

    @property
    def errors(self) -> Array:
        """The standard error of each mean, by units."""
        return self._studentised(np.ones((1, len(self.sums))))[1]

    @property
    def unseen(self) -> float:
        """How much a query of a unit that was not drawn may change: as much as one in twenty of all units that changed.

        That is of all cures, since one cure may show none of its large changes. At least the step from the second place
        to the first, which any query may take.
        """
        changes = np.abs(self.sums[self.sums != 0] / self.sizes[self.sums != 0])
        return max(float(np.quantile(changes, _LARGE)) if len(changes) else 0.0, ONE_PLACE)

    def bounds(self, level: float, *, draws: int = _DRAWS, seed: int = 0) -> tuple[Array, Array]:
        """The ends of the interval of each mean, which hold for all cures together.

        Means with random weights of the units and of one that was not drawn, which is of mean size and whose queries
        all change by −unseen (lower end) or by unseen (upper end). Each end is passed by as many draws of every cure,
        and by those of any cure in half of 1 − level. A trial that may end at an earlier look, where nothing is gained,
        has one more chance to put its upper end too low: that end is passed by half as many draws. Its lower end needs
        no correction, since such a look only takes gains away.
        """
        random, unseen = np.random.default_rng(seed), self.unseen
        typical = self.queries / np.maximum(self.units, 1)
        parts: list[tuple[Array, Array]] = []
        for count in _portions(draws, len(self.sums)):
            weights = random.standard_exponential((count, len(self.sums) + 1), dtype=np.float32)
            own, extra = weights[:, :-1], weights[:, -1:].astype(float) * typical
            size = np.maximum(own @ self.sizes.astype(np.float32) + extra, 1e-12)
            parts.append((own @ self.sums.astype(np.float32) / size, extra * unseen / size))
        mean, change = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _passed_by_none(mean - change, level), -_passed_by_none(-mean - change, level, self.looks)

    def corrected_p(self, *, draws: int = _DRAWS, seed: int = 0) -> Array:
        """Two-sided p of each cure, corrected for all of them, step by step from the largest deviation on."""
        random, units = np.random.default_rng(seed), len(self.sums)
        flips = [
            self._studentised(random.integers(0, 2, (count, units), np.int8) * np.float32(2) - 1)[0]
            for count in _portions(draws, units)
        ]
        observed, chance = np.abs(self._studentised(np.ones((1, units)))[0][0]), np.abs(np.concatenate(flips))
        order = np.argsort(-observed)
        # The largest deviation among this cure and all that deviate less.
        largest = np.maximum.accumulate(chance[:, order[::-1]], axis=1)[:, ::-1]
        counts = (largest >= observed[order] - 1e-12).sum(axis=0)
        p = np.empty(len(order))
        p[order] = np.maximum.accumulate((counts + 1) / (len(chance) + 1))
        return p

    def estimates(self, level: float, lows: Array, highs: Array) -> list[Estimate]:
        """The mean of each cure with its interval.

        There is none of fewer than 30 units, nor where too few of them change for signs to prove anything.
        """
        method = "Bayesian bootstrap with a unit that was not drawn, all cures together"
        answers = f"the population of {self.unit}"
        estimates = []
        for mean, low, high, changed, units in zip(self.means, lows, highs, self.changed, self.units, strict=True):
            why = too_few(int(units), self.unit, FEWEST_PAIRED)
            if not why and changed < FEWEST_CHANGED:
                why = f"no interval: {changed} of {units:,} {self.unit} changed"
            around = None if why else Interval(float(low), float(high), level, answers, method, self.unit)
            estimates.append(Estimate(float(mean), around, no_interval=why))
        return estimates

    def smallest(self, lows: Array) -> Array:
        """The gain that would have been proven with probability `POWER`, by each cure.

        It lies above 0 by as much as the mean lies above the lower end of its interval, and by what chance may take
        from it. Where too few units change, it is at least as many steps from the second place to the first as a sign
        test needs. Of fewer units than an interval needs none is proven: then it is 1, more than any gain.
        """
        reach = self.means - lows + float(special.ndtri(POWER)) * self.errors
        steps = FEWEST_CHANGED / np.maximum(self.queries, 1) * ONE_PLACE
        smallest = np.where(self.changed >= FEWEST_CHANGED, reach, np.maximum(steps, reach))
        return np.where(self.units < FEWEST_PAIRED, 1.0, smallest)

    def _studentised(self, signs: NDArray[np.floating[Any]]) -> tuple[Array, Array]:
        """The t of each mean with these signs of the units (… × cures), and the standard errors of the means as seen.

        By units: Σ_u (s_u − n_u m)², the residuals of a ratio.
        """
        tables = self.sums, self.sums * self.sizes
        totals, weighted = ((signs @ table.astype(signs.dtype)).astype(float) for table in tables)
        means, squares = totals / np.maximum(self.queries, 1), (self.sums**2).sum(axis=0)
        scatter = squares - 2 * means * weighted + means**2 * (self.sizes**2).sum(axis=0)
        scatter = np.maximum(scatter, 1e-9 * np.maximum(squares, 1e-300))
        spread = np.sqrt(scatter * self.units / np.maximum(self.units - 1, 1)) / np.maximum(self.queries, 1)
        return means / spread, np.where(squares > 0, spread[0], 0.0)


def _portions(draws: int, units: int) -> Iterator[int]:
    """So many draws, a block at a time that keeps the random numbers of the units in bounds."""
    step = max(1, _NUMBERS // units)
    for start in range(0, draws, step):
        yield min(step, draws - start)


def _passed_by_none(drawn: Array, level: float, looks: Index | None = None) -> Array:
    """Of each column the value below which lie as many draws as of any other, and any of them in (1 − level)/2.

    Of a column that is looked at several times, so many times fewer draws lie below.
    """
    ranks = drawn.argsort(axis=0).argsort(axis=0)
    place = np.sort(ranks.min(axis=1))[int(len(drawn) * (1 - level) / 2)]
    places = np.full(drawn.shape[1], place) if looks is None else place // looks
    return np.asarray(np.take_along_axis(np.sort(drawn, axis=0), places[None], axis=0)[0])
