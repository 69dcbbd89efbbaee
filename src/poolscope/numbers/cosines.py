"""Statistics of sets of unit vectors that need no N × N matrix, with intervals from leaving out texts; singular values.

The sum over pairs of cosines comes from one sum of vectors: Σ_{i≠j} eᵢ·eⱼ = ‖Σ e‖² − m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, Units, chosen_units, leave_one_out_interval, left_out_estimate
from poolscope.numbers.streaming import Grouping

UnitRows = NDArray[np.float32]

# Groups of texts left out in turn where leaving out every single one would cost a decomposition each.
_GROUPS = 20
_ANGLES = 400  # points of an integral
# From so many rows on the iteration beats the full decomposition (measured on attention weights: at 256 rows, 0.3 ms a
# matrix against 2.4 ms).
_ITERATE_FROM = 32
# After so many steps the values that are certain leave; of attention weights half do after 6 steps, few after 9.
_CHECKED_STEPS = (6, 9, 14, 20, 28, 40, 52, 64)
_MOST_STEPS = _CHECKED_STEPS[-1]
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class PairCosine:
    """Mean cosine over the pairs of a set of texts (NaN for fewer than two), and without each unit in turn.

    `units` numbers the units that have texts in the set, and `sizes` counts these.
    """

    value: float
    without: Array
    units: Index
    sizes: Array
    unit: str = "texts"

    @property
    def estimate(self) -> Estimate:
        """With its interval."""
        return left_out_estimate(self.value, self.without, self.sizes, unit=self.unit)

    def minus(self, other: PairCosine) -> Estimate:
        """The difference of two sets of vectors of the same texts, with its paired interval."""
        return left_out_estimate(self.value - other.value, self.without - other.without, self.sizes, unit=self.unit)


def pair_cosine(unit: UnitRows, units: Units | None = None) -> PairCosine:
    """(‖Σ e‖² − m)/(m(m − 1)) of m unit vectors; `units` are what is left out in turn.

    >>> found = pair_cosine(np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32))
    >>> round(found.value, 6), found.without.tolist()
    (0.333333, [0.0, 1.0, 0.0])
    """
    return grouped_cosines(unit, np.zeros(len(unit), dtype=np.int64), 1, units)[0]


def grouped_cosines(unit: UnitRows, groups: Index, count: int, units: Units | None = None) -> list[PairCosine]:
    """`pair_cosine` of every group of texts; `groups` has the group of each text, `units` what is left out in turn."""
    units = units or chosen_units(len(unit))
    sums = group_sums(unit, groups[None], count, dtype=np.float64)[0]
    sizes = np.bincount(groups, minlength=count).astype(np.float64)
    totals = np.einsum("ij,ij->i", sums, sums)
    # What a unit has of a group leaves it together.
    cells = Grouping.of(groups * len(units) + units.of)
    of_group, of_unit = np.divmod(cells.keys, max(len(units), 1))
    parts = unit[cells.order]
    if len(cells.keys) < len(unit):
        parts = np.add.reduceat(parts, cells.bounds[:-1], axis=0, dtype=np.float64)
    own = np.einsum("ij,ij->i", parts, sums[of_group], dtype=np.float64)
    rest = totals[of_group] - 2 * own + np.einsum("ij,ij->i", parts, parts, dtype=np.float64)
    cosines = []
    for group in range(count):
        here, m = of_group == group, sizes[group]
        left = m - cells.sizes[here]
        cosines.append(
            PairCosine(
                float(mean_cosine(totals[group], m)),
                mean_cosine(rest[here], left),
                of_unit[here],
                cells.sizes[here].astype(np.float64),
                units.name,
            )
        )
    return cosines


def mean_cosines(sums: Array, sizes: Array) -> Array:
    """Mean cosines over pairs from sums (… × groups × d) and sizes (groups); NaN for fewer than two texts."""
    return mean_cosine(np.einsum("...ij,...ij->...i", sums, sums), sizes)


def mean_cosine(squares: Array | float, m: Array | float) -> Array:
    """(‖Σ e‖² − m)/(m(m − 1)) from the squared lengths of sums of m unit vectors; NaN for fewer than two texts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(m > 1, (squares - m) / (m * (m - 1)), np.nan))


def group_sums(unit: NDArray[np.floating], assignments: Index, count: int, *, dtype: type = np.float32) -> Array:
    """Sums of the vectors by group for several assignments (a × N) at once: a × count × d, in blocks of texts.

    A product with a matrix of zeros and ones: for a few dozen groups faster than picking the rows apart.
    """
    times, texts = assignments.shape
    total = np.zeros((times, count, unit.shape[1]))
    step = max(1, min(4096, 2**24 // max(1, times * count)))
    numbers = np.arange(count)
    for start in range(0, texts, step):
        block = np.s_[start : start + step]
        members = (assignments[:, None, block] == numbers[:, None]).astype(dtype)
        flat = members.reshape(times * count, -1) @ unit[block].astype(dtype, copy=False)
        total += flat.reshape(times, count, -1)
    return total


def effective_rank(unit: NDArray[np.floating]) -> float:
    """exp of the entropy of the singular values of the centred vectors, scaled to sum 1 (Roy and Vetterli 2007).

    Between 1 and min(m − 1, d); it grows with the number of texts m, so that only sets of equal size compare. 0 where
    all vectors are the same.

    >>> round(effective_rank(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])), 6)
    2.0
    """
    centred = unit.astype(np.float64)
    centred -= centred.mean(axis=0)
    small = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(small), 0))
    values = values[values > 1e-7 * max(float(values[-1]), 1e-7)]
    if not len(values):
        return 0.0
    shares = values / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def isotropic_rank(count: int, dimension: int) -> float:
    """The effective rank of so many vectors without a preferred direction, by the law of Marchenko and Pastur (1967).

    With y = m/n, m the smaller and n the larger of count − 1 and dimension, the eigenvalues of the covariance lie
    between (1 − √y)² and (1 + √y)², with a density that is known. Draws differ from it by less
    than 1 %, of many more vectors than dimensions, or 64 dimensions and more, by less than 0.4 %.

    >>> round(isotropic_rank(1000, 384), 1)
    363.1
    """
    least, most = sorted((count - 1, dimension))
    ratio = least / most
    angles = (np.arange(_ANGLES) + 0.5) * np.pi / _ANGLES
    eigenvalues = 1 + ratio + 2 * np.sqrt(ratio) * np.cos(angles)
    density = np.sin(angles) ** 2 / eigenvalues
    values = np.sqrt(eigenvalues)
    mean, entropy = np.average(values, weights=density), np.average(values * np.log(values), weights=density)
    return float(least * mean * np.exp(-entropy / mean))


