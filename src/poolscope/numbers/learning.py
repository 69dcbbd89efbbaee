"""Clusters of vectors, labels predicted from them, and what tasks score: on numpy and scipy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from poolscope.errors import InputError
from poolscope.numbers import Array, Index

# -- clusters ---------------------------------------------------------------------------------------------------------


_MOST_ROUNDS = 50  # of k-means; most starts stand still after ten
_MOST_PASSES, _IDLE = 100, 10  # of k-means in mini-batches: rounds, and batches without progress
_PATIENCE = 5  # starts that may fail for each that is asked


def cluster(vectors: Array, clusters: int, *, starts: int = 10, seed: int = 0) -> Index:
    """The clusters of each vector (vectors × starts) by k-means, each start (k-means++) on its own.

    Clusters are numbered by their first vector, so that equal partitions are equal.
    """
    distinct = len(np.unique(vectors, axis=0))
    random = np.random.default_rng(seed)
    partitions: list[Index] = []
    for _ in range(_PATIENCE * starts if distinct >= clusters else 0):
        labels = _one_start(vectors, _first_centres(vectors, clusters, random))
        if labels is None:  # a cluster ran empty: another start
            continue
        partitions.append(labels)
        if len(partitions) == starts:
            return np.stack(partitions, axis=1)
    raise InputError(
        f"received {distinct} distinct vectors for {clusters} clusters, and k-means left one empty in nearly every "
        f"start; needed: a vector of its own for every label at least. Pass more texts, or merge labels."
    )


def _first_centres(vectors: Array, clusters: int, random: np.random.Generator) -> Array:
    """k-means++: each further centre is a vector, drawn by its squared distance to the nearest centre so far."""
    chosen = [int(random.integers(len(vectors)))]
    nearest = np.full(len(vectors), np.inf)
    while len(chosen) < clusters:
        apart = vectors - vectors[chosen[-1]]
        nearest = np.minimum(nearest, np.einsum("nd,nd->n", apart, apart))
        shares = nearest / nearest.sum()
        chosen.append(int(np.searchsorted(shares.cumsum(), random.uniform()).clip(max=len(vectors) - 1)))
    return vectors[chosen]


def _one_start(vectors: Array, centres: Array) -> Index | None:
    """Run k-means from these centres until assignments stop changing; None if a cluster becomes empty."""
    labels = np.full(len(vectors), -1)
    member = np.zeros((len(centres), len(vectors)))
    for _ in range(_MOST_ROUNDS):
        # The squared distance to each centre, without the square of the vector itself, which is the same for all.
        then = ((centres**2).sum(axis=1) / 2 - vectors @ centres.T).argmin(axis=1)
        if np.array_equal(labels, then):
            break
        labels = then
        member[:] = labels == np.arange(len(centres))[:, None]
        sizes = member.sum(axis=1)
        if not sizes.all():
            return None
        centres = (member @ vectors) / sizes[:, None]
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.int64)


def mini_batch_clusters(vectors: Array, clusters: int, *, batch: int = 500, seed: int = 0) -> Index:
    """The clusters of each vector by k-means in mini-batches (Sculley, 2010): for sets too large for whole rounds.

    Each step moves the centres towards the means of a batch, by one over the vectors that they have seen. It ends when
    the smoothed distance of ten batches in a row was no smaller than before. A cluster may run empty.
    """
    random = np.random.default_rng(seed)
    drawn = random.permutation(len(vectors))[: 3 * max(batch, clusters)]
    if len(np.unique(vectors, axis=0)) < clusters:
        raise InputError(
            f"received fewer distinct vectors than the {clusters} clusters. Pass more texts, or merge labels."
        )
    centres = _first_centres(vectors[drawn], clusters, random).copy()
    seen, smooth, best, idle = np.zeros(clusters), np.nan, np.inf, 0
    weight = min(1.0, 2 * batch / (len(vectors) + 1))
    for _ in range(_MOST_PASSES * -(-len(vectors) // batch)):
        part = vectors[random.integers(len(vectors), size=batch)]
        labels, apart = _nearest(part, centres)
        smooth = apart.mean() if np.isnan(smooth) else (1 - weight) * smooth + weight * apart.mean()
        idle = 0 if smooth < best else idle + 1
        best = min(best, smooth)
        if idle == _IDLE:
            break
        counts = np.bincount(labels, minlength=clusters)
        seen += counts
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, part)
        moved = counts > 0
        centres[moved] += (sums[moved] - counts[moved, None] * centres[moved]) / seen[moved, None]
    return _nearest(vectors, centres)[0]


def _nearest(vectors: Array, centres: Array) -> tuple[Index, Array]:
    """The nearest centre of each vector, and its squared distance."""
    halves = (centres**2).sum(axis=1) / 2 - vectors @ centres.T
    labels = halves.argmin(axis=1)
    return labels, (vectors**2).sum(axis=1) + 2 * halves[np.arange(len(labels)), labels]


# -- logistic regression ----------------------------------------------------------------------------------------------

MOST_ITERATIONS = 500


class Logistic(NamedTuple):
    """A fitted regression: weights (d × labels), offsets (labels), and whether the fit came to its end."""

    weights: Array
    offsets: Array
    converged: bool

    def shares(self, vectors: Array) -> Array:
        """The probability of every label for each vector (vectors × labels)."""
        return np.asarray(np.exp(log_softmax(vectors @ self.weights + self.offsets, axis=1)))


class Predictions(NamedTuple):
    """For each text the probability of every label (texts × labels), by a fit on the other folds."""

    shares: Array
    converged: bool

    @property
    def labels(self) -> Index:
        """The most probable label of each text."""
        return np.asarray(self.shares.argmax(axis=1), dtype=np.int64)


def logistic_regression(
    vectors: Array, labels: Index, *, strength: float = 1.0, most_steps: int = MOST_ITERATIONS
) -> Logistic:
    """The weights and offsets that minimise −Σ log p(label) + ‖weights‖²/(2·strength); labels are 0, 1, 2, …

    The offsets are not held back. Every label has weights of its own, so that with two labels a strength of 1/2 holds
    back as much as C = 1 in software that gives both labels one vector of weights.

    >>> fit = logistic_regression(np.array([[-1.0], [-2.0], [1.0], [2.0]]), np.array([0, 0, 1, 1]))
    >>> fit.shares(np.array([[-3.0], [3.0]])).round(2).tolist(), fit.converged
    ([[0.98, 0.02], [0.02, 0.98]], True)
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

    from scipy.optimize import minimize

    start = np.zeros((dimension + 1) * kinds)
    solved = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": most_steps})
    weights = solved.x.reshape(dimension + 1, kinds)
    return Logistic(weights[:-1], weights[-1], bool(solved.success))


