"""Is everything in one cone: how much of every vector is the same direction?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError
from poolscope.numbers.intervals import Interval, jackknife_interval
from poolscope.numbers.ranking import unit_rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cone:
    """The cone that the vectors of a corpus lie in.

    `mean_cosine` is the mean over all pairs of different texts, with its interval for the population of texts; vectors
    without a preferred direction give 0. `mean_norm` is the norm of the mean of the vectors at length 1, in [0, 1]: 1
    when all point the same way. `per_text` is the mean cosine of each text with all others.
    """

    texts: int
    dimension: int
    mean_cosine: float
    interval: Interval | None
    mean_norm: float
    per_text: Array = field(repr=False)
    direction: Array = field(repr=False)


def cone(vectors: ArrayLike) -> Cone:
    """Mean cosine and norm of the mean of vectors (N × d), exact, without going through the pairs.

    With u_i at length 1 and s = Σ u_i, the mean cosine over pairs is (‖s‖² − N)/(N(N − 1)), and that of text i with all
    others (u_i·s − 1)/(N − 1). The interval leaves out one text at a time; None for two texts.

    >>> found = cone([[1, 0], [0, 1], [1, 1]])
    >>> round(found.mean_cosine, 4), round(found.mean_norm, 4)      # (0 + √½ + √½)/3
    (0.4714, 0.8047)
    """
    unit = unit_rows(vectors, "vectors").astype(np.float64)
    count = len(unit)
    if count < 2:
        raise InputError("received one vector; a cosine is between two. Pass at least two texts.")
    total = unit.sum(axis=0)
    per_text = unit @ total - 1
    pairs = count * (count - 1) // 2
    return Cone(
        texts=count,
        dimension=unit.shape[1],
        mean_cosine=float(per_text.sum() / 2 / pairs),
        interval=jackknife_interval([per_text], [count - 1], float(per_text.sum() / 2), pairs),
        mean_norm=float(np.linalg.norm(total) / count),
        per_text=per_text / (count - 1),
        direction=total / count,
    )
