"""Scores from the tokens at hand: MaxSim of the candidates, and late chunks, which are means of spans of tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cure import Cost, Cure, Tried
from poolscope.auditing.search import CANDIDATES, Search
from poolscope.clouds import TokenClouds
from poolscope.encoders.pooling import TextPooling
from poolscope.numbers import Array, Index
from poolscope.numbers.maxsim import blend, maxsim_of_candidates
from poolscope.numbers.ranking import unit_rows

CHUNK_TOKENS = (128, 64)
"""Sizes of late chunks, in tokens."""


def maxsim(search: Search) -> Array:
    """MaxSim of every query with each of its candidates (queries × candidates)."""
    return _candidate_tables(search)["maxsim"]


def _candidate_tables(search: Search) -> dict[str, Array]:
    """Every score of the candidates that needs their tokens, in one pass: tokens that are not held are encoded once."""
    return search.once("candidate tables", lambda: _tables(search))


def _tables(search: Search) -> dict[str, Array]:
    sizes = () if search.tokens is not None else tuple(size for size in CHUNK_TOKENS if _splits(search, size))
    tables = {name: np.empty(search.first.shape) for name in ("maxsim", *map(_late_name, sizes))}
    for texts, clouds in search.tokens_of(search.candidate_texts):
        inside = np.isin(search.first, texts)
        _put_maxsim(tables["maxsim"], search, texts, clouds, inside)
        for size in sizes:
            _put_best_spans(tables[_late_name(size)], search, texts, span_vectors(clouds, search.pooling, size), inside)
    return tables


def _put_maxsim(table: Array, search: Search, texts: Index, clouds: TokenClouds, inside: NDArray[np.bool_]) -> None:
    """Fill in MaxSim of the candidates that are among these texts."""
    if inside.all():
        table[:] = maxsim_of_candidates(search.query_words, clouds, np.searchsorted(texts, search.first))
        return
    # Of a block of texts, each query has as many candidates as the query with most; others are filled up.
    order = np.argsort(~inside, axis=1, kind="stable")[:, : int(inside.sum(axis=1).max())]
    places = np.searchsorted(texts, np.take_along_axis(search.first, order, axis=1))
    scores = maxsim_of_candidates(search.query_words, clouds, np.minimum(places, len(texts) - 1))
    chosen = np.take_along_axis(inside, order, axis=1)
    rows = np.broadcast_to(np.arange(len(order))[:, None], order.shape)
    table[rows[chosen], order[chosen]] = scores[chosen]


def _put_best_spans(
    table: Array, search: Search, texts: Index, parts: tuple[NDArray[Any], Index], inside: NDArray[np.bool_]
) -> None:
    """Fill in the best span of each candidate that is among these texts."""
    for rows in search.blocks():
        best = best_of_spans(search.query_vectors[rows], *parts)
        query, place = np.nonzero(inside[rows])
        column = np.searchsorted(texts, search.first[rows][query, place])
        table[rows][query, place] = best[query, column]


def _blend(search: Search) -> Tried:
    own = search.before.whole.scores[:, : search.candidates]
    return Tried(search, search.reordered(blend(own, maxsim(search))))


MAXSIM = Cure(
    name="maxsim",
    label=f"MaxSim on the first {CANDIDATES}",
    does="Re-rank the first {candidates:count text} by their tokens (MaxSim) beside the cosine.",
    needs="tokens",
    tries=_blend,
    cost=lambda search: Cost(per_query=search.candidates),
    step="reranker",
    setting={"weight": 1.0},
)


# -- late chunks ------------------------------------------------------------------------------------------------------


def span_edges(lengths: Index, size: int) -> tuple[Index, Index]:
    """Where each span of nearly equal size begins, in tokens of all texts end to end, and how many each text has.

    >>> edges, counts = span_edges(np.array([5, 2]), 2)
    >>> edges.tolist(), counts.tolist()
    ([0, 2, 5, 7], [2, 1])
    """
    counts = np.maximum(1, np.round(lengths / size).astype(np.int64))
    ends = np.cumsum(lengths)
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(ends - lengths, counts) + number * np.repeat(lengths, counts) // np.repeat(counts, counts)
    return np.append(starts, ends[-1] if len(ends) else 0), counts


def span_vectors(clouds: TokenClouds, pooling: TextPooling, size: int) -> tuple[NDArray[np.float32], Index]:
    """The vectors of all late chunks of some texts, and how many each text has."""
    parts, counts = [], []
    for block in clouds.blocks():
        lengths = np.diff(block.offsets)
        edges, own = span_edges(lengths, size)
        parts.append(pooling.vectors(block.matrix[block.offsets[0] :], edges))
        counts.append(own)
    return unit_rows(np.concatenate(parts), "chunks"), np.concatenate(counts)


def best_of_spans(queries: NDArray[Any], spans: NDArray[Any], counts: Index) -> NDArray[Any]:
    """The score of each query with the best span of each text (queries × texts)."""
    starts = np.cumsum(counts) - counts
    return np.asarray(np.maximum.reduceat(queries @ spans.T, starts, axis=1))


def _late_name(size: int) -> str:
    return f"late-chunks-{size}"


def _splits(search: Search, size: int) -> bool:
    """Do late chunks of this size differ from whole texts?"""
    return search.pooling.name == "mean" and bool((search.lengths > 1.5 * size).any())


def _late(search: Search, size: int) -> Tried | None:
    if not _splits(search, size):
        return None
    if search.tokens is None:
        return Tried(search, search.reordered(_candidate_tables(search)[_late_name(size)]))
    tokens = search.tokens
    spans, counts = search.once(f"spans {size}", lambda: span_vectors(tokens, search.pooling, size))

    def scores(rows: slice) -> NDArray[Any]:
        return best_of_spans(search.query_vectors[rows], spans, counts)

    return Tried(search, scores)


def _late_cost(search: Search, size: int) -> Cost:
    return Cost(vectors=int(np.maximum(1, np.round(search.lengths / size)).sum()) - len(search.texts))


LATE_CHUNKS = tuple(
    Cure(
        name=_late_name(size),
        label=f"late chunks of {size} tokens",
        does=f"Store the means of every {size} tokens of a text beside each other, and search by the best.",
        needs="tokens",
        tries=partial(_late, size=size),
        cost=partial(_late_cost, size=size),
        step="vectors",
        setting={"tokens": size},
    )
    for size in CHUNK_TOKENS
)


def several_vectors(search: Search, cure: Cure) -> tuple[NDArray[Any], Index] | None:
    """The vectors that a cure stores for all texts, and how many each text has; None where it does not apply."""
    if search.pooling.name != "mean" or search.tokens is None:
        return None
    return span_vectors(search.tokens, search.pooling, int(cure.setting["tokens"]))
