"""What the compiled kernel does, in numpy: for every platform, and to check the kernel against.

The nuclear norm of a cross product C is tr √G with its Gram matrix G = C Cᵀ, taken on the smaller side. As in the
kernel, no eigenvalue is computed. G is turned to tridiagonal form T, by LAPACK one by one or by numpy all at once, and
√x is written as a sum of logarithms of 1 + x/p, so that the trace is a sum of log determinants of 1 + T/p: short
recurrences, which run over many pairs at once. Everything after the float32 product is float64. The two variants of the
kernel go by LAPACK alone.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures.native import LANES, SMALLEST_ROOT, Array, Index, Ridge, square_root_poles

# Numbers in the matrices of a cell, few enough for the cache; and of those that are reduced together: many, so that
# threads seldom wait for the interpreter's lock.
_CELL, _TOGETHER = 400_000, 1_200_000
# So many matrices are enough to be reduced together; to reach them, smaller ones are padded by up to this factor. Where
# they are reduced one by one, padding costs less.
_ENOUGH, _STRETCH, _LOOSE = 512, 1.06, 1.3
# Tridiagonal matrices whose determinants are computed together: enough for numpy, and few enough for the cache.
_IN_CACHE = 1024
# Logarithms in the square root, and pivots that are multiplied before one is taken: no product of so many leaves the
# range of float64.
_LOGARITHMS, _FACTORS = 28, 16
# What `dsytrd` of LAPACK must look like for compiled code: 32-bit integers, everything by its address.
_SIGNATURE = b"void (char *, int *, "
_ARGUMENTS = 10
_LOWER = ctypes.create_string_buffer(b"L")  # the triangle that is read
# Measured: below this side the blocked form of the reduction is slower. It takes memory for so many columns.
_BLOCKED_SIDE, _BLOCK = 112, 32
# Measured: up to this side, numpy takes so many matrices or more together faster than LAPACK one by one.
_LARGEST_SIDE, _FEWEST = 20, 256
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
    """Norms as `native.norms` gives them, but without NaN."""
    if wanted is None:
        wanted = np.ones((len(left) - 1, (len(right) - 1) * LANES), dtype=bool)
    if corners is None and ridge is None:
        return _nuclear(products, left, right, wanted)
    wanted_groups = np.asarray(wanted.reshape(len(left) - 1, -1, LANES).any(axis=2))
    nuclear, squares = np.zeros((2, len(left) - 1, (len(right) - 1) * LANES))
    for texts, groups in _batches(left, right, wanted_groups):
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


def _batches(left: Index, right: Index, wanted: NDArray[np.bool_]) -> Iterator[tuple[Index, Index]]:
    """Positions of left texts and of right groups, pair by pair, so many that their Gram matrices fit the cache."""
    if not wanted.any():
        return
    side = int(min(np.diff(left).max(), np.diff(right).max()))
    step = max(4, _CELL // (LANES * max(1, side) ** 2))
    texts, partners = np.nonzero(wanted)
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


def _nuclear(
    products: NDArray[np.float32], left: Index, right: Index, wanted: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """‖C‖_* = tr √(C Cᵀ) and ‖C‖_F², with C Cᵀ on the smaller side; of pairs that are not wanted perhaps zero."""
    lanes = wanted.reshape(len(left) - 1, len(right) - 1, LANES)
    nuclear, squares = np.zeros((2, *lanes.shape))
    for cells in _batches_by_side(np.diff(left), np.diff(right), np.asarray(lanes.any(axis=2))):
        m, ends = cells[-1].side, np.cumsum([cell.matrices for cell in cells])
        together = _pays_together(m, int(ends[-1]))
        grams = _buffer("grams", m, m, int(ends[-1])) if together else np.empty((m, m, 0))
        diagonal, beside = np.zeros((2, m, ends[-1]))
        for cell, end in zip(cells, ends.tolist(), strict=True):
            gram, places = _grams(products, left, right, cell), slice(end - cell.matrices, end)
            if together:
                grams[cell.side :, :, places] = grams[:, cell.side :, places] = 0
                grams[: cell.side, : cell.side, places] = gram.transpose(1, 2, 0)
            else:
                chosen = np.flatnonzero(lanes[cell.texts, cell.groups])
                one_by_one(gram, chosen, diagonal, beside, places.start)
        if together:
            diagonal, beside = all_at_once(grams)
        for found, part in zip((nuclear, squares), root_traces(diagonal, beside), strict=True):
            for cell, values in zip(cells, np.split(part, ends[:-1]), strict=True):
                place = found[cell.texts, cell.groups]
                place[:] = values.reshape(place.shape)
    return nuclear.reshape(wanted.shape), squares.reshape(wanted.shape)


class _Cell(NamedTuple):
    """Left texts of one height with right groups of one height: matrices of one shape, with their smaller side.

    A few calls of numpy treat all of them. A few calls for each group would cost more than its matrices: threads take
    the interpreter's lock in turns at every call.
    """

    texts: slice
    groups: slice
    side: int
    matrices: int


def _batches_by_side(heights: Index, widths: Index, wanted: NDArray[np.bool_]) -> Iterator[list[_Cell]]:
    """The cells that are asked for, together where their sides are about equal, and not too many."""
    batch: list[_Cell] = []
    for cell in sorted(_cells(heights, widths, wanted), key=lambda cell: cell.side):
        smallest = batch[0].side if batch else cell.side
        if smallest > _LARGEST_SIDE:
            enough, stretch = _IN_CACHE, _LOOSE
        else:  # few matrices of one side are joined by those of the next sizes
            enough, stretch = _ENOUGH if cell.side > smallest else _TOGETHER // cell.side**2, _STRETCH
        if sum(other.matrices for other in batch) >= enough or cell.side > smallest * stretch:
            yield batch
            batch = []
        batch.append(cell)
    if batch:
        yield batch


def _cells(heights: Index, widths: Index, wanted: NDArray[np.bool_]) -> Iterator[_Cell]:
    """Only what is asked for as a whole, since other products may not have been computed."""
    if not wanted.any():
        return
    for first, last in _equal_runs(np.column_stack([heights, wanted])):
        for begin, end in _equal_runs(np.column_stack([widths, wanted[first]])):
            side = int(min(heights[first], widths[begin]))
            if not (side and wanted[first, begin]):
                continue
            most = max(1, _CELL // (LANES * side**2))
            tall = min(last - first, most)
            wide = most // tall
            for i in range(first, last, tall):
                for j in range(begin, end, wide):
                    texts, groups = slice(i, min(i + tall, last)), slice(j, min(j + wide, end))
                    count = (texts.stop - texts.start) * (groups.stop - groups.start) * LANES
                    yield _Cell(texts, groups, side, count)


def _equal_runs(rows: Index) -> Iterator[tuple[int, int]]:
    """Where runs of equal rows begin and end."""
    changes = np.flatnonzero((np.diff(rows, axis=0) != 0).any(axis=1)) + 1
    return pairwise([0, *changes.tolist(), len(rows)])


def _grams(products: NDArray[np.float32], left: Index, right: Index, cell: _Cell) -> Array:
    """C Cᵀ of the pairs of a cell, on the smaller side, in float64."""
    (i, j), (first, last) = (cell.texts.start, cell.texts.stop), (cell.groups.start, cell.groups.stop)
    block = products[left[i] : left[j], right[first] * LANES : right[last] * LANES]
    matrices = block.reshape(j - i, left[i + 1] - left[i], last - first, -1, LANES)
    axes = (0, 2, 4, 1, 3) if matrices.shape[1] <= matrices.shape[3] else (0, 2, 4, 3, 1)
    rows = matrices.transpose(axes).astype(np.float64, order="C").reshape(cell.matrices, cell.side, -1)
    return np.asarray(rows @ rows.swapaxes(1, 2))  # numpy sees that half of it is enough


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


# -- tridiagonal form, by LAPACK one by one ----------------------------------------------------------------------------


@lru_cache
def lapack() -> Any | None:
    """`dsytrd` as scipy offers it to compiled code, or None where that is not as expected.

    Called this way it releases the interpreter's lock, which `scipy.linalg.lapack.dsytrd` keeps.
    """
    from scipy.linalg import cython_lapack  # not before it is needed: the compiled kernel does without

    capsule = getattr(cython_lapack, "__pyx_capi__", {}).get("dsytrd")
    if capsule is None:
        return None
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.argtypes, name.restype = [ctypes.py_object], ctypes.c_char_p
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    signature = name(capsule)
    if not signature.startswith(_SIGNATURE) or signature.count(b",") != _ARGUMENTS - 1:
        return None
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * _ARGUMENTS)(pointer(capsule, signature))


def one_by_one(matrices: Array, chosen: Index, diagonal: Array, beside: Array, place: int) -> None:
    """Reduce the chosen ones of matrices (count × m × m, overwritten), and put the results where `all_at_once` would.

    That of matrix k goes to column place + k of the diagonals and of what is beside them, squared, which have m rows or
    more.
    """
    m, reduce = matrices.shape[1], lapack()
    columns = _BLOCK if m >= _BLOCKED_SIDE else 0
    vectors, memory = np.zeros((len(chosen), 2, m + 1)), np.empty(m * (columns + 1) + 1)
    if reduce is None:
        _in_python(matrices, chosen, vectors)
    else:
        fixed = (ctypes.c_int(m), ctypes.c_int(max(1, m * columns)), ctypes.c_int(0))
        n, room, failed = (repeat(ctypes.addressof(number)) for number in fixed)
        rows = np.arange(len(chosen)) * vectors.strides[0]
        matrix, d, e = (
            (array.ctypes.data + steps).tolist()
            for array, steps in ((matrices, chosen * matrices.strides[0]), (vectors, rows), (vectors[:, 1:, 1:], rows))
        )
        factors, work = repeat(memory.ctypes.data), repeat(memory[m:].ctypes.data)
        # Between two calls this thread needs the interpreter's lock, so that as little as possible is done there.
        deque(map(reduce, repeat(_LOWER), n, matrix, n, d, e, factors, work, room, failed), maxlen=0)
    diagonal[:m, place + chosen] = vectors[:, 0, :m].T
    beside[:m, place + chosen] = vectors[:, 1, :m].T ** 2


def _in_python(matrices: Array, chosen: Index, vectors: Array) -> None:
    from scipy.linalg.lapack import dsytrd

    m = matrices.shape[1]
    for row, k in enumerate(chosen.tolist()):
        _, vectors[row, 0, :m], vectors[row, 1, 1:m], _, _ = dsytrd(matrices[k], lower=1)


# -- tridiagonal form, by numpy all at once ----------------------------------------------------------------------------


def _pays_together(side: int, count: int) -> bool:
    """Whether so many matrices of one side are reduced sooner together than one by one."""
    return 0 < side <= _LARGEST_SIDE and count >= _FEWEST


def _buffer(name: str, rows: int, columns: int, count: int) -> Array:
    """Memory of this thread (rows × columns × count), not cleared: fresh memory costs as much as what is done with it.

    Entries are an odd number of cache lines apart, so that they do not all fall into the same sets of the cache.
    """
    stride = (-(-count // _LINE) | 1) * _LINE
    buffer: Array | None = getattr(_buffers, name, None)
    if buffer is None or buffer.size < rows * columns * stride:
        buffer = np.empty(rows * columns * stride)
        setattr(_buffers, name, buffer)
    return buffer[: rows * columns * stride].reshape(rows, columns, stride)[:, :, :count]


def all_at_once(matrices: Array) -> tuple[Array, Array]:
    """Householder reduction of m × m × count: the diagonals, and what is beside them squared (m × count, the first 0).

    A matrix G is never written to. After k mirrors it stands for G − Σ (w qᵀ + q wᵀ) over them, and `pairs` keeps w and
    q: a pass over G that only reads, and one over the vectors, cost less in numpy than an update of G.
    """
    m, _, count = matrices.shape
    pairs = _buffer("mirrors", 2 * m, m, count)  # w, q, w, q …
    diagonal, beside = np.empty((m, count)), np.zeros((m, count))
    for k in range(m):
        before = pairs[: 2 * k]
        column = matrices[k:, k] - np.einsum("ril,rl->il", before[:, k:], _exchanged(before[:, k]))
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
        np.einsum("ijl,il->jl", matrices[k + 1 :, k + 1 :], w, out=q)
        rest = before[:, k + 1 :]
        q -= np.einsum("ril,rl->il", rest, _exchanged(np.einsum("ril,il->rl", rest, w)))
        q *= inverse
        q -= 0.5 * np.einsum("il,il->l", w, q) * inverse * w
    return diagonal, beside


def _exchanged(values: Array) -> Array:
    """Rows w, q, w, q … as q, w, q, w …"""
    return np.asarray(values.reshape(-1, 2, values.shape[1])[:, ::-1].reshape(values.shape))


# -- the trace of the square root of tridiagonal matrices --------------------------------------------------------------


def root_traces(diagonal: Array, beside: Array) -> tuple[Array, Array]:
    """tr √T and tr T of tridiagonal matrices (m × matrices) with eigenvalues from 0, up to rounding, to 1.

    diagonal; beside: what stands next to it, squared, the first row zero. Zeros at the end change nothing.
    """
    parts = [slice(start, start + _IN_CACHE) for start in range(0, diagonal.shape[1], _IN_CACHE)]
    roots = np.concatenate([_root_traces(diagonal[:, part], beside[:, part]) for part in parts])
    return roots, np.asarray(diagonal.sum(axis=0))


def _root_traces(diagonal: Array, beside: Array) -> Array:
    """tr √T = ½ Σ_k v_k log det(1 + T/p_k), where det(p_k + T) is the product of the pivots."""
    poles, weights = square_root_logarithms()
    p = poles[:, None]
    pivots, x = np.ones((2, len(poles), diagonal.shape[1]))
    product, logarithms = pivots.copy(), -len(diagonal) * np.log(p)
    lowest = np.ones(diagonal.shape[1])
    with np.errstate(all="ignore"):  # behind a pivot that is not positive anything may come; it is not used
        for row, (d, e2) in enumerate(zip(diagonal, beside, strict=True), start=1):
            np.divide(e2, pivots, out=x)
            np.add(d, p, out=pivots)
            np.subtract(pivots, x, out=pivots)
            np.minimum(lowest, pivots[0], out=lowest)  # the poles rise, so that it shows at the first
            np.multiply(product, pivots, out=product)
            if row % _FACTORS == 0:
                logarithms = logarithms + np.log(product)
                product[:] = 1.0
        roots = weights @ (logarithms + np.log(product)) / 2
    for k in np.flatnonzero(~(lowest > 0)):  # rounding has made T indefinite by more than the smallest pole can bear
        matrix = np.diag(diagonal[:, k]) + np.diag(np.sqrt(beside[1:, k]), -1)
        roots[k] = np.sqrt(np.linalg.eigvalsh(matrix).clip(min=0)).sum()
    return np.asarray(roots)


@lru_cache
def square_root_logarithms() -> tuple[Array, Array]:
    """Poles p (rising) and weights v with √x ≈ ½ Σ v_k log(1 + x/p_k) for x in [0, 1].

    √x is the integral of 1/(2√s), and 1/√s ≈ Σ w_k/(s + p_k) with the poles and weights of `square_root_poles`. Its
    integral misses what lies below `SMALLEST_ROOT`², a constant. The difference of the first two logarithms is a step
    there, and fills the gap. The error of roots is 9e-8 below that root and 3e-9 above ten times that.

    >>> poles, weights = square_root_logarithms()
    >>> abs(float(weights @ np.log1p(0.25 / poles)) / 2 - 0.5) < 5e-9
    True
    """
    poles, weights = square_root_poles(SMALLEST_ROOT, _LOGARITHMS)
    missing = 1 - float(weights @ np.log1p(1 / poles)) / 2
    step = 2 * missing / float(np.log(poles[1] / poles[0]))
    return poles, np.concatenate([[weights[0] + step, weights[1] - step], weights[2:]])
