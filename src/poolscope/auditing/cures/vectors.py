"""Cures that need the vectors alone: the shared direction removed, hubs pushed back, an offset for the length."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cure import Cure, Tried, free
from poolscope.auditing.search import Search
from poolscope.errors import InputError
from poolscope.numbers import Array
from poolscope.numbers.ranking import best_of_rows, nearest_neighbours
from poolscope.repairs.vectors import MeanRemoval

NEIGHBOURS = 10


# Vectors that a mean is fitted on, vectors that are changed at a time, and cosines that a crowd takes in all.
_FITTED, _CHANGED, _COSINES = 100_000, 2**16, 2 * 10**9
_LEAST = 1e-5  # a repaired vector that is shorter is the mean, and has no direction left


def _without_mean(search: Search, mode: str) -> Tried | None:
    """Scores of repaired vectors, (q·(xA + b))/‖xA + b‖, from the vectors x as they are: no second table of them."""
    try:
        repair = MeanRemoval(mode).fit(search.vectors[search.drawn(_FITTED)])
        queries = repair.transform(search.query_vectors)
    except InputError:  # no mean to remove, or queries that are the mean and leave nothing
        return None
    matrix, offset = (part.astype(np.float32) for part in repair.affine())
    steps = range(0, len(search.vectors), _CHANGED)
    lengths = np.concatenate(
        [np.linalg.norm(search.vectors[start : start + _CHANGED] @ matrix + offset, axis=1) for start in steps]
    )
    if lengths.min() < _LEAST:
        return None
    moved, shift = queries @ matrix.T, queries @ offset

    def scores(rows: slice) -> NDArray[Any]:
        return np.asarray((moved[rows] @ search.vectors.T + shift[rows, None]) / lengths)

    return Tried(search, scores)


MEAN_PROJECTED, MEAN_SUBTRACTED = (
    Cure(
        name=f"mean-{mode}ed",
        label=label,
        does=does,
        needs="vectors",
        tries=partial(_without_mean, mode=mode),
        cost=free,
        step="vectors",
        setting={"mode": mode},
    )
    for mode, label, does in (
        ("project", "mean projected out", "Project the mean direction out of every vector, queries included."),
        ("subtract", "mean subtracted", "Subtract the mean vector of the texts from every vector, queries included."),
    )
)


# -- hubs -------------------------------------------------------------------------------------------------------------


def _by_texts(search: Search) -> Tried | None:
    """2·cos − the mean cosine of a text with its nearest texts (CSLS)."""
    if len(search.texts) <= NEIGHBOURS:
        return None
    crowd = search.once("crowd of texts", lambda: _text_crowd(search))
    return Tried(search, lambda rows: 2 * search.own_scores(rows) - crowd, {"offsets": crowd / 2})


def _text_crowd(search: Search) -> Array:
    """The mean cosine of each text with its nearest texts; of many texts the nearest ones of a sample."""
    count = len(search.vectors)
    sample = search.drawn(max(_COSINES // count, 10 * NEIGHBOURS))
    if len(sample) == count:
        return np.asarray(nearest_neighbours(search.vectors, NEIGHBOURS)[1].mean(axis=1))
    others, means = search.vectors[sample], np.empty(count)
    step = max(1, 2**22 // len(sample))
    for start in range(0, count, step):
        cosines = search.vectors[start : start + step] @ others.T
        own = np.flatnonzero((sample >= start) & (sample < start + step))
        cosines[sample[own] - start, own] = -np.inf  # no text is its own neighbour
        means[start : start + step] = best_of_rows(np.ascontiguousarray(cosines), NEIGHBOURS)[1].mean(axis=1)
    return means


def _by_queries(search: Search) -> Tried | None:
    """2·cos − the mean of the best scores that queries of other folds have with a text (CSLS)."""
    folds = np.unique(search.folds)
    if len(folds) < 2 or min(np.bincount(search.folds)[folds]) * (len(folds) - 1) < NEIGHBOURS:
        return None
    crowd = search.once("crowds", lambda: {int(fold): _crowd(search, search.folds != fold) for fold in folds})

    def scores(rows: slice) -> NDArray[Any]:
        return 2 * search.own_scores(rows) - np.stack([crowd[int(fold)] for fold in search.folds[rows]])

    return Tried(search, scores, {"offsets": np.mean(list(crowd.values()), axis=0) / 2})


def _crowd(search: Search, asking: NDArray[np.bool_]) -> Array:
    """The mean of the ten best scores of each text with some of the queries."""
    means = np.empty(len(search.texts))
    queries = search.query_vectors[asking]
    step = max(1, 2**22 // len(queries))
    for start in range(0, len(means), step):
        cosines = np.ascontiguousarray(search.vectors[start : start + step] @ queries.T)
        means[start : start + step] = best_of_rows(cosines, min(NEIGHBOURS, len(queries)))[1].mean(axis=1)
    return means


HUBS_BY_TEXTS = Cure(
    name="hubs-by-texts",
    label="hub correction by texts",
    does="Subtract from every score the mean cosine of the text with its ten nearest texts.",
    needs="vectors",
    tries=_by_texts,
    cost=free,
    step="reranker",
    setting={"neighbours": NEIGHBOURS, "among": "texts"},
)
HUBS_BY_QUERIES = Cure(
    name="hubs-by-queries",
    label="hub correction by queries",
    does="Subtract from every score the mean of the ten best scores that other queries have with the text.",
    needs="vectors",
    tries=_by_queries,
    cost=free,
    step="reranker",
    setting={"neighbours": NEIGHBOURS, "among": "queries"},
)


# -- length -----------------------------------------------------------------------------------------------------------


def _length_offset(search: Search) -> Tried | None:
    """The score minus what its text's length alone predicts, by a line fitted on queries of other folds."""
    length = np.log2(np.maximum(search.lengths + search.truncated, 1)).astype(np.float64)
    if np.ptp(length) == 0:
        return None
    centred = length - length.mean()
    folds = np.unique(search.folds)
    if len(folds) < 2:
        return None
    slopes = np.empty(int(folds.max()) + 1)
    for fold in folds:
        mean = search.vectors @ search.query_vectors[search.folds != fold].mean(axis=0)
        slopes[fold] = centred @ mean / (centred @ centred)

    def scores(rows: slice) -> NDArray[Any]:
        return search.own_scores(rows) - np.outer(slopes[search.folds[rows]], centred)

    slope = float(slopes[folds].mean())
    return Tried(search, scores, {"slope": slope, "offsets": slope * centred})


LENGTH_OFFSET = Cure(
    name="length-offset",
    label="offset for the length",
    does="Subtract from every score what the length of the text alone predicts.",
    needs="vectors",
    tries=_length_offset,
    cost=free,
    step="reranker",
)


# -- copies -----------------------------------------------------------------------------------------------------------


def _merged(search: Search) -> Tried | None:
    """Of equal texts one place a query: the relevant one, else the first; all are scored alike anyway."""
    copies = np.flatnonzero(search.first_equal != np.arange(len(search.texts)))
    if not len(copies):
        return None

    def scores(rows: slice) -> NDArray[Any]:
        table = search.own_scores(rows).copy()
        table[:, copies] = -2.0  # below every cosine; the first of its kind stands for it
        return table

    return Tried(search, scores)


MERGED = Cure(
    name="merged-copies",
    label="copies merged",
    does="Keep one of every group of equal texts, and delete the others from the index.",
    needs="vectors",
    tries=_merged,
    cost=free,
    step="vectors",
)
