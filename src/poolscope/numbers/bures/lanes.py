"""tr √G of many small Gram matrices at once, in numpy, with the matrices along the last axis.

What the compiled kernel does with a few lanes, done with hundreds: each numpy call treats one entry of all matrices.
LAPACK takes one matrix at a time, and spends most of its time between its calls where they are small.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures.native import square_root_poles

Array = NDArray[np.float64]

# Measured: from so many matrices of at most this side on, this beats LAPACK.
_FEWEST, _LARGEST_SIDE = 128, 46
# A row that is as good as zero needs no mirror.
_TINY = 1e-290
_LINE = 8  # numbers in a cache line
_buffers = threading.local()


def buffer(name: str, rows: int, columns: int, count: int) -> Array:
    """Memory of this thread (rows × columns × count), not cleared: fresh memory costs as much as what is done with it.

    Entries are an odd number of cache lines apart, so that they do not all fall into the same sets of the cache.
    """
    stride = (-(-count // _LINE) | 1) * _LINE
    kept: Array | None = getattr(_buffers, name, None)
    if kept is None or kept.size < rows * columns * stride:
        kept = np.empty(rows * columns * stride)
        setattr(_buffers, name, kept)
    return kept[: rows * columns * stride].reshape(rows, columns, stride)[:, :, :count]


def pays(side: int, count: int) -> bool:
    """Whether so many matrices of one side are done here sooner than by LAPACK."""
    return 0 < side <= _LARGEST_SIDE and count >= _FEWEST


def root_traces(grams: Array) -> tuple[Array, Array]:
    """tr √G and tr G of positive semidefinite matrices (m × m × matrices) with eigenvalues of at most 1."""
    diagonal, beside = _tridiagonal(grams)
    traces = _rational_traces(diagonal, beside)
    declined = np.isnan(traces)
    if declined.any():
        eigenvalues = np.linalg.eigvalsh(grams[:, :, declined].transpose(2, 0, 1)).clip(min=0)
        traces[declined] = np.sqrt(eigenvalues).sum(axis=-1)
    return traces, np.asarray(diagonal.sum(axis=0))


def _tridiagonal(grams: Array) -> tuple[Array, Array]:
    """Householder reduction: the diagonals, and the squares of what is beside them (m × matrices each, the first zero).

    G is never written to. After k mirrors it stands for G − Σ (w qᵀ + q wᵀ) over them, and `pairs` keeps w and q: a
    pass over G that only reads, and one over the vectors, cost less in numpy than an update of G.
    """
    m, _, count = grams.shape
    pairs = buffer("mirrors", 2 * m, m, count)  # w, q, w, q …
    diagonal, beside = np.empty((m, count)), np.zeros((m, count))
    for k in range(m):
        before = pairs[: 2 * k]
        column = grams[k:, k] - np.einsum("ril,rl->il", before[:, k:], _exchanged(before[:, k]))
        diagonal[k] = column[0]
        if k + 1 == m:
            break
        w, q = pairs[2 * k : 2 * k + 2, k + 1 :]
        w[:] = column[1:]
        beside[k + 1] = norm2 = np.einsum("il,il->l", w, w)
        reflected = -np.copysign(np.sqrt(norm2), w[0])  # of the other sign, so that nothing cancels
        h = norm2 - w[0] * reflected
        inverse = np.divide(1.0, h, out=np.zeros_like(h), where=h > _TINY)
        w[0] -= reflected
        np.einsum("ijl,il->jl", grams[k + 1 :, k + 1 :], w, out=q)
        rest = before[:, k + 1 :]
        q -= np.einsum("ril,rl->il", rest, _exchanged(np.einsum("ril,il->rl", rest, w)))
        q *= inverse
        q -= 0.5 * np.einsum("il,il->l", w, q) * inverse * w
    return diagonal, beside


def _exchanged(values: Array) -> Array:
    """Rows w, q, w, q … as q, w, q, w …"""
    return np.asarray(values.reshape(-1, 2, values.shape[1])[:, ::-1].reshape(values.shape))


def _rational_traces(diagonal: Array, beside: Array) -> Array:
    """Σ_k w_k tr T(T + p_k)⁻¹ of tridiagonal matrices, by the pivots of T + p and their derivatives.

    NaN where a pivot of the smallest pole is not positive: rounding has made T indefinite by more than it can bear.
    """
    poles, weights = square_root_poles()
    p = poles[:, None]
    pivots = diagonal[0] + p
    sound = pivots[0] > 0
    inverse = 1 / pivots
    slope, total, x = inverse.copy(), inverse.copy(), np.empty_like(inverse)
    for d, e2 in zip(diagonal[1:], beside[1:], strict=True):
        np.multiply(inverse, e2, out=x)
        np.add(d, p, out=pivots)
        pivots -= x
        sound &= pivots[0] > 0
        np.divide(1.0, np.where(sound, pivots, 1.0) if not sound.all() else pivots, out=inverse)
        slope *= x
        slope += 1
        slope *= inverse
        total += slope
    return np.where(sound, weights @ (len(diagonal) - p * total), np.nan)
