"""Re-ranking by the clouds: the nearest documents by cosine, put in order by the distance of the Gaussians.

Every cloud is scaled to unit mean first, as SOCM and cosine do: the length of the pooled vector does not count, the
spread relative to it does. Then W₂² = ‖u₁ − u₂‖² + BW²(Σ₁, Σ₂) = 4(d_μ + d_Σ).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.numbers.bures import given_pairs
from poolscope.numbers.ranking import Ranking

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def gaussian_distances(queries: TokenClouds, documents: TokenClouds, pairs: Index, *, weight: float = 1.0) -> Array:
    """W₂² = 4(d_μ + weight·d_Σ) of pairs (query, document), both clouds scaled to unit mean.

    A weight of 0 leaves the cosine order; 1 is the squared 2-Wasserstein distance of the two Gaussians.
    """
    if not 0 <= weight < np.inf:
        raise InputError(f"weight: received {weight!r}; allowed: a number from 0 (order of the cosine) on.")
    distances = np.empty(len(pairs))
    for rows, found in given_pairs(queries, pairs, documents):
        distances[rows] = 4 * found.mean_distance + weight * found.bures
    return distances


def rerank(ranking: Ranking, queries: TokenClouds, documents: TokenClouds, *, weight: float = 1.0) -> Ranking:
    """The ranking with its top documents of each query in the order of W₂²; what lies below the top stays.

    `scores` are −W₂², best first. The number of documents that are looked at is that of `ranking.top`.
    """
    if (ranking.queries, True) != (len(queries), ranking.top.max(initial=0) < len(documents)):
        raise InputError(
            f"received a ranking of {ranking.queries} queries with clouds of {len(queries)} queries and "
            f"{len(documents)} documents; they must be those that were ranked."
        )
    k = ranking.top.shape[1]
    pairs = np.stack([np.repeat(np.arange(ranking.queries), k), ranking.top.ravel()], axis=1)
    distances = gaussian_distances(queries, documents, pairs, weight=weight).reshape(-1, k)
    order = np.lexsort((ranking.top, distances), axis=1)
    top = np.take_along_axis(ranking.top, order, axis=1)
    scores = -np.take_along_axis(distances, order, axis=1)
    return replace(ranking, top=top, scores=scores, rank=_ranks(ranking, top))


def _ranks(ranking: Ranking, top: Index) -> Array:
    """Rank of every judged document: its new place within the top, its old rank below it."""
    found = top[ranking.query] == ranking.document[:, None]
    inside = found.any(axis=1)
    # A document that ties at the edge of the top may have a rank within it without being there: it is behind.
    below = np.maximum(ranking.rank, top.shape[1] + 1)
    return np.asarray(np.where(inside, found.argmax(axis=1) + 1.0, below))
