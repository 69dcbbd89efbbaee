"""The worst pairs of a large corpus, exactly, without going through all pairs.

SOCM ≤ (1 − d_μ)(tr Σ₁ + tr Σ₂)/4 needs only one small matrix product. Pairs are visited from the highest bound down, and
the search stops when the next bound is below the k-th best value found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poolscope.analyses.socm_result import PairColumns, WorstPair, describe_pairs
from poolscope.analyses.socm_score import SocmFormula
from poolscope.analyses.streaming import Largest
from poolscope.bures import given_pairs
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.moments import TextMoments, text_moments

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Pairs evaluated between two looks at the threshold, and the most candidates held at a time.
_BATCH = 4096
_CANDIDATES = 4_000_000


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
    """The k pairs of highest SOCM of a corpus, the same as `socm(clouds).worst(k)` and much sooner.

    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> [(pair.i, pair.j) for pair in worst_pairs(clouds, 1).pairs]
    [(1, 2)]
    """
    count = len(clouds) * (len(clouds) - 1) // 2
    if not 1 <= k <= count:
        raise InputError(f"worst: received k = {k}; allowed is 1 to {count}, the number of pairs.")
    formula, moments = SocmFormula(scale=scale, a=a, b=b), text_moments(clouds)
    largest, evaluated = Largest(k), 0
    for pairs, bounds in _candidates(formula, moments, largest):
        for start in range(0, len(pairs), _BATCH):
            # The thresholds that the earlier batches raised end the search early.
            batch = pairs[start : start + _BATCH][bounds[start : start + _BATCH] >= largest.threshold]
            if not len(batch):
                break
            for _, found in given_pairs(clouds, batch):
                d_sigma = formula.covariance_distance(found.bures, found.trace_sum)
                score = formula.score(found.mean_distance, d_sigma)
                largest.add(score, found.i, found.j, found.mean_distance, d_sigma)
            evaluated += len(batch)
            if progress is not None:
                progress(len(batch))
    columns = PairColumns(*largest.columns, largest.values)
    return WorstPairs(describe_pairs(columns, clouds, clouds), evaluated, count, columns)


def _candidates(formula: SocmFormula, moments: TextMoments, largest: Largest) -> Iterator[tuple[Index, Array]]:
    """Pairs that may still enter `largest`, with their bounds, the highest bound first in each piece.

    Texts come by falling trace, so the first pieces hold most of the worst pairs and raise the threshold soon.
    """
    order = np.argsort(-moments.traces, kind="stable")
    means, traces = moments.unit_means[order], moments.traces[order]
    count = len(order)
    step = max(1, _CANDIDATES // count)
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        mean_distance = (1 - (means[rows] @ means[start:].T).clip(-1, 1)) / 2
        bounds = formula.upper_bound(mean_distance, traces[rows][:, None] + traces[start:])
        # A little slack: the values carry the rounding of the float32 products.
        bounds = bounds * (1 + 1e-6) + 1e-9
        possible = (bounds >= largest.threshold) & (rows[:, None] < np.arange(start, count))
        left, right = np.nonzero(possible)
        values = bounds[left, right]
        best_first = np.argsort(-values, kind="stable")
        pairs = np.stack([order[rows[left]], order[start + right]], axis=1)
        yield np.sort(pairs[best_first], axis=1), values[best_first]
