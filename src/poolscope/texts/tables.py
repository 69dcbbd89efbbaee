"""Tables as every reader sees them: CSV and JSON lines; Parquet, Arrow and Feather files; data frames and data sets."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from poolscope.errors import InputError, did_you_mean, reading, shorten
from poolscope.files import refuse_special
from poolscope.texts.plain import (
    Room,
    decode,
    decoded_size,
    kind_of_file,
    lines,
    open_text,
    parquet_batches,
    readable,
    refuse_packed_arrow,
)
from poolscope.texts.records import is_missing

Kind = Literal["missing", "integer", "number", "other", "text"]
_KINDS: tuple[Kind, ...] = ("missing", "integer", "number", "other", "text")  # a later one outweighs
_NUMERIC: tuple[tuple[Kind, Callable[[str], float]], ...] = (("integer", int), ("number", float))
_PEEK = 1_000  # rows that decide of what kind the columns of a CSV or JSON lines file are
_BATCH = 1_024  # rows of an Arrow table at a time
_PANDAS_INDEX = "__index_level_"
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_EMPTY = "the file is empty; it holds no column and no text. Check that this is the file that was meant."
_FIELD_LIMIT = 2**31 - 1  # the largest that the csv module takes on every platform


@dataclass(frozen=True)
class Table:
    """Named columns with their kinds; `rows` streams the values of some distinct columns, anew at every call."""

    name: str
    kinds: Mapping[str, Kind]
    rows: Callable[[Sequence[str]], Iterator[tuple[Any, ...]]]

    def require(self, column: str | None, option: str, default: str = "") -> None:
        """Raise an error that lists the columns unless this one, if one was named, is there.

        Not every command that reads a table with a `default` column has an option that names another.
        """
        if column is not None and column not in self.kinds:
            remedy = f"Rename one to '{column}'." if column == default else f"Name one with {option} NAME."
            raise InputError(
                f"{self.name}: there is no column '{column}'; the columns are {self.listing()}. "
                f"{remedy}{did_you_mean(column, self.kinds)}"
            )

    def require_columns(self) -> None:
        """Raise an error unless there is a column to choose."""
        if not self.kinds:
            raise InputError(f"{self.name}: {_EMPTY}")

    def listing(self) -> str:
        """The column names as a message shows them."""
        return ", ".join(f"'{name}'" for name in self.kinds) or "none"


# -- text formats -----------------------------------------------------------------------------------------------------


def csv_table(path: Path, encoding: str | None) -> Table:
    """A CSV or TSV file with a header line. Quoted fields may hold line ends and be of any length."""
    records = _csv_records(path, encoding)
    _, header = next(records, (0, None))
    if header is None:
        raise InputError(f"{path.name}: {_EMPTY}")
    if not header:
        raise InputError(f"{path.name}: the first line is empty; it holds the column names. Add a header.")
    if len(set(header)) != len(header):
        raise InputError(f"{path.name}: two columns share a name: {header}. Rename one of the two.")
    columns = {name: position for position, name in enumerate(header)}

    def rows(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        positions = [columns[name] for name in names]
        for line, record in islice(_csv_records(path, encoding), 1, None):
            if not record:  # an empty line: a row without any value
                yield (None,) * len(positions)
            elif len(record) != len(columns):
                raise InputError(
                    f"{path.name}: line {line} has {len(record)} fields where the header has {len(columns)}. "
                    "Put texts that hold the separator or a line end between double quotes."
                )
            else:
                yield tuple(record[position] for position in positions)

    fields = (zip(header, row, strict=True) for row in rows(header))
    return Table(path.name, _kinds(header, fields, _kind_of_string), rows)


def _csv_records(path: Path, encoding: str | None) -> Iterator[tuple[int, list[str]]]:
    """Every record, and the line on which it begins, counted from 1."""
    # The limit is one for the whole process and 128 KB by default. It is only ever raised: putting it back
    # could hit another reader half-way through its file.
    csv.field_size_limit(max(csv.field_size_limit(), _FIELD_LIMIT))
    with open_text(path, encoding, newline="") as stream:
        reader = csv.reader(stream, delimiter=_delimiter(path, encoding), strict=True)
        try:
            line = 1
            for record in reader:
                yield line, record
                line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"{path.name}: line {reader.line_num} breaks the rules of CSV ({error}). Between double quotes "
                'a double quote is written twice (""); a .jsonl or .parquet file avoids the question.'
            ) from error


def _delimiter(path: Path, encoding: str | None) -> str:
    """A tab for .tsv; for .csv a comma, or what stands in a header without any comma."""
    if kind_of_file(path) == ".tsv":
        return "\t"
    with open_text(path, encoding) as stream:
        header = stream.readline()
    return next((mark for mark in ",;\t" if mark in header), ",")


def json_table(path: Path, encoding: str | None) -> Table:
    """A JSON lines file: one object a line. A key that a line does not have is a missing value."""

    def objects() -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines(path, encoding), start=1):
            yield _json_object(line, f"{path.name}: line {number}")

    return _objects_table(path.name, objects)


def json_file_table(path: Path, encoding: str | None) -> Table:
    """A JSON file that holds one array of objects; all of it is read at once."""
    remedy = "A .jsonl file holds one object a line."
    with reading(path.name, remedy, kind=InputError, is_not="JSON"), open_text(path, encoding) as stream:
        records = json.load(stream)
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(
            f'{path.name}: holds {shorten(records)}; needed: an array of objects such as [{{"text": "..."}}]. A list '
            f"of strings is read from a .txt file, a line a text."
        )

    return _objects_table(path.name, lambda: records)


def _objects_table(name: str, objects: Callable[[], Iterable[Mapping[str, Any]]]) -> Table:
    """Objects as rows, each with columns of its own: the first ones say of what kind the columns are."""

    def rows(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return (tuple(record.get(column) for column in names) for record in objects())

    return Table(name, _kinds((), (record.items() for record in islice(objects(), _PEEK)), _kind_of_value), rows)


def joined_table(name: str, tables: Sequence[Table]) -> Table:
    """The rows of several tables, one after the other; all must have the columns of the first."""
    first = tables[0]

    def rows(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for table in tables:
            for column in names:
                if column not in table.kinds:
                    raise InputError(
                        f"{table.name}: there is no column '{column}', which {first.name} has; all files of {name} "
                        f"must have the same columns. Leave this file out, or add the column."
                    )
            yield from table.rows(names)

    return Table(name, first.kinds, rows)


def _json_object(line: str, place: str) -> dict[str, Any]:
    if not line or line.isspace():
        return {}
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg}: column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise InputError(
            f"{place} is not valid JSON ({reason}). A JSON lines file holds one complete object a line."
        ) from error
    if not isinstance(value, dict):
        raise InputError(f'{place} holds {shorten(value)}; expected an object such as {{"text": "..."}}.')
    return value


def _kinds(
    names: Iterable[str], records: Iterable[Iterable[tuple[str, Any]]], kind_of: Callable[[Any], Kind]
) -> dict[str, Kind]:
    weights = dict.fromkeys(names, 0)
    for record in islice(records, _PEEK):
        for name, value in record:
            weights[name] = max(weights.get(name, 0), _KINDS.index(kind_of(value)))
    return {name: _KINDS[weight] for name, weight in weights.items()}


def _kind_of_value(value: Any) -> Kind:
    if isinstance(value, str):
        return "text"
    if is_missing(value):
        return "missing"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "other"
    return "integer" if isinstance(value, int) else "number"


def _kind_of_string(value: str | None) -> Kind:
    """A CSV field holds digits or words: what it looks like is all there is."""
    if not value:
        return "missing"
    if len(value) > 40:
        return "text"
    for kind, convert in _NUMERIC:
        try:
            convert(value)
        except ValueError:
            continue
        return kind
    return "text"


# -- Arrow ------------------------------------------------------------------------------------------------------------


def parquet_table(path: Path) -> Table:
    """A Parquet file; only the columns asked for are read, a batch of rows at a time."""
    with _intact(path.name):
        refuse_special(path)
        schema = pq.read_schema(path)

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with _intact(path.name):
            yield from map(checked_batch, parquet_batches(path, _BATCH, names))

    return _table(path.name, schema, batches)


def ipc_table(path: Path) -> Table:
    """An Arrow file or stream (`.arrow`; data sets keep the stream form) or a Feather 2 file."""
    with _open_ipc(path) as (schema, _):
        refuse_packed_arrow(path)

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with _open_ipc(path) as (_, batches_):
            room = Room(path)
            for batch in batches_:
                yield checked_batch(batch.select(list(names)), room)

    return _table(path.name, schema, batches)


@contextmanager
def _open_ipc(path: Path) -> Iterator[tuple[Any, Iterable[Any]]]:
    with _intact(path.name):
        refuse_special(path)
        with pa.OSFile(str(path), "rb") as file:
            if file.read(6) == b"ARROW1":
                reader = pa.ipc.open_file(file)
                yield reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                file.seek(0)
                stream = pa.ipc.open_stream(file)
                yield stream.schema, stream


def checked_batch(batch: Any, room: Room | None = None) -> Any:
    """The batch, with every offset and index inside its buffers; and, decoded, within the room of its file.

    Arrow itself trusts them, so that a wrong one would show memory from outside the file as a text, or end the process.
    Strings are checked as bytes: those that are not valid UTF-8 are read with a mark where they break.
    """
    batch.validate()
    for column in batch.columns:
        plain = _BYTES.get(column.type)
        if plain is not None:
            column = pa.Array.from_buffers(plain, len(column), column.buffers(), -1, column.offset)
        column.validate(full=True)
    if room is not None:
        room.take(decoded_size(batch))
    return batch


@contextmanager
def _intact(name: str) -> Iterator[None]:
    with reading(name, "Write or fetch it again.", kind=InputError), readable(name):
        yield


def is_table(source: object) -> bool:
    """Whether an object in memory has named columns: data frame, Arrow table, data set, dict of lists."""
    return isinstance(source, Mapping) or hasattr(source, "column_names") or hasattr(source, "columns")


def memory_table(source: Any, *, name: str = "memory") -> Table:
    """The table that a data frame, an Arrow table, a data set or a dict of lists is."""
    if hasattr(source, "with_format"):
        return _dataset_table(source, name)
    if isinstance(source, Mapping):
        _refuse_single_values(source)
        source = dict(source)
    try:
        table = pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"received {type(source).__name__}, which Arrow cannot read as a table ({error}). Pass the text "
            "column alone, or convert the columns of mixed types."
        ) from error
    table = table.drop_columns([name for name in table.column_names if name.startswith(_PANDAS_INDEX)])
    return _table(name, table.schema, lambda names: table.select(list(names)).to_batches(_BATCH))


def _refuse_single_values(columns: Mapping[Any, Any]) -> None:
    """Arrow would read a string as a column of its letters."""
    for name, column in columns.items():
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            raise InputError(
                f"received a dict whose entry {shorten(name)} is {shorten(column)} ({type(column).__name__}); a dict "
                f"stands for a table, a list of values a column. Pass list(texts.values()) if its values are the texts."
            )


def _dataset_table(dataset: Any, name: str) -> Table:
    """A data set of the package `datasets`; class numbers are read as the names of the classes."""
    if isinstance(dataset, Mapping):
        raise InputError(
            f"{name}: received a data set with the splits {', '.join(map(repr, dataset))}; the texts of one are "
            "needed. Choose it: hub:NAME:SPLIT, or data[SPLIT] in Python."
        )
    if not hasattr(dataset, "__len__"):
        return _streamed_table(dataset, name)
    named = _class_names(dataset)

    def rows(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        chosen = dataset.select_columns(list(names)).with_format("arrow")
        return (named(names, row) for row in _rows(chosen.iter(batch_size=_BATCH), names))

    return Table(name, _schema_kinds(dataset.features.arrow_schema, name), rows)


def _streamed_table(dataset: Any, name: str) -> Table:
    """A streamed data set: its rows come as they are asked for, and the first ones say of what kind the columns are."""
    named, table = _class_names(dataset), _objects_table(name, lambda: dataset)
    return replace(table, rows=lambda names: (named(names, row) for row in table.rows(names)))


def _class_names(dataset: Any) -> Callable[[Sequence[str], tuple[Any, ...]], tuple[Any, ...]]:
    """Make a function that replaces class numbers by their names in a row of these columns."""
    features = (dataset.features or {}).items()
    classes = {column: tuple(feature.names) for column, feature in features if hasattr(feature, "int2str")}

    def named(names: Sequence[str], row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            _class_name(value, classes[column]) if column in classes else value
            for column, value in zip(names, row, strict=True)
        )

    return named


def _class_name(value: int | None, names: tuple[str, ...]) -> str | int | None:
    """Data sets write -1 for "no label"; it has no name and stays a number."""
    return names[value] if value is not None and 0 <= value < len(names) else value


def _table(name: str, schema: Any, batches: Any) -> Table:
    with _intact(name):  # the names of columns may be damaged too
        kinds = _schema_kinds(schema, name)
    return Table(name, kinds, lambda names: _rows(batches(names), names))


def _rows(batches: Iterable[Any], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(values(batch.column(name)) for name in names), strict=True)


def values(array: Any) -> list[Any]:
    """An Arrow array as Python values; strings that are not valid UTF-8 keep a mark where they break."""
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        return [None if data is None else decode(data) for data in array.cast(pa.large_binary()).to_pylist()]


def _schema_kinds(schema: Any, name: str) -> dict[str, Kind]:
    if len(set(schema.names)) != len(schema.names):
        raise InputError(f"{name}: two columns share a name: {schema.names}. Rename one of the two.")
    return {field.name: _kind_of_type(field.type) for field in schema}


def _kind_of_type(type_: Any) -> Kind:
    types = pa.types
    if types.is_dictionary(type_):
        return _kind_of_type(type_.value_type)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    if types.is_integer(type_):
        return "integer"
    if types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    return "missing" if types.is_null(type_) else "other"


# -- documents of other libraries -------------------------------------------------------------------------------------

# Lists of documents of LangChain, LlamaIndex and Haystack as tables of texts; no such library is imported.

# The attribute of the text: in LangChain, LlamaIndex and Haystack.
_TEXT = ("page_content", "text", "content")
_METADATA = ("metadata", "meta")
_ID = ("id", "id_", "node_id")


def is_documents(source: Any) -> bool:
    """Is it a list of documents: objects with a text and metadata?"""
    return isinstance(source, list | tuple) and len(source) > 0 and all(_is_document(entry) for entry in source)


def _is_document(entry: Any) -> bool:
    text = next((getattr(entry, name) for name in _TEXT if hasattr(entry, name)), None)
    return isinstance(text, str) and isinstance(_metadata(entry), Mapping)


def _metadata(entry: Any) -> Any:
    return next((getattr(entry, name) for name in _METADATA if hasattr(entry, name)), None)


def documents_table(documents: Sequence[Any]) -> dict[str, list[Any]]:
    """The texts with their ids, where all have one, and the metadata that all have as plain values, one column each.

    >>> class Document:
    ...     def __init__(self, text, **metadata):
    ...         self.page_content, self.metadata, self.id = text, metadata, None
    >>> documents_table([Document("one", source="a.md"), Document("two", source="a.md", page=2)])
    {'text': ['one', 'two'], 'source': ['a.md', 'a.md']}
    """
    name = next(name for name in _TEXT if all(isinstance(getattr(entry, name, None), str) for entry in documents))
    table: dict[str, list[Any]] = {"text": [getattr(entry, name) for entry in documents]}
    ids = [
        next((value for key in _ID if (value := getattr(entry, key, None)) is not None), None) for entry in documents
    ]
    if all(isinstance(value, str) for value in ids) and len(set(ids)) == len(ids):
        table["id"] = ids
    for key in _metadata(documents[0]):
        values = [_metadata(entry).get(key) for entry in documents]
        if str(key) not in table and all(isinstance(value, str | int) for value in values):
            table[str(key)] = values
    return table
