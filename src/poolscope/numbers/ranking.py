"""Search by cosine: the nearest of each query, ranks of the relevant, quality; the neighbours of a large corpus.

Everything runs in blocks; no table of all queries by all documents is kept. For the neighbours of many texts an index
(extra 'index': faiss) gives candidates; their cosines are computed exactly, and the share of the true neighbours that
it found is measured on a draw of the texts. No number rests on it without that share.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, require, whole_number
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, bounded_interval

Units = NDArray[np.float32]

# Scores held at a time: 2²⁴ of float32 are 64 MB.
_BLOCK = 2**24
# Parts of a row of scores for each of the best that are looked for.
_PARTS = 10
# Squared lengths of unit vectors differ from 1 by so little once they are rounded to float32.
_UNIT = 2.5e-7
# From so many texts on an index is used where there is one: below, exact search takes a minute or two.
APPROXIMATE_FROM = 50_000
# Texts whose neighbours are searched exactly, to measure the recall, and the recall that is asked for.
_CHECKED, _RECALL = 500, 0.99
_ROWS = 1024  # texts whose candidates are scored at a time
_LINKS, _BUILDING, _SEARCHING, _MOST_SEARCHING = 32, 80, 64, 1024
_SPARE = 10  # candidates beyond k, which exact scores put in order


@dataclass(frozen=True)
class Ranking:
    """What came back for each query, and where its relevant documents stand.

    `top` and `scores` (queries × k): the nearest documents and their cosines, best first. `query`, `document`, `rank`:
    one entry a judgement; the rank counts from 1, and documents that tie with the relevant one count half.
    """

    top: Index
    scores: Array
    query: Index
    document: Index
    rank: Array

    @property
    def queries(self) -> int:
        """How many queries were asked."""
        return len(self.top)

    def ndcg(self, k: int = 10, *, grades: ArrayLike | None = None) -> Array:
        """nDCG@k of each query, relevance 0 or 1, or a grade a judgement; NaN for a query without a relevant document.

        A document gains its grade, as in trec_eval.
        """
        worth = np.ones(len(self.rank)) if grades is None else np.asarray(grades, dtype=np.float64)
        highest = np.zeros(self.queries)
        np.maximum.at(highest, self.query, worth)
        worth = _divided(worth, highest[self.query])  # the same measure, and sums of huge grades stay finite
        gains = np.where(self.rank <= k, worth / discount(self.rank), 0.0)
        order = np.lexsort((-worth, self.query))
        place = np.arange(len(order)) - np.searchsorted(self.query[order], self.query[order])
        ideal = np.where(place < k, worth[order] / discount(1 + place), 0.0)
        best = np.bincount(self.query[order], ideal, self.queries)
        return _divided(np.bincount(self.query, gains, self.queries), best)

    def mrr(self, k: int = 10) -> Array:
        """1/rank of the best relevant document of each query, 0 beyond rank k; NaN without a relevant document."""
        best = np.full(self.queries, np.inf)
        np.minimum.at(best, self.query, self.rank)
        return np.where(self._judged() > 0, np.where(best <= k, 1 / best, 0.0), np.nan)

    def recall(self, k: int = 10) -> Array:
        """Share of the relevant documents of each query within the first k; NaN without a relevant document."""
        retrieved = np.bincount(self.query, self.rank <= k, self.queries)
        return _divided(retrieved, self._judged())

    def hit(self, k: int = 10) -> Array:
        """1 if a relevant document of the query is within the first k, else 0; NaN without a relevant document."""
        return np.where(self._judged() > 0, (np.nan_to_num(self.recall(k)) > 0).astype(float), np.nan)

    def best_of(self, answers: ArrayLike) -> Index:
        """The judgements that rank first of those that share an answer (one number a judgement), in their order.

        Judgements share one where a whole document was named: any of its chunks answers the query.
        """
        shared = np.asarray(answers)
        order = np.lexsort((self.rank, shared))
        return np.sort(order[np.unique(shared[order], return_index=True)[1]])

    def condensed(self, kept: Index) -> Ranking:
        """The ranking of these judgements; the others are taken out of it, so that they are in nobody's way.

        >>> found = rank_scores([[0.9, 0.8, 0.7]], [(0, 0), (0, 1), (0, 2)])
        >>> found.condensed(found.best_of([0, 0, 1])).rank.tolist()
        [1.0, 2.0]
        """
        taken = np.setdiff1d(np.arange(len(self.rank)), kept)
        span = float(self.rank.max(initial=0.0)) + 1  # query · span + rank sorts by query, then by rank
        places = np.sort(self.query[taken] * span + self.rank[taken])
        own = self.query[kept]
        above = np.searchsorted(places, own * span + self.rank[kept]) - np.searchsorted(places, own * span)
        return replace(self, query=own, document=self.document[kept], rank=self.rank[kept] - above)

    def _judged(self) -> Index:
        return np.bincount(self.query, minlength=self.queries)


def discount(rank: NDArray[Any]) -> Array:
    """What nDCG divides the gain of a document by, at a rank counted from 1: log₂(1 + rank).

    >>> discount(np.array([1, 3])).tolist()
    [1.0, 2.0]
    """
    return np.asarray(np.log2(1 + rank), dtype=np.float64)


def rank_documents(queries: ArrayLike, documents: ArrayLike, relevant: ArrayLike, *, k: int = 10) -> Ranking:
    """Rank all documents for each query by cosine.

    queries (m × d), documents (N × d); relevant: judgements (query, document), positions counted from 0.

    >>> found = rank_documents([[1, 0], [0, 1]], [[2, 0.1], [0, 3]], [(0, 0), (1, 0)], k=1)
    >>> found.rank.tolist(), found.hit(1).tolist()
    ([1.0, 2.0], [1.0, 0.0])
    """
    sought, held = unit_rows(queries, "queries"), unit_rows(documents, "documents")
    if sought.shape[1] != held.shape[1]:
        raise InputError(
            f"received queries of dimension {sought.shape[1]} and documents of dimension {held.shape[1]}; both must "
            f"come from one model. Encode them alike."
        )
    return _ranking(_blocks(sought, held), (len(sought), len(held)), relevant, k)


def rank_scores(scores: ArrayLike, relevant: ArrayLike, *, k: int = 10) -> Ranking:
    """Rank all documents for each query by scores of any kind (queries × documents), higher is better.

    >>> rank_scores([[0.9, 0.5], [0.2, 0.4]], [(0, 0), (1, 0)]).ndcg().round(3).tolist()
    [1.0, 0.631]
    """
    table = np.asarray(scores)
    if table.ndim != 2 or not table.size or table.dtype.kind not in "fiu" or not np.isfinite(table).all():
        raise InputError(
            f"scores: received {table.dtype} of shape {table.shape}; needed: a table of finite numbers, a row a query "
            f"and a column a document."
        )
    rows = table if table.dtype.kind == "f" else table.astype(np.float64)
    return _ranking(iter([(0, rows)]), rows.shape, relevant, k)


def _ranking(
    blocks: Iterator[tuple[int, NDArray[Any]]], shape: tuple[int, ...], relevant: ArrayLike, k: int
) -> Ranking:
    """The ranking by scores that come in blocks of rows (first row, rows × documents)."""
    queries, documents = shape
    judged = checked_judgements(relevant, queries, documents)
    k = min(k, documents)
    top = np.empty((queries, k), dtype=np.int64)
    scores = np.empty((queries, k))
    rank = np.empty(len(judged))
    for start, cosines in blocks:
        stop = start + len(cosines)
        top[start:stop], scores[start:stop] = best_of_rows(cosines, k)
        for position in np.flatnonzero((judged[:, 0] >= start) & (judged[:, 0] < stop)):
            row = cosines[judged[position, 0] - start]
            rank[position] = tied_rank(row, row[judged[position, 1]])
    return Ranking(top, scores, judged[:, 0], judged[:, 1], rank)


def tied_rank(scores: NDArray[Any], own: NDArray[Any] | float) -> Any:
    """The rank, from 1, of the score `own` among the scores of its row: higher ones count, and half of its ties.

    >>> float(tied_rank(np.array([0.9, 0.5, 0.5, 0.1]), 0.5))
    2.5
    """
    return 1 + (scores > own).sum(axis=-1) + ((scores == own).sum(axis=-1) - 1) / 2


def wrong_above(
    queries: ArrayLike, documents: ArrayLike, relevant: ArrayLike, sets: NDArray[np.bool_]
) -> tuple[Index, Index]:
    """How many documents that are not relevant to its query stand at or above each relevant one: in all, and by set.

    sets (documents × sets): which documents belong to which. Gives (judgements) and (judgements × sets); ties count.

    >>> wrong, by_set = wrong_above([[1, 0]], [[1, 1], [2, 0.1], [0, 3]], [(0, 0)], np.array([[0], [1], [0]]) > 0)
    >>> wrong.tolist(), by_set.tolist()
    ([1], [[1]])
    """
    sought, held = unit_rows(queries, "queries"), unit_rows(documents, "documents")
    judged = checked_judgements(relevant, len(sought), len(held))
    inside = sets.astype(np.float32)
    totals, by_set = np.empty(len(judged), np.int64), np.empty((len(judged), sets.shape[1]), np.int64)
    for start, cosines in _blocks(sought, held):
        here = np.flatnonzero((judged[:, 0] >= start) & (judged[:, 0] < start + len(cosines)))
        own = cosines[judged[here, 0] - start, judged[here, 1]]
        cosines[judged[here, 0] - start, judged[here, 1]] = -np.inf  # what is relevant is in nobody's way
        for position, score in zip(here, own, strict=True):
            above = cosines[judged[position, 0] - start] >= score
            totals[position], by_set[position] = above.sum(), inside[above].sum(axis=0).astype(np.int64)
    return totals, by_set


def nearest_neighbours(vectors: ArrayLike, k: int, *, among: ArrayLike | None = None) -> tuple[Index, Array]:
    """The k nearest of each vector by cosine, and the cosines, both (N × k), best first.

    Without `among` they are searched among the other vectors: a vector is not its own neighbour.
    """
    nearest = find_neighbours(vectors, k, among=among, approximate=False)
    return nearest.top, nearest.cosines


def exact_search(queries: Units, held: Units, k: int, *, own: Index | None = None) -> tuple[Index, Array]:
    """The k nearest of each query; `own` are the positions that the queries have themselves, which do not count."""
    top, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k))
    for start, cosines in _blocks(queries, held):
        rows = np.arange(start, start + len(cosines))
        if own is not None:
            cosines[rows - start, own[rows]] = -np.inf
        top[rows], scores[rows] = best_of_rows(cosines, k)
    return top, scores


def unit_rows(vectors: ArrayLike, name: str) -> NDArray[np.float32]:
    """The vectors at length 1 as float32, the same table where they are that; an error names one without direction."""
    try:
        table = np.asarray(vectors)
    except ValueError as error:
        raise InputError(f"{name}: the rows are not of one length ({error}); allowed is a table of numbers.") from None
    if table.ndim != 2 or not table.size or table.dtype.kind not in "fiu":
        raise InputError(
            f"{name}: received {table.dtype} of shape {table.shape}; allowed is a table of numbers, one row a vector."
        )
    if table.dtype == np.float32:
        squares = np.einsum("ij,ij->i", table, table, dtype=np.float64)
        if (np.abs(squares - 1) < _UNIT).all():
            return table
    table = table.astype(np.float64)
    lengths = np.linalg.norm(table, axis=1)
    wrong = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if len(wrong):
        raise InputError(
            f"{name}: row {wrong[0]} ({len(wrong)} in all) is zero or not finite, so it has no direction. Leave such "
            f"rows out, or correct where they come from."
        )
    return np.asarray(table / lengths[:, None], dtype=np.float32)


def drawn_units(vectors: ArrayLike, most: int, random: np.random.Generator) -> tuple[NDArray[np.float32], Index]:
    """`unit_rows` of the vectors, of more than `most` of a draw of that many, and their positions.

    The others are not looked at, so that a draw costs the same from any number of vectors.
    """
    table = vectors if isinstance(vectors, np.ndarray) and vectors.ndim == 2 else None
    if table is None or len(table) <= most:
        unit = unit_rows(vectors, "vectors")
        if len(unit) <= most:
            return unit, np.arange(len(unit))
        table = unit
    positions = np.sort(random.choice(len(table), most, replace=False))
    return unit_rows(table[positions], "vectors"), positions


def _blocks(queries: NDArray[np.float32], documents: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    step = max(1, _BLOCK // len(documents))
    for start in range(0, len(queries), step):
        yield start, queries[start : start + step] @ documents.T


def best_of_rows(cosines: NDArray[np.float32], k: int) -> tuple[Index, NDArray[np.float32]]:
    """The k best of each row, best first; equal scores by position, so that the answer is the same everywhere.

    The k-th highest of the maxima of some parts of a row is reached by k of its scores or more, and by few others: only
    those are sorted.
    """
    rows, width = cosines.shape
    parts = _PARTS * k
    maxima = cosines[:, : width // parts * parts].reshape(rows, -1, parts).max(axis=1) if width > 2 * parts else cosines
    reached = np.partition(maxima, maxima.shape[1] - k, axis=1)[:, maxima.shape[1] - k]
    places = np.flatnonzero(cosines >= reached[:, None])
    row, top = np.divmod(places, width)
    scores = cosines.ravel()[places]
    order = np.lexsort((-scores, row))  # it keeps the order of equals
    first = np.searchsorted(row, np.arange(rows))
    best = order[first[:, None] + np.arange(k)]
    return top[best], scores[best]


def checked_judgements(relevant: ArrayLike, queries: int, documents: int) -> Index:
    """Judgements as rows (query, document), each once and within so many queries and documents."""
    table = np.asarray(relevant)
    if table.ndim != 2 or table.shape[1] != 2 or not len(table) or table.dtype.kind not in "iu":
        raise InputError(
            f"relevant: received {table.dtype} of shape {table.shape}; allowed is a list of at least one (query, "
            f"document), positions counted from 0."
        )
    outside = np.flatnonzero(((table < 0) | (table >= [queries, documents])).any(axis=1))
    if len(outside):
        raise InputError(
            f"relevant: entry {outside[0]} is {tuple(table[outside[0]].tolist())}, but there are {queries} queries and "
            f"{documents} documents. Correct the list; nothing was left out."
        )
    if len(np.unique(table, axis=0)) < len(table):
        raise InputError("relevant: the same (query, document) stands twice. Name each judgement once.")
    return table.astype(np.int64)


def _divided(above: ArrayLike, below: ArrayLike) -> Array:
    above, below = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    return np.asarray(np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0))


class GaussianLike:
    """Draws of as many Gaussian vectors of the same mean and covariance, at length 1.

    The covariance S of the sample has a wider spectrum than that of the population: tr S² exceeds tr Σ² by about
    (tr Σ)²/N. So S is mixed with what is the same in all directions until the trace of its square is that of Σ. A draw
    is of independent numbers times a root of that; of fewer vectors than dimensions the vectors themselves are a root.
    """

    def __init__(self, unit: NDArray[np.float32]) -> None:
        count, dimension = self.shape = unit.shape
        self.centre = unit.mean(axis=0)
        centred = unit - self.centre
        small = centred @ centred.T if count < dimension else centred.T @ centred
        trace = float(np.trace(small, dtype=np.float64)) / count
        squares = float(np.vdot(small, small)) / count**2
        round_part = trace**2 / dimension
        wanted = max(squares - trace**2 / count, round_part)
        kept = np.sqrt((wanted - round_part) / (squares - round_part)) if squares > round_part else 0.0
        self.deviation = np.float32(np.sqrt((1 - kept) * trace / dimension))
        self.root = centred * np.float32(np.sqrt(kept / count))
        if count >= dimension:
            mixed = small.astype(np.float64) * (kept / count)
            mixed.flat[:: dimension + 1] += float(self.deviation) ** 2
            with suppress(np.linalg.LinAlgError):  # so flat that rounding makes it negative: the vectors are a root too
                root = np.linalg.cholesky(mixed).T.astype(np.float32)
                self.root, self.deviation = root, np.float32(0)

    def draw(self, random: np.random.Generator) -> NDArray[np.float32]:
        """One draw; equal numbers of `random` give vectors that lie alike in clouds of like shape."""
        drawn = random.standard_normal((self.shape[0], len(self.root)), dtype=np.float32) @ self.root
        if self.deviation:
            drawn += random.standard_normal(self.shape, dtype=np.float32) * self.deviation
        drawn += self.centre
        return unit_rows(drawn, "floor")


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
    if held.shape[1] != unit.shape[1]:
        raise InputError(
            f"among: received vectors of dimension {held.shape[1]} for those of dimension {unit.shape[1]}; both must "
            f"come from one model. Encode them alike."
        )
    most = len(held) - (among is None)
    if not 1 <= (k := whole_number(k, "neighbours", least=0)) <= most:
        raise InputError(f"neighbours: received {k}; allowed is 1 to {most}, the number of other texts.")
    seed = whole_number(seed, "seed", least=0)
    if approximate is None:
        approximate = len(held) > APPROXIMATE_FROM and importlib.util.find_spec("faiss") is not None
    own = np.arange(len(unit)) if among is None else None
    return _approximate(unit, held, k, own, seed) if approximate else Neighbours(*exact_search(unit, held, k, own=own))


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
    recall = Estimate(float(shares.mean()), bounded_interval(shares, 0.0, 1.0, seed=seed, unit="texts"))
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
