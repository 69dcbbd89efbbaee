"""The table of token clouds and its file: plain Arrow IPC, with digests that are compared when a part of it is read.

Each record batch carries, in its own metadata, one digest of everything but the vectors (ids, texts, token ids, where
texts begin, and the provenance of the file) and one of every megabyte of vectors. The first is compared when the file
is opened, which reads these columns anyway; the others when the vectors are used, each once. The last batch has no rows
and says how many there are before it. A file without digests, of an earlier version or of another program, is read
without these checks, and that is said once.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from poolscope.digests import PIECE, digest_of, digest_of_numbers, pieces_of
from poolscope.errors import InputError, StoreError, reading, shorten
from poolscope.files import refuse_special
from poolscope.texts.records import ArrowStrings as ArrowStrings
from poolscope.texts.tables import is_table
from poolscope.words import logger

_LOG = logger(__name__)
_KEY = b"poolscope digests"  # in the metadata of the schema: that there are some; in that of a batch: its own
_REMEDY = "Encode the texts again."
FORMAT = 1
_METADATA_KEY = b"poolscope"
_COLUMNS = {
    "id": pa.string(),
    "text": pa.large_string(),
    "truncated": pa.int32(),
    "token_ids": pa.large_list(pa.int32()),
}


class Guard:
    """The digests of the vectors of one record batch, each compared when its piece is used for the first time."""

    def __init__(self, path: object, raw: NDArray[np.uint8], digests: Sequence[str]) -> None:
        self.path = path
        self._raw = raw
        self._digests = digests
        self.begin = address_of(raw)
        self._unchecked = [True] * len(digests)
        self._left = len(digests)

    def holds(self, rows: NDArray[Any]) -> bool:
        """Whether these rows lie in its batch."""
        return 0 <= address_of(rows) - self.begin <= len(self._raw) - rows.nbytes

    def check(self, first: int = 0, last: int | None = None) -> None:
        """Compare the digests of the pieces that hold these bytes, or of all; an error names the file."""
        last = len(self._raw) if last is None else last
        if not self._left or first >= last:
            return
        for piece in range(first // PIECE, (last - 1) // PIECE + 1):
            if not self._unchecked[piece]:
                continue
            if digest_of_numbers(self._raw[piece * PIECE : (piece + 1) * PIECE]) != self._digests[piece]:
                raise StoreError(
                    f"{self.path}: damaged: its vectors are not those that were written (the digest of megabyte "
                    f"{piece} differs). {_REMEDY}"
                )
            self._unchecked[piece] = False
            self._left -= 1


class Guards:
    """The guards of several batches, found by where vectors lie in memory."""

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self.all = sorted(guards, key=lambda guard: guard.begin)
        self._begins = [guard.begin for guard in self.all]

    def of(self, rows: NDArray[Any]) -> Guard | None:
        """The guard of the file behind these rows; None for rows in memory."""
        place = bisect_right(self._begins, address_of(rows)) - 1
        return self.all[place] if place >= 0 and self.all[place].holds(rows) else None


def address_of(rows: NDArray[Any]) -> int:
    """Where an array begins in memory."""
    return int(rows.__array_interface__["data"][0])


# -- writing ----------------------------------------------------------------------------------------------------------


class DigestedFile:
    """An Arrow IPC file that is written batch by batch, each with its digests; `with` closes it."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema, *, bulk: str = "tokens") -> None:
        self._bulk = bulk
        self.schema = schema.with_metadata({**(schema.metadata or {}), _KEY: b"1"})
        self._writer = pa.ipc.new_file(stream, self.schema)
        self._written: list[bytes] = []
        self._rows = 0

    def __enter__(self) -> DigestedFile:
        return self

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table, a record batch a chunk."""
        for batch in table.to_batches():
            rest = _rest_digest(batch, self.schema, self._rows, self._bulk)
            self._put(batch, {"rest": rest, "tokens": pieces_of(_raw(batch, self._bulk))})
            self._rows += batch.num_rows

    def close(self) -> None:
        """Write the last batch, which has no rows, and the end of the file."""
        empty = pa.record_batch([pa.array([], field.type) for field in self.schema], schema=self.schema)
        self._put(empty, _end(self._written))
        self._writer.close()

    def _put(self, batch: pa.RecordBatch, digests: dict[str, Any]) -> None:
        own = json.dumps(digests).encode()
        self._writer.write_batch(batch, custom_metadata={_KEY: own})
        self._written.append(own)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._writer.close()


def _end(written: Sequence[bytes]) -> dict[str, Any]:
    return {"batches": len(written), "all": digest_of(b"\n".join(written))}


def _raw(batch: pa.RecordBatch, bulk: str) -> NDArray[np.uint8]:
    """The vectors of a batch as bytes, without a copy: those of tokens, or one a text."""
    column = batch.column(bulk)
    if pa.types.is_fixed_size_list(column.type):
        return np.asarray(column.flatten().to_numpy(zero_copy_only=True)).view(np.uint8)
    ends = column.offsets[0].as_py(), column.offsets[-1].as_py()
    size = column.type.value_type.list_size
    numbers = column.values.flatten().to_numpy(zero_copy_only=True)
    return np.asarray(numbers[ends[0] * size : ends[1] * size]).view(np.uint8)


def _rest_digest(batch: pa.RecordBatch, schema: pa.Schema, start: int, bulk: str) -> str:
    """The digest of everything in a batch but its vectors, of its place in the file and of what the schema says."""
    kinds = [f"{field.name} {field.type}" for field in schema]
    parts = [f"{start} {batch.num_rows} {kinds} {sorted((schema.metadata or {}).items())}".encode()]
    for field in schema:
        column = batch.column(field.name)
        parts += _content(column) if field.name != bulk else _lengths(column) if bulk == "tokens" else []
    return digest_of(*parts)


def _content(column: pa.Array) -> list[Any]:
    """The bytes of a column, the same however it was cut out of a larger one."""
    parts: list[Any] = [] if not column.null_count else [np.packbits(column.is_valid().to_numpy(False)).tobytes()]
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [*parts, *_lengths(column), *_content(column.flatten())]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [*parts, *_lengths(column), _letters(column)]
    return [*parts, (column.fill_null(0) if column.null_count else column).to_numpy(False).tobytes()]


def _letters(column: pa.Array) -> Any:
    """All bytes of a column of strings, end to end."""
    _, offsets, letters = column.buffers()
    if not len(column) or letters is None:
        return b""
    numbers = np.frombuffer(offsets, np.int32 if pa.types.is_string(column.type) else np.int64)
    first, last = numbers[[column.offset, column.offset + len(column)]].tolist()
    return letters[first:last]


def _lengths(column: pa.Array) -> list[bytes]:
    strings = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    lengths = pc.binary_length(column) if strings else pc.list_value_length(column)
    return [lengths.cast(pa.int64()).fill_null(-1).to_numpy(False).tobytes()]


# -- reading ----------------------------------------------------------------------------------------------------------


def read_digested(path: str | os.PathLike[str], *, bulk: str = "tokens") -> tuple[pa.Table, Guards]:
    """The table of a file, memory-mapped, and the guards of its vectors (none for a file without digests)."""
    try:
        with (
            reading(path, _REMEDY, is_not="a readable Arrow IPC file"),
            _mapped(path) as source,
        ):
            reader = pa.ipc.open_file(source)
            parts = [reader.get_batch_with_custom_metadata(k) for k in range(reader.num_record_batches)]
            table = pa.Table.from_batches([batch for batch, _ in parts], reader.schema)
            # Every offset and string: a wrong one would end the process, or show memory from outside the file.
            table.validate(full=True)
            digests = [None if metadata is None else metadata.get(_KEY) for _, metadata in parts]
            if _KEY not in (table.schema.metadata or {}) and not any(digests):
                say_without_digests()
                return table, Guards()
            guards = Guards(_guards(path, reader.schema, [batch for batch, _ in parts], digests, bulk))
    except FileNotFoundError:
        raise StoreError(
            f"{path}: no such cloud file. Write one with TokenClouds.save or `poolscope encode`."
        ) from None
    metadata = {name: value for name, value in table.schema.metadata.items() if name != _KEY}
    return table.replace_schema_metadata(metadata), guards


def _mapped(path: str | os.PathLike[str]) -> pa.MemoryMappedFile:
    refuse_special(Path(path), StoreError)
    return pa.memory_map(os.fspath(path))


def has_digests(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it has digests; whether they agree, reading tells."""
    with reading(path, _REMEDY, is_not="a readable Arrow IPC file"), _mapped(path) as source:
        return _KEY in (pa.ipc.open_file(source).schema.metadata or {})


