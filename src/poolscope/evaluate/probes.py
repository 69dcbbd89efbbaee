"""What a simple learner makes of vectors: multinomial logistic regression, cross-validated, and k-means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import ClusterError, kmeans2
from scipy.optimize import minimize
from scipy.special import log_softmax

from poolscope.errors import InputError

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def logistic_regression(vectors: Array, labels: Index, *, strength: float = 1.0) -> tuple[Array, Array]:
    """Weights (d × labels) and offsets (labels) that minimise −Σ log p(label) + ‖weights‖²/(2·strength).

    The offsets are not held back. Predict with `(vectors @ weights + offsets).argmax(axis=1)`.
    """
    texts, dimension = vectors.shape
    kinds = int(labels.max()) + 1
    wanted = np.zeros((texts, kinds))
    wanted[np.arange(texts), labels] = 1

    def loss(parameters: Array) -> tuple[float, Array]:
        weights = parameters.reshape(dimension + 1, kinds)
        logs = log_softmax(vectors @ weights[:-1] + weights[-1], axis=1)
        surplus = np.exp(logs) - wanted
        gradient = np.concatenate([vectors.T @ surplus + weights[:-1] / strength, surplus.sum(axis=0)[None]])
        return float((weights[:-1] ** 2).sum() / (2 * strength) - (logs * wanted).sum()), gradient.ravel()

    start = np.zeros((dimension + 1) * kinds)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    weights = found.x.reshape(dimension + 1, kinds)
    return weights[:-1], weights[-1]


def cross_validated(vectors: Array, labels: Index, *, folds: int = 5, seed: int = 0) -> Index:
    """The label that a logistic regression fitted on the other folds predicts for each vector.

    The folds hold every label in about equal shares, a label on fewer texts than folds in as many of them as it can.
    """
    if folds < 2:
        raise InputError(f"folds: received {folds}; allowed: 2 and more.")
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % folds
    predicted = np.empty(len(labels), dtype=np.int64)
    for held in np.unique(fold):
        seen, unseen = fold != held, fold == held
        weights, offsets = logistic_regression(vectors[seen], labels[seen])
        predicted[unseen] = (vectors[unseen] @ weights + offsets).argmax(axis=1)
    return predicted


def cluster(vectors: Array, clusters: int, *, restarts: int = 10, seed: int = 0) -> Index:
    """The cluster of each vector by k-means: the best of some starts (k-means++), by the sum of squared distances."""
    distinct = len(np.unique(vectors, axis=0))
    best, smallest = None, np.inf
    random = np.random.default_rng(seed)
    for _ in range(restarts if distinct >= clusters else 0):
        try:
            centres, found = kmeans2(vectors, clusters, iter=50, minit="++", missing="raise", rng=random)
        except ClusterError:  # a cluster ran empty: another start
            continue
        inertia = float(((vectors - centres[found]) ** 2).sum())
        if inertia < smallest:
            best, smallest = np.asarray(found, dtype=np.int64), inertia
    if best is None:
        raise InputError(
            f"received {distinct} distinct vectors for {clusters} clusters, and k-means left one empty in each of "
            f"{restarts} starts; needed: a vector of its own for every label at least. Pass more texts, or merge "
            f"labels."
        )
    return best
