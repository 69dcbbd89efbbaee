"""Files as they are read: lines of plain text, folders with one text per file, and bounds for what is packed.

Lines end at LF, CRLF or CR only. `str.splitlines` also cuts at U+2028, form feeds and other separators,
which are ordinary characters inside a text. Bytes that are not valid in the encoding become a lone
surrogate while reading; `records.scrub` turns it into U+FFFD, so that a U+FFFD which stood in the file
itself is not mistaken for damage.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from poolscope.errors import InputError
from poolscope.files import refuse_special

DOCUMENT_SUFFIXES = (".txt", ".md")
_MARKING = "poolscope.mark"
_TAKEN: list[str] = []
_ENCODING: ContextVar[str | None] = ContextVar("_ENCODING", default=None)


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udfff", error.end


codecs.register_error(_MARKING, _mark)


def decode(data: bytes) -> str:
    r"""UTF-8 bytes as text, with a lone surrogate for what is not valid.

    >>> decode(b"a\xff")
    'a\udfff'
    """
    return data.decode("utf-8", _MARKING)


@contextmanager
def default_encoding(name: str) -> Iterator[None]:
    """Inside, texts are read in this encoding wherever none is asked for, instead of in UTF-8.

    So the command line, where `--encoding` holds for every file that a command reads, says it once.
    """
    token = _ENCODING.set(name)
    try:
        yield
    finally:
        _ENCODING.reset(token)


def asked_encoding() -> str | None:
    """The encoding that `default_encoding` was told; None outside of it."""
    return _ENCODING.get()


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what the system or a codec says about an unreadable source into an `InputError`."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{name} cannot be read: {reason}. Check the path, the permissions and the encoding."
        ) from error


def _text_stream(binary: BinaryIO, encoding: str | None, *, name: str, newline: str | None = None) -> io.TextIOWrapper:
    try:
        encoding = encoding or asked_encoding() or "utf-8"
        if not isinstance(encoding, str) or "\0" in encoding:
            raise LookupError(encoding)
        codec = codecs.lookup(encoding).name
        if codec == "utf-8":
            _refuse_wide(binary, name)
            codec = "utf-8-sig"  # a byte order mark is no part of the first text
        return io.TextIOWrapper(binary, encoding=codec, errors=_MARKING, newline=newline)
    except LookupError as error:
        raise InputError(
            f"received the encoding {encoding!r}; Python knows no text encoding of that name. "
            "Try utf-8, utf-16, cp1252 or latin-1."
        ) from error


_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # it begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOK = 4096


def _refuse_wide(binary: BinaryIO, name: str) -> None:
    """Most of a UTF-16 or UTF-32 file passes as valid UTF-8 with NUL characters: better to stop at once."""
    start = binary.peek(_LOOK)[:_LOOK] if isinstance(binary, io.BufferedReader) else b""
    codec = next((codec for mark, codec in _MARKS if start.startswith(mark)), None)
    why = "its byte order mark says so"
    if codec is None and start.count(0) * 4 >= len(start) > 0:  # no text has so many NUL characters
        every = [start[place::4].count(0) * 4 / len(start) for place in range(4)]
        wide = sum(share > 0.5 for share in every)
        codec = {
            2: "utf-16-le" if every[1] > 0.5 else "utf-16-be",
            3: "utf-32-le" if every[3] > 0.5 else "utf-32-be",
        }.get(wide)
        why = "so say the zeros in it; it has no byte order mark"
    if codec is not None:
        spoken = codec.upper()[:6]
        raise InputError(
            f"{name}: received {spoken} ({why}) where UTF-8 is expected. Pass --encoding {codec} (encoding='{codec}')."
        )


class _Unpacked(io.RawIOBase):
    """What gzip packed, up to a bound that texts stay far below: a small file could fill all memory otherwise."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._room = gzip.GzipFile(fileobj=file), Room(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        line_ends = max(data.count(b"\n"), data.count(b"\r"))
        self._room.take(max(len(data), _ROW * line_ends))
        buffer[: len(data)] = data
        return len(data)


def _opened(path: Path) -> BinaryIO:
    refuse_special(path)
    return path.open("rb")


@contextmanager
def open_text(path: Path, encoding: str | None, *, newline: str | None = None) -> Iterator[io.TextIOWrapper]:
    """A text file for reading; `newline` as in `open` (None: line ends become LF)."""
    with readable(path.name), _opened(path) as file:
        binary = cast(BinaryIO, io.BufferedReader(_Unpacked(file, path))) if is_packed(path) else file
        try:
            yield _text_stream(binary, encoding, name=path.name, newline=newline)
        except (EOFError, zlib.error) as error:
            raise InputError(
                f"{path.name}: damaged, or not what gzip wrote ({error}). Write or fetch it again."
            ) from error


def is_packed(path: Path) -> bool:
    """Whether a file is packed by gzip, by its name."""
    return path.suffix.lower() == ".gz"


