"""First and second moments of token clouds. numpy in, numpy out; float64 wherever it decides accuracy.

A cloud is `X` (n tokens × d dimensions); `weights` (n numbers ≥ 0, scaled here to sum 1) replace the uniform
1/n for weighted pooling. All functions refuse clouds that are empty or hold NaN or infinity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from poolscope.arguments import as_array
from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import DegenerateCloudError, InputError

Array = NDArray[np.float64]

# The largest number of a cloud that can be squared and summed, and one of which a small mean can be squared, too.
_LARGEST, _SMALLEST = 1e150, 1e-100
# Clouds of equal length are taken together, up to so many numbers: few enough for the cache.
_STACK_SIZE = 50_000


def mean(cloud: Any, weights: ArrayLike | None = None) -> Array:
    """The pooled vector, μ(X) = Σ wᵢ xᵢ (d numbers).

    >>> mean([[1.0, 0.0], [3.0, 2.0]])
    array([2., 1.])
    """
    X, w = _checked(cloud, weights)
    return w @ X


def deviations(cloud: Any, weights: ArrayLike | None = None) -> Array:
    """The centred, weighted rows `√wᵢ (xᵢ − μ)` (n × d): a factor F of the covariance, Σ(X) = FᵀF.

    >>> deviations([[1.0, 0.0], [3.0, 0.0]]).round(4).tolist()
    [[-0.7071, 0.0], [0.7071, 0.0]]
    """
    X, w = _checked(cloud, weights)
    if np.abs(X).max() > _LARGEST:
        raise InputError(
            f"received token values up to {np.abs(X).max():.0e}, whose squares are beyond double precision; allowed is "
            f"up to {_LARGEST:.0e}. Divide the cloud by a constant; socm_pair and concentration_ratio need no scale."
        )
    return (X - w @ X) * np.sqrt(w)[:, None]


def spread(cloud: Any, weights: ArrayLike | None = None) -> float:
    """Total variance around the mean, S(X) = tr Σ(X) = Σ wᵢ ‖xᵢ − μ‖²; 0 for one token.

    >>> round(spread([[1.0, 0.0], [3.0, 0.0]]), 12)
    1.0
    """
    return float((deviations(cloud, weights) ** 2).sum())


def concentration_ratio(cloud: Any, weights: ArrayLike | None = None) -> float:
    """Spread relative to the pooled vector, S(X)/‖μ(X)‖²; small means concentrated.

    >>> round(concentration_ratio([[1.0, 0.0], [3.0, 0.0]]), 12)
    0.25
    """
    return _unit_mean(cloud, weights).trace


def unit_mean_factor(cloud: Any, weights: ArrayLike | None = None) -> tuple[Array, Array]:
    """Unit mean and factor of the cloud scaled to ‖μ‖ = 1.

    Returns `(u, F)` with `u = μ/‖μ‖` (d) and `F` (n × d), rows `√wᵢ (xᵢ − μ)/‖μ‖`, so that the covariance of the
    scaled cloud is `FᵀF` and its trace `‖F‖²`. The covariance itself is never formed.

    >>> unit_mean_factor([[2.0, 1.0], [2.0, -1.0]])[1].round(4).tolist()
    [[0.0, 0.3536], [0.0, -0.3536]]
    """
    parts = _unit_mean(cloud, weights)
    return parts.unit, parts.rows


def unit_mean_factors(stack: Array, dtype: DTypeLike = np.float64) -> tuple[Array, Array, Array]:
    """`unit_mean_factor` of a stack of equal-length clouds (texts × n × d): unit means, factors and traces.

    dtype: of the token vectors before they became float64. Degenerate clouds (zero mean, NaN, infinity) have a trace of
    NaN or infinity, for the caller to find and name.
    """
    means, _, factors, traces = _unit_mean_stack(stack, dtype)
    return means, factors, traces


def _unit_mean_stack(stack: Array, dtype: DTypeLike) -> tuple[Array, Array, Array, Array]:
    """Unit means, norms of the means, factors and traces of a stack (texts × n × d)."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        stack, scales = _moderate(stack)
        centres = stack.mean(axis=1)
        norms = np.linalg.norm(centres, axis=1)
        factors = stack - centres[:, None]
        factors *= (1 / (norms * np.sqrt(stack.shape[1])))[:, None, None]
        traces = np.einsum("kij,kij->k", factors, factors)
        traces[traces >= _largest_trace(dtype, stack.shape[1])] = np.inf
        return centres / norms[:, None], norms * scales, factors, traces


