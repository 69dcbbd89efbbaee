"""Statistics over few items, such as a dozen models: what to compute, how sure one can be, what could be seen at all.

A statistic for `ItemBootstrap.estimate` takes rows of weights (how often each item was drawn) and gives one value a
row, as if the drawn items were listed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial, sqrt, tanh
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from poolscope.numbers.correlation import weighted_correlations

Array = NDArray[np.float64]
Kind = Literal["pearson", "spearman"]
KINDS: tuple[Kind, ...] = ("pearson", "spearman")

PERMUTATIONS = 9_999
_ALL_UP_TO = 8  # items whose n! orders are all looked at
_SINGULAR = 1e-9  # smallest eigenvalue of a correlation matrix below which controls determine each other


@dataclass(frozen=True)
class PValue:
    """Two-sided: twice the share of orders of the items at least as far out on the side of this one, at most 1.

    The side is the one with the smaller share. `method`: over which orders, all or random ones (the one seen counted).
    """

    value: float
    method: str

    def __str__(self) -> str:
        return f"{self.value:.2g}" if self.value < 0.1 else f"{self.value:.2f}"


def kendall(x: Array, y: Array) -> Callable[[Array], Array]:
    """Kendall's τ_b (agreement of all pairs of items, ties allowed for) as a statistic of weights.

    >>> kendall(np.array([1.0, 2, 3]), np.array([1.0, 3, 2]))(np.ones((1, 3))).round(6).tolist()
    [0.333333]
    """
    order_x, order_y = (np.sign(values[:, None] - values[None, :]) for values in (x, y))

    def over_pairs(weights: Array, values: Array) -> Array:
        total: Array = ((weights @ values) * weights).sum(axis=1)
        return total

    def statistic(weights: Array) -> Array:
        both = over_pairs(weights, order_x * order_y)
        tau: Array = both / np.sqrt(over_pairs(weights, order_x**2) * over_pairs(weights, order_y**2))
        return tau

    return statistic


def partial_correlation(columns: Mapping[str, Array], kind: Kind) -> Callable[[Array], Array]:
    """Correlation of the first two columns once the others are accounted for, as a statistic of weights.

    With R the correlation matrix (of values, or of ranks for Spearman) and P = R⁻¹: −P₁₂/√(P₁₁P₂₂). NaN where one
    column follows from the others.
    """
    names, which = list(columns), KINDS.index(kind)
    places = {pair: (names.index(pair[0]), names.index(pair[1])) for pair in combinations(names, 2)}

    def statistic(weights: Array) -> Array:
        matrices = np.tile(np.eye(len(names)), (len(weights), 1, 1))
        for pair, correlations in weighted_correlations(weights, columns, list(places)).items():
            i, j = places[pair]
            matrices[:, i, j] = matrices[:, j, i] = correlations[which]
        result = np.full(len(weights), np.nan)
        usable = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
        usable[usable] = np.linalg.eigvalsh(matrices[usable])[:, 0] > _SINGULAR
        inverse = np.linalg.inv(matrices[usable])
        result[usable] = -inverse[:, 0, 1] / np.sqrt(inverse[:, 0, 0] * inverse[:, 1, 1])
        return result

    return statistic


def correlation_p(x: Array, y: Array, *, controls: Sequence[Array] = (), seed: int = 0) -> PValue:
    """Permutation p-value of the Pearson correlation; pass ranks for Spearman.

    All n! orders of y for up to 8 items, otherwise 9,999 random ones. With controls the residuals of y are permuted and
    freed of the controls again (Freedman and Lane 1983), which is close to exact and not exact.
    """
    design = np.column_stack([np.ones(len(x)), *controls])
    basis = np.linalg.qr(design)[0]
    own, other = (values - basis @ (basis.T @ values) for values in (x, y))

    def statistic(values: Array, axis: int = -1) -> Array:
        residuals = values - (values @ basis) @ basis.T
        correlation: Array = residuals @ own / (np.linalg.norm(residuals, axis=axis) * np.linalg.norm(own))
        return correlation

    return _permutation_p(other, statistic, seed=seed)


def kendall_p(x: Array, y: Array, *, seed: int = 0) -> PValue:
    """Permutation p-value of Kendall's τ_b, by the same rule."""
    left, right = np.triu_indices(len(x), 1)
    order = np.sign(x[left] - x[right])

    def statistic(values: Array, axis: int = -1) -> Array:
        agreement: Array = np.sign(values[..., left] - values[..., right]) @ order  # ties do not move: the rest is one
        return agreement

    return _permutation_p(y, statistic, seed=seed)


def _permutation_p(values: Array, statistic: Callable[..., Array], *, seed: int) -> PValue:
    exact = len(values) <= _ALL_UP_TO
    count = factorial(len(values)) if exact else PERMUTATIONS
    tested = stats.permutation_test(
        (values,),
        statistic,
        permutation_type="pairings",
        vectorized=True,
        n_resamples=count,
        batch=max(1, 2**22 // len(values) ** 2),
        random_state=np.random.default_rng(seed),
    )
    return PValue(float(tested.pvalue), f"all {count:,} orders" if exact else f"{count:,} random orders")


def ranks(values: Array) -> Array:
    """Ranks from 1, equal values sharing the mean of theirs."""
    shared: Array = stats.rankdata(values)
    return shared


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that hold for all the tests together, whatever their dependence.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted.round(12)]


def detectable_correlation(n: int, *, power: float = 0.8, level: float = 0.05) -> float | None:
    """The smallest Spearman correlation that n items show with this power in a two-sided test; None below 5 items.

    Fisher's z with the standard error √(1.06/(n − 3)) of Fieller, Hartley and Pearson (1957): a good approximation, and
    for n below 10 an optimistic one.

    >>> round(detectable_correlation(12), 2), round(detectable_correlation(100), 2)
    (0.74, 0.28)
    """
    if n < 5:
        return None
    reach = stats.norm.ppf(1 - level / 2) + stats.norm.ppf(power)
    return tanh(float(reach) * sqrt(1.06 / (n - 3)))
