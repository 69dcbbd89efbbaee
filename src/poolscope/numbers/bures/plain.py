"""What the compiled kernel does, in numpy: for every platform, and to check the kernel against.

Gram matrices of many pairs at once, and their eigenvalues by LAPACK. (The kernel's own way, tridiagonal matrices and
the rational square root with the pairs along the last axis, takes as long in numpy: too many passes over the memory.)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures.native import LANES, Array, Index, Ridge

# Numbers in the Gram matrices that are treated together.
_TOGETHER = 400_000


def norms(
    products: NDArray[np.float32],
    left: Index,
    right: Index,
    *,
    corners: tuple[Array, Array] | None = None,
    ridge: Ridge | None = None,
) -> tuple[Array, Array]:
    """The same as `native.norms`, and without NaN."""
    nuclear, squares = np.zeros((2, len(left) - 1, (len(right) - 1) * LANES))
    for texts, groups in _batches(left, right):
        stack = _stacked(products, left, right, texts, groups)
        i, lanes = texts[:, None], groups[:, None] * LANES + np.arange(LANES)
        if corners is not None:
            stack[:, :, :1, :1] += (corners[0][i] * corners[1][lanes])[:, :, None, None]
            values = np.linalg.svd(stack, compute_uv=False)
            both = values.sum(axis=-1), (values**2).sum(axis=-1)
        elif ridge is not None:
            both = _published(stack, i, lanes, left, right, ridge)
        else:
            both = _nuclear(stack)
        nuclear[i, lanes], squares[i, lanes] = both
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
    eigenvalues = np.linalg.eigvalsh(stack @ stack.swapaxes(-1, -2)).clip(min=0)
    return np.sqrt(eigenvalues).sum(axis=-1), eigenvalues.sum(axis=-1)


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
