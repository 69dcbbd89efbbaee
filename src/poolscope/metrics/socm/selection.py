"""Which pairs of texts are compared, and what is added up while their distances stream by.

Each selection can stream its distances and number its pairs. Tallies of parts of the pairs merge to that of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.result import Largest, LogHistogram, PairColumns
from poolscope.metrics.socm.score import SocmFormula
from poolscope.numbers.bures import all_pairs, given_pairs
from poolscope.numbers.bures.distances import Distances
from poolscope.numbers.bures.factors import ReducedCache
from poolscope.numbers.intervals import Interval, dyadic_interval, jackknife_interval
from poolscope.numbers.moments import TextMoments
from poolscope.numbers.ranking import find_neighbours
from poolscope.surface import as_array

Index = NDArray[np.int64]
Array = NDArray[np.float64]

# A part of all pairs is a block of so many texts with another; of a list of pairs, so many of them.
TILE_TEXTS, PART_PAIRS = 1024, 4096


@dataclass(frozen=True)
class AllPairs:
    """Every pair i < j of one corpus, in the order of `scipy.spatial.distance.pdist`, or every text of it with every
    text of another.

    As of every selection, pairs are numbered 0 … count − 1 and cut into parts by themselves alone, so that these are
    the same on every machine; `distances` and `part_distances` give pieces of the answer with the numbers of their
    pairs.
    """

    left: TokenClouds
    other: TokenClouds | None = None

    @property
    def right(self) -> TokenClouds:
        return self.left if self.other is None else self.other

    @property
    def kind(self) -> str:
        """In words, for people."""
        return "all pairs" if self.other is None else "crossed pairs"

    @property
    def count(self) -> int:
        return len(self.left) * (len(self.left) - 1) // 2 if self.other is None else len(self.left) * len(self.other)

    def indices(self) -> tuple[Index, Index]:
        """i and j of every pair, by number."""
        if self.other is None:
            i, j = np.triu_indices(len(self.left), 1)
        else:
            i, j = np.divmod(np.arange(self.count), len(self.other))
        return i, j

    @property
    def parts(self) -> int:
        return len(self._tiles()[0])

    def distances(self, *, eps: float) -> Iterator[tuple[Index, Distances]]:
        return self._numbered(all_pairs(self.left, self.other, eps=eps))

    def part_distances(self, part: int, *, eps: float) -> Iterator[tuple[Index, Distances]]:
        rows, columns = self._tiles()
        return self._numbered(_tile(self.left, self.right, int(rows[part]), int(columns[part]), eps))

    def _tiles(self) -> tuple[Index, Index]:
        """The block of texts of each side, part by part."""
        blocks = [-(-len(clouds) // TILE_TEXTS) for clouds in (self.left, self.right)]
        if self.other is None:
            rows, columns = np.triu_indices(blocks[0])
        else:
            rows, columns = np.divmod(np.arange(blocks[0] * blocks[1]), blocks[1])
        return rows, columns

    def _numbered(self, pieces: Iterable[Distances]) -> Iterator[tuple[Index, Distances]]:
        for piece in pieces:
            if self.other is None:
                yield piece.i * (2 * len(self.left) - piece.i - 3) // 2 + piece.j - 1, piece
            else:
                yield piece.i * len(self.other) + piece.j, piece


@dataclass(frozen=True)
class ListedPairs:
    """Given pairs, nearest neighbours or a random sample: an explicit list (m × 2)."""

    left: TokenClouds
    right: TokenClouds
    pairs: Index
    kind: str
    reduced: tuple[ReducedCache, ReducedCache] | None = None

    @property
    def count(self) -> int:
        return len(self.pairs)

    def distances(self, *, eps: float) -> Iterator[tuple[Index, Distances]]:
        yield from given_pairs(self.left, self.pairs, self.right, eps=eps, caches=self.reduced)

    def indices(self) -> tuple[Index, Index]:
        return self.pairs[:, 0], self.pairs[:, 1]

    @property
    def parts(self) -> int:
        return -(-self.count // PART_PAIRS)

    def part_distances(self, part: int, *, eps: float) -> Iterator[tuple[Index, Distances]]:
        start = part * PART_PAIRS
        own = self.pairs[start : start + PART_PAIRS]
        for rows, piece in given_pairs(self.left, own, self.right, eps=eps, caches=self.reduced):
            yield start + rows, piece


PairSelection = AllPairs | ListedPairs


def _tile(left: TokenClouds, right: TokenClouds, row: int, column: int, eps: float) -> Iterator[Distances]:
    """The pairs of one block of texts with another; within one corpus a block with itself gives i < j alone."""
    starts = row * TILE_TEXTS, column * TILE_TEXTS
    blocks = [clouds[start : start + TILE_TEXTS] for clouds, start in zip((left, right), starts, strict=True)]
    other = None if left is right and row == column else blocks[1]
    if other is None and len(blocks[0]) < 2:
        return
    for piece in all_pairs(blocks[0], other, eps=eps):
        yield replace(piece, i=piece.i + starts[0], j=piece.j + starts[1])


def listed(left: TokenClouds, right: TokenClouds, pairs: Any) -> ListedPairs:
    """Pairs given by the user, checked."""
    table = as_array(pairs, "pairs")
    if table.ndim != 2 or table.shape[1] != 2 or not len(table) or table.dtype.kind not in "iu":
        raise InputError(
            f"pairs: received {table.dtype} of shape {table.shape}; allowed is a list of at least one (i, j), two "
            f"positions of texts counted from 0."
        )
    outside = (table < 0) | (table >= [len(left), len(right)])
    if outside.any():
        row = int(np.flatnonzero(outside.any(axis=1))[0])
        raise InputError(
            f"pairs: entry {row} is {tuple(table[row].tolist())}, but positions run from 0 to {len(left) - 1} and from "
            f"0 to {len(right) - 1}. Correct the list; nothing was left out."
        )
    return ListedPairs(left, right, table.astype(np.int64), "given pairs")


def nearest(
    left: TokenClouds,
    right: TokenClouds,
    neighbours: int,
    left_moments: TextMoments,
    right_moments: TextMoments,
    *,
    approximate: bool | None = None,
) -> ListedPairs:
    """Each text of `left` with its nearest texts of `right` by the cosine of the mean vectors; itself left out."""
    same, neighbours = left is right, whole_number(neighbours, "neighbours")
    among = None if same else right_moments.unit_means
    searched = find_neighbours(left_moments.unit_means, neighbours, among=among, approximate=approximate)
    pairs = np.stack([np.repeat(np.arange(len(left)), neighbours), searched.top.ravel()], axis=1)
    if same:  # two texts may be neighbours of each other: one pair
        pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    kind = f"each text with its {neighbours} nearest neighbours"
    return ListedPairs(left, right, pairs, f"{kind}, {searched.words}" if searched.words else kind)


def sampled(left: TokenClouds, right: TokenClouds, count: int, seed: int) -> ListedPairs:
    """Independent uniform draws from all pairs (with replacement, so that the plain interval is right)."""
    count, seed = whole_number(count, "pairs", least=2, most=2**31), whole_number(seed, "seed", least=0)
    random = np.random.default_rng(seed)
    i = random.integers(len(left), size=count)
    if left is not right:
        pairs = np.stack([i, random.integers(len(right), size=count)], axis=1)
    else:
        j = random.integers(len(left) - 1, size=count)
        pairs = np.sort(np.stack([i, j + (j >= i)], axis=1), axis=1)
    return ListedPairs(left, right, pairs, "random sample of pairs")


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
        others = len(selection.right) if selection.left is not selection.right else 0  # one corpus takes both sides
        sizes = (0, 0) if listed else (len(selection.left), others)
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
