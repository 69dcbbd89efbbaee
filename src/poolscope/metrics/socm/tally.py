"""What is added up while the distances of pairs stream by. Tallies of parts of the pairs merge to that of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poolscope.metrics.socm.result import Largest, LogHistogram, PairColumns
from poolscope.metrics.socm.score import SocmFormula
from poolscope.metrics.socm.selection import ListedPairs, PairSelection
from poolscope.numbers.bures.distances import Distances
from poolscope.numbers.intervals import Interval, dyadic_interval, jackknife_interval

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class TallyOptions:
    """What is kept of the pairs: the `top` worst, and every value if `keep`."""

    formula: SocmFormula
    top: int
    keep: bool


@dataclass(eq=False)
class PairTally:
    """Sums, sums by text, and either the values themselves (`kept`, in pieces) or their histogram and the worst."""

    largest: Largest
    sums: tuple[Array, Array]
    distribution: LogHistogram | None = None
    kept: list[tuple[Index, Array]] = field(default_factory=list)
    total: float = 0.0
    total_mean_distance: float = 0.0
    total_covariance_distance: float = 0.0

    @classmethod
    def of(cls, selection: PairSelection, wanted: TallyOptions) -> PairTally:
        """One that holds nothing yet."""
        listed = isinstance(selection, ListedPairs)  # in memory anyway, and its interval needs the values
        sizes = (0, 0) if listed else (len(selection.left), _others(selection))
        sums = (np.zeros(sizes[0]), np.zeros(sizes[1]))
        return cls(Largest(wanted.top), sums, None if wanted.keep or listed else LogHistogram())

    def add(self, numbers: Index, columns: PairColumns, overlap: Array) -> None:
        """Take in some pairs."""
        self.total += float(columns.socm.sum())
        self.total_mean_distance += float(columns.mean_distance.sum())
        self.total_covariance_distance += float(columns.covariance_distance.sum())
        left, right = self.sums[0], self.sums[1] if len(self.sums[1]) else self.sums[0]
        if len(left):
            left += np.bincount(columns.i, columns.socm, minlength=len(left))
            right += np.bincount(columns.j, columns.socm, minlength=len(right))
        distances = (columns.mean_distance, columns.covariance_distance)
        if self.distribution is None:
            self.kept.append((numbers, np.stack([*distances, columns.socm, overlap])))
        else:
            self.distribution.add(columns.socm)
            self.largest.add(columns.socm, columns.i, columns.j, *distances)

    def merge(self, other: PairTally) -> PairTally:
        """The tally of the pairs of both; this one takes in the other."""
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine += theirs
        self.kept += other.kept
        if self.distribution is not None and other.distribution is not None:
            self.distribution.counts[:] += other.distribution.counts
        if other.largest.columns:
            self.largest.add(other.largest.values, *other.largest.columns)
        self.total += other.total
        self.total_mean_distance += other.total_mean_distance
        self.total_covariance_distance += other.total_covariance_distance
        return self

    def columns(self, selection: PairSelection) -> tuple[PairColumns | None, Array]:
        """The columns of every pair, None where they were not kept, and their overlaps tr Σ₁Σ₂; at the end, once."""
        if self.distribution is not None:
            return None, np.empty(0)
        values = np.empty((4, selection.count))
        while self.kept:  # what was copied is let go of: the values of many pairs are not held twice
            numbers, piece = self.kept.pop()
            values[:, numbers] = piece
        return PairColumns(*selection.indices(), *values[:3]), values[3]

    def worst(self, kept: PairColumns | None) -> PairColumns:
        """The worst pairs."""
        return self.largest.pairs() if kept is None else kept.ranked(self.largest.size)

    def interval(self, selection: PairSelection, kept: PairColumns | None, *, positive: bool) -> Interval | None:
        """For the population of texts: jackknife over all pairs, clustered by text over a list of pairs."""
        crossed = selection.left is not selection.right
        if isinstance(selection, ListedPairs) and kept is not None:
            return dyadic_interval(kept.socm, kept.i, kept.j, crossed=crossed, positive=positive)
        if crossed:
            sums, each = list(self.sums), [len(selection.right), len(selection.left)]
        else:
            sums, each = [self.sums[0]], [len(selection.left) - 1]
        return jackknife_interval(sums, each, self.total, selection.count, positive=positive)


def tallied(
    selection: PairSelection,
    pieces: Iterable[tuple[Index, Distances]],
    wanted: TallyOptions,
    write: Callable[[PairColumns], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> PairTally:
    """The tally of some pieces of a selection; each is handed to `write` too."""
    tally, formula = PairTally.of(selection, wanted), wanted.formula
    for numbers, distances in pieces:
        covariance_distance = formula.covariance_distance(distances.bures, distances.trace_sum)
        score = formula.score(distances.mean_distance, covariance_distance)
        columns = PairColumns(distances.i, distances.j, distances.mean_distance, covariance_distance, score)
        tally.add(numbers, columns, distances.overlap)
        if write is not None:
            write(columns)
        if progress is not None:
            progress(len(distances))
    return tally


def _others(selection: PairSelection) -> int:
    """Texts of the second corpus; none where there is one only, whose sums take both sides."""
    return len(selection.right) if selection.left is not selection.right else 0
