"""What the compiled kernel does, in numpy: for every platform, and to check the kernel against.

The same mathematics, many pairs at once: Gram matrices, Householder reduction to tridiagonal form, and the rational
square root, with the pairs along the last axis, so that each numpy call does a step of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures.native import LANES, Array, Index, Ridge
from poolscope.numbers.bures.rational import square_root_poles

# Gram matrices that are reduced together, in numbers; from this side on LAPACK's eigenvalues cost less.
_TOGETHER, _LONG = 400_000, 96


def norms(
    products: NDArray[np.float32],
    left: Index,
    right: Index,
    *,
    corners: tuple[Array, Array] | None = None,
    ridge: Ridge | None = None,
) -> tuple[Array, Array]:
    """The same as `native.norms`, but for NaN: pairs that the rational function cannot take are computed by SVD."""
    nuclear, squares = np.zeros((2, len(left) - 1, (len(right) - 1) * LANES))
    for texts, groups in _batches(left, right):
        stack = _stacked(products, left, right, texts, groups)
        i, lanes = texts[:, None], groups[:, None] * LANES + np.arange(LANES)
        if corners is not None:
            stack[:, :, :1, :1] += (corners[0][i] * corners[1][lanes])[:, :, None, None]
            values = np.linalg.svd(stack, compute_uv=False)
            found = values.sum(axis=-1), (values**2).sum(axis=-1)
        elif ridge is not None:
            found = _published(stack, i, lanes, left, right, ridge)
        else:
            found = _nuclear(stack)
        nuclear[i, lanes], squares[i, lanes] = found
    return nuclear, squares


def one_norm(products: NDArray[np.float32], rows: slice, columns: slice, corner: float) -> float:
    """‖C‖_* of one pair by singular values in float64; `columns` are those of its lane."""
    matrix = products[rows, columns].astype(np.float64)
    if matrix.size:
        matrix[0, 0] += corner
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def _batches(left: Index, right: Index) -> Iterator[tuple[Index, Index]]:
    """Positions of left texts and of right groups, pair by pair, so many that their Gram matrices fit the cache."""
    lefts, groups = len(left) - 1, len(right) - 1
    if not lefts * groups:
        return
    side = int(min(np.diff(left).max(), np.diff(right).max()))
    step = max(4, _TOGETHER // (LANES * max(1, side) ** 2))
    texts, partners = np.divmod(np.arange(lefts * groups), groups)
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


def _nuclear(stack: Array) -> tuple[Array, Array]:
    if stack.shape[-2] > stack.shape[-1]:  # the smaller side is what costs
        stack = stack.swapaxes(-1, -2)
    gram = stack @ stack.swapaxes(-1, -2)
    nuclear, squares = root_traces(gram), np.trace(gram, axis1=-2, axis2=-1)
    declined = np.isnan(nuclear)
    if declined.any():
        nuclear[declined] = np.linalg.svd(stack[declined], compute_uv=False).sum(axis=-1)
    return nuclear, squares


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


def root_traces(gram: Array) -> Array:
    """tr √G of positive matrices (… × m × m) with eigenvalues of at most 1; NaN where rounding made G indefinite."""
    *shape, m, _ = gram.shape
    if m > _LONG:
        return np.asarray(np.sqrt(np.linalg.eigvalsh(gram).clip(min=0)).sum(axis=-1))
    if not m:
        return np.zeros(shape)
    matrices = np.ascontiguousarray(gram.reshape(-1, m, m).transpose(1, 2, 0))
    return _rational_trace(*_tridiagonal(matrices)).reshape(shape)


def _tridiagonal(matrices: Array) -> tuple[Array, Array]:
    """Diagonals and squared off-diagonals (m × pairs each; the first of these is 0) of matrices (m × m × pairs).

    Householder from the last row up. The matrices stay as they are: G − Σ (v qᵀ + q vᵀ) is applied from the vectors,
    which numpy does with fewer passes over the memory than to update the matrices.
    """
    m, _, pairs = matrices.shape
    diagonal, squares = np.zeros((2, m, pairs))
    # Vectors of the steps so far: v and q in turn, and the same exchanged.
    first, second = np.zeros((2, 2 * m, m, pairs))
    for step, i in enumerate(range(m - 1, 0, -1)):
        ours, theirs = first[: 2 * step, : i + 1], second[: 2 * step, : i + 1]
        row = matrices[i, : i + 1] - np.einsum("tb,tkb->kb", theirs[:, i], ours)
        diagonal[i], w = row[i], row[:i]
        squares[i] = np.einsum("kb,kb->b", w, w)
        reflected = -np.copysign(np.sqrt(squares[i]), w[-1])
        h = squares[i] - w[-1] * reflected
        inverse = np.divide(1.0, h, out=np.zeros_like(h), where=h > 1e-290)
        w[-1] -= reflected
        ours, theirs = ours[:, :i], theirs[:, :i]
        p = np.einsum("jkb,kb->jb", matrices[:i, :i], w)
        p -= np.einsum("tb,tkb->kb", np.einsum("tkb,kb->tb", theirs, w), ours)
        q = p * inverse - 0.5 * np.einsum("kb,kb->b", w, p) * inverse**2 * w
        first[2 * step, :i], first[2 * step + 1, :i] = w, q
        second[2 * step, :i], second[2 * step + 1, :i] = q, w
    diagonal[0] = matrices[0, 0] - np.einsum("tb,tb->b", first[: 2 * m - 2, 0], second[: 2 * m - 2, 0])
    return diagonal, squares


def _rational_trace(diagonal: Array, squares: Array) -> Array:
    """Σ_k w_k tr T(T + p_k)⁻¹ of tridiagonal matrices (m × pairs): the recurrence of kernel.c, all poles at once."""
    poles, weights = square_root_poles()
    r = 1 / (diagonal[0] + poles[:, None])
    sound, derivative, total = (r > 0).all(axis=0), r.copy(), r.copy()
    for d, e2 in zip(diagonal[1:], squares[1:], strict=True):
        x = e2 * r
        with np.errstate(divide="ignore"):
            r = 1 / (d + poles[:, None] - x)
        sound &= (r > 0).all(axis=0)
        derivative = r + r * x * derivative
        total += derivative
    traces = weights @ (len(diagonal) - poles[:, None] * total)
    return np.where(sound, traces, np.nan)
