"""Choice of the pairs to compare, running sums of their distances, and an exact search for the worst pairs.

Each selection can stream its distances and number its pairs. Tallies of parts of the pairs merge to that of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.metrics.socm.result import Largest, LogHistogram, PairColumns, WorstPairs
from poolscope.numbers import Array, Index
from poolscope.numbers.bures import all_pairs, given_pairs
from poolscope.numbers.bures.distances import Distances
from poolscope.numbers.bures.factors import ReducedCache
from poolscope.numbers.bures.pairs import reduced_caches
from poolscope.numbers.intervals import (
    FEWEST_OF_PAIRS,
    Estimate,
    Interval,
    Units,
    chosen_units,
    dyadic_interval,
    jackknife_interval,
    too_few,
    unit_jackknife,
)
from poolscope.numbers.moments import TextMoments, text_moments
from poolscope.numbers.ranking import find_neighbours
from poolscope.numbers.streaming import text_marks
from poolscope.results import provenance
from poolscope.surface import as_array

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


@dataclass(frozen=True)
class PairsInGroups(ListedPairs):
    """The pairs of texts that are in one group; `groups` has the number of its group for each text.

    Of the population of texts they tell nearly as much as all pairs: what is uncertain is which texts were drawn, and
    each of them is compared with as many others.
    """

    groups: Index = field(kw_only=True)

    @classmethod
    def of(cls, clouds: TokenClouds, groups: Index) -> PairsInGroups:
        """The selection of these texts, by the group of each."""
        members = _members(groups)
        pairs = [own[np.stack(np.triu_indices(len(own), 1), axis=1)] for own in members]
        return cls(clouds, clouds, np.concatenate(pairs), "pairs of texts of one group", groups=groups)

    def distances(self, *, eps: float) -> Iterator[tuple[Index, Distances]]:
        """Group by group, so that the products of a group are those of its pairs alone."""
        first = 0
        for own in _members(self.groups):
            within = AllPairs(self.left[own])
            for numbers, piece in within.distances(eps=eps):
                yield first + numbers, replace(piece, i=own[piece.i], j=own[piece.j])
            first += within.count


def _members(groups: Index) -> list[Index]:
    """The positions of the texts of each group that has a pair."""
    members = (np.flatnonzero(groups == number) for number in np.unique(groups))
    return [own for own in members if len(own) > 1]


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
    random, orders = np.random.default_rng(seed), [_drawing_order(clouds) for clouds in (left, right)]
    i = random.integers(len(left), size=count)
    if left is not right:
        pairs = np.stack([orders[0][i], orders[1][random.integers(len(right), size=count)]], axis=1)
    else:
        j = random.integers(len(left) - 1, size=count)
        pairs = np.sort(orders[0][np.stack([i, j + (j >= i)], axis=1)], axis=1)
    return ListedPairs(left, right, pairs, "random sample of pairs")


def _drawing_order(clouds: TokenClouds) -> Index:
    """The texts by their words, so that a sample is no matter of place; as they stand where words are not known."""
    texts = np.arange(len(clouds))
    return texts if clouds.texts is None else np.argsort(text_marks(clouds, texts), kind="stable")


@dataclass(frozen=True)
class TallyOptions:
    """Options of a tally: the `top` worst pairs, all values if `keep`, and the `units` that texts belong to."""

    formula: SocmFormula
    top: int
    keep: bool
    units: Units | None = None


@dataclass(eq=False)
class PairTally:
    """Sums, sums by text, and either the values themselves (`pieces`) or their histogram and the worst.

    `totals` are those of SOCM, d_μ and d_Σ, and `inside` the sums of SOCM over the pairs within each unit.
    """

    largest: Largest
    sums: tuple[Array, Array]
    units: Units | None
    inside: Array
    distribution: LogHistogram | None = None
    pieces: list[tuple[Index, Array]] = field(default_factory=list)
    totals: Array = field(default_factory=lambda: np.zeros(3))

    @classmethod
    def of(cls, selection: PairSelection, wanted: TallyOptions) -> PairTally:
        """One that holds nothing yet."""
        listed = isinstance(selection, ListedPairs)  # in memory anyway, and its interval needs the values
        others = len(selection.right) if selection.left is not selection.right else 0  # one corpus takes both sides
        sizes = (0, 0) if listed else (len(selection.left), others)
        sums = (np.zeros(sizes[0]), np.zeros(sizes[1]))
        units = None if listed else wanted.units
        inside = np.zeros(0 if units is None else len(units))
        return cls(Largest(wanted.top), sums, units, inside, None if wanted.keep or listed else LogHistogram())

    def add(self, numbers: Index, columns: PairColumns, overlap: Array) -> None:
        """Take in some pairs."""
        distances = (columns.mean_distance, columns.covariance_distance)
        self.totals += [values.sum() for values in (columns.socm, *distances)]
        left, right = self.sums[0], self.sums[1] if len(self.sums[1]) else self.sums[0]
        if len(left):
            left += np.bincount(columns.i, columns.socm, minlength=len(left))
            right += np.bincount(columns.j, columns.socm, minlength=len(right))
        if self.units is not None:
            own = self.units.of[columns.i]
            within = own == self.units.of[columns.j]
            self.inside += np.bincount(own[within], columns.socm[within], len(self.inside))
        if self.distribution is None:
            self.pieces.append((numbers, np.stack([*distances, columns.socm, overlap])))
        else:
            self.distribution.add(columns.socm)
            self.largest.add(columns.socm, columns.i, columns.j, *distances)

    def merge(self, other: PairTally) -> PairTally:
        """The tally of the pairs of both; this one takes in the other."""
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine += theirs
        self.inside += other.inside
        self.pieces += other.pieces
        if self.distribution is not None and other.distribution is not None:
            self.distribution.counts[:] += other.distribution.counts
        if other.largest.columns:
            self.largest.add(other.largest.values, *other.largest.columns)
        self.totals += other.totals
        return self

    def columns(self, selection: PairSelection) -> tuple[PairColumns | None, Array]:
        """The columns of every pair, None where they were not kept, and their overlaps tr Σ₁Σ₂; at the end, once."""
        if self.distribution is not None:
            return None, np.empty(0)
        values = np.empty((4, selection.count))
        while self.pieces:  # what was copied is let go of: the values of many pairs are not held twice
            numbers, piece = self.pieces.pop()
            values[:, numbers] = piece
        return PairColumns(*selection.indices(), *values[:3]), values[3]

    def worst(self, columns: PairColumns | None) -> PairColumns:
        """The worst pairs."""
        return self.largest.pairs() if columns is None else columns.ranked(self.largest.size)

    def estimate(
        self, selection: PairSelection, columns: PairColumns | None, units: Units | None = None, *, positive: bool
    ) -> Estimate:
        """The mean for the population of texts: by jackknife over all pairs, by clusters over a list of pairs.

        `units`: what the texts of one corpus are counted by; None: each by itself.
        """
        mean, crossed = float(self.totals[0]) / selection.count, selection.left is not selection.right
        if isinstance(selection, ListedPairs) and columns is not None:
            ends = (columns.i, columns.j) if units is None else (units.of[columns.i], units.of[columns.j])
            name = "texts" if units is None else units.name
            interval = dyadic_interval(columns.socm, *ends, crossed=crossed, positive=positive, unit=name)
            count = min(map(len, map(np.unique, ends))) if crossed else len(np.unique(np.concatenate(ends)))
            return _with_reason(mean, interval, count, name)
        if not crossed:
            units, total = self.units or chosen_units(len(selection.left)), float(self.totals[0])
            inside = np.zeros(len(units)) if self.units is None else self.inside
            return unit_jackknife(self.sums[0], inside, units, total, selection.count, positive=positive)
        sums, each = list(self.sums), [len(selection.right), len(selection.left)]
        count = min(each)
        interval = jackknife_interval(sums, each, float(self.totals[0]), selection.count, positive=positive)
        return _with_reason(mean, interval if count >= FEWEST_OF_PAIRS else None, count, "texts of one side")


def _with_reason(mean: float, interval: Interval | None, count: int, unit: str) -> Estimate:
    """The estimate, which says why where it has no interval."""
    if interval is not None:
        return Estimate(mean, interval)
    return Estimate(
        mean, no_interval=too_few(count, unit, FEWEST_OF_PAIRS) or f"no interval: one of the {unit} is in every pair"
    )


def tallied(
    selection: PairSelection,
    pieces: Iterable[tuple[Index, Distances]],
    wanted: TallyOptions,
    write: Callable[[PairColumns], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> PairTally:
    """The tally of some pieces of a selection; each is handed to `write` too."""
    tally = PairTally.of(selection, wanted)
    for numbers, distances in pieces:
        columns = _scored(distances, wanted.formula)
        tally.add(numbers, columns, distances.overlap)
        if write is not None:
            write(columns)
        if progress is not None:
            progress(len(distances))
    return tally


def _scored(piece: Distances, formula: SocmFormula) -> PairColumns:
    covariance_distance = formula.covariance_distance(piece.bures, piece.trace_sum)
    score = formula.score(piece.mean_distance, covariance_distance)
    return PairColumns(piece.i, piece.j, piece.mean_distance, covariance_distance, score)


# -- the worst pairs, without computing all of them -------------------------------------------------------------------
#
# The worst pairs of a large corpus, exactly, in a fraction of the time of all pairs.
#
# Two upper bounds of SOCM are cheaper than its value. Without any cross product: BW² ≤ tr Σ₁ + tr Σ₂; the pairs that
# it puts first are evaluated at once, and what they score is a threshold. From a few directions of each text: their
# part of the nuclear norm is at most the whole, so BW² ≤ tr Σ₁ + tr Σ₂ − 2·(that part); few pairs pass the threshold,
# and only these are evaluated.

# Bounds without cross product computed at a time.
_PIECE = 4_000_000


@dataclass(frozen=True)
class Pruning:
    """What a search costs and holds; the pairs that it gives are the same.

    `rank`: directions of each text that enter the second bound. `seeds`: pairs that set the first threshold, at least;
    `batch`: pairs evaluated between two looks at it; `candidates`: how many are held at a time. A chosen pair costs
    several times as much as one of all pairs, so beyond a share `worthwhile` of candidates all are computed; the pairs
    of `looked_at` texts tell that before (0: nothing does).
    """

    rank: int = 12
    seeds: int = 1000
    batch: int = 4000
    candidates: int = 1_000_000
    worthwhile: float = 0.2
    looked_at: int = 64


def worst_pairs(
    clouds: TokenClouds,
    k: int = 100,
    *,
    scale: str = "paper",
    a: float = 1.0,
    b: float = 1.0,
    progress: Callable[[int], None] | None = None,
) -> WorstPairs:
    """The k pairs of highest SOCM of a corpus: the same as `socm(clouds).worst(k)`, sooner.

    Where the bounds prune too little to help, all pairs are computed instead; `evaluated` tells.

    Parameters
    ----------
    clouds : TokenClouds
        The token clouds of at least two texts.
    k : int
        How many pairs.
    scale, a, b
        Of the formula; see `SocmFormula`.
    progress : callable, optional
        Called with the number of pairs just settled, by a bound or by their value.

    Returns
    -------
    WorstPairs
        The pairs, the worst first, and how many had to be evaluated to be sure.

    Examples
    --------
    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> [(pair.i, pair.j) for pair in worst_pairs(clouds, 1).pairs]
    [(1, 2)]

    """
    check_clouds(clouds, "worst_pairs")
    count = len(clouds) * (len(clouds) - 1) // 2
    if not 1 <= (k := whole_number(k, "worst")) <= count:
        raise InputError(f"worst: received k = {k}; allowed is 1 to {count}, the number of pairs.")
    formula = SocmFormula(scale=scale, a=a, b=b)
    search = WorstSearch(clouds, clouds, formula, k, progress or (lambda settled: None))
    search.run()
    return worst_result(clouds, formula, search.largest, search.evaluated)


def worst_result(clouds: TokenClouds, formula: SocmFormula, largest: Largest, evaluated: int) -> WorstPairs:
    """The result of a search over all pairs of a corpus, or of searches whose outcomes were merged."""
    settings = {"scale": formula.scale, "a": formula.a, "b": formula.b, "pairs": "worst pairs by pruned search"}
    return WorstPairs(
        pairs=largest.pairs().described(clouds, clouds),
        evaluated=evaluated,
        count=len(clouds) * (len(clouds) - 1) // 2,
        provenance=provenance(clouds, settings=settings),
    )


class WorstSearch:
    """The search for the k worst pairs i < j of one corpus, or of every text of one with every text of another."""

    def __init__(
        self,
        left: TokenClouds,
        right: TokenClouds,
        formula: SocmFormula,
        k: int,
        progress: Callable[[int], None] = lambda settled: None,
        pruning: Pruning | None = None,
    ) -> None:
        self._left, self._right, self._formula, self._progress = left, right, formula, progress
        self._pruning = pruning or Pruning()
        self._other = None if left is right else right
        self._caches = reduced_caches(left, self._other)
        self.largest = Largest(k)
        self.evaluated = 0

    def run(self) -> None:
        """Search; `largest` and `evaluated` are then what they say."""
        limits = self._pruning
        if not self._promising():
            return self._compute_all()
        seeds = self._highest_free_bounds(max(4 * self.largest.size, limits.seeds))
        self._evaluate_pairs(seeds)
        hopeful_pairs = Largest(limits.candidates)
        seen = candidates = 0
        for piece in all_pairs(self._left, self._other, rank=limits.rank):
            bounds = self._bounds(piece)
            numbers = piece.i * len(self._right) + piece.j
            possible = (bounds >= self.largest.threshold) & ~np.isin(numbers, seeds)
            hopeful_pairs.add(bounds[possible], numbers[possible])
            seen += len(piece)
            candidates += int(possible.sum())
            if candidates > max(limits.worthwhile * seen, 2 * limits.seeds):
                return self._compute_all()
            if len(hopeful_pairs.values) > limits.candidates // 2:
                self._settle(hopeful_pairs)
                hopeful_pairs = Largest(limits.candidates)
            self._progress(len(piece))
        return self._settle(hopeful_pairs)

    def _promising(self) -> bool:
        """Whether the second bound would prune, by the pairs of a few texts: those of one shape it cannot tell apart.

        A guess costs time where it is wrong, never a pair. All pairs of few texts are computed before one can be made.
        """
        looked_at = self._pruning.looked_at
        if not looked_at or len(self._left) < 4 * looked_at:
            return not looked_at
        few = self._left.select(np.linspace(0, len(self._left) - 1, looked_at, dtype=np.int64))
        highest = max(float(_scored(piece, self._formula).socm.max()) for piece in all_pairs(few))
        bounds = np.concatenate([self._bounds(piece) for piece in all_pairs(few, rank=self._pruning.rank)])
        return bool((bounds >= highest).mean() <= self._pruning.worthwhile)

    def _settle(self, candidates: Largest) -> None:
        """Evaluate candidates from the highest bound down, until the next bound is below the threshold."""
        for start in range(0, len(candidates.values), self._pruning.batch):
            batch = slice(start, start + self._pruning.batch)
            hopeful = candidates.values[batch] >= self.largest.threshold
            if not hopeful.any():
                return
            self._evaluate_pairs(candidates.columns[0][batch][hopeful])

    def _compute_all(self) -> None:
        self.largest, self.evaluated = Largest(self.largest.size), 0
        self._evaluate(all_pairs(self._left, self._other))

    def _evaluate_pairs(self, numbers: Index) -> None:
        pairs = np.stack(np.divmod(numbers, len(self._right)), axis=1)
        self._evaluate(piece for _, piece in given_pairs(self._left, pairs, self._other, caches=self._caches))

    def _evaluate(self, pieces: Iterable[Distances]) -> None:
        for piece in pieces:
            *columns, scores = vars(_scored(piece, self._formula)).values()
            self.largest.add(scores, *columns)
            self.evaluated += len(piece)

    def _bounds(self, piece: Distances) -> Array:
        # Raised by the rounding of the bound and of the value that it is compared with.
        highest = self._formula.covariance_distance(piece.bures + 2 * piece.error, piece.trace_sum)
        return self._formula.score(piece.mean_distance, highest) * (1 + 1e-6)

    def _highest_free_bounds(self, count: int) -> Index:
        """The pairs of highest bound without a cross product, as numbers i·N + j; i < j within one corpus."""
        left = text_moments(self._left)
        right = left if self._other is None else text_moments(self._right)
        texts, highest = len(self._right), Largest(count)
        step = max(1, _PIECE // texts)
        for start in range(0, len(self._left), step):
            rows = np.arange(start, min(start + step, len(self._left)))
            first = start if self._other is None else 0
            mean_distance = (1 - (left.unit_means[rows] @ right.unit_means[first:].T).clip(-1, 1)) / 2
            bounds = self._formula.upper_bound(mean_distance, left.traces[rows][:, None] + right.traces[first:])
            possible = bounds >= highest.threshold
            if self._other is None:
                possible &= rows[:, None] < np.arange(first, texts)
            i, j = np.nonzero(possible)
            highest.add(bounds[i, j], rows[i] * texts + first + j)
        (numbers,) = highest.columns
        return np.asarray(numbers)