def stacks_of_equal_length(lengths: NDArray[np.int64], dimension: int, size: int) -> Iterator[list[int]]:
    """Positions of texts of equal length, in lists whose clouds have about `size` numbers together."""
    order = np.argsort(lengths, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(same):
            step = max(1, size // (int(lengths[same[0]]) * dimension))
            yield from (same[start : start + step].tolist() for start in range(0, len(same), step))


def largest_trace(n: Any, *, stored: float, summed: float) -> Any:
    """The trace of a unit-mean cloud of n tokens (a number or an array) from which on its mean can be mere rounding.

    With r the root mean square of the token norms, the trace is r²/‖μ‖² − 1. Storing the vectors, with a precision of
    `stored`, moves their mean by up to about stored·r, and summing them to centre them by √n·summed·r.
    """
    return (4 * (stored + n**0.5 * summed)) ** -2


def within_text_cosine(cloud: Any, weights: ArrayLike | None = None) -> float:
    """Mean of the full n × n cosine matrix of the tokens, diagonal included: ‖Σ wᵢ xᵢ/‖xᵢ‖‖².

    1 for one token. A zero token vector has no direction and is an error.

    >>> within_text_cosine([[2.0, 0.0], [0.0, 5.0]])
    0.5
    """
    X, w = _checked(cloud, weights)
    X = _moderate(X[None])[0][0]
    norms = np.linalg.norm(X, axis=1)
    if (norms == 0).any():
        raise DegenerateCloudError(
            f"token {int(np.flatnonzero(norms == 0)[0])} is the zero vector, which has no cosine. Leave it out."
        )
    direction = (w / norms) @ X
    return float(direction @ direction)


@dataclass(frozen=True)
class TextMoments:
    """What one pass over the clouds gives for every text: unit mean (texts × d), norm of the mean, and the trace of the
    covariance after scaling to unit mean, which is the concentration ratio.
    """

    unit_means: Array
    norms: Array
    traces: Array


def text_moments(clouds: TokenClouds, texts: NDArray[np.int64] | None = None) -> TextMoments:
    """Moments of every text, or of these positions. A text with NaN, infinity or a zero mean is an error that names it.

    >>> text_moments(TokenClouds.from_arrays([[[1.0, 1.0]], [[3.0, 0.0], [1.0, 0.0]]]), np.array([1])).norms
    array([2.])
    """
    chosen = np.arange(len(clouds)) if texts is None else texts
    means, norms, traces = np.empty((len(chosen), clouds.dimension)), np.empty(len(chosen)), np.empty(len(chosen))
    for places in stacks_of_equal_length(clouds.lengths[chosen], clouds.dimension, _STACK_SIZE):
        stack = np.stack([np.asarray(clouds[k], dtype=np.float64) for k in chosen[places].tolist()])
        means[places], norms[places], _, traces[places] = _unit_mean_stack(stack, clouds.dtype)
    sound = np.isfinite(traces) & np.isfinite(means).all(axis=1)
    for k in chosen[~sound].tolist():
        try:
            _unit_mean(clouds[k], None)
        except DegenerateCloudError as error:
            raise DegenerateCloudError(f"text {k} (id '{clouds.ids[k]}'): {error}") from error
    return TextMoments(means, norms, traces)


def _checked(cloud: Any, weights: ArrayLike | None) -> tuple[Array, Array]:
    X = as_matrix(cloud, name="cloud").astype(np.float64, copy=False)
    if len(X) == 0:
        raise DegenerateCloudError("the cloud has no tokens; at least one is needed. Leave empty texts out.")
    if not np.isfinite(X).all():
        raise DegenerateCloudError(_not_finite("the cloud"))
    if weights is None:
        return X, np.full(len(X), 1 / len(X))
    w = as_array(weights, "weights", np.float64)
    if w.shape != (len(X),) or not np.isfinite(w).all() or (w < 0).any() or w.sum() == 0:
        raise InputError(
            f"weights: received shape {w.shape} for {len(X)} tokens; allowed is one finite number ≥ 0 a token, "
            f"with a positive sum."
        )
    return X, w / w.sum()


@dataclass(frozen=True)
class _UnitMean:
    """A cloud scaled to unit mean: its mean (d), the norm that it had, its factor (n × d) and trace."""

    unit: Array
    norm: float
    rows: Array
    trace: float


def _unit_mean(cloud: Any, weights: ArrayLike | None) -> _UnitMean:
    matrix = as_matrix(cloud, name="cloud")
    X, w = _checked(matrix, weights)
    (X,), (scale,) = _moderate(X[None])
    centre = w @ X
    norm = float(np.linalg.norm(centre))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rows = (X - centre) * (np.sqrt(w) / norm)[:, None]
        trace = float(np.einsum("ij,ij", rows, rows))
    if not trace < _largest_trace(matrix.dtype, len(X)):
        raise DegenerateCloudError(
            "the mean of the cloud is the zero vector, up to rounding, so it cannot be scaled to unit mean. Leave this "
            "text out, or check that the vectors were not centred token by token."
        )
    return _UnitMean(centre / norm, norm * float(scale), rows, trace)


def _moderate(stack: Array) -> tuple[Array, Array]:
    """Clouds (texts × n × d) divided each by a power of two (texts) where their squares would overflow or vanish.

    Exact: of ordinary clouds not a bit changes.
    """
    largest = np.maximum(stack.max(axis=(1, 2)), -stack.min(axis=(1, 2)))
    if ((largest < _LARGEST) & (largest > _SMALLEST)).all():
        return stack, np.ones(len(stack))
    exponents = np.frexp(largest)[1] - 1
    return np.ldexp(stack, -exponents[:, None, None]), np.ldexp(1.0, exponents)


def _largest_trace(dtype: DTypeLike, n: int) -> float:
    summed = np.promote_types(dtype, np.float32)
    return float(largest_trace(n, stored=float(np.finfo(dtype).eps), summed=float(np.finfo(summed).eps)))


def _not_finite(subject: str) -> str:
    return f"{subject} holds NaN or infinite values; all token vectors must be finite. Encode it again, in float32."
