"""Pooled vectors that were made elsewhere: one vector a text, with the texts or their lengths, from one file.

| file       | vectors                                            | beside them, where there are any                |
|------------|----------------------------------------------------|-------------------------------------------------|
| `.npy`     | the matrix itself                                  | nothing: pass `texts` or `lengths`              |
| `.npz`     | the array `vectors`, or the only matrix            | `texts`, `lengths`, `ids`, `labels`             |
| `.parquet` | the column `vector`, or the only column of lists   | `text`, `length` (or `tokens`), `id`, `label`   |
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, reading
from poolscope.texts.records import is_missing

SUFFIXES = (".npy", ".npz", ".parquet")
WORDS = "words"
_NAMES = {
    "vectors": ("vectors", "vector", "embeddings", "embedding"),
    "texts": ("texts", "text"),
    "lengths": ("lengths", "length", "tokens", "n_tokens", "num_tokens", "token_count"),
    "ids": ("ids", "id"),
    "labels": ("labels", "label"),
}


@dataclass(frozen=True, eq=False)
class Vectors:
    """One vector a text (N × d), with what is known of the texts; `texts` or `lengths` or both may be None.

    `lengths` are those of the file or, where it holds texts only, the number of their words (`unit` says which).
    """

    vectors: NDArray[Any]
    texts: tuple[str, ...] | None
    lengths: NDArray[np.int64] | None
    ids: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    source: str = "memory"
    unit: str = "tokens"

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        return f"Vectors({len(self):,} vectors of dimension {self.vectors.shape[1]} from {self.source})"


def is_vectors(path: str | os.PathLike[str]) -> bool:
    """Does the name mean a file of pooled vectors?

    >>> is_vectors("vectors.npz"), is_vectors("thenlper/gte-base")
    (True, False)
    """
    return Path(path).suffix.lower() in SUFFIXES


def read_vectors(
    path: str | os.PathLike[str],
    *,
    texts: Sequence[str] | None = None,
    lengths: ArrayLike | None = None,
    column: str | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
) -> Vectors:
    """Pooled vectors that were made elsewhere, from a `.npy`, `.npz` or `.parquet` file.

    Pickled arrays are refused: they can run code.

    Parameters
    ----------
    path
        The file: a matrix (`.npy`), arrays `vectors`, `texts`, `lengths`, `ids`, `labels` (`.npz`) or columns `vector`,
        `text`, `length`, `id`, `label` (`.parquet`).
    texts, lengths
        One a vector, for a file that holds none.
    column, id_column, label_column
        The columns (arrays) of the texts, ids and labels where they have other names.

    Returns
    -------
    Vectors
        `vectors` (N × d) with `texts`, `lengths`, `ids` and `labels`, as far as they are known.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "vectors.npz"
    >>> np.savez(path, vectors=np.eye(2), texts=np.array(["one text", "another"]))
    >>> read_vectors(path)
    Vectors(2 vectors of dimension 2 from vectors.npz)

    """
    file = Path(path)
    if not is_vectors(file):
        raise InputError(
            f"{file.name}: received a file of type '{file.suffix}'; vectors are read from {', '.join(SUFFIXES)}. "
            f"Save the matrix with numpy.save, or the table as Parquet."
        )
    if not file.is_file():
        raise InputError(f"{path}: there is no such file. Check the spelling, or write it with numpy.savez.")
    asked = {"texts": column, "ids": id_column, "labels": label_column}
    named = {part: name for part, name in asked.items() if name is not None}
    found = _from_parquet(file, named) if file.suffix.lower() == ".parquet" else numpy_parts(file, named)
    given = {"texts": texts, "lengths": lengths}
    if double := [name for name, value in given.items() if value is not None and found.get(name) is not None]:
        raise InputError(f"{file.name} holds {' and '.join(double)} of its own; received others too. Leave them out.")
    return _checked({**found, **{name: value for name, value in given.items() if value is not None}}, file.name)


def numpy_parts(file: Path, named: Mapping[str, str]) -> dict[str, Any]:
    """The arrays of a .npy or .npz file by what they are: vectors, texts, lengths, ids, labels; pickles are refused."""
    remedy = (
        "Arrays of Python objects are refused, because loading them can run code: save texts as numpy strings, "
        "np.array(texts, dtype=str)."
    )
    with reading(file.name, remedy, kind=InputError, is_not="what numpy can read"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the parser of a damaged header
        if file.suffix.lower() == ".npy":
            # Mapped first: a header that promises more than the file holds is refused before memory is asked for.
            arrays = {"vectors": np.array(np.load(file, allow_pickle=False, mmap_mode="r"))}
        else:
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    return _named(arrays, matrices, file.name, "arrays", named)


def _from_parquet(file: Path, named: Mapping[str, str]) -> dict[str, Any]:
    with reading(file.name, "Write it again.", kind=InputError, is_not="a Parquet file"):
        table = pq.read_table(file)
        table.validate(full=True)
    lists = [field.name for field in table.schema if _is_list(field.type)]
    columns = {name: table.column(name) for name in table.column_names}
    found = _named(columns, lists, file.name, "columns", named)
    found["vectors"] = _list_matrix(found["vectors"], file.name)
    return {name: value.to_pylist() if isinstance(value, pa.ChunkedArray) else value for name, value in found.items()}


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _list_matrix(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """A column of lists as a matrix; all lists of one length, none missing."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if not chunks or not _is_list(column.type):
        raise InputError(
            f"{name}: the column of vectors is {column.type} with {len(column)} rows; needed are lists of numbers."
        )
    if column.null_count or any(chunk.flatten().null_count for chunk in chunks):
        raise InputError(f"{name}: a vector, or a number in one, is missing. Leave such rows out.")
    flat = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in chunks]
    sizes = {size for chunk in chunks for size in np.unique(_list_sizes(chunk)).tolist()}
    if len(sizes) > 1:
        raise InputError(f"{name}: received vectors of the lengths {sorted(sizes)}; all must have one dimension.")
    return np.concatenate(flat).reshape(len(column), -1)


