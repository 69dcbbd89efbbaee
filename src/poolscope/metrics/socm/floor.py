"""The sampling floor: what one text gives against itself with its tokens drawn anew, so where nothing is hidden."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.pair import SocmFormula, pair_distances
from poolscope.numbers import Array, Index
from poolscope.numbers.bures.pairs import workers
from poolscope.numbers.moments import unit_mean_factor
from poolscope.numbers.streaming import text_marks

# Draws of a text at most, and tokens that they have together unless a single one has more: the fewer tokens a text has,
# the more its draws differ, and the less they cost.
_MOST_DRAWS, _TOKENS = 8, 256
# Of the mean of the text, what is left of that of a draw whose tokens cancel: it has no direction, and is left out.
_CANCELLED = 1e-6


class SamplingFloors(NamedTuple):
    """Of each text, what is expected of two draws of its tokens."""

    covariance_distance: Array
    socm: Array


def sampling_floors(clouds: TokenClouds, texts: Index, *, seed: int = 0) -> SamplingFloors:
    """d_Σ and SOCM of two clouds of n tokens drawn anew, with replacement, from the n tokens of each of these texts.

    What is drawn hangs on the text and the seed, not on where the text stands.
    """
    marks = text_marks(clouds, texts, seed=seed)
    with workers() as pool:
        floors = list(pool.map(lambda text, mark: _floor(clouds[int(text)], int(mark)), texts, marks))
    return SamplingFloors(*np.array(floors).reshape(-1, 2).T)


def _floor(cloud: NDArray[Any], seed: int) -> Array:
    """The expectation of d_Σ and of SOCM, from a few draws.

    What differs between draws is above all how often a few far tokens come. Were all tokens orthogonal, draws that have
    token i wᵢ and vᵢ times would be at d_Σ = Σ (√wᵢ − √vᵢ)²‖fᵢ‖²/4, with the rows f of the factor. The expectation of
    that is known, and the draws are scaled by it over what it was in them (a ratio estimator): the variance is that of
    three to eight times as many draws, or of as many where the tokens have few different values.
    """
    tokens = len(cloud)
    u, F = unit_mean_factor(cloud)
    scaled = u + np.sqrt(tokens) * F
    draws = int(np.clip(_TOKENS // tokens, 1, _MOST_DRAWS))
    times = np.random.default_rng(seed).multinomial(tokens, np.full(tokens, 1 / tokens), size=(draws, 2))
    times = times[(np.linalg.norm(times @ scaled, axis=2) > _CANCELLED * tokens).all(axis=1)]
    squares = (F * F).sum(axis=1)
    expected = 2 * (1 - _mean_root(tokens) ** 2) * squares.sum()
    if not len(times):
        return np.full(2, expected / 4)
    floor: Array = np.mean([_distances(scaled, *pair) for pair in times], axis=0)
    drawn = float((np.diff(np.sqrt(times), axis=1) ** 2 @ squares).mean())
    return floor * (expected / drawn) if drawn else floor


def _distances(cloud: Array, w: Index, v: Index) -> tuple[float, float]:
    """d_Σ and SOCM of two draws. A token that came k times is one of weight k: the same distance from fewer rows."""
    left, right = w > 0, v > 0
    d_mu, bures, _ = pair_distances(cloud[left], cloud[right], x_weights=w[left], y_weights=v[right])
    return bures / 4, float(SocmFormula().score(np.asarray(d_mu), np.asarray(bures / 4)))


def _mean_root(tokens: int) -> float:
    """E √w = Σ (√(k + 1) − √k) P(w > k), where w is how often one of so many tokens comes in as many draws.

    >>> round(_mean_root(2), 6)  # not, once or twice in 1, 2 and 1 of 4 cases: (2 + √2)/4
    0.853553
    """
    times = np.arange(tokens + 1)
    return float(np.diff(np.sqrt(times)) @ special.bdtrc(times[:-1], tokens, 1 / tokens))