def kind_of_file(path: Path) -> str:
    """The ending that says what a file holds: `.csv` also of `table.csv.gz`.

    >>> kind_of_file(Path("a/table.CSV.gz")), kind_of_file(Path("notes.txt"))
    ('.csv', '.txt')
    """
    return (Path(path.stem) if is_packed(path) else path).suffix.lower()


def lines(path: Path, encoding: str | None) -> Iterator[str]:
    """The lines of a file without their line ends, one at a time."""
    with open_text(path, encoding) as stream:
        for line in stream:
            yield line.removesuffix("\n")


def take_standard_input(by: str) -> None:
    """From here on nothing but its new owner reads standard input: texts from it would be its messages."""
    _TAKEN.append(by)


def standard_input(encoding: str | None) -> Iterator[str]:
    """The lines of standard input, which stays open."""
    if sys.stdin is None or _TAKEN:
        reason = "is taken by " + _TAKEN[0] if _TAKEN else "is not there"
        raise InputError(f"received '-', but standard input {reason}. Pass a file instead.")
    with readable("standard input"):
        stream = _text_stream(cast(BinaryIO, sys.stdin.buffer), encoding, name="standard input")
        try:
            for line in stream:
                yield line.removesuffix("\n")
        finally:
            stream.detach()


def folder_files(folder: Path) -> tuple[list[Path], int]:
    """The .txt and .md files below a folder, sorted by relative path, and how many others there are.

    Hidden files and folders (a name that starts with a dot) are ignored; links to folders not followed. A folder that
    cannot be looked into is an error: its texts would be missing without a word.
    """
    documents, others = [], 0

    def refuse(error: OSError) -> None:
        place = Path(error.filename or folder)
        raise InputError(
            f"{place}: the folder cannot be read ({error.strerror}). Give the right to read it, or move it elsewhere."
        ) from error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.startswith("."):
                continue
            if Path(name).suffix.lower() in DOCUMENT_SUFFIXES:
                documents.append(Path(parent, name))
            else:
                others += 1
    return sorted(documents, key=lambda path: path.relative_to(folder).as_posix()), others


def whole_file(path: Path, encoding: str | None) -> str:
    """The text of one file, with LF as line end."""
    with open_text(path, encoding) as stream:
        return stream.read()


# -- files that hold more than their size says: what comes out is counted, so that none fills all memory --------------

_ROOM, _FOLD = 2**28, 100  # bytes that any packed file may hold, and how many more for each of its own
_ROW = 64  # bytes that a row counts for at least: nothing, a billion times over, is kept in a few bytes
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_RECORD_BATCH, _DICTIONARY = "record batch", "dictionary"


class Room:
    """What a packed file may hold: far more than texts and vectors shrink by, and a bound all the same."""

    def __init__(self, path: Path, *, size: int | None = None) -> None:
        self._name, self._taken = path.name, 0
        self.most = _ROOM + _FOLD * (path.stat().st_size if size is None else size)

    def take(self, size: int) -> None:
        """Count so many bytes; an error as soon as all of them are more than the file may hold."""
        self._taken += size
        if self._taken > self.most:
            raise InputError(
                f"{self._name}: received a packed file that holds more than {self.most:,} bytes, over {_FOLD} times "
                f"its own size; texts and vectors do not shrink so far. Unpack it and name that file, if it is what "
                f"you mean."
            )


def refuse_packed_arrays(path: Path, stream: BinaryIO | None = None) -> None:
    """Refuse an .npz, read from `stream` if it is open, that holds or promises more numbers than its size allows."""
    room = Room(path, size=None if stream is None else os.fstat(stream.fileno()).st_size)
    with zipfile.ZipFile(path if stream is None else stream) as archive:
        for member in archive.infolist():
            room.take(member.file_size)
        for member in archive.infolist():
            with archive.open(member) as packed:
                refuse_promised_array(packed, member.file_size, name=member.filename)


def refuse_promised_array(stream: IO[bytes], size: int, *, name: str) -> None:
    """Refuse an array in numpy's format whose header promises more items than its bytes can be; none takes no byte."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(stream)
    promised = max(kind.itemsize, 1) * int(np.prod([int(length) for length in shape], dtype=object))
    if not kind.hasobject and promised > size:
        raise ValueError(f"{name} promises {promised:,} bytes and holds {size:,}")


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
        room.take(max(group.total_byte_size, group.num_rows * max(width, _ROW)))
        largest = max(largest, group.total_byte_size)
    names = None if columns is None else list(columns)
    first = next(file.iter_batches(batch_size=1, columns=names), None)
    for column in () if first is None else first.columns:
        kind = getattr(column.type, "value_type", None)
        if kind is not None and pa.types.is_floating(kind):  # vectors are alike, and numbers that repeat kept once
            room.take(int(column.nbytes) * metadata.num_rows)
    return largest


def decoded_size(batch: Any) -> int:
    """The bytes of a batch once every value stands for itself; a row without any takes time all the same."""
    return max(sum(_decoded(column) for column in batch.columns), _ROW * int(batch.num_rows))


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