def rank_estimate(unit: UnitRows) -> Estimate:
    """Effective rank with an interval from leaving out one of 20 groups of texts in turn, single ones of up to 40.

    It grows with the number of texts, so that every group must have the same size: the few texts that are left over
    where 20 does not divide their number are in no group and stay.
    """
    value, count = effective_rank(unit), len(unit)
    number = count if count <= 2 * _GROUPS else _GROUPS
    size = count // number
    without = np.array([effective_rank(np.delete(unit, np.s_[k * size : (k + 1) * size], 0)) for k in range(number)])
    return Estimate(value, leave_one_out_interval(value, without, texts=count, size=size))


def largest_singular_values(M: NDArray[Any]) -> Array:
    """‖M‖₂ of every matrix of a stack (k × n × n), exact to the precision of its type.

    Large matrices by Lanczos iteration, until the residual says that the value is within 5e-6 of a singular value;
    those that do not get there, and small ones, by a full decomposition.

    >>> largest_singular_values(np.array([[[0.0, 3.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])).tolist()
    [5.0, 0.0]
    """
    if M.shape[1] < _ITERATE_FROM:
        return _full(M)
    values = _lanczos(M)
    open_ends = np.isnan(values)
    if open_ends.any():
        values[open_ends] = _full(M[open_ends])
    return values


def _full(M: NDArray[Any]) -> Array:
    squares = np.linalg.eigvalsh(M @ M.swapaxes(1, 2))[:, -1]
    return np.sqrt(np.maximum(squares, 0)).astype(np.float64)


def _lanczos(M: NDArray[Any]) -> Array:
    """Lanczos on MᵀM from a random start, all vectors kept orthogonal; NaN where the value did not become certain.

    With V orthonormal and MᵀM V = V T + β v eᵀ, an eigenpair (θ, y) of the small T gives ‖MᵀM x − θx‖ = β|last y| for
    x = Vy, so that an eigenvalue of MᵀM lies that near to θ.
    """
    count, n, _ = M.shape
    values, under_way = np.full(count, np.nan), np.arange(count)
    V = np.zeros((count, _MOST_STEPS + 1, n), dtype=M.dtype)
    T = np.zeros((count, _MOST_STEPS + 1, _MOST_STEPS + 1))
    start = np.random.default_rng(0).standard_normal(n)
    V[:, 0] = start / np.linalg.norm(start)
    size, rounding = np.zeros(count, dtype=M.dtype), 16 * np.finfo(M.dtype).eps
    for step in range(1, _MOST_STEPS + 1):
        basis = V[:, :step]
        w = M.swapaxes(1, 2) @ (M @ basis[:, -1, :, None])
        along = basis @ w
        w -= basis.swapaxes(1, 2) @ along
        w -= basis.swapaxes(1, 2) @ (basis @ w)  # once is not enough in float32
        T[:, step - 1, step - 1] = along[:, -1, 0]
        size = np.maximum(size, along[:, -1, 0])
        beta = np.sqrt(w.swapaxes(1, 2) @ w)[:, 0, 0]
        # A rest of the size of rounding has no direction: MᵀM has been seen whole, and the iteration ends there.
        beta[beta <= rounding * size] = 0
        T[:, step, step - 1] = beta
        np.divide(w[:, :, 0], beta[:, None], out=V[:, step], where=beta[:, None] > 0)
        if step in _CHECKED_STEPS:
            theta, y = np.linalg.eigh(T[:, :step, :step])
            more = beta * np.abs(y[:, -1, -1]) > _TOLERANCE * theta[:, -1]
            values[under_way[~more]] = np.sqrt(np.maximum(theta[~more, -1], 0))
            under_way, M, V, T, size = under_way[more], M[more], V[more], T[more], size[more]
            if not len(M):
                break
    return values


def equal_bins(values: Any, bins: int) -> tuple[Any, Any]:
    """Counts and edges as `numpy.histogram` gives them, also where values are so alike that it finds no room for bins.

    >>> counts, edges = equal_bins([1.0, 1.0 - 2**-53], 4)
    >>> int(counts.sum()), bool((edges[1:] > edges[:-1]).all())
    (2, True)
    """
    values = np.asarray(values, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    half = max((high - low) / 2, 1e-9 * max(abs(low), abs(high), 1e-9))
    middle = (low + high) / 2
    return np.histogram(values, bins, range=(min(low, middle - half), max(high, middle + half)))
