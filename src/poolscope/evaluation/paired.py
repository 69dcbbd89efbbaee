"""Trials: the same queries before and after a cure, and what the difference proves.

Several cures are tried on the same queries, so their intervals hold together: of all cures that change nothing, the
chance that any interval excludes 0 is at most 1 − level. The distribution of the largest deviation comes from flipping
the signs of the differences, of whole documents where these are known. All cures share the flips, so cures that do
nearly the same count as little more than one (Westfall and Young 1993; Romano and Wolf 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from poolscope.evaluation.outcome import Outcome
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import (
    FEWEST_CHANGED,
    FEWEST_PAIRED,
    FEWEST_PAIRED_DOCUMENTS,
    ONE_PLACE,
    Estimate,
    Interval,
    too_few,
)
from poolscope.results import Result

POWER = 0.8
"""The chance that a trial shows the smallest gain that it is said to be able to show."""
_FLIPS = 4999


@dataclass(frozen=True)
class Attempt:
    """A cure and the two outcomes of a trial. `queries` are the positions of the queries that were asked."""

    name: str
    before: Outcome
    after: Outcome
    queries: Index | None = None

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
    is the smallest gain that these queries would have shown in four of five cases.
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
    statistic: str = "ndcg",
    level: float = 0.95,
    flips: int = _FLIPS,
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
    statistic
        The number of an `Outcome` that p is made from; intervals are of nDCG.
    level
        Of the intervals, for all cures together.
    flips, seed
        How many times signs are flipped, and the seed.

    """
    if not attempts:
        return []
    signs = _signs(int(units.max()) + 1, flips, seed)
    tables = {
        name: np.stack([attempt.differences(name, len(units)) for attempt in attempts], axis=1)
        for name in dict.fromkeys(("ndcg", "found", statistic))
    }
    flipped = {name: Flipped.of(table, units, signs, unit) for name, table in tables.items()}
    p = flipped[statistic].corrected_p()
    gains, found = (flipped[name].estimates(level) for name in ("ndcg", "found"))
    smallest = flipped["ndcg"].smallest(level)
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
        p=float(p),
        smallest=float(smallest),
    )


def _signs(units: int, flips: int, seed: int) -> Array:
    """Random signs, one row a flip and one column a unit."""
    random = np.random.default_rng(seed)
    return random.integers(0, 2, size=(flips, units), dtype=np.int8).astype(np.float32) * 2 - 1  # type: ignore[return-value]


@dataclass(frozen=True)
class Flipped:
    """Differences of several cures (columns) summed over units, beside the same with random signs.

    `sums` and `sizes` (units × cures): the sum of the differences of a unit, and its queries; `flips` (flips × cures):
    the t of the mean difference with the signs of units flipped; `unit` is what the units are.
    """

    unit: str
    sums: Array
    sizes: Array
    flips: Array

    @classmethod
    def of(cls, differences: Array, units: Index, signs: Array, unit: str) -> Flipped:
        """From the differences of every query (queries × cures; NaN: not asked) and the unit of each."""
        measured = ~np.isnan(differences)
        sums, sizes = np.zeros((2, int(units.max()) + 1, differences.shape[1]))
        np.add.at(sums, units, np.where(measured, differences, 0.0))
        np.add.at(sizes, units, measured.astype(float))
        flipped, weighted = ((signs @ table.astype(np.float32)).astype(float) for table in (sums, sums * sizes))
        return cls(unit, sums, sizes, _studentised(flipped, weighted, sums, sizes)[0])

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

    def _seen(self) -> tuple[Array, Array]:
        """The t of each mean as it is, and its standard error."""
        weighted = (self.sums * self.sizes).sum(axis=0)
        t, errors = _studentised(self.sums.sum(axis=0)[None], weighted[None], self.sums, self.sizes)
        return t[0], errors[0]

    @property
    def errors(self) -> Array:
        """The standard error of each mean, by units."""
        return self._seen()[1]

    def critical(self, level: float) -> float:
        """The deviation, in standard errors, that the largest of all cures exceeds in 1 − level of the flips."""
        largest = np.abs(self.flips).max(axis=1)
        # Where few units change, flips take few values and stop short of what Student's t allows for.
        least = float(special.stdtrit(max(len(self.sums) - 1, 1), (1 + level) / 2))
        return max(float(np.quantile(largest, level)), least)

    def corrected_p(self) -> Array:
        """Two-sided p of each cure, corrected for all of them, step by step from the largest deviation on."""
        seen, chance = np.abs(self._seen()[0]), np.abs(self.flips)
        order = np.argsort(-seen)
        # The largest deviation among this cure and all that deviate less.
        largest = np.maximum.accumulate(chance[:, order[::-1]], axis=1)[:, ::-1]
        counts = (largest >= seen[order] - 1e-12).sum(axis=0)
        p = np.empty(len(order))
        p[order] = np.maximum.accumulate((counts + 1) / (len(chance) + 1))
        return p

    def estimates(self, level: float) -> list[Estimate]:
        """The mean of each cure with an interval that holds for all of them.

        There is none of fewer units than a paired difference needs (see `paired_difference`), nor where too few of
        them change for signs to prove anything.
        """
        reach = self.critical(level) * self.errors
        method = "sign flips, largest deviation of all cures"
        answers = f"the population of {self.unit}"
        needed = FEWEST_PAIRED_DOCUMENTS if self.unit == "documents" else FEWEST_PAIRED
        estimates = []
        for mean, by, changed, units in zip(self.means, reach, self.changed, self.units, strict=True):
            why = too_few(int(units), self.unit, needed)
            if not why and changed < FEWEST_CHANGED:
                why = f"no interval: {changed} of {units:,} {self.unit} changed"
            around = None if why else Interval(float(mean - by), float(mean + by), level, answers, method, self.unit)
            estimates.append(Estimate(float(mean), around, no_interval=why))
        return estimates

    def smallest(self, level: float) -> Array:
        """The gain that would have been proven with probability `POWER`, by each cure.

        Where too few units change, it is as many steps from the second place to the first as a sign test needs.
        """
        reach = self.critical(level) + float(special.ndtri(POWER))
        steps = FEWEST_CHANGED / np.maximum(self.queries, 1) * ONE_PLACE
        return np.asarray(
            np.where(self.changed >= FEWEST_CHANGED, reach * self.errors, np.maximum(steps, reach * self.errors))
        )


def _studentised(totals: Array, weighted: Array, sums: Array, sizes: Array) -> tuple[Array, Array]:
    """The t and the standard error of means over queries, by units: Σ_u (s_u − n_u m)², the residuals of a ratio.

    `totals` are Σ s_u and `weighted` Σ s_u n_u, a row for each way of signing (… × cures).
    """
    queries, units = sizes.sum(axis=0), (sizes > 0).sum(axis=0)
    means = totals / np.maximum(queries, 1)
    squares = (sums**2).sum(axis=0)
    scatter = squares - 2 * means * weighted + means**2 * (sizes**2).sum(axis=0)
    scatter = np.maximum(scatter, 1e-9 * np.maximum(squares, 1e-300))
    errors = np.sqrt(scatter * units / np.maximum(units - 1, 1)) / np.maximum(queries, 1)
    return means / errors, np.where(squares > 0, errors, 0.0)
