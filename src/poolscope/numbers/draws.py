"""Draws of texts that are the same however the texts are cut, ordered or merged.

Every text has a mark: a number that hangs on its name (or content) alone and is as good as drawn at random. A draw
keeps the texts with the smallest marks. A text among the smallest marks of the whole is among those of every part, so
the draws of parts merge to exactly the draw of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError

Index = NDArray[np.int64]


def mark_of(content: bytes) -> int:
    """The mark of a text: 63 bits of its digest.

    >>> mark_of(b"A man bites a dog.") == mark_of(b"A man bites a dog.") != mark_of(b"A dog bites a man.")
    True
    """
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1


def marks_of(ids: Iterable[str]) -> Index:
    """The marks of texts by their ids."""
    return np.array([mark_of(name.encode("utf-8", "surrogatepass")) for name in ids], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class VectorDraw:
    """At most `size` texts, those with the smallest marks, in rising order of these: vectors, lengths and positions.

    >>> marks = np.array([5, 1, 9])
    >>> draw = VectorDraw.of(np.eye(3), marks, size=2, lengths=np.array([7, 8, 9]))
    >>> draw.positions.tolist(), draw.lengths.tolist()
    ([1, 0], [8, 7])
    """

    size: int
    marks: Index
    positions: Index
    vectors: NDArray[Any]
    lengths: Index

    @classmethod
    def of(
        cls, vectors: NDArray[Any], marks: Index, *, size: int, lengths: Index | None = None, start: int = 0
    ) -> VectorDraw:
        """The draw of some texts; `start` is the position of the first of them in the corpus."""
        kept = _smallest(marks, size)
        counts = np.zeros(len(marks), dtype=np.int64) if lengths is None else lengths
        return cls(size, marks[kept], start + kept, np.asarray(vectors[kept]), counts[kept])

    def merge(self, other: VectorDraw) -> VectorDraw:
        """The draw of the texts of both."""
        shapes = [draw.vectors.shape[1] for draw in (self, other)]
        if shapes[0] != shapes[1]:
            raise InputError(f"received parts of dimension {shapes[0]} and {shapes[1]}; all must be of one model.")
        marks = np.concatenate([self.marks, other.marks])
        kept = _smallest(marks, self.size)
        columns = ("positions", "vectors", "lengths")
        joined = [np.concatenate([getattr(self, name), getattr(other, name)])[kept] for name in columns]
        return VectorDraw(self.size, marks[kept], *joined)

    def __len__(self) -> int:
        return len(self.marks)


def _smallest(marks: Index, size: int) -> Index:
    """Positions of the smallest marks, rising."""
    few = np.argpartition(marks, size)[:size] if len(marks) > size else np.arange(len(marks))
    return np.asarray(few[np.argsort(marks[few], kind="stable")])
