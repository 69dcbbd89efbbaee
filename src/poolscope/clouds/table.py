"""Behind token clouds: the columns of their Arrow table, its provenance, and what callers may pass for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.clouds.file import Guard, Guards, address_of
from poolscope.errors import InputError, StoreError
from poolscope.texts.records import ArrowStrings as ArrowStrings
from poolscope.texts.records import shorten
from poolscope.texts.tables import is_table

FORMAT = 1
_METADATA_KEY = b"poolscope"
_COLUMNS = {
    "id": pa.string(),
    "text": pa.large_string(),
    "truncated": pa.int32(),
    "token_ids": pa.large_list(pa.int32()),
}


@dataclass(frozen=True)
class Block:
    """Consecutive texts whose tokens lie in one matrix: text `start + k` is `tokens[offsets[k]:offsets[k+1]]`.

    Vectors of a file are compared with their digests when they are asked for; `guarded_from` is the byte of the guarded
    batch at which the matrix begins.
    """

    start: int
    matrix: NDArray[Any]
    offsets: NDArray[np.int64]
    guard: Guard | None = None
    guarded_from: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def tokens(self) -> NDArray[Any]:
        """All vectors."""
        return self.rows(0, len(self))

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """The vectors of the texts from `first` to before `last`, counted from the start of the block."""
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        if self.guard is not None:
            width = self.matrix.strides[0]
            self.guard.check(self.guarded_from + begin * width, self.guarded_from + end * width)
        rows: NDArray[Any] = self.matrix[begin:end]
        return rows


def column_of(name: str, values: Any, count: int) -> pa.Array:
    """The column of that name, one entry a text; what cannot be kept as it is is refused, not bent.

    >>> column_of("id", range(2), 2).to_pylist(), column_of("text", None, 1).to_pylist()
    (['0', '1'], [None])
    """
    if values is None:
        usual: dict[str, Sequence[Any]] = {"id": [str(k) for k in range(count)], "truncated": [0] * count}
        return pa.array(usual.get(name, [None] * count), _COLUMNS[name])
    if is_table(values):
        raise InputError(
            f"{name}: received a {type(values).__name__}, a table; needed: one entry a text. Pass its column."
        )
    plural = {"id": "ids", "text": "texts"}.get(name, name)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"{plural}: received {shorten(values)}; needed: a list, one entry a text. Pass one.")
    entries = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(entries) != count:
        raise InputError(f"{plural}: received {len(entries)} entries for {count} texts; one per text is needed.")
    entries = [_ENTRIES[name](value, f"{plural}: entry {k}") for k, value in enumerate(entries)]
    return pa.array(entries, _COLUMNS[name])


def _id(value: Any, place: str) -> str:
    """Whole numbers, such as those of the index of a data frame, become their digits."""
    if isinstance(value, str) and _is_writable(value):
        return value
    if isinstance(value, Integral) and not isinstance(value, bool | np.bool_):
        return str(int(value))
    raise InputError(f"{place} is {value!r}; an id is a string or a whole number. Convert it, or leave the ids out.")


def _text(value: Any, place: str) -> str:
    if isinstance(value, str) and _is_writable(value):
        return value
    raise InputError(f"{place} is {value!r}; a text is a string. Pass the texts of all clouds, or of none.")


def _cut_tokens(value: Any, place: str) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool | np.bool_) and 0 <= int(value) < 2**31:
        return int(value)
    raise InputError(f"{place} is {value!r}; allowed: how many tokens were cut off, a whole number of at least 0.")


def _is_writable(word: str) -> bool:
    """Whether it can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _token_ids(value: Any, place: str) -> NDArray[np.int32]:
    numbers = np.asarray(value)
    whole = numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not numbers.size)
    if not whole or (numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < 2**31):
        raise InputError(
            f"{place} is {shorten(value)}; allowed: the ids of the tokens of a text, whole numbers from 0."
        )
    return numbers.astype(np.int32)


_ENTRIES = {"id": _id, "text": _text, "truncated": _cut_tokens, "token_ids": _token_ids}


