"""Tables as every reader sees them, and the two text formats of tables: CSV and JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from poolscope.errors import InputError
from poolscope.texts.plain import lines, open_text
from poolscope.texts.tally import is_missing, shorten

Kind = Literal["missing", "integer", "number", "other", "text"]
_KINDS: tuple[Kind, ...] = ("missing", "integer", "number", "other", "text")  # a later one outweighs
_NUMERIC: tuple[tuple[Kind, Callable[[str], float]], ...] = (("integer", int), ("number", float))
_PEEK = 1_000  # rows that decide of what kind the columns of a CSV or JSON lines file are
_FIELD_LIMIT = 2**31 - 1  # the largest that the csv module takes on every platform


@dataclass(frozen=True)
class Table:
    """Named columns with their kinds; `rows` streams the values of some distinct columns, anew at every call."""

    name: str
    kinds: Mapping[str, Kind]
    rows: Callable[[Sequence[str]], Iterator[tuple[Any, ...]]]

    def require(self, column: str, option: str) -> None:
        """Raise an error that lists the columns unless this one is there."""
        if column not in self.kinds:
            raise InputError(
                f"{self.name}: there is no column '{column}'; the columns are {self.listing()}. "
                f"Name one of them with {option} NAME."
            )

    def listing(self) -> str:
        """The column names as a message shows them."""
        return ", ".join(f"'{name}'" for name in self.kinds) or "none"


def csv_table(path: Path, encoding: str | None) -> Table:
    """A CSV or TSV file with a header line. Quoted fields may hold line ends and be of any length."""
    records = _csv_records(path, encoding)
    header = next(records, None)
    if not header:
        raise InputError(f"{path.name}: the first line is empty; it holds the column names. Add a header.")
    if len(set(header)) != len(header):
        raise InputError(f"{path.name}: two columns share a name: {header}. Rename one of the two.")
    columns = {name: position for position, name in enumerate(header)}

    def rows(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        positions = [columns[name] for name in names]
        for number, record in enumerate(islice(_csv_records(path, encoding), 1, None)):
            if not record:  # an empty line: a row without any value
                yield (None,) * len(positions)
            elif len(record) != len(columns):
                raise InputError(
                    f"{path.name}: row {number} has {len(record)} fields where the header has {len(columns)}. "
                    "Put texts that hold the separator or a line end between double quotes."
                )
            else:
                yield tuple(record[position] for position in positions)

    fields = (zip(header, row, strict=True) for row in rows(header))
    return Table(path.name, _kinds(header, fields, _kind_of_string), rows)


def _csv_records(path: Path, encoding: str | None) -> Iterator[list[str]]:
    # The limit is one for the whole process and 128 KB by default. It is only ever raised: putting it back
    # could hit another reader half-way through its file.
    csv.field_size_limit(max(csv.field_size_limit(), _FIELD_LIMIT))
    with open_text(path, encoding, newline="") as stream:
        reader = csv.reader(stream, delimiter=_delimiter(path, encoding), strict=True)
        try:
            yield from reader
        except csv.Error as error:
            raise InputError(
                f"{path.name}: line {reader.line_num} breaks the rules of CSV ({error}). Between double quotes "
                'a double quote is written twice (""); a .jsonl or .parquet file avoids the question.'
            ) from error


def _delimiter(path: Path, encoding: str | None) -> str:
    """A tab for .tsv; for .csv a comma, or what stands in a header without any comma."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    with open_text(path, encoding) as stream:
        header = stream.readline()
    return next((mark for mark in ",;\t" if mark in header), ",")


def json_table(path: Path, encoding: str | None) -> Table:
    """A JSON lines file: one object a line. A key that a line does not have is a missing value."""

    def objects() -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines(path, encoding)):
            yield _json_object(line, f"{path.name}: line {number}")

    def rows(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return (tuple(record.get(name) for name in names) for record in objects())

    return Table(path.name, _kinds((), (record.items() for record in objects()), _kind_of_value), rows)


def _json_object(line: str, place: str) -> dict[str, Any]:
    if not line or line.isspace():
        return {}
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{place} is not valid JSON ({error}). A JSON lines file holds one complete object a line."
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
