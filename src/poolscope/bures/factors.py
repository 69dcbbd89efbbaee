"""From clouds to reduced factors: all that the distances of a text need, in as few rows as its covariance has rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poolscope.bures.native import LANES
from poolscope.clouds import TokenClouds
from poolscope.errors import DegenerateCloudError
from poolscope.moments import unit_mean_factors

Array = NDArray[np.float64]

# A little room, so that rounding in the float32 product cannot push a singular value above 1.
_HEADROOM = 1 + 1e-6
# Texts of equal length are reduced together, in stacks of at most so many numbers.
_STACK_SIZE = 4_000_000


def reduce_rows(factors: Array) -> tuple[list[Array], Array]:
    """Rotate the rows of each factor of a stack (texts × n × d) so that as many as possible are zero, and drop those.

    `F = U S Vᵀ` becomes `S Vᵀ`: the covariance `FᵀF`, and every nuclear norm with another factor, stay as they are.
    Returns the reduced rows (rank × d a text), scaled to a largest singular value of just under 1, and the scales.
    Uses the n × n side, or the d × d side where n > d.
    """
    count, n, d = factors.shape
    transposed = factors.transpose(0, 2, 1)
    if n <= d:
        eigenvalues, vectors = np.linalg.eigh(factors @ transposed)
        rows = vectors.transpose(0, 2, 1) @ factors
    else:
        eigenvalues, vectors = np.linalg.eigh(transposed @ factors)
        rows = vectors.transpose(0, 2, 1) * np.sqrt(eigenvalues.clip(min=0))[:, :, None]
    largest = eigenvalues[:, -1].clip(min=0)
    scales = np.sqrt(largest) * _HEADROOM
    # Eigenvalues of a Gram matrix are known to about n·ε of the largest; what is below is rounding (repeated tokens,
    # the direction removed by centring).
    kept = eigenvalues > 4 * max(n, 1) * np.finfo(float).eps * largest[:, None]
    return [rows[k][kept[k]] / scales[k] for k in range(count)], scales


@dataclass(frozen=True)
class Panel:
    """Reduced factors of some texts, laid out for the all-pairs product.

    Texts stand in groups of LANES; row `(offsets[g] + t)·LANES + lane` of `rows` is row t of the lane-th text of
    group g, zero where that text has fewer rows.

    texts: positions in the corpus; means: unit means (texts × d); traces: tr Σ; scales: what the rows were divided by.
    """

    texts: NDArray[np.int64]
    means: Array
    traces: Array
    scales: Array
    ranks: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rows: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.texts)

    def rows_by_text(self) -> NDArray[np.float32]:
        """The rows one text after the other, without the interleaving and its zeros."""
        return self.rows[np.concatenate([self._places(k) for k in range(len(self))])]

    def groups(self, first: int, last: int) -> Panel:
        """The texts of groups first … last − 1: a view, nothing is copied."""
        texts = slice(first * LANES, last * LANES)
        return Panel(
            self.texts[texts],
            self.means[texts],
            self.traces[texts],
            self.scales[texts],
            self.ranks[texts],
            self.offsets[first : last + 1] - self.offsets[first],
            self.rows[self.offsets[first] * LANES : self.offsets[last] * LANES],
        )

    def pick(self, texts: NDArray[np.int64]) -> Panel:
        """A panel of some texts (positions in this panel), in the given order."""
        reduced = [self.rows[self._places(int(k))] for k in texts]
        ranks, offsets, rows = _interleave(reduced, self.rows.shape[1])
        return Panel(self.texts[texts], self.means[texts], self.traces[texts], self.scales[texts], ranks, offsets, rows)

    def _places(self, k: int) -> NDArray[np.int64]:
        return np.asarray((self.offsets[k // LANES] + np.arange(self.ranks[k])) * LANES + k % LANES)


def make_panel(clouds: TokenClouds, texts: NDArray[np.int64], pool: Executor) -> Panel:
    """Reduce the factors of `texts` (in parallel) and interleave them. Texts of similar length should be neighbours."""
    means = np.empty((len(texts), clouds.dimension))
    traces, scales = np.empty(len(texts)), np.empty(len(texts))
    reduced: list[NDArray[np.float32]] = [np.empty((0, clouds.dimension), np.float32)] * len(texts)

    def fill(places: Sequence[int]) -> None:
        stack = np.stack([np.asarray(clouds[int(texts[k])], dtype=np.float64) for k in places])
        means[places], factors, traces[places] = _checked_factors(stack, texts[places], clouds)
        rows, scales[places] = reduce_rows(factors)
        for k, matrix in zip(places, rows, strict=True):
            reduced[k] = matrix.astype(np.float32)

    for _ in pool.map(fill, _stacks(clouds.lengths[texts], clouds.dimension)):
        pass
    return Panel(texts, means, traces, scales, *_interleave(reduced, clouds.dimension))


def _interleave(
    reduced: list[NDArray[np.float32]], dimension: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Ranks, offsets of the groups, and rows, laid out as `Panel` says. Empties the list as it goes."""
    ranks = np.array([len(matrix) for matrix in reduced], dtype=np.int64)
    groups = -(-len(ranks) // LANES)
    heights = np.zeros(groups * LANES, dtype=np.int64)
    heights[: len(ranks)] = ranks
    offsets = np.concatenate([[0], np.cumsum(heights.reshape(groups, LANES).max(axis=1))])
    rows = np.zeros((int(offsets[-1]), LANES, dimension), dtype=np.float32)
    for k, rank in enumerate(ranks):
        start = offsets[k // LANES]
        rows[start : start + rank, k % LANES] = reduced[k]
        reduced[k] = reduced[k][:0]  # give the memory back
    return ranks, offsets, rows.reshape(-1, dimension)


def _stacks(lengths: NDArray[np.int64], dimension: int) -> Iterator[list[int]]:
    """Positions grouped into stacks of equal length and bounded size."""
    order = np.argsort(lengths, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        step = max(1, _STACK_SIZE // (int(lengths[same[0]]) * dimension))
        for start in range(0, len(same), step):
            yield same[start : start + step].tolist()


def _checked_factors(stack: Array, texts: NDArray[np.int64], clouds: TokenClouds) -> tuple[Array, Array, Array]:
    """Unit means, factors and traces of a stack of equal-length clouds, or an error that names the text."""
    means, factors, traces = unit_mean_factors(stack)
    sound = np.isfinite(traces) & np.isfinite(means).all(axis=1)
    if not sound.all():
        k = int(np.flatnonzero(~sound)[0])
        text = int(texts[k])
        problem = "the zero vector as its mean" if np.isfinite(stack[k]).all() else "NaN or infinite values"
        raise DegenerateCloudError(
            f"text {text} (id '{clouds.ids[text]}') has {problem}; a cloud needs finite vectors with a mean other than "
            f"zero. Leave this text out, or encode it again."
        )
    return means, factors, traces