def _guards(
    path: object, schema: pa.Schema, batches: Sequence[pa.RecordBatch], digests: Sequence[bytes | None], bulk: str
) -> Iterator[Guard]:
    """Compare all digests except those of vectors; yield a guard a batch that compares vectors when rows are read."""
    own = [digest or b"{}" for digest in digests]
    if not own or json.loads(own[-1]) != _end(own[:-1]):
        raise ValueError("parts of it, or their digests, are missing")
    start = 0
    for batch, digest in zip(batches[:-1], own[:-1], strict=True):
        content, raw = json.loads(digest), _raw(batch, bulk)
        if content["rest"] != _rest_digest(batch, schema, start, bulk):
            raise ValueError(f"ids, texts or lengths from text {start} on are not those that were written")
        if len(content["tokens"]) != -(-len(raw) // PIECE):
            raise ValueError(f"it has more or fewer vectors than were written, from text {start} on")
        start += batch.num_rows
        yield Guard(path, raw, content["tokens"])


@cache
def say_without_digests() -> None:
    """Say once that files are read which nothing guards."""
    _LOG.warning(
        "Clouds are read from a file without digests (of an earlier version, or of another program): a byte "
        "that changed in it goes unnoticed."
    )


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
        raise InputError(f"{plural}: received {shorten(values)}; needed: a list, one entry a text, such as ['a', 'b'].")
    entries = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(entries) != count:
        raise InputError(f"{plural}: received {len(entries)} entries for {count} texts; one per text is needed.")
    entries = [_ENTRIES[name](value, f"{plural}: entry {k}") for k, value in enumerate(entries)]
    return pa.array(entries, _COLUMNS[name])


def _id(value: Any, place: str) -> str:
    """An id as a string; whole numbers, such as the index of a data frame, become their digits."""
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
    raise InputError(f"{place} is {value!r}; allowed: how many tokens were truncated, a whole number of at least 0.")


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
