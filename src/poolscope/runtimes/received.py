"""The form in which vectors came: whole or their first dimensions, as numbers, rounded to 8 bits, or as signs.

A form is put on the vectors of the reference too before the two are compared, so that rounding is no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.ranking import unit_rows

Array = NDArray[np.float64]

_LEVELS = 256
# A table of fewer numbers has few different ones by chance.
_ENOUGH = 1024
_GRID = 1e-3
_SINGLE = 1e-9


@dataclass(frozen=True)
class Form:
    """How vectors of a runtime are stored: `rounding` is "", "float16", "int8", "int8 a text" or "binary".

    `dimension` is how many numbers of a vector are kept, `whole` how many the model gives.
    """

    rounding: str
    dimension: int
    whole: int

    @property
    def cut(self) -> bool:
        """Are these the first dimensions only?"""
        return self.dimension < self.whole

    @property
    def coarse(self) -> bool:
        """Has the rounding changed the vectors so much that cosines show it?"""
        return self.rounding not in ("", "float16")

    def words(self) -> str:
        """In plain words, "" where vectors are whole and plain."""
        rounding = {
            "": "",
            "float16": "rounded to 16 bits",
            "int8": "rounded to 8 bits",
            "int8 a text": "rounded to 8 bits",
            "binary": "cut down to signs (binary)",
        }[self.rounding]
        kept = f"cut to their first {self.dimension} of {self.whole} dimensions" if self.cut else ""
        return " and ".join(filter(None, (kept, rounding)))

    def on(self, table: Array, like: Array) -> Array:
        """Vectors of the reference in this form; `like` are the received ones, whose grid they are put on."""
        kept = np.asarray(table[:, : self.dimension], dtype=np.float64)
        if self.rounding == "binary":
            return np.where(kept > 0, 1.0, -1.0)
        if self.rounding == "int8 a text":
            top = np.abs(kept).max(axis=1, keepdims=True)
            return np.asarray(np.round(kept / np.where(top > 0, top, 1) * 127))
        if self.rounding == "int8":
            step = np.diff(np.unique(like)).min()
            lengths = np.linalg.norm(kept, axis=1, keepdims=True)
            scaled = kept / np.where(lengths > 0, lengths, 1) * np.median(np.linalg.norm(like, axis=1))
            return np.asarray(np.round(scaled / step) * step)
        return kept


def read_form(vectors: NDArray[Any], dimension: int) -> tuple[Form, Array]:
    """The form of received vectors beside a model of that dimension, and the vectors as numbers.

    Bits that were packed, eight to a number, are unpacked; signs become −1 and 1.

    >>> form, table = read_form(np.array([[0, 1, 1, 0]]), 4)
    >>> form.rounding, table.tolist()
    ('binary', [[-1.0, 1.0, 1.0, -1.0]])
    """
    raw = np.asarray(vectors)
    table = raw.astype(np.float64)
    whole_numbers = bool((table == np.round(table)).all())
    if whole_numbers and raw.shape[1] * 8 == dimension and table.min() >= -128 and table.max() <= 255:
        packed = (table + 128 if table.min() < 0 else table).astype(np.uint8)
        return Form("binary", dimension, dimension), np.where(np.unpackbits(packed, axis=1) == 1, 1.0, -1.0)
    kept = table.shape[1]
    if len(np.unique(table[:1])) <= 2 and len(levels := np.unique(table)) == 2 and kept > 2:
        return Form("binary", kept, max(kept, dimension)), np.where(table == levels[1], 1.0, -1.0)
    return Form(_rounding(raw, table), kept, max(kept, dimension)), table


def _rounding(raw: NDArray[Any], table: Array) -> str:
    if (table == table[0, 0]).all():  # one number is no grid
        return ""
    if table.size >= _ENOUGH and len(np.unique(table)) <= _LEVELS:
        return "int8"
    top = np.abs(table).max(axis=1, keepdims=True)
    grid = table / np.where(top > 0, top, 1) * 127
    if table.shape[1] >= 8 and (np.abs(grid - np.round(grid)) < _GRID).all():
        return "int8 a text"
    if table.shape[1] >= 128 and np.mean([len(np.unique(row)) for row in table[:64]]) < 0.6 * table.shape[1]:
        return "int8 a text"
    if raw.dtype == np.float16:
        return "float16"
    with np.errstate(over="ignore"):
        half = table.astype(np.float16).astype(np.float64)
    return "float16" if np.abs(half - table).max() <= _SINGLE * np.abs(table).max() else ""


def row_cosines(left: Array, right: Array) -> tuple[Array, Array]:
    """Cosines row by row, and with the next row of `right`: what another text would give."""
    ours, theirs = (_unit(table) for table in (right, left))
    own, other = (np.einsum("ij,ij->i", theirs, rows) for rows in (ours, np.roll(ours, 1, axis=0)))
    return own, other


def _unit(table: Array) -> Array:
    """Rows at length 1; a row without direction stays as it is, and is like no other."""
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.where(lengths > 0, lengths, 1))


def check_directions(vectors: NDArray[Any]) -> None:
    """Refuse a row that is zero or not finite, by its number."""
    unit_rows(vectors, "vectors")
