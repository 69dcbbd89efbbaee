"""The compiled kernel, if this installation has it."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.words import logger, warn

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_log = logger(__name__)

# Constants of kernel.c: texts in a group, and columns that are converted at a time.
LANES, _CHUNK = 8, 64
_VECTOR_BYTES = 32
# The environment variable that chooses, and the copies of kernel.c with the poolscope_level() that they need, rising.
_CHOICE = "POOLSCOPE_KERNEL"
_COPIES = {"default": 0, "v3": 3, "v4": 4}


class Route(NamedTuple):
    """The route of nuclear norms: a compiled function (None: numpy), and a description in words.

    chosen: numpy by the user's choice, which is a line in the log and no warning. copy: the copy of the compiled
    function.
    """

    function: Any | None
    words: str
    chosen: bool = False
    copy: str | None = None


def kernel() -> Any | None:
    """The compiled function, or None where numpy does its work."""
    return _route().function


def copy_name() -> str | None:
    """The copy of compiled code that is used here: the one asked for, or the best that this CPU can run."""
    return _route().copy


def route() -> str:
    """In words, for people: the compiled kernel and its copy, or numpy and why."""
    return _route().words


@lru_cache
def warn_of_slow_route() -> None:
    """Say once a process that numpy computes distances; where nobody asked for that, also how to get the kernel."""
    slow = f"distances of token clouds take several times as long as they could: {route()}"
    if _route().chosen:
        _log.warning("%s.", slow)
    elif _route().function is None:
        warn(
            f"{slow}. Reinstall poolscope with a C compiler (gcc or clang) on the path, or set {_CHOICE}=numpy to say "
            f"that you know."
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
    runnable = runnable_copies()
    if choice and choice not in runnable:
        raise InputError(
            f"{_CHOICE}: received '{choice}', but this CPU runs {' and '.join(runnable)}. Choose one of these."
        )
    name = choice or runnable[-1]
    function = getattr(library, f"poolscope_norms_{name}")
    function.argtypes, function.restype = [ctypes.c_void_p], None
    return Route(function, f"compiled kernel ({name})", copy=name)


def runnable_copies() -> list[str]:
    """The copies of the compiled kernel that this CPU can run, the fastest last; none where there is no kernel."""
    library, _ = _library()
    return [] if library is None else [name for name, level in _COPIES.items() if level <= library.poolscope_level()]


@lru_cache
def _library() -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None and why not."""
    files = sorted(Path(__file__).parent.glob("_kernel.*"))
    if not files:
        return None, "no compiled kernel: there was no C compiler when poolscope was installed"
    try:
        library = ctypes.CDLL(os.fspath(files[0]))
        for name in ("level", "lanes", "block_bytes"):
            getattr(library, f"poolscope_{name}").restype = ctypes.c_int64
        if (lanes := library.poolscope_lanes()) != LANES:
            raise OSError(f"groups of {lanes} texts instead of {LANES}")
        if (size := library.poolscope_block_bytes()) != ctypes.sizeof(_Block):
            raise OSError(f"blocks of {size} bytes instead of {ctypes.sizeof(_Block)}")
    except (OSError, AttributeError) as error:
        return None, f"no usable compiled kernel: {files[0].name} was built for another machine or version ({error})"
    return library, ""


class Ridge(NamedTuple):
    """The published trace instead of the nuclear norm: eps is added before each square root.

    on_left: the second text of the pairs, on whose side the Gram matrix is taken, is the left one; energies: squared
    norms of its rows, in the order of the products; scales of the left and the right texts.
    """

    eps: float
    on_left: bool
    energies: Array
    left_scales: Array
    right_scales: Array


