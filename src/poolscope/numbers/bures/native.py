"""The compiled kernel, if this installation has it."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures.rational import square_root_poles

LANES = 4  # pairs per vector instruction; a constant of kernel.c
_VECTOR_BYTES = LANES * 8


@lru_cache
def kernel() -> Any | None:
    """The compiled function, or None where there was no compiler at install time.

    `POOLSCOPE_KERNEL=numpy` in the environment turns it off.
    """
    files = sorted(Path(__file__).parent.glob("_kernel.*"))
    if not files or os.environ.get("POOLSCOPE_KERNEL") == "numpy":
        return None
    try:
        function = ctypes.CDLL(os.fspath(files[0])).poolscope_nuclear_norms
    except (OSError, AttributeError):  # built for another machine
        return None
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, integer, pointer, integer, pointer, integer, pointer, pointer, integer]
    function.argtypes += [pointer, pointer, pointer]
    function.restype = None
    return function


def norms(
    block: NDArray[np.float32], left: NDArray[np.int64], right: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nuclear norms and squared Frobenius norms of the sub-blocks of `block`, by the compiled kernel.

    `left` are row offsets of the left texts, `right` offsets of the groups of LANES interleaved right texts, in units
    of LANES columns. All singular values must be at most 1. Both results are (left texts × right lanes); a NaN among
    the nuclear norms marks a pair for which rounding came too close to a pole.
    """
    function = kernel()
    assert function is not None, "the caller checks kernel() first"
    assert block.dtype == np.float32
    assert block.flags.c_contiguous
    poles, weights = square_root_poles()
    lefts, groups = len(left) - 1, len(right) - 1
    side = int(min(np.diff(left).max(initial=0), np.diff(right).max(initial=0)))
    scratch = np.empty((side * (side + 1) // 2 + 6 * side + 1) * LANES)
    aligned = scratch.ctypes.data + (-scratch.ctypes.data) % _VECTOR_BYTES
    nuclear, squares = np.empty((2, lefts, groups * LANES))
    function(
        block.ctypes.data,
        block.shape[1],
        left.ctypes.data,
        lefts,
        right.ctypes.data,
        groups,
        poles.ctypes.data,
        weights.ctypes.data,
        len(poles),
        aligned,
        nuclear.ctypes.data,
        squares.ctypes.data,
    )
    return nuclear, squares
