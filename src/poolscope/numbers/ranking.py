"""Search by cosine: the nearest of each query, ranks of the relevant, quality; the neighbours of a large corpus.

Everything runs in blocks; no table of all queries by all documents is kept. For the neighbours of many texts an index
(extra 'index': faiss) gives candidates; their cosines are computed exactly, and the share of the true neighbours that
it found is measured on a draw of the texts. No number rests on it without that share.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, require, whole_number
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.numbers.streaming import row_marks, smallest
from poolscope.surface import refuse_masked

Units = NDArray[np.float32]

# Scores held at a time: 2²⁴ of float32 are 64 MB.
_BLOCK = 2**24
# Parts of a row of scores for each of the best that are looked for.
_PARTS = 10
# Relevant documents of one query from which on its scores are sorted instead of compared with each.
_SORTED_FROM = 16
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
    """The nearest documents of each query, and the places of its relevant documents.

    `top` and `scores` (queries × k): the nearest documents and their scores, best first, equal ones by position.
    `query`, `document`, `above`, `ties`: one entry a judgement; `above` documents score higher than the relevant one,
    and `ties` score the same, the relevant one included.

    Every order of equal scores is equally likely, and every measure is its expected value over these orders, exact
    (McSherry and Najork, "Computing information retrieval performance measures efficiently in the presence of tied
    scores", 2008). Without ties the measures are those of trec_eval. A query without a relevant document has NaN.

    >>> two_equal = rank_scores([[0.9, 0.9, 0.1]], [(0, 0), (0, 1)])  # both relevant: the order between them is nothing
    >>> two_equal.ndcg(10).tolist(), two_equal.mrr(10).tolist()
    ([1.0], [1.0])
    >>> with_a_wrong_one = rank_scores([[0.9, 0.9, 0.1]], [(0, 0)])
    >>> with_a_wrong_one.mrr(10).tolist(), with_a_wrong_one.found(1).tolist(), with_a_wrong_one.rank.tolist()
    ([0.75], [0.5], [1.5])
    """

    top: Index
    scores: Array
    query: Index
    document: Index
    above: Index
    ties: Index

    @property
    def queries(self) -> int:
        """How many queries were asked."""
        return len(self.top)

    @property
    def rank(self) -> Array:
        """The expected rank of each judged document, counted from 1: above + (ties + 1)/2.

        The best rank that an order of the ties gives it is above + 1, the worst above + ties.
        """
        return np.asarray(self.above + (self.ties + 1) / 2)

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Whether a relevant document of the query scores the same as another document, one value a query."""
        return np.bincount(self.query, self.ties > 1, self.queries) > 0

    def ndcg(self, k: int = 10, *, grades: ArrayLike | None = None) -> Array:
        """nDCG@k of each query, relevance 0 or 1, or a grade a judgement: what a document gains, as in trec_eval."""
        worth = np.ones(len(self.query)) if grades is None else np.asarray(grades, dtype=np.float64)
        highest = np.zeros(self.queries)
        np.maximum.at(highest, self.query, worth)
        worth = _divided(worth, highest[self.query])  # the same measure, and sums of huge grades stay finite
        tie = self._ties
        shares = np.bincount(tie.of_judgement, worth) / tie.ties  # 1 for a tie of relevant documents alone
        gains = shares * over_places(1 / discount(np.arange(1, k + 1)), tie.above, tie.ties)
        order = np.lexsort((-worth, self.query))
        place = np.arange(len(order)) - np.searchsorted(self.query[order], self.query[order])
        ideal = np.where(place < k, worth[order] / discount(1 + place), 0.0)
        best = np.bincount(self.query[order], ideal, self.queries)
        return _divided(np.bincount(tie.query, gains, self.queries), best)

    def mrr(self, k: int | None = 10) -> Array:
        """1/rank of the best relevant document of each query, 0 beyond rank k."""
        first = self._first
        expected = np.zeros(len(first.query))
        for place, chance, _ in first.places(k):
            expected += chance / place
        return first.by_query(expected, self.queries)

    def found(self, k: int = 10) -> Array:
        """The probability that a relevant document of the query is within the first k: 0 or 1 without ties."""
        first = self._first
        missed = np.ones(len(first.query))
        for _, _, remaining in first.places(k):
            missed = remaining
        return first.by_query(1 - missed, self.queries)

    def recall(self, k: int = 10) -> Array:
        """Share of the relevant documents of each query within the first k."""
        return _divided(self._retrieved(k), self._judged())

    def precision(self, k: int = 10) -> Array:
        """Share of relevant documents among the first k of each query."""
        return np.where(self._judged() > 0, self._retrieved(k) / k, np.nan)

    def average_precision(self, k: int | None = None) -> Array:
        """The precision at the rank of each relevant document, 0 beyond rank k, mean over them; MAP is its mean.

        A relevant document at place j of a tie of t, with r relevant ones, has (j − 1)(r − 1)/(t − 1) relevant ones of
        the tie before it on average, and all relevant ones above the tie.
        """
        from scipy.special import digamma  # not before it is needed: its import takes long

        tie = self._ties
        inside = tie.ties if k is None else np.clip(k - tie.above, 0, tie.ties)
        harmonic = digamma(tie.above + inside + 1.0) - digamma(tie.above + 1.0)  # Σ 1/(above + j) over the places j
        harmonic = np.where(inside == 1, 1 / (tie.above + 1), harmonic)
        each = (tie.relevant - 1) / np.maximum(tie.ties - 1, 1)
        # Σ (before + 1 + (j − 1)·each)/(above + j), where Σ (j − 1)/(above + j) is inside − (above + 1)·harmonic
        total = (tie.before + 1) * harmonic + each * (inside - (tie.above + 1) * harmonic)
        return _divided(np.bincount(tie.query, tie.relevant / tie.ties * total, self.queries), self._judged())

    def best_rank(self) -> Array:
        """The expected rank of the best relevant document of each query."""
        first = self._first
        return first.by_query(first.above + (first.ties + 1) / (first.relevant + 1), self.queries)

    def among_irrelevant(self) -> Ranking:
        """Every judged document ranked among the documents that are not relevant to its query, and no others."""
        tie, own = self._ties, self._ties.of_judgement
        return replace(self, above=self.above - tie.before[own], ties=self.ties - tie.relevant[own] + 1)

    def best_of(self, answers: ArrayLike) -> Index:
        """The judgements that rank first of those of their query that share an answer (one number a judgement).

        Judgements share one where a whole document was named: any of its chunks answers the query.
        """
        shared = np.asarray(answers)
        order = np.lexsort((self.above, shared, self.query))
        pairs = np.stack([self.query[order], shared[order]], axis=1)
        return np.sort(order[np.unique(pairs, axis=0, return_index=True)[1]])

    def condensed(self, queries: Index) -> Ranking:
        """The ranking of these judgements; the others are taken out of it, so that they are in nobody's way.

        >>> found = rank_scores([[0.9, 0.8, 0.7]], [(0, 0), (0, 1), (0, 2)])
        >>> found.condensed(found.best_of([0, 0, 1])).rank.tolist()
        [1.0, 2.0]
        """
        taken = np.setdiff1d(np.arange(len(self.query)), queries)
        span = int(self.above.max(initial=0)) + 1  # query · span + above sorts by query, then by score
        places = np.sort(self.query[taken] * span + self.above[taken])
        own = self.query[queries]
        below, through = (np.searchsorted(places, own * span + self.above[queries], side=s) for s in ("left", "right"))
        return replace(
            self,
            query=own,
            document=self.document[queries],
            above=self.above[queries] - (below - np.searchsorted(places, own * span)),
            ties=self.ties[queries] - (through - below),
        )

    @cached_property
    def _ties(self) -> _Ties:
        span = int(self.above.max(initial=0)) + 1  # query · span + above is a number of its own for both
        _, first, of_judgement, relevant = np.unique(
            self.query * span + self.above, return_index=True, return_inverse=True, return_counts=True
        )
        return _Ties(self.query[first], self.above[first], self.ties[first], relevant, of_judgement)

    @cached_property
    def _first(self) -> _Ties:
        tie = self._ties
        return tie.take(np.unique(tie.query, return_index=True)[1])

    def _retrieved(self, k: int) -> Array:
        """The expected number of relevant documents among the first k of each query."""
        each = over_places(np.ones(k), self.above, self.ties) / self.ties
        return np.asarray(np.bincount(self.query, each, self.queries), dtype=np.float64)

    def _judged(self) -> Index:
        return np.bincount(self.query, minlength=self.queries)


@dataclass(frozen=True)
class _Ties:
    """Groups of equal scores that hold a relevant document, by query and then by score, best first.

    `relevant` of the `ties` documents of a group are relevant; `of_judgement` is the group of each judgement.
    """

    query: Index
    above: Index
    ties: Index
    relevant: Index
    of_judgement: Index

    @cached_property
    def before(self) -> Index:
        """The relevant documents of its query that score higher than a group."""
        earlier = np.cumsum(self.relevant) - self.relevant
        return np.asarray(earlier - earlier[np.searchsorted(self.query, self.query)])

    def take(self, rows: Index) -> _Ties:
        """Some of the groups."""
        return _Ties(self.query[rows], self.above[rows], self.ties[rows], self.relevant[rows], self.of_judgement[:0])

    def places(self, k: int | None) -> Iterator[tuple[Index, Array, Array]]:
        """For the first, second, … place of every group: its rank, the probability that the first relevant document of
        the group stands there, and the probability that none stands there or before. Places beyond rank k have none.
        """
        remaining = np.ones(len(self.query))
        last = self.ties - self.relevant + 1
        if k is not None:
            last = np.minimum(last, k - self.above)
        for place in range(1, int(last.max(initial=0)) + 1):
            share = np.where(place <= last, self.relevant / np.maximum(self.ties - place + 1, 1), 0.0)
            chance = remaining * share
            remaining = np.asarray(remaining * (1 - share))
            yield self.above + place, chance, remaining

    def by_query(self, values: ArrayLike, queries: int) -> Array:
        """The values of groups, at most one a query, by query; NaN for a query without a group."""
        table = np.full(queries, np.nan)
        table[self.query] = values
        return table


def over_places(worth: Array, above: Index, ties: Index) -> Array:
    """The sum of what the places of a tie are worth: ranks above + 1 to above + ties; `worth` is that of rank 1, 2, ….

    A rank beyond the last of `worth` is worth nothing.

    >>> over_places(np.array([1.0, 0.5]), np.array([0, 0, 1, 2]), np.array([1, 2, 4, 1])).tolist()
    [1.0, 1.5, 0.5, 0.0]
    """
    padded, totals = np.append(worth, 0.0), np.append(0.0, np.cumsum(worth))
    first, last = np.minimum(above, len(worth)), np.minimum(above + ties, len(worth))
    return np.asarray(np.where(ties == 1, padded[first], totals[last] - totals[first]))


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
    >>> found.rank.tolist(), found.found(1).tolist()
    ([1.0, 2.0], [1.0, 0.0])
    """
    sought, texts = unit_rows(queries, "queries"), unit_rows(documents, "documents")
    if sought.shape[1] != texts.shape[1]:
        raise InputError(
            f"received queries of dimension {sought.shape[1]} and documents of dimension {texts.shape[1]}; both must "
            f"come from one model. Encode them alike."
        )
    return _ranking(_blocks(sought, texts), (len(sought), len(texts)), relevant, k)


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
    above, ties = np.empty((2, len(judged)), dtype=np.int64)
    by_query = np.argsort(judged[:, 0], kind="stable")
    for start, cosines in blocks:
        stop = start + len(cosines)
        top[start:stop], scores[start:stop] = best_of_rows(cosines, k)
        first, last = np.searchsorted(judged[by_query, 0], (start, stop))
        here = by_query[first:last]
        above[here], ties[here] = _counted_above(cosines, judged[here, 0] - start, judged[here, 1])
    return Ranking(top, scores, judged[:, 0], judged[:, 1], above, ties)


def _counted_above(scores: NDArray[Any], rows: Index, columns: Index) -> tuple[Index, Index]:
    """How many scores of its row are above each score at (row, column), and how many equal it, itself included.

    The rows come in order. A row with many such scores is sorted once; the others are compared as they are.
    """
    above, ties = np.empty((2, len(rows)), dtype=np.int64)
    own = scores[rows, columns]
    named, first, count = np.unique(rows, return_index=True, return_counts=True)
    many = count > _SORTED_FROM
    for row, start, stop in zip(named[many], first[many], (first + count)[many], strict=True):
        ordered = np.sort(scores[row])
        low, high = (np.searchsorted(ordered, own[start:stop], side=side) for side in ("left", "right"))
        above[start:stop], ties[start:stop] = len(ordered) - high, high - low
    few = np.flatnonzero(~np.isin(rows, named[many]))
    step = max(1, _BLOCK // scores.shape[1])
    for start in range(0, len(few), step):
        part = few[start : start + step]
        table, mine = scores[rows[part]], own[part, None]
        above[part], ties[part] = np.count_nonzero(table > mine, axis=1), np.count_nonzero(table == mine, axis=1)
    return above, ties


def wrong_above(
    queries: ArrayLike, documents: ArrayLike, relevant: ArrayLike, sets: NDArray[np.bool_]
) -> tuple[Index, Index]:
    """How many documents that are not relevant to its query stand at or above each relevant one: in all, and by set.

    sets (documents × sets): which documents belong to which. Gives (judgements) and (judgements × sets); ties count.

    >>> wrong, by_set = wrong_above([[1, 0]], [[1, 1], [2, 0.1], [0, 3]], [(0, 0)], np.array([[0], [1], [0]]) > 0)
    >>> wrong.tolist(), by_set.tolist()
    ([1], [[1]])
    """
    sought, texts = unit_rows(queries, "queries"), unit_rows(documents, "documents")
    judged = checked_judgements(relevant, len(sought), len(texts))
    inside = sets.astype(np.float32)
    totals, by_set = np.empty(len(judged), np.int64), np.empty((len(judged), sets.shape[1]), np.int64)
    for start, cosines in _blocks(sought, texts):
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


def exact_search(queries: Units, texts: Units, k: int, *, own: Index | None = None) -> tuple[Index, Array]:
    """The k nearest of each query; `own` are the positions that the queries have themselves, which do not count."""
    top, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k))
    for start, cosines in _blocks(queries, texts):
        rows = np.arange(start, start + len(cosines))
        if own is not None:
            cosines[rows - start, own[rows]] = -np.inf
        top[rows], scores[rows] = best_of_rows(cosines, k)
    return top, scores


# Beyond these the square of a length is 0 or infinite.
_SHORTEST, _LONGEST = 1e-150, 1e150


def _fault(row: Array) -> str:
    """Why a vector cannot be scaled to length 1."""
    if not np.isfinite(row).all():
        return "holds NaN or infinity, so it has no direction"
    if not row.any():
        return "is zero, so it has no direction"
    return f"has numbers such as {np.abs(row).max():.0e}, whose squares cannot be computed with"


def unit_rows(vectors: ArrayLike, name: str) -> NDArray[np.float32]:
    """The vectors at length 1 as float32, the same table where they are that; an error names one without direction."""
    refuse_masked(vectors, name)
    if hasattr(vectors, "toarray"):
        raise InputError(f"{name}: received a sparse matrix; allowed is a dense one. Pass its toarray().")
    try:
        table = np.asarray(vectors)
        if table.dtype == object:  # numbers of Python
            table = table.astype(np.float64)
    except ValueError as error:
        raise InputError(f"{name}: the rows are not of one length ({error}); allowed is a table of numbers.") from None
    except TypeError as error:
        raise InputError(f"{name}: {error}; allowed is a table of numbers, one row a vector.") from None
    if table.ndim != 2 or not table.size or table.dtype.kind not in "fiu":
        raise InputError(
            f"{name}: received {table.dtype} of shape {table.shape}; allowed is a table of numbers, one row a vector."
            f"{' Reshape your data.' if table.ndim < 2 and table.size else ''}"
        )
    if table.dtype == np.float32:
        squares = np.einsum("ij,ij->i", table, table, dtype=np.float64)
        if (np.abs(squares - 1) < _UNIT).all():
            return table
    table = table.astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        lengths = np.linalg.norm(table, axis=1)
    wrong = np.flatnonzero(~((lengths > _SHORTEST) & (lengths < _LONGEST)))
    if len(wrong):
        raise InputError(
            f"{name}: row {wrong[0] + 1} ({len(wrong)} in all) {_fault(table[wrong[0]])}. Leave such rows out, or "
            f"correct where they come from."
        )
    return np.asarray(table / lengths[:, None], dtype=np.float32)


def drawn_units(
    vectors: ArrayLike, most: int, *, seed: int, texts: Sequence[str] | None = None
) -> tuple[NDArray[np.float32], Index]:
    """`unit_rows` of the vectors, of more than `most` of a draw of that many, and their positions.

    They are drawn by the words of their texts, or by their own numbers where these are not known (`row_marks`).
    """
    table = vectors if isinstance(vectors, np.ndarray) and vectors.ndim == 2 else None
    if table is None or len(table) <= most:
        unit = unit_rows(vectors, "vectors")
        if len(unit) <= most:
            return unit, np.arange(len(unit))
        table = unit
    positions = smallest(row_marks(table, texts, seed=seed), most)
    return unit_rows(table[positions], "vectors"), positions


def _blocks(queries: NDArray[np.float32], documents: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Cosines of queries and documents, a block of queries at a time (first query, queries × documents).

    A product of matrices rounds equal columns apart, by where they stand: up to a quarter of the cosines of equal
    documents differed in the last digit. So each different document is multiplied once, and equal ones tie.
    """
    first = first_equal_rows(documents)
    different, columns = np.unique(first, return_inverse=True)
    copies = len(different) < len(documents)
    once = documents[different] if copies else documents
    step = max(1, _BLOCK // len(documents))
    for start in range(0, len(queries), step):
        cosines = queries[start : start + step] @ once.T
        yield start, cosines[:, columns] if copies else cosines


def first_equal_rows(table: NDArray[Any]) -> Index:
    """For each row the position of the first row that equals it.

    >>> first_equal_rows(np.array([[1, 2], [1, 3], [1, 2]])).tolist()
    [0, 1, 0]
    """
    first = np.arange(len(table))
    _, inverse, counts = np.unique(table[:, 0], return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(counts[inverse] > 1)  # rows that share their first number with another: few
    if len(candidates):
        _, position, row = np.unique(table[candidates], axis=0, return_index=True, return_inverse=True)
        first[candidates] = candidates[position[row.ravel()]]
    return first


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
        raise InputError("relevant: the same (query, document) is there twice. Name each judgement once.")
    return table.astype(np.int64)


def _divided(above: ArrayLike, below: ArrayLike) -> Array:
    above, below = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    return np.asarray(np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0))


class GaussianLike:
    """Draws of as many Gaussian vectors of the same mean and covariance, at length 1.

    The covariance S of the sample has a wider spectrum than that of the population: tr S² exceeds tr Σ² by about
    (tr Σ)²/N. So S is mixed with what is the same in all directions until the trace of its square is that of Σ. A draw
    is of independent numbers times a root of that; of fewer vectors than dimensions the vectors themselves are a root,
    in the order of their places on one line, which neither their order nor their last digits change.
    """

    def __init__(self, unit: NDArray[np.float32]) -> None:
        count, dimension = self.shape = unit.shape
        line = np.random.default_rng(0).standard_normal(dimension)
        unit = unit[np.argsort(unit.astype(np.float64) @ line, kind="stable")]
        self.centre = unit.mean(axis=0)
        centred = unit - self.centre
        small = centred @ centred.T if count < dimension else centred.T @ centred
        trace = float(np.trace(small, dtype=np.float64)) / count
        squares = float(np.vdot(small, small)) / count**2
        round_part = trace**2 / dimension
        wanted = max(squares - trace**2 / count, round_part)
        share = np.sqrt((wanted - round_part) / (squares - round_part)) if squares > round_part else 0.0
        self.deviation = np.float32(np.sqrt((1 - share) * trace / dimension))
        self.root = centred * np.float32(np.sqrt(share / count))
        if count >= dimension:
            mixed = small.astype(np.float64) * (share / count)
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
    texts = unit if among is None else unit_rows(among, "among")
    if texts.shape[1] != unit.shape[1]:
        raise InputError(
            f"among: received vectors of dimension {texts.shape[1]} for those of dimension {unit.shape[1]}; both must "
            f"come from one model. Encode them alike."
        )
    most = len(texts) - (among is None)
    if not 1 <= (k := whole_number(k, "neighbours", least=0)) <= most:
        raise InputError(f"neighbours: received {k}; allowed is 1 to {most}, the number of other texts.")
    seed = whole_number(seed, "seed", least=0)
    if approximate is None:
        approximate = len(texts) > APPROXIMATE_FROM and importlib.util.find_spec("faiss") is not None
    own = np.arange(len(unit)) if among is None else None
    return (
        _approximate(unit, texts, k, own, seed) if approximate else Neighbours(*exact_search(unit, texts, k, own=own))
    )


def _approximate(unit: Units, texts: Units, k: int, own: Index | None, seed: int) -> Neighbours:
    """Candidates of an index, scored exactly; searched wider until a draw of texts has nearly all true neighbours."""
    faiss = require("faiss", "index")
    index: Any = faiss.IndexHNSWFlat(texts.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _BUILDING
    index.add(texts)
    drawn = np.sort(np.random.default_rng(seed).choice(len(unit), min(_CHECKED, len(unit)), replace=False))
    mine = None if own is None else own[drawn]
    exact, _ = exact_search(unit[drawn], texts, k, own=mine)
    index.hnsw.efSearch = max(_SEARCHING, 2 * k)
    while True:
        candidates, _ = _rescored(index, unit[drawn], texts, k, mine)
        shares = np.array([len(np.intersect1d(a, b)) / k for a, b in zip(candidates, exact, strict=True)])
        if shares.mean() >= _RECALL or index.hnsw.efSearch >= _MOST_SEARCHING:
            break
        index.hnsw.efSearch *= 2
    top, cosines = _rescored(index, unit, texts, k, own)
    recall = share_estimate(shares, each="texts")
    return Neighbours(top, cosines, recall)


def _rescored(index: Any, queries: Units, texts: Units, k: int, own: Index | None) -> tuple[Index, Array]:
    """The best k of what an index gives, by their exact cosines."""
    count = min(len(texts), k + _SPARE)
    top, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k))
    for start in range(0, len(queries), _ROWS):
        rows = slice(start, min(start + _ROWS, len(queries)))
        _, places = index.search(queries[rows], count)
        cosines = np.einsum("qd,qcd->qc", queries[rows], texts[places], dtype=np.float32)
        cosines[places < 0] = -np.inf  # an index may give fewer than it was asked for
        if own is not None:
            cosines[places == own[rows, None]] = -np.inf
        order = np.lexsort((places, -cosines), axis=1)[:, :k]
        top[rows], scores[rows] = (np.take_along_axis(part, order, axis=1) for part in (places, cosines))
    return top, scores
