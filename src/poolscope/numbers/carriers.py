"""Where a number comes from: a handful of texts that carry it, or one place where a series changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Index = NDArray[np.int64]
Array = NDArray[np.float64]

# They carry a number if they hold this share of it, and are so few of all, and so few at all.
_SHARE, _FEW, _MOST = 0.5, 20, 5
# Of fewer units than this one holds a large share anyway.
_LEAST_UNITS = 5
SMALLEST = 5
"""Fewer values than this on one side are no side."""


@dataclass(frozen=True)
class Carriers:
    """The few units that hold most of a number: which they are, of how many, their share, and the number without them.

    >>> few = carriers([1.0, 0, 2, 97, 0], [10, 10, 10, 100, 10])
    >>> few.units, few.share, round(few.without, 3)
    ((3,), 0.97, 0.075)
    """

    units: tuple[int, ...]
    of: int
    share: float
    without: float

    def holding(self, names: Sequence[str], what: str) -> str:
        """How much of `what` they hold, and their names, which may be numbers and so stand apart.

        >>> Carriers((0, 3), 200, 0.97, 0.075).holding(["a", "b", "c", "d"], "what was cut")
        '2 hold 97% of what was cut: a, d'
        """
        verb = "holds" if len(self.units) == 1 else "hold"
        told = ", ".join(names[k] for k in self.units)
        return f"{len(self.units)} {verb} {self.share:.0%} of {what}: {told}"

    def sentence(self, names: Sequence[str], what: str, number: str, *, units: str = "texts") -> str:
        """The same in a sentence, with the number without them as the caller writes it.

        >>> Carriers((3,), 200, 0.97, 0.075).sentence(["a", "b", "c", "d"], "what was cut", "7.5 %")
        'Of 200 texts 1 holds 97% of what was cut: d; without it 7.5 %.'
        """
        left = "it" if len(self.units) == 1 else "them"
        return f"Of {self.of:,} {units} {self.holding(names, what)}; without {left} {number}."


def carriers(
    above: ArrayLike, below: ArrayLike | None = None, *, rest: float = 0.0, most: int | None = None
) -> Carriers | None:
    """The fewest units that hold half of Σ above or more, if they are few; None otherwise.

    The number is Σ above/(Σ below + rest), a mean where `below` is left out; `above` holds what each unit adds, never
    less than 0. Few: at most `most`; by default a twentieth of the units, one at least and five at most, of five units
    or more.
    """
    added = np.asarray(above, dtype=np.float64)
    if most is None:
        most = 0 if len(added) < _LEAST_UNITS else min(max(len(added) // _FEW, 1), _MOST)
    chosen = _holding(added, added.sum(), most)
    if chosen is None:
        return None
    weight = np.ones(len(added)) if below is None else np.asarray(below, dtype=np.float64)
    left = float(weight.sum() - weight[chosen].sum()) + rest
    remaining = max(float(added.sum() - added[chosen].sum()), 0.0)
    share = float(added[chosen].sum() / added.sum())
    return Carriers(tuple(chosen.tolist()), len(added), share, remaining / left if left > 0 else 0.0)


def pair_carriers(values: ArrayLike, i: Index, j: Index) -> Carriers | None:
    """The same for a mean over pairs: few texts whose pairs hold half of the sum or more, though they are few pairs."""
    added = np.asarray(values, dtype=np.float64)
    texts, places = np.unique(np.concatenate([i, j]), return_inverse=True)
    by_text = np.bincount(places, np.tile(added, 2))
    for most in range(1, min(len(texts) // _FEW, _MOST) + 1):
        chosen = texts[np.argsort(-by_text, kind="stable")[:most]]
        touched = np.isin(i, chosen) | np.isin(j, chosen)
        share = float(added[touched].sum() / added.sum()) if added.sum() > 0 else 0.0
        if share >= _SHARE and touched.mean() < _SHARE / 2:
            return Carriers(tuple(np.sort(chosen).tolist()), len(texts), share, float(added[~touched].mean()))
    return None


def _holding(added: NDArray[np.float64], total: float, most: int) -> Index | None:
    """The fewest units that hold their share of the total, in order; None for more than `most`."""
    if total <= 0:
        return None
    order = np.argsort(-added, kind="stable")[:most]
    reached = np.flatnonzero(np.cumsum(added[order]) >= _SHARE * total)
    return np.sort(order[: reached[0] + 1]) if len(reached) else None


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
