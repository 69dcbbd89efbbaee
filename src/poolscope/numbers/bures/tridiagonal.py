"""Many small symmetric matrices, each turned to tridiagonal form: by LAPACK one by one, or by numpy all at once."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# What `dsytrd` of LAPACK must look like for compiled code: 32-bit integers, everything by its address.
_SIGNATURE = b"void (char *, int *, "
_ARGUMENTS = 10
_LOWER = ctypes.create_string_buffer(b"L")  # the triangle that is read
# Measured: below this side the blocked form of the reduction is slower. It takes memory for so many columns.
_BLOCKED_SIDE, _BLOCK = 112, 32
# Measured: up to this side, numpy takes so many matrices or more together faster than LAPACK one by one.
LARGEST_SIDE, _FEWEST = 20, 256
# A row that is as good as zero needs no mirror.
_TINY = 1e-290
_LINE = 8  # numbers in a cache line
_buffers = threading.local()


# -- by LAPACK --------------------------------------------------------------------------------------------------------


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


# -- by numpy ---------------------------------------------------------------------------------------------------------


def pays_together(side: int, count: int) -> bool:
    """Whether so many matrices of one side are reduced sooner together than one by one."""
    return 0 < side <= LARGEST_SIDE and count >= _FEWEST


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


def all_at_once(matrices: Array) -> tuple[Array, Array]:
    """Householder reduction of m × m × count: the diagonals, and what is beside them squared (m × count, the first 0).

    A matrix G is never written to. After k mirrors it stands for G − Σ (w qᵀ + q wᵀ) over them, and `pairs` keeps w and
    q: a pass over G that only reads, and one over the vectors, cost less in numpy than an update of G.
    """
    m, _, count = matrices.shape
    pairs = buffer("mirrors", 2 * m, m, count)  # w, q, w, q …
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
