"""Plain text: lines of a file or of standard input, and folders with one text per file.

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
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, cast

from poolscope.errors import InputError
from poolscope.files import refuse_special
from poolscope.texts.packed import Room

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
        self._room.take(len(data))
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
