"""The nearest texts of every text of a large corpus: exact, or approximate with the recall that was measured.

Exact search compares every pair, in blocks, and keeps the best k of every text so far. An index (extra 'index': faiss)
gives candidates in a fraction of the time; their cosines are then computed exactly, and the share of the true
neighbours that it found is measured on a draw of the texts by exact search. No number rests on it without that share.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, require, whole_number
from poolscope.numbers.intervals import Estimate, bootstrap_interval
from poolscope.numbers.ranking import unit_rows

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Units = NDArray[np.float32]

# From so many texts on an index is used where there is one: below, exact search takes a minute or two.
APPROXIMATE_FROM = 50_000
# Texts whose neighbours are searched exactly, to measure the recall, and the recall that is asked for.
_CHECKED, _RECALL = 500, 0.99
_ROWS, _COLUMNS = 1024, 16384
_LINKS, _BUILDING, _SEARCHING, _MOST_SEARCHING = 32, 80, 64, 1024
_SPARE = 10  # candidates beyond k, which exact scores put in order


@dataclass(frozen=True)
class Neighbours:
    """The k nearest of every vector and their cosines, both (N × k), best first.

    `recall` is None for an exact search; otherwise the share of true neighbours found, with its interval over texts.
    """

    top: Index
    cosines: Array
    recall: Estimate | None = None

    @property
    def words(self) -> str:
        """How it was searched, for people; empty for an exact search."""
        if self.recall is None:
            return ""
        return f"approximate: recall {self.recall} on {min(_CHECKED, len(self.top))} texts searched exactly"


def find_neighbours(
    vectors: ArrayLike, k: int, *, among: ArrayLike | None = None, approximate: bool | None = None, seed: int = 0
) -> Neighbours:
    """The k nearest of each vector by cosine among the others, or among other vectors.

    approximate: True needs the extra 'index', False searches exactly; None takes an index for more than 50,000 vectors
    where the extra is installed.

    >>> find_neighbours([[1, 0], [1, 0.1], [0, 1]], 1).top.ravel().tolist()
    [1, 0, 1]
    """
    unit = unit_rows(vectors, "vectors")
    held = unit if among is None else unit_rows(among, "among")
    most = len(held) - (among is None)
    if held.shape[1] != unit.shape[1]:
        raise InputError(
            f"among: received vectors of dimension {held.shape[1]} for those of dimension {unit.shape[1]}; both must "
            f"come from one model. Encode them alike."
        )
    k, seed = whole_number(k, "neighbours", least=0), whole_number(seed, "seed", least=0)
    if not 1 <= k <= most:
        raise InputError(f"neighbours: received {k}; allowed is 1 to {most}, the number of other texts.")
    if approximate is None:
        approximate = len(held) > APPROXIMATE_FROM and importlib.util.find_spec("faiss") is not None
    own = np.arange(len(unit)) if among is None else None
    return _approximate(unit, held, k, own, seed) if approximate else Neighbours(*exact_search(unit, held, k, own=own))


def exact_search(queries: Units, held: Units, k: int, *, own: Index | None = None) -> tuple[Index, Array]:
    """The k nearest of each query; `own` are the positions that the queries have themselves, which do not count."""
    top = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float32)
    for start in range(0, len(queries), _ROWS):
        rows = slice(start, min(start + _ROWS, len(queries)))
        mine = None if own is None else own[rows]
        top[rows], scores[rows] = _best_of_all(queries[rows], held, k, mine)
    return top, scores.astype(np.float64)


def _best_of_all(queries: Units, held: Units, k: int, own: Index | None) -> tuple[Index, Units]:
    """The best k of one block of queries: what beats the k-th so far joins it, block by block."""
    best = np.full((len(queries), k), -np.inf, dtype=np.float32)
    place = np.full((len(queries), k), -1, dtype=np.int64)
    for start in range(0, len(held), _COLUMNS):
        cosines = queries @ held[start : start + _COLUMNS].T
        if own is not None:
            here = np.flatnonzero((own >= start) & (own < start + cosines.shape[1]))
            cosines[here, own[here] - start] = -np.inf
        wanted = min(k, cosines.shape[1])
        rising = np.flatnonzero((cosines > best[:, -1:]).any(axis=1))
        if not len(rising):
            continue
        few = np.argpartition(-cosines[rising], wanted - 1, axis=1)[:, :wanted]
        scores = np.concatenate([best[rising], np.take_along_axis(cosines[rising], few, axis=1)], axis=1)
        places = np.concatenate([place[rising], few + start], axis=1)
        order = np.lexsort((places, -scores), axis=1)[:, :k]  # equal scores by position: the same answer everywhere
        best[rising], place[rising] = (np.take_along_axis(part, order, axis=1) for part in (scores, places))
    return place, best


def _approximate(unit: Units, held: Units, k: int, own: Index | None, seed: int) -> Neighbours:
    """Candidates of an index, scored exactly; searched wider until a draw of texts has nearly all true neighbours."""
    faiss = require("faiss", "index")
    index: Any = faiss.IndexHNSWFlat(held.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _BUILDING
    index.add(held)
    drawn = np.sort(np.random.default_rng(seed).choice(len(unit), min(_CHECKED, len(unit)), replace=False))
    mine = None if own is None else own[drawn]
    exact, _ = exact_search(unit[drawn], held, k, own=mine)
    index.hnsw.efSearch = max(_SEARCHING, 2 * k)
    while True:
        candidates, _ = _rescored(index, unit[drawn], held, k, mine)
        shares = np.array([len(np.intersect1d(a, b)) / k for a, b in zip(candidates, exact, strict=True)])
        if shares.mean() >= _RECALL or index.hnsw.efSearch >= _MOST_SEARCHING:
            break
        index.hnsw.efSearch *= 2
    top, cosines = _rescored(index, unit, held, k, own)
    recall = Estimate(float(shares.mean()), bootstrap_interval(shares, seed=seed))
    return Neighbours(top, cosines, recall)


def _rescored(index: Any, queries: Units, held: Units, k: int, own: Index | None) -> tuple[Index, Array]:
    """The best k of what an index gives, by their exact cosines."""
    count = min(len(held), k + _SPARE)
    top, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k))
    for start in range(0, len(queries), _ROWS):
        rows = slice(start, min(start + _ROWS, len(queries)))
        _, places = index.search(queries[rows], count)
        cosines = np.einsum("qd,qcd->qc", queries[rows], held[places], dtype=np.float32)
        cosines[places < 0] = -np.inf  # an index may give fewer than it was asked for
        if own is not None:
            cosines[places == own[rows, None]] = -np.inf
        order = np.lexsort((places, -cosines), axis=1)[:, :k]
        top[rows], scores[rows] = (np.take_along_axis(part, order, axis=1) for part in (places, cosines))
    return top, scores
