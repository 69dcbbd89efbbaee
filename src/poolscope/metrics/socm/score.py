"""The SOCM formula, and one pair of clouds (Hara et al. 2026, arXiv 2604.27398)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolscope.errors import InputError
from poolscope.numbers import Array
from poolscope.numbers.bures.distances import nuclear_norm, same_dimension
from poolscope.numbers.moments import unit_mean_factor
from poolscope.results import Result, key, origin, provenance
from poolscope.surface import check_fields

SCALES = ("paper", "trace")


@dataclass(frozen=True)
class SocmFormula:
    """SOCM = (1 − d_μ)^a · d_Σ^b.

    scale: "paper" is d_Σ = BW²/4, which stays below 1 only while tr Σ ≤ 2; "trace" is d_Σ = BW²/(tr Σ₁ + tr Σ₂), in
    [0, 1] always. eps > 0 reproduces the published code (1e-9), which adds it to the diagonal before each square root
    and so lowers d_Σ by about (d − rank)·√eps/2.
    """

    scale: str = "paper"
    a: float = 1.0
    b: float = 1.0
    eps: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.scale not in SCALES:
            raise InputError(f"scale: received '{self.scale}'; allowed are {', '.join(SCALES)}.")
        if not (0 < self.a < np.inf and 0 < self.b < np.inf):
            raise InputError(f"received a = {self.a!r}, b = {self.b!r}; allowed are positive numbers. Pass such ones.")
        if not 0 <= self.eps < 1:
            raise InputError(f"eps: received {self.eps}; allowed is 0 (exact) or a small number such as 1e-9.")
        if self.eps and self.b != 1:
            raise InputError("eps can make d_Σ slightly negative, so it goes with b = 1 only; leave out one of them.")

    def covariance_distance(self, bures: Array, trace_sum: Array) -> Array:
        """d_Σ from BW² and tr Σ₁ + tr Σ₂; 0 for two clouds without spread."""
        if self.scale == "paper":
            return bures / 4
        return np.divide(bures, trace_sum, out=np.zeros_like(bures), where=trace_sum > 0)

    def score(self, mean_distance: Array, covariance_distance: Array) -> Array:
        """SOCM from d_μ and d_Σ."""
        if self.a == 1 and self.b == 1:
            return (1 - mean_distance) * covariance_distance
        return np.asarray((1 - mean_distance) ** self.a * covariance_distance**self.b)

    def upper_bound(self, mean_distance: Array, trace_sum: Array) -> Array:
        """A bound that needs no cross product: BW² ≤ tr Σ₁ + tr Σ₂."""
        return self.score(mean_distance, self.covariance_distance(trace_sum, trace_sum))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, repr=False)
class SocmPair(Result):
    """The distances of one pair of clouds: d_μ, d_Σ on the scale of the formula, SOCM, and BW² as it is."""

    mean_distance: float = field(metadata=key("d_mu"))
    covariance_distance: float = field(metadata=key("d_sigma"))
    socm: float
    bures: float
    provenance: Mapping[str, Any] = origin()

    def seen(self) -> tuple[str, ...]:
        """The distances in words."""
        return (
            f"The means are {self.mean_distance:.2f} apart (d_μ) and the token clouds {self.covariance_distance:.2f} "
            f"(d_Σ); SOCM is high where the means agree while the clouds differ, and is {self.socm:.2f} here.",
        )

    @property
    def squared_wasserstein(self) -> float:
        """W₂² = ‖μ₁ − μ₂‖² + BW²: squared 2-Wasserstein distance of the Gaussians of the unit-mean clouds."""
        return 4 * self.mean_distance + self.bures


def socm_pair(
    X: Any,
    Y: Any,
    *,
    x_weights: ArrayLike | None = None,
    y_weights: ArrayLike | None = None,
    formula: SocmFormula | None = None,
) -> SocmPair:
    """d_μ, d_Σ and SOCM of two token clouds X (n₁ × d) and Y (n₂ × d), exact, in float64.

    High SOCM means that the means agree while the clouds differ, so that mean pooling hides the difference. One-token
    clouds have zero covariance. A zero mean vector is an error.

    Parameters
    ----------
    X, Y : matrix
        One row a token, of numpy, torch or lists.
    x_weights, y_weights : array, optional
        Weights of the tokens, with which mean and covariance are taken; all alike if left out.
    formula : SocmFormula, optional
        Scale and exponents.

    Returns
    -------
    SocmPair
        The distances and the score.

    Examples
    --------
    >>> round(socm_pair([[1, 1], [1, -1]], [[1, 2], [1, -2]]).socm, 12)     # d_mu = 0, BW² = (2 − 1)²
    0.25

    """
    formula = formula or SocmFormula()
    if formula.eps:
        raise InputError("eps applies to corpora: use socm(clouds, pairs=…, eps=…); one pair is always exact.")
    same_dimension(X, Y)
    (u, F), (v, G) = unit_mean_factor(X, x_weights), unit_mean_factor(Y, y_weights)
    trace_sum = np.array(float((F * F).sum() + (G * G).sum()))
    bures = np.maximum(trace_sum - 2 * nuclear_norm(F, G), 0.0)
    mean_distance = np.array(float((u - v) @ (u - v)) / 4)
    covariance_distance = formula.covariance_distance(bures, trace_sum)
    socm = formula.score(mean_distance, covariance_distance)
    distances = (float(mean_distance), float(covariance_distance))
    return SocmPair(*distances, float(socm), float(bures), provenance=provenance(settings=formula.to_dict()))


def trace_scores(mean_distance: Array, covariance_distance: Array, trace_sum: Array) -> Array:
    """SOCM on the scale "trace" of pairs whose d_μ and d_Σ (scale "paper") and sums of traces are known.

    >>> trace_scores(np.array([0.0]), np.array([0.25]), np.array([5.0])).tolist()
    [0.2]
    """
    formula = SocmFormula(scale="trace")
    return formula.score(mean_distance, formula.covariance_distance(4 * covariance_distance, trace_sum))
