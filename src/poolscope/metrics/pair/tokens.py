"""Which tokens make two clouds differ: the covariance distance of a pair, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.bures.pair import same_dimension
from poolscope.numbers.moments import unit_mean_factor

Array = NDArray[np.float64]


def token_contributions(X: Any, Y: Any) -> tuple[Array, Array]:
    """What each token of X (n₁ × d) and of Y (n₂ × d) adds to BW²(Σ₁, Σ₂); the n₁ + n₂ numbers sum to it exactly.

    With the factors F₁ and F₂ of the two covariances at unit mean, BW² = tr Σ₁ + tr Σ₂ − 2‖F₁F₂ᵀ‖_*, and each term is a
    sum over tokens: tr Σ₁ = Σᵢ ‖fᵢ‖² and ‖F₁F₂ᵀ‖_* = tr (F₁F₂ᵀF₂F₁ᵀ)^{1/2}. So token i of X adds ‖fᵢ‖², its squared
    deviation from the mean, minus entry (i, i) of that root: the part of it that the best alignment of both clouds
    finds in Y. It is negative where Y spreads more along a token than X does there. Of a one-token cloud, 0.

    >>> left, right = token_contributions([[1, 1], [1, -1]], [[1, 2], [1, -2]])
    >>> left.round(6).tolist(), right.round(6).tolist()         # BW² = (2 − 1)² = 1
    ([-0.5, -0.5], [1.0, 1.0])
    """
    same_dimension(X, Y)
    (_, F), (_, G) = unit_mean_factor(X), unit_mean_factor(Y)
    (Q, F_rows), (W, G_rows) = _fewest_rows(F), _fewest_rows(G)
    U, values, Vt = np.linalg.svd(F_rows @ G_rows.T, full_matrices=False)
    left, right = U if Q is None else Q @ U, Vt.T if W is None else W @ Vt.T
    return (F * F).sum(axis=1) - left**2 @ values, (G * G).sum(axis=1) - right**2 @ values


def _fewest_rows(F: Array) -> tuple[Array | None, Array]:
    """F = Q R with at most d rows in R; Q is None where F has no more: a text may have thousands of tokens."""
    return np.linalg.qr(F) if len(F) > F.shape[1] else (None, F)
