"""First and second moments of token clouds. numpy in, numpy out; float64 wherever it decides accuracy.

A cloud is `X` (n tokens × d dimensions); `weights` (n numbers ≥ 0, scaled here to sum 1) replace the uniform
1/n for weighted pooling. All functions refuse clouds that are empty or hold NaN or infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import DegenerateCloudError, InputError

Array = NDArray[np.float64]


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
    return spread(cloud, weights) / _norm(mean(cloud, weights)) ** 2


def unit_mean_factor(cloud: Any, weights: ArrayLike | None = None) -> tuple[Array, Array]:
    """Unit mean and factor of the cloud scaled to ‖μ‖ = 1.

    Returns `(u, F)` with `u = μ/‖μ‖` (d) and `F` (n × d), rows `√wᵢ (xᵢ − μ)/‖μ‖`, so that the covariance of the
    scaled cloud is `FᵀF` and its trace `‖F‖²`. The covariance itself is never formed.

    >>> unit_mean_factor([[2.0, 1.0], [2.0, -1.0]])[1].round(4).tolist()
    [[0.0, 0.3536], [0.0, -0.3536]]
    """
    centre = mean(cloud, weights)
    norm = _norm(centre)
    return centre / norm, deviations(cloud, weights) / norm


def unit_mean_factors(stack: Array) -> tuple[Array, Array, Array]:
    """`unit_mean_factor` of a stack of equal-length clouds (texts × n × d): unit means, factors and traces.

    Degenerate clouds (zero mean, NaN, infinity) come out as NaN or infinity, for the caller to find and name.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centres = stack.mean(axis=1)
        norms = np.linalg.norm(centres, axis=1)
        factors = (stack - centres[:, None]) / (norms * np.sqrt(stack.shape[1]))[:, None, None]
        return centres / norms[:, None], factors, np.einsum("kij,kij->k", factors, factors)


def within_text_cosine(cloud: Any, weights: ArrayLike | None = None) -> float:
    """Mean of the full n × n cosine matrix of the tokens, diagonal included: ‖Σ wᵢ xᵢ/‖xᵢ‖‖².

    1 for one token. A zero token vector has no direction and is an error.

    >>> within_text_cosine([[2.0, 0.0], [0.0, 5.0]])
    0.5
    """
    X, w = _checked(cloud, weights)
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


def text_moments(clouds: TokenClouds) -> TextMoments:
    """Moments of every text. A text with NaN, infinity or a zero mean is an error that names it."""
    means, norms, traces = np.empty((len(clouds), clouds.dimension)), np.empty(len(clouds)), np.empty(len(clouds))
    for k, cloud in enumerate(clouds):
        try:
            X, w = _checked(cloud, None)
            centre = w @ X
            norms[k] = _norm(centre)
        except DegenerateCloudError as error:
            raise DegenerateCloudError(f"text {k} (id '{clouds.ids[k]}'): {error}") from error
        means[k] = centre / norms[k]
        X = X - centre
        traces[k] = np.einsum("ij,ij", X, X) / len(X) / norms[k] ** 2
    return TextMoments(means, norms, traces)


def _checked(cloud: Any, weights: ArrayLike | None) -> tuple[Array, Array]:
    X = as_matrix(cloud, name="cloud").astype(np.float64, copy=False)
    if len(X) == 0:
        raise DegenerateCloudError("the cloud has no tokens; at least one is needed. Leave empty texts out.")
    if not np.isfinite(X).all():
        raise DegenerateCloudError(_not_finite("the cloud"))
    if weights is None:
        return X, np.full(len(X), 1 / len(X))
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (len(X),) or not np.isfinite(w).all() or (w < 0).any() or w.sum() == 0:
        raise InputError(
            f"weights: received shape {w.shape} for {len(X)} tokens; allowed is one finite number ≥ 0 a token, "
            f"with a positive sum."
        )
    return X, w / w.sum()


def _norm(centre: Array) -> float:
    norm = float(np.linalg.norm(centre))
    if norm == 0:
        raise DegenerateCloudError(
            "the mean of the cloud is the zero vector, so it cannot be scaled to unit mean. Leave this text out, or "
            "check that the vectors were not centred token by token."
        )
    return norm


def _not_finite(subject: str) -> str:
    return f"{subject} holds NaN or infinite values; all token vectors must be finite. Encode it again, in float32."
