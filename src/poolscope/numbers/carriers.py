"""Few that carry a number: a sum, a ratio of sums or a mean over pairs that hangs on a handful of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Index = NDArray[np.int64]

# They carry a number if they hold this share of it, and are so few of all, and so few at all.
_SHARE, _FEW, _MOST = 0.5, 20, 5
# Of fewer units than this one holds a large share anyway.
_LEAST_UNITS = 5


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
