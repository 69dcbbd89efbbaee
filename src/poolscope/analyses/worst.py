"""The worst pairs of a large corpus, exactly, without going through all pairs.

SOCM ≤ (1 − d_μ)(tr Σ₁ + tr Σ₂)/4 needs only one small matrix product. The pairs of highest bound are evaluated first;
what they score is a threshold that most other bounds fall below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poolscope.analyses.socm_result import PairColumns, WorstPair, describe_pairs
from poolscope.analyses.socm_score import SocmFormula
from poolscope.analyses.streaming import Largest
from poolscope.bures import all_pairs, given_pairs
from poolscope.bures.distances import Distances
from poolscope.bures.pairs import reduced_caches
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.moments import text_moments

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Bounds computed at a time.
_PIECE = 4_000_000
# Pairs evaluated before the first look at the threshold; each further batch is four times as large.
_FIRST_BATCH = 1000
# A chosen pair costs about five times as much as one of all pairs, so beyond this share pruning no longer pays.
_WORTHWHILE = 0.2


@dataclass(frozen=True)
class WorstPairs:
    """The k worst pairs, and how many of the `count` pairs had to be evaluated to be sure."""

    pairs: list[WorstPair]
    evaluated: int
    count: int
    columns: PairColumns = field(repr=False)


def worst_pairs(
    clouds: TokenClouds,
    k: int = 100,
    *,
    scale: str = "paper",
    a: float = 1.0,
    b: float = 1.0,
    progress: Callable[[int], None] | None = None,
) -> WorstPairs:
    """The k pairs of highest SOCM of a corpus: the same as `socm(clouds).worst(k)`, and on real models much sooner.

    Where the bound prunes too little to help, all pairs are streamed instead; `evaluated` tells.

    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> [(pair.i, pair.j) for pair in worst_pairs(clouds, 1).pairs]
    [(1, 2)]
    """
    count = len(clouds) * (len(clouds) - 1) // 2
    if not 1 <= k <= count:
        raise InputError(f"worst: received k = {k}; allowed is 1 to {count}, the number of pairs.")
    search = _Search(clouds, SocmFormula(scale=scale, a=a, b=b), k, progress or (lambda done: None))
    search.run()
    columns = PairColumns(*search.largest.columns, search.largest.values)
    return WorstPairs(describe_pairs(columns, clouds, clouds), search.evaluated, count, columns)


class _Search:
    def __init__(self, clouds: TokenClouds, formula: SocmFormula, k: int, progress: Callable[[int], None]) -> None:
        self._clouds, self._formula, self._progress = clouds, formula, progress
        self._moments = text_moments(clouds)
        self.largest = Largest(k)
        self.evaluated = 0

    def run(self) -> None:
        """Evaluate pairs from the highest bound down, in growing batches, until no bound reaches the threshold."""
        caches = reduced_caches(self._clouds)
        size = max(4 * self.largest.size, _FIRST_BATCH)
        done: Index = np.empty(0, dtype=np.int64)
        while True:
            batch, left = Largest(size), 0
            for bounds, i, j in self._bounds(self.largest.threshold):
                numbers = i * len(self._clouds) + j
                new = ~np.isin(numbers, done)
                left += int(new.sum())
                batch.add(bounds[new], numbers[new])
            if not left:
                return
            if len(done) and left > _WORTHWHILE * len(self._clouds) ** 2 / 2:
                break
            (numbers,) = batch.columns
            pairs = np.stack(np.divmod(numbers, len(self._clouds)), axis=1)
            self._evaluate(found for _, found in given_pairs(self._clouds, pairs, caches=caches))
            done = np.concatenate([done, numbers])
            size *= 4
        self.largest, self.evaluated = Largest(self.largest.size), 0
        self._evaluate(all_pairs(self._clouds))

    def _evaluate(self, pieces: Iterable[Distances]) -> None:
        for found in pieces:
            d_sigma = self._formula.covariance_distance(found.bures, found.trace_sum)
            score = self._formula.score(found.mean_distance, d_sigma)
            self.largest.add(score, found.i, found.j, found.mean_distance, d_sigma)
            self.evaluated += len(found)
            self._progress(len(found))

    def _bounds(self, threshold: float) -> Iterator[tuple[Array, Index, Index]]:
        """Bounds of at least `threshold`, with their pairs i < j."""
        means, traces = self._moments.unit_means, self._moments.traces
        count = len(traces)
        step = max(1, _PIECE // count)
        for start in range(0, count, step):
            rows = np.arange(start, min(start + step, count))
            mean_distance = (1 - (means[rows] @ means[start:].T).clip(-1, 1)) / 2
            bounds = self._formula.upper_bound(mean_distance, traces[rows][:, None] + traces[start:])
            bounds = bounds * (1 + 1e-6) + 1e-9  # room for the rounding of the values that it is compared with
            left, right = np.nonzero((bounds >= threshold) & (rows[:, None] < np.arange(start, count)))
            yield bounds[left, right], rows[left], start + right
