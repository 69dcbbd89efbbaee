"""SQLite with sqlite-vec: `sqlite-vec:file.db/table`, a table of vec0 or one with vectors in blobs of float32.

A file is read without loading the extension: the tables in which vec0 keeps its rows are plain ones. So no code runs
that a file could call, and a Python whose SQLite loads no extension reads it too. Writing needs the extension.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.connectors.base import (
    VECTOR_HINTS,
    VECTORS,
    Batch,
    Distance,
    Fields,
    NewRows,
    Search,
    already_there,
    asking,
    chosen,
    column,
    guess,
    guessed_notes,
    table_fields,
)
from poolscope.connectors.received import plain_base
from poolscope.errors import InputError, reading, require
from poolscope.files import is_file

PREFIX = "sqlite-vec:"
_DISTANCES: dict[str, Distance] = {"l2": "l2", "cosine": "cosine"}
# What declares a table is written by others: each pattern takes time by the length of the words.
_ARGUMENTS = re.compile(r"using\s+vec0\s*\(", re.IGNORECASE)
_COLUMN = re.compile(r"(\+?)\s*(\w+|\"[^\"]*\"|\[[^]]*\]|`[^`]*`)\s+(\w+)\s*(?:\[(\d{1,9})\])?(.*)", re.DOTALL)
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_WIDTHS = {"float": 4, "f32": 4, "int8": 1, "i8": 1}
_SHORT = 12  # bytes of a text that vec0 keeps beside its length; a longer one stands in a table of its own


def open_sqlite_vec(name: str, fields: Fields) -> Vec0Connector | BlobConnector:
    """The table that the address names; the only one with vectors where it names none."""
    path, table = _place(name)
    if not is_file(path):
        raise InputError(f"{name}: {path} is no file. Write {PREFIX}file.db/table.")
    opened = ExitStack()
    with reading(path, "Write it again.", kind=InputError, is_not="a data base of SQLite"):
        base = opened.enter_context(plain_base(path))
    try:
        listed = base.execute("SELECT name, sql, rootpage FROM sqlite_master WHERE type = 'table'").fetchall()
        own = [each for each, sql, _ in listed if _ARGUMENTS.search(sql or "")]
        # A virtual table of another module is a program: its tables are read by code that trusts them.
        tables = {each: sql or "" for each, sql, page in listed if page or each in own}
        if not table and len(own) == 1:
            table = own[0]
        if table not in tables:
            listing = ", ".join(own or tables) or "none"
            raise InputError(f"{name}: received no table of these: {listing}. Name one: {PREFIX}{path}/TABLE.")
        shown = f"{PREFIX}{path}/{table}"
        if table in own:
            return Vec0Connector(shown, base, opened, table, tables[table], fields)
        return BlobConnector(shown, base, opened, table, fields)
    except BaseException:
        opened.close()
        raise


def write_sqlite_vec(name: str, rows: NewRows) -> None:
    """A new table of vec0, in a new file or one that is there."""
    path, table = _place(name)
    if not re.fullmatch(r"\w+", table):
        raise InputError(
            f"{name}: received {table!r} as the table; allowed: {PREFIX}file.db/TABLE, letters and digits."
        )
    if rows.distance == "dot":
        raise InputError("distance: received 'dot'; sqlite-vec searches by cosine or l2. Name one of them.")
    apsw, extension = require("apsw", "sqlite-vec"), require("sqlite_vec", "sqlite-vec")
    with asking(name, "Check that the file can be written."):
        base = apsw.Connection(str(path))
        try:
            if base.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
                raise already_there(name)
            base.enable_load_extension(True)
            base.load_extension(extension.loadable_path())
            beside = [key for key in rows.columns() if key != "id"]
            parts = ", ".join(["id text primary key", f"embedding float[{rows.vectors.shape[1]}] "
                               f"distance_metric={rows.distance}", *(f"+{key} text" for key in beside)])  # fmt: skip
            with base:  # one transaction
                base.execute(f'CREATE VIRTUAL TABLE "{table}" USING vec0({parts})')
                marks = ", ".join("?" * (2 + len(beside)))
                values = zip(rows.ids, (row.tobytes() for row in rows.vectors), *(rows.columns()[key] for key in beside),  # noqa: E501
                             strict=True)  # fmt: skip
                base.executemany(f'INSERT INTO "{table}"(id, embedding{"".join(", " + key for key in beside)}) '
                                 f"VALUES ({marks})", values)  # fmt: skip
        finally:
            base.close()


def _place(name: str) -> tuple[Path, str]:
    """The file, and the table behind it."""
    whole = Path(name.removeprefix(PREFIX)).expanduser()
    if is_file(whole):
        return whole, ""
    return whole.parent, whole.name


@dataclass(frozen=True)
class _Column:
    """A column of vec0; `kind`: vector, key, partition, auxiliary or metadata; `place`: its number in the kind."""

    name: str
    kind: str
    form: str
    size: int
    place: int
    metric: str = "l2"


def declared(sql: str) -> list[_Column]:
    """The columns that a table of vec0 declares.

    >>> [(each.name, each.kind) for each in declared("x USING vec0(id text primary key, e float[4], +text text)")]
    [('id', 'key'), ('e', 'vector'), ('text', 'auxiliary')]
    """
    begin = _ARGUMENTS.search(sql)
    columns: list[_Column] = []
    for part in (sql[begin.end() : sql.rfind(")")] if begin else "").split(","):
        if (found := _COLUMN.fullmatch(part.strip())) is None:
            continue  # an option such as chunk_size=8
        plus, name, form, size, rest = found.groups()
        if size is not None:
            kind = "vector"
        elif "primary" in rest.lower():
            kind = "key"
        elif "partition" in rest.lower():
            kind = "partition"
        else:
            kind = "auxiliary" if plus else "metadata"
        metric = _METRIC.search(rest)
        place = sum(each.kind == kind for each in columns)
        columns.append(
            _Column(
                name.strip('"[]`'), kind, form.lower(), int(size or 0), place, metric[1].lower() if metric else "l2"
            )
        )
    return columns


class Vec0Connector:
    """The rows of a table of vec0, from the tables in which it keeps them, chunk by chunk."""

    def __init__(self, name: str, base: Any, opened: ExitStack, table: str, sql: str, fields: Fields) -> None:
        self.name, self._base, self._opened, self._table = name, base, opened, table
        self._columns = {each.name: each for each in declared(sql)}
        vectors = [each for each, form in self._columns.items() if form.kind == "vector" and form.form in _WIDTHS]
        only = vectors[0] if len(vectors) == 1 else guess(vectors, VECTORS, VECTOR_HINTS)
        vector = chosen("vectors", fields.vector, list(self._columns), only, name)
        if vector is None or vector not in vectors:
            listing = ", ".join(self._columns)
            raise InputError(
                f"{name}: {len(vectors)} of the columns {listing} are vectors. Name one with --vector-column."
            )
        key = next((each for each, form in self._columns.items() if form.kind == "key"), None)
        names = list(self._columns)
        words = [each for each, form in self._columns.items() if form.form == "text"]
        wanted = Fields(fields.vector, fields.text, fields.id or key, fields.group)
        self._fields = table_fields(wanted, vector, names, words, names, name)
        self._key = key
        self.distance = _DISTANCES.get(self._columns[vector].metric)
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        self.search: Search | None = None  # sqlite-vec compares every vector: its search loses nothing

    def batches(self, size: int) -> Iterator[Batch]:
        """In the order of the chunks; at most `size` rows at a time."""
        form = self._columns[str(self._fields.vector)]
        width = form.size * _WIDTHS[form.form]
        kind = np.dtype("<f4" if form.form in ("float", "f32") else "i1")
        chunks = self._base.execute(f"SELECT chunk_id, size, validity, rowids FROM {self._shadow('chunks')} ORDER BY 1")
        for chunk, room, validity, rowids in chunks.fetchall():
            valid = np.flatnonzero(np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[:room])
            numbers = np.frombuffer(rowids, "<i8")
            content = self._one(f"vector_chunks{form.place:02d}", "vectors", chunk)
            if len(numbers) < room or content is None or len(content) != room * width:
                raise InputError(f"{self.name}: chunk {chunk} is not as long as it declares. Write it again.")
            matrix = np.frombuffer(content, kind).reshape(room, form.size)
            for start in range(0, len(valid), size):
                part = valid[start : start + size]
                rows = [int(numbers[k]) for k in part]
                ids = self._values(self._fields.id, rows, part, chunk) if self._fields.id else None
                yield Batch(
                    [str(row) for row in rows] if ids is None else [each or "" for each in ids],
                    matrix[part].astype(np.float32),
                    self._values(self._fields.text, rows, part, chunk),
                    self._values(self._fields.group, rows, part, chunk),
                )

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def _shadow(self, part: str) -> str:
        return '"' + f"{self._table}_{part}".replace('"', '""') + '"'

    def _one(self, part: str, field: str, row: int) -> Any:
        found = self._base.execute(f"SELECT {field} FROM {self._shadow(part)} WHERE rowid = ?", (row,)).fetchone()
        return None if found is None else found[0]

    def _values(self, name: str | None, rows: list[int], part: Any, chunk: int) -> list[str | None] | None:
        """A column of some rows as strings."""
        if name is None:
            return None
        form = self._columns[name]
        if form.kind == "key":
            if form.form != "text":
                return [str(row) for row in rows]
            values = [self._one("rowids", "id", row) for row in rows]
        elif form.kind == "partition":
            values = [self._one("chunks", f"partition{form.place:02d}", chunk)] * len(rows)
        elif form.kind == "auxiliary":
            values = [self._one("auxiliary", f"value{form.place:02d}", row) for row in rows]
        else:
            values = self._metadata(form, rows, part, chunk)
        return column([{name: value} for value in values], name)

    def _metadata(self, form: _Column, rows: list[int], part: Any, chunk: int) -> list[Any]:
        content = self._one(f"metadatachunks{form.place:02d}", "data", chunk) or b""
        if form.form in ("integer", "int", "float", "double"):
            numbers = np.frombuffer(content, "<i8" if form.form.startswith("int") else "<f8")
            return [numbers[k].item() for k in part]
        if form.form != "text":
            return [None] * len(rows)
        values: list[Any] = []
        for row, place in zip(rows, part, strict=True):
            cell = content[16 * place : 16 * place + 16]
            length = int.from_bytes(cell[:4], "little")
            if length <= _SHORT:
                values.append(cell[4 : 4 + length].decode("utf-8", "replace"))
            else:
                values.append(self._one(f"metadatatext{form.place:02d}", "data", row))
        return values


class BlobConnector:
    """The rows of a plain table whose vectors are blobs of float32, as sqlite-vec's functions take them."""

    def __init__(self, name: str, base: sqlite3.Connection, opened: ExitStack, table: str, fields: Fields) -> None:
        self.name, self._base, self._opened = name, base, opened
        self._table = '"' + table.replace('"', '""') + '"'
        names = [row[1] for row in base.execute(f"PRAGMA table_info({self._table})")]
        first = base.execute(f"SELECT * FROM {self._table} LIMIT 20").fetchall()
        blobs = [each for k, each in enumerate(names) if any(isinstance(row[k], bytes) for row in first)]
        words = [each for k, each in enumerate(names) if any(isinstance(row[k], str) for row in first)]
        only = blobs[0] if len(blobs) == 1 else guess(blobs, VECTORS, VECTOR_HINTS)
        vector = chosen("vectors", fields.vector, names, only, name)
        if vector is None or vector not in blobs:
            raise InputError(
                f"{name}: {len(blobs)} of the columns {', '.join(names)} hold blobs. Name one with --vector-column."
            )
        self._fields = table_fields(fields, vector, names, words, names, name)
        self.distance: Distance | None = None
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)

    def batches(self, size: int) -> Iterator[Batch]:
        """In the order of the table."""
        taken = self._fields
        names = [name for name in (taken.id, taken.text, taken.group) if name is not None]
        quoted = ['"' + str(name).replace('"', '""') + '"' for name in (taken.vector, *names)]
        cursor = self._base.execute(f"SELECT {', '.join(quoted)} FROM {self._table}")
        start = 0
        while rows := cursor.fetchmany(size):
            named = [dict(zip(names, row[1:], strict=True)) for row in rows]
            ids = column(named, taken.id)
            yield Batch(
                [str(start + k) for k in range(len(rows))] if ids is None else [each or "" for each in ids],
                [_numbers(row[0]) for row in rows],
                column(named, taken.text),
                column(named, taken.group),
            )
            start += len(rows)

    def close(self) -> None:
        """Close the file."""
        self._opened.close()


def _numbers(value: Any) -> Any:
    """The numbers of a blob; None where there is none, or what cannot be numbers of four bytes."""
    return np.frombuffer(value, "<f4") if isinstance(value, bytes) and value and len(value) % 4 == 0 else None