def _list_sizes(chunk: Any) -> NDArray[Any]:
    if pa.types.is_fixed_size_list(chunk.type):
        return np.array([chunk.type.list_size])
    return np.diff(np.asarray(chunk.offsets))


def _named(
    found: Mapping[str, Any], matrices: Sequence[str], file: str, unit: str, named: Mapping[str, str]
) -> dict[str, Any]:
    """The parts by what they are: as `named`, under one of their usual names or, for the vectors, the only matrix."""
    if unknown := [name for name in named.values() if name not in found]:
        raise InputError(
            f"{file}: received the name '{unknown[0]}'; there are only the {unit} {', '.join(found)}. Name one of "
            f"these, or leave it out."
        )
    parts = {
        part: found[name] for part, names in _NAMES.items() if (name := next((n for n in names if n in found), None))
    }
    parts |= {part: found[name] for part, name in named.items()}
    if "vectors" not in parts:
        if len(matrices) != 1:
            listing = ", ".join(f"'{name}'" for name in found) or "none"
            raise InputError(
                f"{file}: received the {unit} {listing}; {len(matrices)} of them could be the vectors. Name the right "
                f"one 'vectors'."
            )
        parts["vectors"] = found[matrices[0]]
    return parts


def _checked(parts: Mapping[str, Any], source: str) -> Vectors:
    vectors = np.asarray(parts["vectors"])
    if vectors.ndim != 2 or not vectors.size or vectors.dtype.kind not in "fiu":
        raise InputError(
            f"{source}: received {vectors.dtype} of shape {vectors.shape}; needed is a matrix, one row a text."
        )
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        raise InputError(
            f"{source}: row {wrong[0]} ({len(wrong)} in all) holds NaN or infinity. Embed these texts again."
        )
    texts, ids, labels = (_strings(parts.get(name), name, len(vectors), source) for name in ("texts", "ids", "labels"))
    lengths = parts.get("lengths")
    counted = lengths is None and texts is not None
    if counted:
        lengths = [len(text.split()) for text in texts or ()]
    return Vectors(
        vectors=vectors,
        texts=texts,
        lengths=None if lengths is None else as_lengths(lengths, len(vectors), source),
        ids=ids or tuple(str(k) for k in range(len(vectors))),
        labels=labels,
        source=source,
        unit=WORDS if counted else "tokens",
    )


def _strings(values: Any, name: str, count: int, source: str) -> tuple[str, ...] | None:
    if values is None:
        return None
    found = [None if is_missing(value) else str(value) for value in values]
    if len(found) != count or None in found:
        raise InputError(
            f"{source}: received {len(found)} {name} ({found.count(None)} of them missing) for {count} vectors; one a "
            f"vector is needed."
        )
    return tuple(value for value in found if value is not None)


def as_lengths(lengths: ArrayLike, count: int, source: str) -> NDArray[np.int64]:
    """The lengths as whole numbers, one a vector and none negative; otherwise an error that says which is wrong."""
    found = np.asarray(lengths)
    whole = found.dtype.kind in "iu" or (
        found.dtype.kind == "f" and bool(np.isfinite(found).all()) and bool((found == np.round(found)).all())
    )
    if found.shape != (count,) or not whole or (found < 0).any():
        raise InputError(
            f"{source}: received lengths of shape {found.shape} and type {found.dtype}; needed is one whole number ≥ 0 "
            f"for each of the {count} vectors. Count the tokens (or the words) of every text."
        )
    return found.astype(np.int64)
