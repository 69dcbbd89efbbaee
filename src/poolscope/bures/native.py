"""The compiled kernel, if this installation has it."""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.bures.rational import square_root_poles
from poolscope.errors import InputError

LANES = 4  # pairs per vector instruction; a constant of kernel.c
_VECTOR_BYTES = LANES * 8
# The environment variable that chooses, and the copies of kernel.c with the poolscope_level() that they need, rising.
_CHOICE = "POOLSCOPE_KERNEL"
_COPIES = {"default": 0, "v3": 3, "v4": 4}


class Route(NamedTuple):
    """How nuclear norms are computed here: by a compiled function (None: by numpy), and the words for that.

    chosen: numpy by the user's choice, so that there is nothing to warn of.
    """

    function: Any | None
    words: str
    chosen: bool = False


def kernel() -> Any | None:
    """The compiled function, or None where numpy does its work."""
    return _route().function


def route() -> str:
    """In words, for people: the compiled kernel and its copy, or numpy and why."""
    return _route().words


@lru_cache
def warn_of_slow_route() -> None:
    """Say once a process that the compiled kernel is missing, and how to get it."""
    if _route().function is None and not _route().chosen:
        warnings.warn(
            f"distances of token clouds take several times as long as they could: {route()}. Reinstall poolscope with "
            f"a C compiler (gcc or clang) on the path, or set {_CHOICE}=numpy to say that you know.",
            stacklevel=3,
        )


@lru_cache
def _route() -> Route:
    """What the variable POOLSCOPE_KERNEL asks for, or the best that this CPU can run."""
    choice = os.environ.get(_CHOICE) or None
    if choice not in {None, "numpy", *_COPIES}:
        raise InputError(
            f"{_CHOICE}: received '{choice}'; allowed are {', '.join(_COPIES)} and numpy. Correct it, or unset it for "
            f"the fastest."
        )
    if choice == "numpy":
        return Route(None, f"numpy ({_CHOICE}=numpy)", chosen=True)
    library, problem = _library()
    if library is None:
        if choice:
            raise InputError(
                f"{_CHOICE}: received '{choice}', but there is {problem}. Unset it, or reinstall poolscope."
            )
        return Route(None, f"numpy ({problem})")
    runnable = [name for name, level in _COPIES.items() if level <= library.poolscope_level()]
    if choice and choice not in runnable:
        raise InputError(
            f"{_CHOICE}: received '{choice}', but this CPU runs {' and '.join(runnable)}. Choose one of these."
        )
    name = choice or runnable[-1]
    function = getattr(library, f"poolscope_norms_{name}")
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, integer, pointer, integer, pointer, integer, pointer, pointer, integer]
    function.argtypes += [pointer, pointer, pointer]
    function.restype = None
    return Route(function, f"compiled kernel ({name})")


def _library() -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None and why not."""
    files = sorted(Path(__file__).parent.glob("_kernel.*"))
    if not files:
        return None, "no compiled kernel: there was no C compiler when poolscope was installed"
    try:
        library = ctypes.CDLL(os.fspath(files[0]))
        library.poolscope_level.restype = ctypes.c_int64
    except (OSError, AttributeError) as error:
        return None, f"no usable compiled kernel: {files[0].name} was built for another machine or version ({error})"
    return library, ""


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
