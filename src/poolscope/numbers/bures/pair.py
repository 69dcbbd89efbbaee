"""One pair of clouds, in float64 throughout: the definition, and the oracle for the fast route."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import as_matrix
from poolscope.errors import InputError
from poolscope.numbers.moments import deviations

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