def checked_table(table: pa.Table) -> pa.Table:
    """The table if it has our columns; otherwise an error that says what is missing."""
    if not isinstance(table, pa.Table):
        raise InputError(
            f"received {shorten(table)} ({type(table).__name__}); needed: an Arrow table with the columns of token "
            f"clouds. TokenClouds.from_arrays makes them from arrays, TokenClouds.open from a file."
        )
    kinds = {field.name: field.type for field in table.schema}
    if wrong := [name for name, fits in _FITS.items() if name not in kinds or not fits(kinds[name])]:
        raise StoreError(
            f"not a cloud table: columns {table.column_names}, {wrong[0]} of type {kinds.get(wrong[0])}; allowed: id, "
            f"text, truncated, token_ids and tokens (large_list<fixed_size_list<float, d>>). Use TokenClouds.save."
        )
    if table.num_rows == 0 or any(table.column(name).null_count for name in ("tokens", "id", "truncated")):
        raise StoreError(
            "the cloud table is empty or has null clouds; at least one text is needed and every text an id and a cloud."
        )
    return table


def _is_strings(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _is_whole_lists(kind: Any) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(pa.types.is_null(kind) or (lists and pa.types.is_integer(kind.value_type)))


def _is_clouds(kind: Any) -> bool:
    rows = kind.value_type if pa.types.is_large_list(kind) else None
    return bool(rows is not None and pa.types.is_fixed_size_list(rows) and pa.types.is_floating(rows.value_type))


_FITS = {
    "id": _is_strings,
    "text": _is_strings,
    "truncated": pa.types.is_integer,
    "token_ids": _is_whole_lists,
    "tokens": _is_clouds,
}


def blocks_of(column: pa.ChunkedArray, guards: Guards) -> Iterator[Block]:
    """The chunks of the column `tokens`, each as one matrix (no copy)."""
    start = 0
    for chunk in column.chunks:
        if not len(chunk):
            continue
        offsets = chunk.offsets.to_numpy()
        flat = chunk.values.flatten().to_numpy(zero_copy_only=True)
        matrix = flat.reshape(-1, chunk.values.type.list_size)[offsets[0] : offsets[-1]]
        guard = guards.of(matrix)
        begin = 0 if guard is None else address_of(matrix) - guard.begin
        yield Block(start, matrix, offsets - offsets[0], guard, begin)
        start += len(chunk)


def write_provenance(provenance: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    """The metadata of a table in which the provenance stands as JSON."""
    if provenance is not None and not isinstance(provenance, Mapping):
        raise InputError(f"provenance: received {shorten(provenance)}; needed: a mapping. Pass one, or leave it out.")
    try:
        return {_METADATA_KEY: json.dumps({"format": FORMAT, **(provenance or {})}).encode()}
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"provenance: cannot be kept as JSON ({error}). Pass numbers, texts, lists and dicts."
        ) from error


def read_provenance(table: pa.Table) -> dict[str, Any]:
    """What `write_provenance` put into the metadata of a table."""
    metadata = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, b'{"format": 1}'))
    if metadata.pop("format", None) != FORMAT:
        raise StoreError(f"the clouds were written in another format than {FORMAT}; encode the texts again.")
    return dict(metadata)


def padded_input(value: Any, name: str) -> Any:
    """A tensor or an array as it is; lists as an array."""
    if hasattr(value, "detach"):
        return value.detach().cpu()
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name}: received a {type(value).__name__} that is no array ({error}); allowed: a padded batch (texts, "
            f"positions, dimensions) and its mask (texts, positions). Pad all texts to one length, or use from_arrays."
        ) from error


def positions_of(indices: Any, count: int) -> NDArray[np.int64]:
    """The positions that whole numbers or a mask of booleans mean, at least one."""
    chosen = np.asarray(indices)
    if chosen.dtype == object and all(isinstance(value, bool) for value in chosen.flat):  # a nullable column of pandas
        chosen = chosen.astype(bool)
    mask = chosen.dtype == bool
    if chosen.ndim != 1 or (mask and len(chosen) != count) or (chosen.size and chosen.dtype.kind not in "biu"):
        raise InputError(
            f"received positions of shape {chosen.shape} and type {chosen.dtype} for {count} texts; allowed: a list of "
            f"whole numbers, or a mask of {count} booleans. Convert it to one of these."
        )
    positions = np.flatnonzero(chosen) if mask else chosen.astype(np.int64)
    if not len(positions):
        raise InputError(f"received a selection of no text; at least one of the {count} is needed.")
    if ((positions < -count) | (positions >= count)).any():
        raise InputError(
            f"received the position {positions[(positions < -count) | (positions >= count)][0]}; allowed: "
            f"0 to {count - 1}, or from the end -{count} to -1."
        )
    return positions
