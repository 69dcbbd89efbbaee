"""Clusters of vectors by k-means, from several starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import ClusterError, kmeans2

from poolscope.errors import InputError

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_STEP, _MOST_STEPS = 5, 9  # rounds of k-means between looks whether anything still moves, and how many looks
_PATIENCE = 5  # starts that may fail for each that is asked


def cluster(vectors: Array, clusters: int, *, starts: int = 10, seed: int = 0) -> Index:
    """The clusters of each vector (vectors × starts) by k-means, each start (k-means++) on its own.

    Clusters are numbered by their first vector, so that equal partitions are equal.
    """
    distinct = len(np.unique(vectors, axis=0))
    random = np.random.default_rng(seed)
    found: list[Index] = []
    for _ in range(_PATIENCE * starts if distinct >= clusters else 0):
        try:
            found.append(_one_start(vectors, clusters, random))
        except ClusterError:  # a cluster ran empty: another start
            continue
        if len(found) == starts:
            return np.stack(found, axis=1)
    raise InputError(
        f"received {distinct} distinct vectors for {clusters} clusters, and k-means left one empty in nearly every "
        f"start; needed: a vector of its own for every label at least. Pass more texts, or merge labels."
    )


def _one_start(vectors: Array, clusters: int, random: np.random.Generator) -> Index:
    centres, found = kmeans2(vectors, clusters, iter=_STEP, minit="++", missing="raise", rng=random)
    for _ in range(_MOST_STEPS):
        centres, then = kmeans2(vectors, centres, iter=_STEP, minit="matrix", missing="raise")
        if np.array_equal(found, then):
            break
        found = then
    _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.int64)
