"""What the compiled kernel does, in numpy: for every platform, and to check the kernel against.

Gram matrices of many pairs of one size at once, and the traces of their roots, with the matrices along the last axis;
the two variants of the kernel go by LAPACK.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures.native import LANES, Array, Index, Ridge, square_root_poles

# Numbers in the Gram matrices that are treated together.
_TOGETHER = 400_000
# So many matrices are enough to be treated together; to reach them, smaller ones are padded by up to this factor.
_ENOUGH, _STRETCH = 512, 1.06
# Measured: from so many matrices of at most this side on, this beats LAPACK.
_FEWEST, _LARGEST_SIDE = 128, 46
# A row that is as good as zero needs no mirror.
_TINY = 1e-290
_LINE = 8  # numbers in a cache line
_buffers = threading.local()


def norms(
    products: NDArray[np.float32],
    left: Index,
    right: Index,
    *,
    corners: tuple[Array, Array] | None = None,
    ridge: Ridge | None = None,
    wanted: NDArray[np.bool_] | None = None,
) -> tuple[Array, Array]:
    """The same as `native.norms`, and without NaN."""
    shape = len(left) - 1, len(right) - 1
    asked = np.ones(shape, dtype=bool) if wanted is None else np.asarray(wanted.reshape(*shape, LANES).any(axis=2))
    if corners is None and ridge is None:
        return _nuclear(products, left, right, asked)
    nuclear, squares = np.zeros((2, len(left) - 1, (len(right) - 1) * LANES))
    for texts, groups in _batches(left, right, asked):
        stack = _stacked(products, left, right, texts, groups)
        i, lanes = texts[:, None], groups[:, None] * LANES + np.arange(LANES)
        if corners is not None:
            stack[:, :, :1, :1] += (corners[0][i] * corners[1][lanes])[:, :, None, None]
            values = np.linalg.svd(stack, compute_uv=False)
            both = values.sum(axis=-1), (values**2).sum(axis=-1)
        else:
            assert ridge is not None
            both = _published(stack, i, lanes, left, right, ridge)
        nuclear[i, lanes], squares[i, lanes] = both
    return nuclear, squares


def one_norm(products: NDArray[np.float32], rows: slice, columns: slice, corner: float) -> float:
    """‖C‖_* of one pair by singular values in float64; `columns` are those of its lane."""
    matrix = products[rows, columns].astype(np.float64)
    if matrix.size:
        matrix[0, 0] += corner
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def _batches(left: Index, right: Index, asked: NDArray[np.bool_]) -> Iterator[tuple[Index, Index]]:
    """Positions of left texts and of right groups, pair by pair, so many that their Gram matrices fit the cache."""
    if not asked.any():
        return
    side = int(min(np.diff(left).max(), np.diff(right).max()))
    step = max(4, _TOGETHER // (LANES * max(1, side) ** 2))
    texts, partners = np.nonzero(asked)
    for start in range(0, len(texts), step):
        yield texts[start : start + step], partners[start : start + step]


def _stacked(products: NDArray[np.float32], left: Index, right: Index, texts: Index, groups: Index) -> Array:
    """The cross products of a batch (entries × LANES × left rows × right rows), padded with zeros, in float64."""
    height, width = np.diff(left)[texts].max(), np.diff(right)[groups].max()
    stack = np.zeros((len(texts), LANES, height, width))
    for entry, (i, group) in enumerate(zip(texts.tolist(), groups.tolist(), strict=True)):
        block = products[left[i] : left[i + 1], right[group] * LANES : right[group + 1] * LANES]
        lanes = block.reshape(len(block), right[group + 1] - right[group], LANES).transpose(2, 0, 1)
        stack[entry, :, : lanes.shape[1], : lanes.shape[2]] = lanes
    return stack


def _nuclear(products: NDArray[np.float32], left: Index, right: Index, asked: NDArray[np.bool_]) -> tuple[Array, Array]:
    """‖C‖_* = tr √(C Cᵀ) and ‖C‖_F², with C Cᵀ on the smaller side: pairs are taken together where that is equal."""
    heights, widths = np.diff(left), np.diff(right)
    nuclear, squares = np.zeros((2, len(heights), len(widths) * LANES))
    sides = np.where(asked, np.minimum(heights[:, None], widths), 0)
    for texts, groups in _batches_by_side(sides):
        m = int(sides[texts[-1], groups[-1]])
        traces_of = root_traces if pays(m, len(texts) * LANES) else _lapack_traces
        last = traces_of is root_traces
        grams = buffer("grams", m, m, len(texts) * LANES) if last else np.zeros((len(texts), LANES, m, m))
        for entry, (i, group) in enumerate(zip(texts.tolist(), groups.tolist(), strict=True)):
            block = products[left[i] : left[i + 1], right[group] * LANES : right[group + 1] * LANES]
            matrices = block.reshape(len(block), -1, LANES)
            axes = (2, 0, 1) if len(block) <= matrices.shape[1] else (2, 1, 0)  # the smaller side is what costs
            rows = matrices.transpose(axes).astype(np.float64, order="C")
            gram = rows @ rows.copy().swapaxes(1, 2)  # numpy would take the slower routine for a matrix with itself
            n = gram.shape[1]
            if not last:
                grams[entry, :, :n, :n] = gram
                continue
            place = grams[:, :, entry * LANES : (entry + 1) * LANES]
            if n < m:
                place[:] = 0
            place[:n, :n] = gram.transpose(1, 2, 0)
        i, lanes = texts[:, None], groups[:, None] * LANES + np.arange(LANES)
        nuclear[i, lanes], squares[i, lanes] = (found.reshape(-1, LANES) for found in traces_of(grams))
    return nuclear, squares


def _lapack_traces(grams: Array) -> tuple[Array, Array]:
    """tr √G and tr G, by LAPACK."""
    eigenvalues = np.linalg.eigvalsh(grams).clip(min=0)
    return np.sqrt(eigenvalues).sum(axis=-1), eigenvalues.sum(axis=-1)


def _batches_by_side(sides: Index) -> Iterator[tuple[Index, Index]]:
    """Positions (left texts, right groups) with a side above zero, of about one side each and not too many."""
    texts, groups = np.nonzero(sides)
    found = sides[texts, groups]
    order = np.argsort(found, kind="stable")
    start = 0
    while start < len(order):
        side = int(found[order[start]])
        # Few matrices of one side are joined by those of the next sizes.
        some = np.searchsorted(found[order], side, "right")
        more = min(start + _ENOUGH // LANES, int(np.searchsorted(found[order], side * _STRETCH, "right")))
        stop = min(max(int(some), more), start + max(4, _TOGETHER // (LANES * side**2)))
        yield texts[order[start:stop]], groups[order[start:stop]]
        start = stop


def _published(stack: Array, i: Index, lanes: Index, left: Index, right: Index, ridge: Ridge) -> tuple[Array, Array]:
    """tr √(s₁²s₂²·G + eps·s²·ridge + eps), G on the side of the second text and s its scale; and tr G."""
    if not ridge.on_left:
        stack = stack.swapaxes(-1, -2)
    gram = stack @ stack.swapaxes(-1, -2)
    squares = np.trace(gram, axis1=-2, axis2=-1)
    side = np.arange(gram.shape[-1])
    left_scales, right_scales = (
        np.broadcast_to(part, lanes.shape) for part in (ridge.left_scales[i], ridge.right_scales[lanes])
    )
    if ridge.on_left:
        rows, heights, own = left[i] + side, np.diff(left)[i], left_scales
        energies = ridge.energies[np.where(side < heights, rows, 0)][:, None]
    else:
        rows, heights, own = right[lanes[:, :1] // LANES] + side, np.diff(right)[lanes[:, :1] // LANES], right_scales
        energies = ridge.energies.reshape(-1, LANES)[np.where(side < heights, rows, 0)].swapaxes(1, 2)
    inside = side < heights[:, None]
    gram *= (left_scales * right_scales)[..., None, None] ** 2
    gram[..., side, side] += ridge.eps * own[..., None] ** 2 * np.where(inside, energies, 0)
    values = np.sqrt(np.linalg.eigvalsh(gram).clip(min=0) + ridge.eps)
    return np.where(inside, values[..., ::-1], 0).sum(axis=-1), squares


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
