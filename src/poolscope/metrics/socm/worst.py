"""The worst pairs of a large corpus, exactly, in a fraction of the time of all pairs.

Two upper bounds of SOCM are cheaper than its value. Without any cross product: BW² ≤ tr Σ₁ + tr Σ₂; the pairs that it
puts first are evaluated at once, and what they score is a threshold. From a few directions of each text: their part of
the nuclear norm is at most the whole, so BW² ≤ tr Σ₁ + tr Σ₂ − 2·(that part); few pairs pass the threshold, and only
these are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.result import Largest, WorstPairs
from poolscope.metrics.socm.score import SocmFormula
from poolscope.numbers.bures import all_pairs, given_pairs
from poolscope.numbers.bures.distances import Distances
from poolscope.numbers.bures.pairs import reduced_caches
from poolscope.numbers.moments import text_moments
from poolscope.results import provenance

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Bounds without cross product computed at a time.
_PIECE = 4_000_000


@dataclass(frozen=True)
class Pruning:
    """What a search costs and holds; the pairs that it gives are the same.

    `rank`: directions of each text that enter the second bound. `seeds`: pairs that set the first threshold, at least;
    `batch`: pairs evaluated between two looks at it; `held`: candidates held at a time. A chosen pair costs several
    times as much as one of all pairs, so beyond a share `worthwhile` of candidates all are computed; the pairs of
    `looked_at` texts tell that before (0: nothing does).
    """

    rank: int = 12
    seeds: int = 1000
    batch: int = 4000
    held: int = 1_000_000
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
        held = Largest(limits.held)
        seen = candidates = 0
        for piece in all_pairs(self._left, self._other, rank=limits.rank):
            bounds = self._bounds(piece)
            numbers = piece.i * len(self._right) + piece.j
            possible = (bounds >= self.largest.threshold) & ~np.isin(numbers, seeds)
            held.add(bounds[possible], numbers[possible])
            seen += len(piece)
            candidates += int(possible.sum())
            if candidates > max(limits.worthwhile * seen, 2 * limits.seeds):
                return self._compute_all()
            if len(held.values) > limits.held // 2:
                self._settle(held)
                held = Largest(limits.held)
            self._progress(len(piece))
        return self._settle(held)

    def _promising(self) -> bool:
        """Whether the second bound would prune, by the pairs of a few texts: those of one shape it cannot tell apart.

        A guess costs time where it is wrong, never a pair. All pairs of few texts are computed before one can be made.
        """
        looked_at = self._pruning.looked_at
        if not looked_at or len(self._left) < 4 * looked_at:
            return not looked_at
        few = self._left.select(np.linspace(0, len(self._left) - 1, looked_at, dtype=np.int64))
        highest = max(float(self._scores(piece).max()) for piece in all_pairs(few))
        bounds = np.concatenate([self._bounds(piece) for piece in all_pairs(few, rank=self._pruning.rank)])
        return bool((bounds >= highest).mean() <= self._pruning.worthwhile)

    def _settle(self, held: Largest) -> None:
        """Evaluate candidates from the highest bound down, until the next bound is below the threshold."""
        for start in range(0, len(held.values), self._pruning.batch):
            batch = slice(start, start + self._pruning.batch)
            hopeful = held.values[batch] >= self.largest.threshold
            if not hopeful.any():
                return
            self._evaluate_pairs(held.columns[0][batch][hopeful])

    def _compute_all(self) -> None:
        self.largest, self.evaluated = Largest(self.largest.size), 0
        self._evaluate(all_pairs(self._left, self._other))

    def _evaluate_pairs(self, numbers: Index) -> None:
        pairs = np.stack(np.divmod(numbers, len(self._right)), axis=1)
        self._evaluate(piece for _, piece in given_pairs(self._left, pairs, self._other, caches=self._caches))

    def _evaluate(self, pieces: Iterable[Distances]) -> None:
        for piece in pieces:
            covariance_distance = self._formula.covariance_distance(piece.bures, piece.trace_sum)
            self.largest.add(self._scores(piece), piece.i, piece.j, piece.mean_distance, covariance_distance)
            self.evaluated += len(piece)

    def _scores(self, piece: Distances) -> Array:
        covariance_distance = self._formula.covariance_distance(piece.bures, piece.trace_sum)
        return self._formula.score(piece.mean_distance, covariance_distance)

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
