"""`.npy` and `.npz`: the matrix, and in an archive texts, ids and labels beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from poolscope.clouds.vectors import numpy_parts
from poolscope.connectors.base import Batch, Distance, Fields, in_batches, is_file
from poolscope.errors import InputError


class NumpyConnector:
    """The arrays of a file, cut into batches."""

    distance: Distance | None = None

    def __init__(self, path: Path, fields: Fields) -> None:
        self.name = path.name
        named = {"vectors": fields.vector, "texts": fields.text, "ids": fields.id, "labels": fields.group}
        self._parts = numpy_parts(path, {part: name for part, name in named.items() if name is not None})
        shape = self._parts["vectors"].shape
        if len(shape) != 2 or not shape[1]:
            raise InputError(f"{path.name}: received an array of shape {shape}; needed: a matrix, one row a vector.")
        for part, values in self._parts.items():
            if values.shape[:1] != shape[:1]:
                raise InputError(
                    f"{path.name}: received {part} of shape {values.shape} for {shape[0]} vectors; "
                    f"one a vector is needed."
                )
        self.notes: Sequence[str] = ()

    def batches(self, size: int) -> Iterator[Batch]:
        """In the order of the rows."""
        vectors = self._parts["vectors"]
        for part in in_batches(len(vectors), size):
            ids, texts, groups = (self._words(name, part) for name in ("ids", "texts", "labels"))
            yield Batch(ids or [str(k) for k in range(part.start, part.stop)], vectors[part], texts, groups)

    def _words(self, name: str, part: slice) -> Any:
        values = self._parts.get(name)
        return None if values is None else [str(value) for value in values[part].tolist()]


def is_numpy(name: str) -> bool:
    """Does the name end in .npy or .npz?"""
    return Path(name).suffix.lower() in (".npy", ".npz")


def open_numpy(name: str, fields: Fields) -> NumpyConnector:
    """The file of that name."""
    path = Path(name)
    if not is_file(path):
        raise InputError(f"{name}: there is no such file. Check the spelling, or write it with numpy.save.")
    return NumpyConnector(path, fields)