def label_folds(labels: Index, folds: int, *, seed: int = 0) -> Index:
    """The fold of each text, 0 to folds − 1: every label in about equal shares, in as many folds as it has texts."""
    if folds < 2:
        raise InputError(f"folds: received {folds}; allowed: 2 and more, so that texts are predicted unseen.")
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold


def predict_unseen(
    vectors: Array,
    labels: Index,
    *,
    folds: int = 5,
    seed: int = 0,
    strength: float = 1.0,
    most_steps: int = MOST_ITERATIONS,
) -> Predictions:
    """Predicted shares of labels from a regression on the other folds; a label that they lack has share 0."""
    fold = label_folds(labels, folds, seed=seed)
    shares, converged = np.zeros((len(labels), int(labels.max()) + 1)), True
    for left_out in np.unique(fold):
        fit = logistic_regression(
            vectors[fold != left_out], labels[fold != left_out], strength=strength, most_steps=most_steps
        )
        shares[fold == left_out, : len(fit.offsets)] = fit.shares(vectors[fold == left_out])
        converged &= fit.converged
    return Predictions(shares, converged)


def macro_f1(labels: Index, predicted: Index) -> float:
    """The mean over labels of 2·hits/(texts with the label + texts that were given it).

    >>> round(macro_f1(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])), 4)
    0.7333
    """
    kinds = np.unique(np.concatenate([labels, predicted]))
    hits = [((labels == kind) & (predicted == kind)).sum() for kind in kinds]
    sizes = [(labels == kind).sum() + (predicted == kind).sum() for kind in kinds]
    return float(np.mean(2 * np.array(hits) / np.array(sizes)))


def average_precision(positive: Index | Array, scores: Array) -> float:
    """The mean of the precision at every positive text, ordered by score; texts of one score count together.

    >>> round(average_precision(np.array([1, 0, 1]), np.array([0.9, 0.8, 0.1])), 4)
    0.8333
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.cumsum(positive[order])[ends]
    return float((np.diff(hits, prepend=0) * hits / (ends + 1)).sum() / hits[-1])


# -- statistics of units that tasks score -----------------------------------------------------------------------------


def _mean(samples: Array) -> Array:
    return np.asarray(samples[..., 0].mean(axis=1))


def _spearman(samples: Array) -> Array:
    """Spearman's ρ of both columns, ties by mean ranks; NaN where a column is constant (draws × units × 2)."""
    from scipy.stats import rankdata  # all of scipy.stats takes longer to import than many commands take

    ranks = rankdata(samples, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    cross = (ranks[..., 0] * ranks[..., 1]).sum(axis=1)
    norms = np.sqrt((ranks**2).sum(axis=1)).prod(axis=1)
    return np.asarray(np.divide(cross, norms, out=np.full(len(cross), np.nan), where=norms > 0))


def _v_measure(samples: Array) -> Array:
    """Harmonic mean of homogeneity and completeness, 2·I(L; K)/(H(L) + H(K)); 1 where both entropies are 0.

    samples (draws × units × (1 + starts)) holds the label of each unit and its cluster from every start of k-means, as
    whole numbers from 0; the mean over starts.
    """
    starts = range(1, samples.shape[2])
    return np.asarray(np.mean([_v_of_one(samples[..., 0], samples[..., start]) for start in starts], axis=0))


def _v_of_one(first: Array, second: Array) -> Array:
    labels, clusters = first.astype(np.int64), second.astype(np.int64)
    draws, units = labels.shape
    shape = (draws, int(labels.max()) + 1, int(clusters.max()) + 1)
    cell = (np.arange(draws)[:, None] * shape[1] + labels) * shape[2] + clusters
    joint = np.bincount(cell.ravel(), minlength=int(np.prod(shape))).reshape(shape) / units
    label_entropy, cluster_entropy = _entropy(joint.sum(axis=2)), _entropy(joint.sum(axis=1))
    total = label_entropy + cluster_entropy
    shared = total - _entropy(joint.reshape(draws, -1))
    return np.asarray(np.divide(2 * shared, total, out=np.ones(draws), where=total > 0))


def _entropy(shares: Array) -> Array:
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(-(shares * logs).sum(axis=1))


STATISTICS: Mapping[str, Callable[[Array], Array]] = {"mean": _mean, "Spearman": _spearman, "v-measure": _v_measure}
