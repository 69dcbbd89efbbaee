"""Pairs whose distance is smaller than float32 products can tell, computed again in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.numbers.bures.distances import Array, Distances
from poolscope.numbers.bures.pair import nuclear_norm, short
from poolscope.numbers.moments import unit_mean_factor

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
