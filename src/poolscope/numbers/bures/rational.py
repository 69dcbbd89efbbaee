"""The square root as a sum of simple poles, so that tr √G needs no eigenvalues.

√x = (2/π) ∫₀^∞ x/(x + t²) dt. Substituting t = a·sc(y) (a Jacobi elliptic function of complementary modulus a) makes
the integrand periodic, and the midpoint rule with N points then is Zolotarev's best rational approximation of this
form on [a², 1]: its error falls geometrically in N and hardly depends on a.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
