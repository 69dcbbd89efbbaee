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
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds.file import DigestedFile, read_digested
from poolscope.errors import InputError, StoreError, reading
from poolscope.files import as_path, is_file, refuse_special
from poolscope.surface import as_lengths
from poolscope.texts.plain import parquet_batches, refuse_packed_arrays, refuse_promised_array
from poolscope.texts.records import is_missing

SUFFIXES = (".npy", ".npz", ".parquet")
WORDS = "words"
_ROWS = 2**16  # of a Parquet file at a time
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
    Vectors that poolscope made itself (`poolscope encode --keep moments`) know how many tokens of each text were cut
    off (`truncated`) and, where they are means of tokens, the spread of these over the squared norm of the mean
    (`traces`).
    """

    vectors: NDArray[Any]
    texts: tuple[str, ...] | None
    lengths: NDArray[np.int64] | None
    ids: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    source: str = "memory"
    unit: str = "tokens"
    truncated: NDArray[np.int64] | None = None
    traces: NDArray[np.float64] | None = None

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
    file = as_path(path)
    if not is_vectors(file):
        raise InputError(
            f"{file.name}: received a file of type '{file.suffix}'; vectors are read from {', '.join(SUFFIXES)}. "
            f"Save the matrix with numpy.save, or the table as Parquet."
        )
    if not is_file(file):
        raise InputError(f"{path}: there is no such file. Check the spelling, or write it with numpy.savez.")
    columns = {"texts": column, "ids": id_column, "labels": label_column}
    named = {part: name for part, name in columns.items() if name is not None}
    parts = _from_parquet(file, named) if file.suffix.lower() == ".parquet" else numpy_parts(file, named)
    passed = {"texts": texts, "lengths": lengths}
    if double := [name for name, value in passed.items() if value is not None and parts.get(name) is not None]:
        raise InputError(f"{file.name} holds {' and '.join(double)} of its own; received others too. Leave them out.")
    return _checked({**parts, **{name: value for name, value in passed.items() if value is not None}}, file.name)


def numpy_parts(file: Path, named: Mapping[str, str]) -> dict[str, Any]:
    """The arrays of a .npy or .npz file by what they are: vectors, texts, lengths, ids, labels; pickles are refused."""
    remedy = (
        "Arrays of Python objects are refused, because loading them can run code: save texts as numpy strings, "
        "np.array(texts, dtype=str)."
    )
    with reading(file.name, remedy, kind=InputError, is_not="what numpy can read"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the parser of a damaged header
        refuse_special(file)
        if file.suffix.lower() == ".npy":
            with file.open("rb") as stream:
                refuse_promised_array(stream, file.stat().st_size, name=file.name)
            arrays = {"vectors": np.load(file, allow_pickle=False)}
        else:
            refuse_packed_arrays(file)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    return _named(arrays, matrices, file.name, "arrays", named)


def _from_parquet(file: Path, named: Mapping[str, str]) -> dict[str, Any]:
    with reading(file.name, "Write it again.", kind=InputError, is_not="a Parquet file"):
        refuse_special(file)
        table = pa.Table.from_batches(parquet_batches(file, _ROWS), pq.read_schema(file))
        table.validate(full=True)
    lists = [field.name for field in table.schema if is_list(field.type)]
    columns = {name: table.column(name) for name in table.column_names}
    parts = _named(columns, lists, file.name, "columns", named)
    parts["vectors"] = _list_matrix(parts["vectors"], file.name)
    return {name: value.to_pylist() if isinstance(value, pa.ChunkedArray) else value for name, value in parts.items()}


def is_list(kind: Any) -> bool:
    """Does a column of this Arrow type hold lists?"""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _list_matrix(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """A column of lists as a matrix; all lists of one length, none missing."""
    numbers = is_list(column.type) and (
        pa.types.is_floating(column.type.value_type) or pa.types.is_integer(column.type.value_type)
    )
    if not len(column) or not numbers:
        raise InputError(
            f"{name}: the column of vectors is {column.type} with {len(column)} rows; needed are lists of numbers."
        )
    rows = rows_of_lists(column.combine_chunks())
    if isinstance(rows, np.ndarray):
        return rows
    if any(row is None or np.isnan(row).any() for row in rows):
        raise InputError(f"{name}: a vector, or a number in one, is missing. Leave such rows out.")
    sizes = sorted({len(row) for row in rows})
    raise InputError(f"{name}: received vectors of the lengths {sizes}; all must have one dimension.")


def rows_of_lists(column: Any) -> NDArray[Any] | list[Any]:
    """A column of lists as a matrix, or row by row where some are missing or of another length."""
    flat = column.flatten()
    whole = not column.null_count and not flat.null_count
    if whole and len(column) and len(flat) % len(column) == 0:
        size = len(flat) // len(column)
        fixed = pa.types.is_fixed_size_list(column.type)
        if fixed or bool((np.diff(np.asarray(column.offsets)) == size).all()):
            return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), size)
    # A number that is missing in a vector makes it NaN, which is counted as such.
    return [None if row is None else np.array(row, dtype=np.float64) for row in column.to_pylist()]


def _named(
    available: Mapping[str, Any], matrices: Sequence[str], file: str, unit: str, named: Mapping[str, str]
) -> dict[str, Any]:
    """The parts by what they are: as `named`, under one of their usual names or, for the vectors, the only matrix."""
    if unknown := [name for name in named.values() if name not in available]:
        raise InputError(
            f"{file}: received the name '{unknown[0]}'; there are only the {unit} {', '.join(available)}. Name one of "
            f"these, or leave it out."
        )
    parts = {
        part: available[name]
        for part, names in _NAMES.items()
        if (name := next((n for n in names if n in available), None))
    }
    parts |= {part: available[name] for part, name in named.items()}
    if "vectors" not in parts:
        if len(matrices) != 1:
            listing = ", ".join(f"'{name}'" for name in available) or "none"
            raise InputError(
                f"{file}: received the {unit} {listing}; {len(matrices)} of them could be the vectors. Name the right "
                f"one 'vectors'."
            )
        parts["vectors"] = available[matrices[0]]
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
            f"{source}: row {wrong[0] + 1} ({len(wrong)} in all) holds NaN or infinity. Embed these texts again."
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
    values = values.reshape(1) if getattr(values, "ndim", 1) == 0 else values
    strings = [None if is_missing(value) else str(value) for value in values]
    if len(strings) != count or None in strings:
        raise InputError(
            f"{source}: received {len(strings)} {name} ({strings.count(None)} of them missing) for {count} vectors; "
            f"one a vector is needed."
        )
    return tuple(value for value in strings if value is not None)


# -- the files of a store that keeps one vector a text ----------------------------------------------------------------


def write_vectors(rows: Vectors, stream: BinaryIO) -> None:
    """Write one Arrow IPC file: id, text, length, truncated, trace and vector (float32) of every text."""
    vectors = np.ascontiguousarray(rows.vectors, dtype=np.float32)
    columns = {
        "id": pa.array(rows.ids, pa.string()),
        "text": pa.array([None] * len(rows) if rows.texts is None else rows.texts, pa.large_string()),
        "length": pa.array(rows.lengths, pa.int32()),
        "truncated": pa.array(rows.truncated, pa.int32()),
        "trace": pa.array([None] * len(rows) if rows.traces is None else rows.traces, pa.float64()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
    }
    table = pa.table(columns)
    with DigestedFile(stream, table.schema, bulk="vector") as file:
        file.write(table)


def open_vectors(path: str | os.PathLike[str]) -> Vectors:
    """Read a file that `write_vectors` wrote; the vectors are memory-mapped, and compared with their digests."""
    table, guards = read_digested(path, bulk="vector")
    for guard in guards.all:
        guard.check()
    with reading(path, "Encode the texts again.", kind=StoreError, is_not="a file of vectors"):
        column = table.column("vector").combine_chunks()
        vectors = column.values.to_numpy().reshape(len(table), column.type.list_size)
        numbers = {name: table.column(name).to_numpy().astype(np.int64) for name in ("length", "truncated")}
        texts, traces = table.column("text"), table.column("trace")
        return Vectors(
            vectors=vectors,
            texts=None if texts.null_count else tuple(texts.to_pylist()),
            lengths=numbers["length"],
            ids=tuple(table.column("id").to_pylist()),
            source=Path(path).name,
            truncated=numbers["truncated"],
            traces=None if traces.null_count else traces.to_numpy(),
        )
