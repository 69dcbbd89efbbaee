"""Vectors of length 1: the tolerance, and the rows that deviate."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poolscope.numbers import Index

# Lengths that differ from 1 by less are 1, and lengths that vary by less are one.
NORMALISED = 1e-3
_BY_ACCIDENT, _SPIKE = 0.02, 3


def odd_lengths(lengths: ArrayLike) -> Index:
    """The positions of vectors that do not have the length 1, where others do.

    None where hardly any has it, or no more than have a length a little beside it: among lengths of all kinds some are
    1 by accident.

    >>> odd_lengths([1.0, 1.05, 1.0]).tolist(), odd_lengths([2.0, 2.0, 2.0]).tolist()
    ([1], [])
    """
    off = np.abs(np.asarray(lengths, dtype=np.float64) - 1)
    unit, beside = off < NORMALISED, (off >= NORMALISED) & (off < 2 * NORMALISED)
    meant = unit.mean() > _BY_ACCIDENT and unit.sum() > _SPIKE * beside.sum()
    return np.flatnonzero(~unit) if meant else np.zeros(0, np.int64)
