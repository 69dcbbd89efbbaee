"""From the products of reduced factors to the distances of the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures import native
from poolscope.numbers.bures.factors import Panel, ReducedText

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Products = NDArray[np.float32]

# Bound of the error of BW² over the roughness of both texts, √(tr Σ₁ tr Σ₂)·(rank₁ rank₂)^¼: rounding of a product of
# rank m moves its nuclear norm by √m times as much as its Frobenius norm. Clouds of 2 to 512 tokens, random, real, with
# sinks or with one large direction, reach 9e-7; values below the reach of the rational square root are within it, too.
_ERROR = 2e-6


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


def grid_distances(left: Panel, right: Panel, *, eps: float = 0.0) -> tuple[Array, Array, Array, Array, Array]:
    """d_μ, BW², trace sums, overlaps and errors (left × right) of every text of one panel with every text of another.

    With eps > 0 the trace is that of the published code, which adds eps to the diagonal before each square root.
    """
    row_offsets = np.concatenate([[0], np.cumsum(left.ranks)])
    products = left.rows_by_text() @ right.rows.T
    nuclear, squares = (part[:, : len(right)] for part in _norms(products, row_offsets, right.offsets))
    scale = np.outer(left.scales, right.scales)
    roots = _published_root_traces(products, row_offsets, left, right, eps) if eps else nuclear * scale
    trace_sum = left.traces[:, None] + right.traces
    # BW² of equal covariances is zero but for rounding; a negative value of that size is set to zero. The published
    # trace is biased upwards, so its distances may really be negative: they are reported as they are.
    bures = trace_sum - 2 * roots
    if not eps:
        bures = np.maximum(bures, 0.0)
    cosines = (left.means @ right.means.T).clip(-1, 1)
    error = _ERROR * np.outer(left.roughness, right.roughness)
    return (1 - cosines) / 2, bures, trace_sum, squares * scale**2, error


def listed_distances(
    lefts: Sequence[ReducedText], rights: Sequence[ReducedText]
) -> tuple[Array, Array, Array, Array, Array]:
    """The same five numbers of pairs, the k-th of `lefts` with the k-th of `rights`.

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
        found = _norms(block.reshape(height, width * native.LANES), np.array([0, height]), np.array([0, width]))
        place = slice(start, start + len(group))
        nuclear[place], squares[place] = (part[0, : len(group)] for part in found)
    scale = np.array([a.scale * b.scale for a, b in both])
    trace_sum = np.array([a.trace + b.trace for a, b in both])
    error = np.array([_ERROR * a.roughness * b.roughness for a, b in both])
    cosines = np.array([a.mean @ b.mean for a, b in both]).clip(-1, 1)
    bures = np.maximum(trace_sum - 2 * nuclear * scale, 0.0)
    return (1 - cosines) / 2, bures, trace_sum, squares * scale**2, error


def _norms(products: Products, left: Index, right: Index) -> tuple[Array, Array]:
    """‖C‖_* and ‖C‖_F² of every sub-block C: compiled where possible, otherwise by singular values."""
    if native.kernel() is None:
        return _plain_norms(products, left, right)
    nuclear, squares = native.norms(products, left, right)
    for i, j in np.argwhere(np.isnan(nuclear)):  # pairs that the kernel declined
        group, lane = divmod(int(j), native.LANES)
        nuclear[i, j] = _plain_norms(products, left[i : i + 2], right[group : group + 2])[0][0, lane]
    return nuclear, squares


def _plain_norms(products: Products, left: Index, right: Index) -> tuple[Array, Array]:
    """The same as the compiled kernel, by singular values: for every platform, and to check it against."""
    nuclear, squares = np.zeros((2, len(left) - 1, (len(right) - 1) * native.LANES))
    for i in range(len(left) - 1):
        for group in range(len(right) - 1):
            lanes = _lanes(products, left[i : i + 2], right[group : group + 2])
            if lanes.size:
                values = np.linalg.svd(lanes, compute_uv=False)
                place = slice(group * native.LANES, (group + 1) * native.LANES)
                nuclear[i, place], squares[i, place] = values.sum(axis=1), (values**2).sum(axis=1)
    return nuclear, squares


def _lanes(products: Products, rows: Index, columns: Index) -> Array:
    """One left text against one group: LANES matrices (left rows × right rows), in double precision."""
    block = products[rows[0] : rows[1], columns[0] * native.LANES : columns[1] * native.LANES]
    height = int(columns[1] - columns[0])
    return block.astype(np.float64).reshape(len(block), height, native.LANES).transpose(2, 0, 1)


def _published_root_traces(products: Products, row_offsets: Index, left: Panel, right: Panel, eps: float) -> Array:
    """tr √(√(Σ₁ + εI) Σ₂ √(Σ₁ + εI) + εI) without a d × d matrix.

    Its eigenvalues are those of `CᵀC + ε·F₂F₂ᵀ`, plus ε, with C = F₁F₂ᵀ; the other d − n₂ are ε. The rows of a reduced
    factor are orthogonal, so F₂F₂ᵀ is diagonal.
    """
    d = left.rows.shape[1]
    energy = np.einsum("ij,ij->i", right.rows, right.rows, dtype=np.float64)
    traces = np.zeros((len(left), len(right.offsets[1:]) * native.LANES))
    scales = np.concatenate([right.scales, np.zeros(traces.shape[1] - len(right))])
    for group in range(len(right.offsets) - 1):
        columns = right.offsets[group : group + 2]
        height = int(columns[1] - columns[0])
        lanes = slice(group * native.LANES, (group + 1) * native.LANES)
        diagonal = energy[columns[0] * native.LANES : columns[1] * native.LANES].reshape(height, native.LANES).T
        for i in range(len(left)):
            C = _lanes(products, row_offsets[i : i + 2], columns) * (left.scales[i] * scales[lanes])[:, None, None]
            gram = C.transpose(0, 2, 1) @ C
            gram[:, np.arange(height), np.arange(height)] += eps * diagonal * scales[lanes][:, None] ** 2
            eigenvalues = np.linalg.eigvalsh(gram).clip(min=0)
            traces[i, lanes] = np.sqrt(eigenvalues + eps).sum(axis=1) + (d - height) * np.sqrt(eps)
    return traces[:, : len(right)]
