"""Did a series change once, and where?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SMALLEST = 5
"""Fewer values than this on one side are no side."""


@dataclass(frozen=True)
class ChangePoint:
    """The first position after the change, with the range that a bootstrap gives it, and the medians of both sides.

    `p_value` is the share of shuffled series that part as clearly at their best place.
    """

    position: int
    low: int
    high: int
    p_value: float
    before: float
    after: float


def change_point(values: ArrayLike, *, shuffles: int = 999, draws: int = 200, seed: int = 0) -> ChangePoint | None:
    """The place that parts a series best; None for fewer than ten values, or where all are one.

    With S_k the sum of the deviations from the mean up to k, the place maximises |S_k|/√(k(n − k)), which is least
    squares with two levels; every side has five values or more. Chance is the same maximum of shuffled series, so that
    looking at every place is paid for. Odd values are as odd after a shuffle, so a few of them decide nothing.

    >>> series = np.repeat([1.0, 0.8], 30) + np.linspace(0, 0.01, 60)
    >>> found = change_point(series)
    >>> found.position, found.p_value
    (30, 0.001)
    """
    series = np.asarray(values, dtype=np.float64)
    count = len(series)
    if count < 2 * SMALLEST or np.ptp(series) == 0:
        return None
    random = np.random.default_rng(seed)
    place, size = _best(series[None])
    chance = _best(random.permuted(np.tile(series, (shuffles, 1)), axis=1))[1]
    position = int(place[0])
    # Values are drawn anew within each side: what moves is how clearly the two part.
    left, right = (random.choice(side, (draws, len(side))) for side in (series[:position], series[position:]))
    places, _ = _best(np.concatenate([left, right], axis=1))
    low, high = np.quantile(places, [0.025, 0.975])
    return ChangePoint(
        position=position,
        low=int(min(low, position)),
        high=int(max(np.ceil(high), position)),
        p_value=float((1 + (chance >= size[0] - 1e-12).sum()) / (shuffles + 1)),
        before=float(np.median(series[:position])),
        after=float(np.median(series[position:])),
    )


def _best(series: Array) -> tuple[NDArray[np.int64], Array]:
    """The best place of each row and how clearly it parts."""
    count = series.shape[1]
    places = np.arange(SMALLEST, count - SMALLEST + 1)
    deviations = series - series.mean(axis=1, keepdims=True)
    sums = np.cumsum(deviations, axis=1)[:, places - 1]
    sizes = np.abs(sums) / np.sqrt(places * (count - places))
    best = sizes.argmax(axis=1)
    return places[best], sizes[np.arange(len(best)), best]
