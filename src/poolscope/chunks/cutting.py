"""Which places to cut at: pieces of about equal weight, each cut at the best place near its end."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ranks = NDArray[np.int8]

# Pieces aim at most at this share of the room, so that there is a choice of places on both sides of the aim …
_FILL = 0.85
# … and a place may be this share of the aim away from it.
_REACH = 0.25


def choose_cuts(weights: Array, ranks: Ranks, room: float, *, blanks: Array | float = 0.0) -> list[int]:
    """The units after which to cut, such that no piece weighs more than `room` (a single unit may).

    The rest is always divided into as many equal parts as needed; the cut is at the place of the best rank within a
    quarter of that aim, the nearest of equals. `blanks` is the part of each weight that is gone if the unit is the
    first of its piece.

    >>> choose_cuts(np.ones(10), np.array([3, 3, 3, 2, 3, 3, 3, 3, 3, 3], np.int8), room=8)
    [3]
    """
    reached = np.cumsum(weights)
    begun = reached - weights + blanks  # what lies before a piece that begins with this unit
    total, last = float(reached[-1]), len(weights) - 1
    cuts: list[int] = []
    done, first = float(begun[0]), 0
    while total - done > room and first < last:
        rest = total - done
        aim = rest / math.ceil(rest / (_FILL * room))
        low, high = done + (1 - _REACH) * aim, done + min(room, (1 + _REACH) * aim)
        places = _between(reached, low, high, first, last)
        if not len(places):
            places = _between(reached, done, done + room, first, last)
        if not len(places):
            places = np.array([first])  # one unit is more than the room
        cuts.append(_best(places, ranks, reached, done + aim))
        first = cuts[-1] + 1
        done = float(begun[first])
    return cuts


def choose_overlap(weights: Array, ranks: Ranks, most: float) -> int | None:
    """The unit at which the repeated end of a piece begins: of at most the weight `most`, and half of it if possible.

    None where the last unit alone is heavier.

    >>> choose_overlap(np.ones(10), np.array([3, 3, 3, 3, 3, 3, 2, 3, 3, 3], np.int8), most=4)
    7
    """
    reached = np.cumsum(weights)
    end, last = float(reached[-1]), len(weights) - 1
    places = _between(reached, end - most, end - most / 2, 0, last)
    if not len(places):
        places = _between(reached, end - most, end, 0, last)
    return _best(places, ranks, reached, end - most) + 1 if len(places) else None


def _between(reached: Array, low: float, high: float, first: int, last: int) -> NDArray[np.int64]:
    """The places from `first` on, before `last`, that are reached between two weights (rounding aside)."""
    start = max(first, int(np.searchsorted(reached, low - 1e-9, side="left")))
    stop = min(last, int(np.searchsorted(reached, high + 1e-9, side="right")))
    return np.arange(start, stop)


def _best(places: NDArray[np.int64], ranks: Ranks, reached: Array, aim: float) -> int:
    """The place of the best rank; of equals the one nearest to the aim."""
    of_rank = places[ranks[places] == ranks[places].min()]
    return int(of_rank[np.argmin(np.abs(reached[of_rank] - aim))])
