"""Files that hold more than their size says: a small one could fill all memory, so what comes out is counted first."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from poolscope.errors import InputError

_ROOM, _FOLD = 2**28, 100  # bytes that any packed file may hold, and how many more for each of its own
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_RECORD_BATCH, _DICTIONARY = "record batch", "dictionary"


class Room:
    """What a packed file may hold: far more than texts and vectors shrink by, and a bound all the same."""

    def __init__(self, path: Path) -> None:
        self._name, self._taken = path.name, 0
        self.most = _ROOM + _FOLD * path.stat().st_size

    def take(self, size: int) -> None:
        """Count so many bytes; an error as soon as all of them are more than the file may hold."""
        self._taken += size
        if self._taken > self.most:
            raise InputError(
                f"{self._name}: received a packed file that holds more than {self.most:,} bytes, over {_FOLD} times "
                f"its own size; texts and vectors do not shrink so far. Unpack it and name that file, if it is what "
                f"you mean."
            )


def refuse_packed_arrays(path: Path) -> None:
    """Refuse an .npz whose arrays are too large for it, or promise more numbers than are there."""
    room = Room(path)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            room.take(member.file_size)
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, kind = read(stream)
            promised = kind.itemsize * int(np.prod([int(size) for size in shape], dtype=object))
            if not kind.hasobject and promised > member.file_size:
                raise ValueError(f"{member.filename} promises {promised:,} bytes and holds {member.file_size:,}")


# -- Parquet ----------------------------------------------------------------------------------------------------------


def parquet_batches(path: Path, rows: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Batches of at most so many rows, fewer where one value is large; refused before they outgrow the file."""
    room = Room(path)
    with pq.ParquetFile(path) as file:
        largest = _refuse_packed(path, file, columns)
        # A value that a dictionary holds once may stand in every row.
        rows = max(1, min(rows, room.most // max(largest, 1)))
        for batch in file.iter_batches(batch_size=rows, columns=None if columns is None else list(columns)):
            room.take(decoded_size(batch))
            yield batch


def refuse_packed_parquet(path: Path) -> None:
    """Refuse a Parquet file by what it says of itself and by its first row."""
    with pq.ParquetFile(path) as file:
        _refuse_packed(path, file, None)


def _refuse_packed(path: Path, file: Any, columns: Sequence[str] | None) -> int:
    """Refuse a Parquet file by what it says of itself; the bytes of the largest group of rows.

    What it says of single columns is not asked for: where that is damaged, pyarrow ends the process.
    """
    room, largest, metadata = Room(path), 0, file.metadata
    kinds = [metadata.schema.column(k) for k in range(metadata.num_columns)]
    chosen = [kind for kind in kinds if columns is None or kind.path.partition(".")[0] in columns]
    width = sum(_WIDTHS.get(kind.physical_type, 0) for kind in chosen)  # of numbers; those that repeat are kept once
    for group in (metadata.row_group(k) for k in range(metadata.num_row_groups)):
        room.take(max(group.total_byte_size, group.num_rows * width))
        largest = max(largest, group.total_byte_size)
    names = None if columns is None else list(columns)
    first = next(file.iter_batches(batch_size=1, columns=names), None)
    for column in () if first is None else first.columns:
        kind = getattr(column.type, "value_type", None)
        if kind is not None and pa.types.is_floating(kind):  # vectors are alike, and numbers that repeat kept once
            room.take(int(column.nbytes) * metadata.num_rows)
    return largest


def decoded_size(batch: Any) -> int:
    """The bytes of a batch once every value stands for itself."""
    return sum(_decoded(column) for column in batch.columns)


def _decoded(column: Any) -> int:
    if not pa.types.is_dictionary(column.type) or not len(column.dictionary):
        return int(column.nbytes)
    each = column.dictionary.nbytes // len(column.dictionary)
    if pa.types.is_string(column.type.value_type) or pa.types.is_large_string(column.type.value_type):
        return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)
    return int(each * len(column))


# -- Arrow ------------------------------------------------------------------------------------------------------------


def refuse_packed_arrow(path: Path) -> None:
    """Refuse an Arrow or Feather file whose packed buffers say that they unpack to too much."""
    room = Room(path)
    with pa.memory_map(str(path)) as file:
        is_file = file.read(6) == b"ARROW1"
        batches = pa.ipc.open_file(file).num_record_batches if is_file else -1
        file.seek(8 if is_file else 0)  # in a file the stream begins behind the mark
        messages = iter(pa.ipc.MessageReader.open_stream(file))
        while batches != 0 and (message := next(messages, None)) is not None:
            if message.type in (_RECORD_BATCH, _DICTIONARY) and message.body is not None:
                header = message.metadata.to_pybytes()
                for size in _unpacked_sizes(header, message.body, nested=message.type == _DICTIONARY):
                    room.take(size)
            batches -= message.type == _RECORD_BATCH


def _unpacked_sizes(header: bytes, body: Any, *, nested: bool) -> Iterator[int]:
    """What the buffers of a message unpack to; each packed one begins with that number."""
    batch = _followed(header, _field(header, _followed(header, 0), 2))
    if batch is not None and nested:
        batch = _followed(header, _field(header, batch, 1))
    buffers = None if batch is None else _followed(header, _field(header, batch, 2))
    if batch is None or buffers is None or _field(header, batch, 3) is None:  # nothing is packed
        return
    for number in range(struct.unpack_from("<I", header, buffers)[0]):
        start, length = struct.unpack_from("<qq", header, buffers + 4 + 16 * number)
        if length >= 8:
            yield max(int(struct.unpack("<q", body.slice(start, 8).to_pybytes())[0]), 0)


def _followed(data: bytes, place: int | None) -> int | None:
    """Where an offset of a flatbuffer leads."""
    return None if place is None else place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int | None, number: int) -> int | None:
    """Where a field of a table of a flatbuffer stands; None where it is left out."""
    if table is None:
        return None
    names = table - int(struct.unpack_from("<i", data, table)[0])
    entry = 4 + 2 * number
    size = struct.unpack_from("<H", data, names)[0]
    offset = struct.unpack_from("<H", data, names + entry)[0] if entry < size else 0
    return table + int(offset) if offset else None
