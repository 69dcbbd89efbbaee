"""Tables in Arrow form: Parquet, Arrow and Feather files, data frames and data sets in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from poolscope.errors import InputError
from poolscope.texts.plain import decode, readable
from poolscope.texts.tables import Kind, Table

_BATCH = 1_024
_PANDAS_INDEX = "__index_level_"


def parquet_table(path: Path) -> Table:
    """A Parquet file; only the columns asked for are read, a batch of rows at a time."""
    with _open_parquet(path) as file:
        schema = file.schema_arrow

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with _open_parquet(path) as file:
            yield from file.iter_batches(batch_size=_BATCH, columns=list(names))

    return _table(path.name, schema, batches)


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    with _intact(path.name), pq.ParquetFile(path) as file:
        yield file


def ipc_table(path: Path) -> Table:
    """An Arrow file or stream (`.arrow`; data sets keep the stream form) or a Feather 2 file."""
    with _open_ipc(path) as (schema, _):
        pass

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with _open_ipc(path) as (_, found):
            for batch in found:
                yield batch.select(list(names))

    return _table(path.name, schema, batches)


@contextmanager
def _open_ipc(path: Path) -> Iterator[tuple[Any, Iterable[Any]]]:
    with _intact(path.name), pa.OSFile(str(path), "rb") as file:
        if file.read(6) == b"ARROW1":
            reader = pa.ipc.open_file(file)
            yield reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            file.seek(0)
            stream = pa.ipc.open_stream(file)
            yield stream.schema, stream


@contextmanager
def _intact(name: str) -> Iterator[None]:
    try:
        with readable(name):
            yield
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{name} is damaged or not of the type its name says ({reason}). Write or fetch it again."
        ) from error


def is_table(source: object) -> bool:
    """Whether an object in memory has named columns: data frame, Arrow table, data set, dict of lists."""
    return isinstance(source, Mapping) or hasattr(source, "column_names") or hasattr(source, "columns")


def memory_table(source: Any, *, name: str = "memory") -> Table:
    """The table that a data frame, an Arrow table, a data set or a dict of lists is."""
    if hasattr(source, "with_format"):
        return _dataset_table(source, name)
    try:
        table = pa.table(dict(source) if isinstance(source, Mapping) else source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"received {type(source).__name__}, which Arrow cannot read as a table ({error}). Pass the text "
            "column alone, or convert the columns of mixed types."
        ) from error
    table = table.drop_columns([name for name in table.column_names if name.startswith(_PANDAS_INDEX)])
    return _table(name, table.schema, lambda names: table.select(list(names)).to_batches(_BATCH))


def _dataset_table(dataset: Any, name: str) -> Table:
    """A data set of the package `datasets`; class numbers are read as the names of the classes."""
    if isinstance(dataset, Mapping):
        raise InputError(
            f"{name}: received a data set with the splits {', '.join(map(repr, dataset))}; the texts of one are "
            "needed. Choose it: hub:NAME:SPLIT, or data[SPLIT] in Python."
        )
    if not hasattr(dataset, "__len__"):
        raise InputError(f"{name}: received a streamed data set; load it with streaming=False.")
    class_names = {
        column: tuple(feature.names) for column, feature in dataset.features.items() if hasattr(feature, "int2str")
    }

    def rows(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        chosen = dataset.select_columns(list(names)).with_format("arrow")
        for row in _rows(chosen.iter(batch_size=_BATCH), names):
            yield tuple(
                _class_name(value, class_names[column]) if column in class_names else value
                for column, value in zip(names, row, strict=True)
            )

    return Table(name, _schema_kinds(dataset.features.arrow_schema, name), rows)


def _class_name(value: int | None, names: tuple[str, ...]) -> str | int | None:
    """Data sets write -1 for "no label"; it has no name and stays a number."""
    return names[value] if value is not None and 0 <= value < len(names) else value


def _table(name: str, schema: Any, batches: Any) -> Table:
    return Table(name, _schema_kinds(schema, name), lambda names: _rows(batches(names), names))


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
    return {field.name: _kind(field.type) for field in schema}


def _kind(type_: Any) -> Kind:
    types = pa.types
    if types.is_dictionary(type_):
        return _kind(type_.value_type)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    if types.is_integer(type_):
        return "integer"
    if types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    return "missing" if types.is_null(type_) else "other"