class _Block(ctypes.Structure):
    """`struct block` of kernel.c, field by field."""

    _fields_ = [
        ("products", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("left", ctypes.c_void_p),
        ("lefts", ctypes.c_int64),
        ("right", ctypes.c_void_p),
        ("groups", ctypes.c_int64),
        ("pole", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("poles", ctypes.c_int64),
        ("left_corners", ctypes.c_void_p),
        ("right_corners", ctypes.c_void_p),
        ("side", ctypes.c_int64),
        ("ridge", ctypes.c_void_p),
        ("eps", ctypes.c_double),
        ("left_scales", ctypes.c_void_p),
        ("right_scales", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("norms", ctypes.c_void_p),
        ("squares", ctypes.c_void_p),
        ("wanted", ctypes.c_void_p),
        ("pairs", ctypes.c_void_p),
        ("gathered", ctypes.c_void_p),
    ]


def norms(
    products: NDArray[np.float32],
    left: Index,
    right: Index,
    *,
    corners: tuple[Array, Array] | None = None,
    ridge: Ridge | None = None,
    wanted: NDArray[np.bool_] | None = None,
) -> tuple[Array, Array]:
    """Nuclear norms and squared Frobenius norms of the sub-blocks of `products`, by the compiled kernel.

    `left` are row offsets of the left texts, `right` offsets of the groups of LANES interleaved right texts, in units
    of LANES columns. All singular values must be at most 1, but for a large direction that both sides share: it is
    given as `corners` of left texts and right lanes, whose product is added to the first entry of each sub-block.
    Both results are (left texts × right lanes), as is `wanted`, which is False where a pair may be left out; a NaN
    among the nuclear norms marks a pair for which rounding came too close to a pole, or whose corner is not large.
    """
    assert products.dtype == np.float32
    assert products.shape[1] < 2 or products.strides[1] == products.itemsize
    heights = int(np.diff(left).max(initial=0)), int(np.diff(right).max(initial=0))
    block = _Block(
        products=products.ctypes.data,
        stride=products.strides[0] // products.itemsize,
        left=left.ctypes.data,
        lefts=len(left) - 1,
        right=right.ctypes.data,
        groups=len(right) - 1,
    )
    if corners is not None:
        block.left_corners, block.right_corners = (part.ctypes.data for part in corners)
    if ridge is not None:
        block.side, block.eps, block.ridge = 1 if ridge.on_left else 2, ridge.eps, ridge.energies.ctypes.data
        block.left_scales, block.right_scales = ridge.left_scales.ctypes.data, ridge.right_scales.ctypes.data
    if wanted is not None:
        wanted = np.ascontiguousarray(wanted)
        block.wanted = wanted.ctypes.data
    return _run(block, min(heights) if ridge is None else heights[0 if ridge.on_left else 1], max(heights))


def listed_norms(
    products: NDArray[np.float32], first: tuple[Index, Index], sizes: tuple[Index, Index], corners: Array | None = None
) -> tuple[Array, Array]:
    """Norms of a list of sub-blocks, by the row and column at which each begins and its numbers of rows and columns.

    LANES neighbours are treated together, and padded to the largest of them, so they should be of similar size.
    `corners`: one a sub-block.
    """
    count, stride = len(first[0]), products.strides[0] // products.itemsize
    pairs = np.zeros((-(-count // LANES) * LANES, 3), dtype=np.int64)
    pairs[:count, 0], pairs[:count, 1], pairs[:count, 2] = first[0] * stride + first[1], *sizes
    side, longest = (int(fold(*sizes).max(initial=0)) for fold in (np.minimum, np.maximum))
    block = _Block(products=products.ctypes.data, stride=stride, lefts=1, groups=len(pairs) // LANES)
    block.pairs = pairs.ctypes.data
    gathered = np.empty((side * longest + 1) * LANES, dtype=np.float32)
    block.gathered = _aligned(gathered)
    if corners is not None:
        both = np.ones(1), np.pad(corners, (0, len(pairs) - count))
        block.left_corners, block.right_corners = (part.ctypes.data for part in both)
    nuclear, squares = _run(block, side, longest)
    return nuclear[0, :count], squares[0, :count]


def _aligned(array: NDArray[Any]) -> int:
    """The first address of an array that is aligned to a vector."""
    return array.ctypes.data + -array.ctypes.data % _VECTOR_BYTES


def _run(block: _Block, side: int, longest: int) -> tuple[Array, Array]:
    """The norms of a block; `side` bounds the smaller side, or the Gram matrix, and `longest` the longer side."""
    function = kernel()
    assert function is not None, "the caller checks kernel() first"
    poles, weights = square_root_poles()
    scratch = np.empty(scratch_doubles(side, longest) + _VECTOR_BYTES // 8)
    nuclear, squares = np.empty((2, block.lefts, block.groups * LANES))
    block.pole, block.weight, block.poles = poles.ctypes.data, weights.ctypes.data, len(poles)
    block.scratch = _aligned(scratch)
    block.norms, block.squares = nuclear.ctypes.data, squares.ctypes.data
    function(ctypes.byref(block))
    return nuclear, squares


def scratch_doubles(side: int, longest: int) -> int:
    """What kernel.c needs where the smaller side, or that of the Gram matrix, is at most this: of every route the most.

    The Gram matrix with six vectors, and the rows of C: whole with eight vectors, or one chunk of columns.
    """
    vectors = side * (side + 1) // 2 + 6 * side + (side + 8) * max(longest + 1, _CHUNK)
    return vectors * _VECTOR_BYTES // 8


# -- the square root as a sum of poles --------------------------------------------------------------------------------

# The square root as a sum of simple poles, so that tr √G needs no eigenvalues.
#
# √x = (2/π) ∫₀^∞ x/(x + t²) dt. Substituting t = a·sc(y) (a Jacobi elliptic function of complementary modulus a) makes
# the integrand periodic, and the midpoint rule with N points then is Zolotarev's best rational approximation of this
# form on [a², 1]: its error falls geometrically in N and hardly depends on a.

# Singular values are resolved down to 1e-6 of the largest possible one, with a relative error of 4e-9; below that
# the absolute error is 5e-8 of it. A multiple of the kernel's unrolling.
SMALLEST_ROOT = 1e-6
POLES = 32


@lru_cache
def square_root_poles(
    smallest_root: float = SMALLEST_ROOT, count: int = POLES
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Poles p (rising) and weights w with √x ≈ Σ w_k x/(x + p_k) for x in [smallest_root², 1].

    >>> poles, weights = square_root_poles()
    >>> abs(float(weights @ (0.25 / (0.25 + poles))) - 0.5) < 5e-8
    True
    """
    a = smallest_root
    quarter_period, amplitude = _amplitudes(a, count)
    half = (count + 1) // 2  # the rest by symmetry, where cos(amplitude) would lose its digits
    tangent = np.tan(amplitude[:half])
    lower = (a * tangent) ** 2
    poles = np.concatenate([lower, (a**2 / lower)[: count - half][::-1]])
    # dt/dy = a·dn/cn², and with t = √p this is √((t² + a²)(t² + 1)).
    weights = 2 / np.pi * quarter_period / count * np.sqrt((poles + a**2) * (poles + 1))
    grid = np.exp(np.linspace(2 * np.log(a), 0, 4001))
    ratio = (grid[:, None] / (grid[:, None] + poles)) @ weights / np.sqrt(grid)
    return poles, weights * 2 / (ratio.max() + ratio.min())


def _amplitudes(a: float, count: int) -> tuple[float, NDArray[np.float64]]:
    """Quarter period K and the Jacobi amplitudes at (j − ½)K/count, by the arithmetic-geometric mean.

    The complementary modulus a enters directly, so that nothing is lost in forming 1 − a² for tiny a.
    """
    means, differences = [1.0], [np.sqrt(1 - a * a)]
    geometric = a
    while differences[-1] > 1e-16 * means[-1]:
        differences.append((means[-1] - geometric) / 2)
        means, geometric = [*means, (means[-1] + geometric) / 2], np.sqrt(means[-1] * geometric)
    quarter_period = np.pi / (2 * means[-1])
    angle = 2 ** (len(means) - 1) * means[-1] * quarter_period * (np.arange(count) + 0.5) / count
    for mean, difference in zip(means[:0:-1], differences[:0:-1], strict=True):
        angle = (angle + np.arcsin(difference / mean * np.sin(angle))) / 2
    return float(quarter_period), angle
