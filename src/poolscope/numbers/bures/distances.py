"""Distances of pairs: from the products of reduced factors, and of one pair in float64, which is the definition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import InputError
from poolscope.numbers.bures import native, plain
from poolscope.numbers.bures.factors import Panel, ReducedText
from poolscope.numbers.bures.native import Array, Index
from poolscope.numbers.moments import deviations, unit_mean_factor

Products = NDArray[np.float32]
Mask = NDArray[np.bool_]

# Bound of the error of BW² over the roughness of both texts, √(tr Σ₁ tr Σ₂)·(rank₁ rank₂)^¼: rounding of a product of
# rank m moves its nuclear norm by √m times as much as its Frobenius norm. Clouds of 2 to 512 tokens, random, real, with
# sinks or with one large direction, reach 9e-7; values below the reach of the rational square root are within it, too.
_ERROR = 2e-6
# The same of float64, over √(tr Σ₁ tr Σ₂): what is left where a large direction is taken out of the products.
_DOUBLE_ERROR = 1e-13
# Of the memory that each thread keeps for products: rows start at an odd multiple of a cache line, so that they do not
# all fall into the same sets of the cache.
_LINE = 16
# Rows of the left texts that are multiplied at a time: fewer are slower, more reach further below the diagonal.
_STRIP_ROWS = 256
# Below this share of products that are asked for among those of whole groups, pairs are better gathered one by one.
_FULL = 0.9
_buffers = threading.local()


@dataclass(frozen=True)
class Distances:
    """Distances of some pairs of texts; 1-D arrays of equal length.

    i, j: positions of the texts; mean_distance: d_μ in [0, 1]; bures: BW² of the covariances of the clouds scaled to
    unit mean; trace_sum: tr Σ₁ + tr Σ₂; overlap: tr Σ₁Σ₂; error: a bound of the rounding error of `bures` as float32
    products give it.
    """

    i: Index
    j: Index
    mean_distance: Array
    bures: Array
    trace_sum: Array
    overlap: Array
    error: Array

    def __len__(self) -> int:
        return len(self.i)

    def repeated(self, times: Index, pairs: Index) -> Distances:
        """Every row so many times, as the distances of these pairs (m × 2)."""
        values = (self.mean_distance, self.bures, self.trace_sum, self.overlap, self.error)
        return Distances(pairs[:, 0], pairs[:, 1], *(np.repeat(value, times) for value in values))


def grid_distances(
    left: Panel,
    right: Panel,
    *,
    eps: float = 0.0,
    second_is_left: Mask | None = None,
    wanted: Mask | None = None,
) -> tuple[Array, Array, Array, Array, Array]:
    """d_μ, BW², trace sums, overlaps and errors (left × right) of every text of one panel with every text of another.

    With eps > 0 the trace is that of the published code, which adds eps to the diagonal before each square root. Then
    the order of a pair matters a little: `second_is_left` marks the pairs whose second text is that of `left`.
    `wanted` marks the pairs that are asked for; the others may be left out.
    """
    if wanted is None:
        wanted = np.ones((len(left), len(right)), dtype=bool)
    if eps:
        roots, squares = _published_traces(left, right, eps, second_is_left, wanted)
    else:
        gathered = native.kernel() is not None and _sparse(left, right, wanted)
        nuclear, squares = (_gathered_norms if gathered else _grouped_norms)(left, right, wanted)
        roots = nuclear * np.outer(left.scales, right.scales)
    trace_sum = left.traces[:, None] + right.traces
    # BW² of equal covariances is zero but for rounding; a negative value of that size is set to zero. The published
    # trace is biased upwards, so its distances may really be negative: they are reported as they are.
    bures = trace_sum - 2 * roots
    if not eps:
        bures = np.maximum(bures, 0.0)
    cosines = (left.means @ right.means.T).clip(-1, 1)
    overlaps = squares * np.outer(left.scales**2, right.scales**2)
    error = _ERROR * np.outer(left.roughness, right.roughness)
    error += _DOUBLE_ERROR * np.outer(np.sqrt(left.traces), np.sqrt(right.traces))
    return (1 - cosines) / 2, bures, trace_sum, overlaps, error


def listed_distances(
    lefts: Sequence[ReducedText], rights: Sequence[ReducedText]
) -> tuple[Array, Array, Array, Array, Array]:
    """Five numbers a pair, as `grid_distances` gives them, of the k-th of `lefts` with the k-th of `rights`.

    As many pairs as there are lanes go through the kernel together, each with its own product. Pairs in a row should be
    of similar size: they are padded to the largest.
    """
    nuclear, squares = np.zeros((2, len(lefts)))
    # A product and its transpose have the same norms, and the smaller side is what costs.
    both = list(zip(lefts, rights, strict=True))
    sides = [sorted((a.rows, b.rows), key=len) for a, b in both]
    for start in range(0, len(sides), native.LANES):
        group = sides[start : start + native.LANES]
        height, width = (max(len(pair[side]) for pair in group) for side in (0, 1))
        block = np.zeros((height, width, native.LANES), dtype=np.float32)
        for lane, (small, large) in enumerate(group):
            block[: len(small), : len(large), lane] = small @ large.T
        corners = None
        if any(a.corner for a, _ in both[start : start + len(group)]):
            lanes = [a.corner * b.corner for a, b in both[start : start + len(group)]]
            corners = np.ones(1), np.pad(lanes, (0, native.LANES - len(lanes)))
        norms = _norms(
            block.reshape(height, width * native.LANES), np.array([0, height]), np.array([0, width]), corners
        )
        place = slice(start, start + len(group))
        nuclear[place], squares[place] = (part[0, : len(group)] for part in norms)
    scale = np.array([a.scale * b.scale for a, b in both])
    trace_sum = np.array([a.trace + b.trace for a, b in both])
    error = np.array([_ERROR * a.roughness * b.roughness + _DOUBLE_ERROR * np.sqrt(a.trace * b.trace) for a, b in both])
    cosines = np.array([a.mean @ b.mean for a, b in both]).clip(-1, 1)
    bures = np.maximum(trace_sum - 2 * nuclear * scale, 0.0)
    return (1 - cosines) / 2, bures, trace_sum, squares * scale**2, error


def _sparse(left: Panel, right: Panel, wanted: Mask) -> bool:
    """Would whole groups multiply many rows that are not asked for: on the diagonal, or of shorter neighbours?"""
    begins = np.where(wanted.any(axis=1), wanted.argmax(axis=1) // native.LANES, len(right.offsets) - 1)
    whole = left.ranks @ (right.offsets[-1] - right.offsets[begins]) * native.LANES
    return bool(left.ranks @ wanted @ right.ranks < _FULL * whole)


def _products(left: Panel, right: Products, offsets: Index, wanted: Mask) -> Products:
    """The products of all rows, in memory that this thread keeps and uses again: valid until the next call.

    The right rows come in parts that begin at `offsets`. A strip of left texts begins at the first part that is wanted
    of it: what is before is not computed.
    """
    rows, starts, columns = left.rows_by_text, left.row_offsets, len(right)
    stride = (-(-columns // _LINE) | 1) * _LINE
    size = len(rows) * stride + _LINE
    if getattr(_buffers, "products", np.empty(0)).size < size:
        _buffers.products = np.empty(size, dtype=np.float32)
    buffer: Products = _buffers.products
    start = -(buffer.ctypes.data // buffer.itemsize) % _LINE
    out = buffer[start : start + len(rows) * stride].reshape(len(rows), stride)[:, :columns]
    begins = np.where(wanted.any(axis=1), wanted.argmax(axis=1), wanted.shape[1])
    strips = np.flatnonzero(np.diff(starts[:-1] // _STRIP_ROWS, prepend=-1))
    lowest = np.minimum.reduceat(begins, strips)
    strips, lowest = (part[np.diff(lowest, prepend=-1) != 0] for part in (strips, lowest))  # equal ones as one
    for first, last, begin in zip(strips, [*strips[1:], len(left)], offsets[lowest], strict=True):
        part = slice(starts[first], starts[last])
        np.matmul(rows[part], right[begin:].T, out=out[part, begin:])
    return out


def _by_group(left: Panel, right: Panel, wanted: Mask) -> Products:
    """The products with whole groups of right texts, interleaved."""
    groups = np.asarray(wanted.reshape(len(left), -1, native.LANES).any(axis=2))
    return _products(left, right.rows, right.offsets * native.LANES, groups)


def _grouped_norms(left: Panel, right: Panel, wanted: Mask) -> tuple[Array, Array]:
    """‖C‖_* and ‖C‖_F² (left × right), each left text with whole groups of right texts."""
    corners = (left.corners, right.corners) if left.corners.any() else None
    return _norms(_by_group(left, right, wanted), left.row_offsets, right.offsets, corners, wanted)


def _gathered_norms(left: Panel, right: Panel, wanted: Mask) -> tuple[Array, Array]:
    """Norms of the wanted pairs alone, which the kernel puts together by size; zeros elsewhere."""
    products = _products(left, right.rows_by_text, right.row_offsets, wanted)
    i, j = np.nonzero(wanted)
    small, large = np.sort([left.ranks[i], right.ranks[j]], axis=0)
    order = np.lexsort((large, small))
    i, j = i[order], j[order]
    first, sizes = (left.row_offsets[i], right.row_offsets[j]), (left.ranks[i], right.ranks[j])
    corners = left.corners[i] * right.corners[j]
    found = native.listed_norms(products, first, sizes, corners if left.corners.any() else None)
    for k in np.flatnonzero(np.isnan(found[0])):  # pairs that the kernel declined
        rows, columns = (slice(start[k], start[k] + size[k]) for start, size in zip(first, sizes, strict=True))
        found[0][k] = plain.one_norm(products, rows, columns, float(corners[k]))
    norms = np.zeros((2, *wanted.shape))
    norms[:, i, j] = found
    return norms[0], norms[1]


def _norms(
    products: Products,
    left: Index,
    right: Index,
    corners: tuple[Array, Array] | None = None,
    wanted: Mask | None = None,
) -> tuple[Array, Array]:
    """‖C‖_* and ‖C‖_F² of every sub-block C: compiled where possible, otherwise by numpy."""
    if native.kernel() is None:
        return plain.norms(products, left, right, corners=corners, wanted=wanted)
    nuclear, squares = native.norms(products, left, right, corners=corners, wanted=wanted)
    for i, j in np.argwhere(np.isnan(nuclear)):  # pairs that the kernel declined
        group, lane = divmod(int(j), native.LANES)
        columns = slice(right[group] * native.LANES + lane, right[group + 1] * native.LANES, native.LANES)
        corner = 0.0 if corners is None else float(corners[0][i] * corners[1][j])
        nuclear[i, j] = plain.one_norm(products, slice(left[i], left[i + 1]), columns, corner)
    return nuclear, squares


def _published_traces(
    left: Panel, right: Panel, eps: float, second_is_left: Mask | None, wanted: Mask
) -> tuple[Array, Array]:
    """tr √(√(Σ₁ + εI) Σ₂ √(Σ₁ + εI) + εI) without a d × d matrix, and ‖C‖_F² (left × right lanes).

    Its eigenvalues are those of `CᵀC + ε·F₂F₂ᵀ`, plus ε, with C = F₁F₂ᵀ; the other d − n₂ are ε. The rows of a reduced
    factor are orthogonal, so F₂F₂ᵀ is diagonal. Pairs of either order are computed in a turn of their own.
    """
    swapped = np.zeros((len(left), len(right)), dtype=bool) if second_is_left is None else second_is_left
    products = _by_group(left, right, wanted)
    compute = plain.norms if native.kernel() is None else native.norms
    traces, squares = np.zeros((2, len(left), len(right)))
    for on_left in (False, True):
        here = wanted & (swapped == on_left)
        if not here.any():
            continue
        rows = left.rows_by_text if on_left else right.rows
        energies = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        ridge = native.Ridge(eps, on_left, energies, left.scales, right.scales)
        roots, overlaps = compute(products, left.row_offsets, right.offsets, ridge=ridge, wanted=here)
        heights = left.ranks[:, None] if on_left else np.repeat(np.diff(right.offsets), native.LANES)
        traces[here] = (roots + (left.rows.shape[1] - heights) * np.sqrt(eps))[here]
        squares[here] = overlaps[here]
    return traces, squares


def nuclear_norm(left: Array, right: Array) -> float:
    """Sum of the singular values of `F₁F₂ᵀ`, which is tr (Σ₁^½ Σ₂ Σ₁^½)^½ for the covariances `FᵀF`.

    left (n₁ × d), right (n₂ × d). A factor with more rows than columns is first replaced by its d × d triangular one.

    >>> round(nuclear_norm(np.diag([1.0, 2.0]), np.diag([3.0, 1.0])), 12)
    5.0
    """
    return float(np.linalg.svd(short(left) @ short(right).T, compute_uv=False).sum())


def nuclear_norms(matrices: Array) -> Array:
    """Sums of the singular values of a stack of matrices (m × n₁ × n₂), by the kernel, to about 1e-7 of each.

    >>> nuclear_norms(np.stack([np.diag([1.0, 2.0]), np.zeros((2, 2))])).round(6).tolist()
    [3.0, 0.0]
    """
    count, height, width = matrices.shape
    scales = np.sqrt(np.einsum("mij,mij->m", matrices, matrices))  # no singular value is larger
    groups = -(-count // native.LANES)
    lanes = np.zeros((groups * native.LANES, height, width), dtype=np.float32)
    np.divide(matrices, scales[:, None, None], out=lanes[:count], where=scales[:, None, None] > 0, casting="same_kind")
    products = lanes.reshape(groups, native.LANES, height, width).transpose(2, 0, 3, 1)
    block = np.ascontiguousarray(products).reshape(height, groups * width * native.LANES)
    nuclear, _ = _norms(block, np.array([0, height]), np.arange(groups + 1) * width)
    sums: Array = np.abs(nuclear[0, :count]) * scales  # the kernel may return a zero with a minus
    return sums


def short(factor: Array) -> Array:
    """A factor of the same covariance with at most d rows."""
    return np.asarray(np.linalg.qr(factor, mode="r")) if factor.shape[0] > factor.shape[1] else factor


def bures_wasserstein(
    X: Any, Y: Any, *, x_weights: ArrayLike | None = None, y_weights: ArrayLike | None = None
) -> float:
    """Squared Bures–Wasserstein distance BW² of the covariances of two token clouds, as they are (no scaling).

    BW² = tr Σ₁ + tr Σ₂ − 2 tr (Σ₁^½ Σ₂ Σ₁^½)^½, exact for any rank; X (n₁ × d), Y (n₂ × d). 0 if the covariances are
    equal. Added to ‖μ₁ − μ₂‖² it gives the squared 2-Wasserstein distance of the two Gaussians.

    Parameters
    ----------
    X, Y : matrix
        The tokens of the two texts, one row a token.
    x_weights, y_weights : list of float, optional
        Weights of the tokens, at least 0; without them every token counts the same.

    Returns
    -------
    float
        BW², at least 0.

    Examples
    --------
    >>> round(bures_wasserstein([[1.0, 0.0], [-1.0, 0.0]], [[3.0, 0.0], [-3.0, 0.0]]), 12)
    4.0

    """
    F, G = deviations(X, x_weights), deviations(Y, y_weights)
    same_dimension(F, G)
    return max(0.0, float((F * F).sum() + (G * G).sum()) - 2 * nuclear_norm(F, G))


def same_dimension(X: Any, Y: Any) -> None:
    """Refuse two clouds of different dimension."""
    left, right = as_matrix(X, name="first cloud").shape[1], as_matrix(Y, name="second cloud").shape[1]
    if left != right:
        raise InputError(
            f"received clouds of dimension {left} and {right}; both must come from the same model and layer."
        )


# -- pairs that float32 products cannot tell --------------------------------------------------------------------------

# Pairs whose distance is smaller than float32 products can tell, computed again in float64.

# What is asked of BW²: d_Σ = BW²/4 to 1e-6, or BW² to a thousandth of itself.
_ABSOLUTE, _RELATIVE = 4e-6, 1e-3


def refined(distances: Distances, left: TokenClouds, right: TokenClouds) -> Distances:
    """The distances, with BW² from float64 products where the bound of its error is not good enough, or exceeds BW².

    Equal clouds are then at exactly 0. Few pairs of ordinary corpora; many where all texts share one direction that is
    far larger than the rest (attention sinks), so that the rest, by which they differ, drowns in its rounding.
    """
    allowed = np.maximum(_ABSOLUTE, _RELATIVE * distances.bures)
    doubtful = np.flatnonzero((distances.error > allowed) | (distances.error > distances.bures))
    if not len(doubtful):
        return distances
    bures = distances.bures.copy()
    left_factor, right_factor = _factors(left), _factors(right)
    for k in doubtful.tolist():
        bures[k] = _exact(left_factor(int(distances.i[k])), right_factor(int(distances.j[k])))
    return replace(distances, bures=bures)


def _exact(F: Array, G: Array) -> float:
    if np.array_equal(F, G):  # the same text twice
        return 0.0
    return max(0.0, float((F * F).sum() + (G * G).sum()) - 2 * nuclear_norm(F, G))


def _factors(clouds: TokenClouds) -> Callable[[int], Array]:
    """Factors of texts with at most d rows, each computed once for a block of pairs."""

    @cache
    def factor(text: int) -> Array:
        return short(unit_mean_factor(clouds[text])[1])

    return factor
