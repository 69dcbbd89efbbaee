"""One pair of clouds, in float64 throughout: the definition, and the oracle for the fast route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import InputError
from poolscope.numbers.bures.distances import Distances
from poolscope.numbers.moments import deviations, unit_mean_factor

Array = NDArray[np.float64]


def nuclear_norm(left: Array, right: Array) -> float:
    """Sum of the singular values of `F₁F₂ᵀ`, which is tr (Σ₁^½ Σ₂ Σ₁^½)^½ for the covariances `FᵀF`.

    left (n₁ × d), right (n₂ × d). A factor with more rows than columns is first replaced by its d × d triangular one.

    >>> round(nuclear_norm(np.diag([1.0, 2.0]), np.diag([3.0, 1.0])), 12)
    5.0
    """
    return float(np.linalg.svd(short(left) @ short(right).T, compute_uv=False).sum())


def short(factor: Array) -> Array:
    """A factor of the same covariance with at most d rows."""
    return np.asarray(np.linalg.qr(factor, mode="r")) if factor.shape[0] > factor.shape[1] else factor


def bures_wasserstein(
    X: Any, Y: Any, *, x_weights: ArrayLike | None = None, y_weights: ArrayLike | None = None
) -> float:
    """Squared Bures–Wasserstein distance BW² of the covariances of two token clouds, as they are (no scaling).

    BW² = tr Σ₁ + tr Σ₂ − 2 tr (Σ₁^½ Σ₂ Σ₁^½)^½, exact for any rank; X (n₁ × d), Y (n₂ × d). 0 if the covariances are
    equal. Added to ‖μ₁ − μ₂‖² it gives the squared 2-Wasserstein distance of the two Gaussians.

    Parameters
    ----------
    X, Y : matrix
        The tokens of the two texts, one row a token.
    x_weights, y_weights : list of float, optional
        Weights of the tokens, at least 0; without them every token counts the same.

    Returns
    -------
    float
        BW², at least 0.

    Examples
    --------
    >>> round(bures_wasserstein([[1.0, 0.0], [-1.0, 0.0]], [[3.0, 0.0], [-3.0, 0.0]]), 12)
    4.0

    """
    F, G = deviations(X, x_weights), deviations(Y, y_weights)
    same_dimension(F, G)
    return max(0.0, float((F * F).sum() + (G * G).sum()) - 2 * nuclear_norm(F, G))


def same_dimension(X: Any, Y: Any) -> None:
    """Refuse two clouds of different dimension."""
    left, right = as_matrix(X, name="first cloud").shape[1], as_matrix(Y, name="second cloud").shape[1]
    if left != right:
        raise InputError(
            f"received clouds of dimension {left} and {right}; both must come from the same model and layer."
        )


# -- pairs that float32 products cannot tell --------------------------------------------------------------------------

# Pairs whose distance is smaller than float32 products can tell, computed again in float64.

# What is asked of BW²: d_Σ = BW²/4 to 1e-6, or BW² to a thousandth of itself.
_ABSOLUTE, _RELATIVE = 4e-6, 1e-3


def refined(distances: Distances, left: TokenClouds, right: TokenClouds) -> Distances:
    """The distances, with BW² from float64 products where the bound of its error is not good enough, or exceeds BW².

    Equal clouds are then at exactly 0. Few pairs of ordinary corpora; many where all texts share one direction that is
    far larger than the rest (attention sinks), so that the rest, by which they differ, drowns in its rounding.
    """
    allowed = np.maximum(_ABSOLUTE, _RELATIVE * distances.bures)
    doubtful = np.flatnonzero((distances.error > allowed) | (distances.error > distances.bures))
    if not len(doubtful):
        return distances
    bures = distances.bures.copy()
    left_factor, right_factor = _factors(left), _factors(right)
    for k in doubtful.tolist():
        bures[k] = _exact(left_factor(int(distances.i[k])), right_factor(int(distances.j[k])))
    return replace(distances, bures=bures)


def _exact(F: Array, G: Array) -> float:
    if np.array_equal(F, G):  # the same text twice
        return 0.0
    return max(0.0, float((F * F).sum() + (G * G).sum()) - 2 * nuclear_norm(F, G))


def _factors(clouds: TokenClouds) -> Callable[[int], Array]:
    """Factors of texts with at most d rows, each computed once for a block of pairs."""

    @cache
    def factor(text: int) -> Array:
        return short(unit_mean_factor(clouds[text])[1])

    return factor
