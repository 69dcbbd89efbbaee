"""`read_texts`: one function from whatever holds texts to `Texts`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from poolscope.errors import InputError
from poolscope.texts.arrow import is_table, values
from poolscope.texts.plain import folder_files, lines, standard_input, whole_file
from poolscope.texts.records import BUILTIN, Texts, draw
from poolscope.texts.sources import exists, open_table
from poolscope.texts.tables import Table
from poolscope.texts.tally import Tally, is_missing, scrub, shorten

WELL_KNOWN = ("text", "content", "body", "sentence", "passage", "document")
"""Column names that are taken as the text column when exactly one of them is there."""


class _Row(NamedTuple):
    place: str  # how a message and, without an id column, the id name the row
    text: Any
    id: Any = None
    label: Any = None


@dataclass(frozen=True)
class _Feed:
    """Rows about to be read, and what is known about them beforehand."""

    name: str
    rows: Iterator[_Row]
    has_ids: bool = False
    has_labels: bool = False
    other_files: int = 0
    column: str | None = None
    guessed_column: str | None = None


def read_texts(
    source: object,
    *,
    column: str | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    encoding: str | None = None,
) -> Texts:
    """Read texts from a file, a folder, standard input, a hub data set, the built-in corpus or memory.

    `source` is a path (`.txt`: a line a text; `.csv`, `.tsv`, `.jsonl`, `.ndjson`, `.parquet`, `.arrow`,
    `.feather`: a row a text; a folder: a `.txt` or `.md` file a text), `"-"` (lines of standard input),
    `"builtin:docstrings"`, `"hub:ORGANISATION/NAME[/CONFIG][:SPLIT]"`, a table in memory (data frame,
    Arrow table, data set, dict of lists) or any iterable of strings.

    Ids are those of `id_column`, the relative path in a folder, otherwise the row number from "0" on,
    empty rows included. `sample` draws that many texts, as `Texts.sample` does, without holding the rest.
    Files are read in `encoding`, UTF-8 unless another one is named.

    >>> texts = read_texts(["one", "", "two", "one"])
    >>> texts.ids, list(texts), texts.report.empty, texts.report.duplicates
    (('0', '2', '3'), ['one', 'two', 'one'], 1, 1)
    """
    named = [name for name in (column, id_column, label_column) if name is not None]
    if isinstance(source, str) and source.startswith("builtin:"):
        source = _builtin(source)
    if isinstance(source, Texts):
        _refuse_columns(named, source.source)
        return source if sample is None else source.sample(sample, seed)
    plain = _plain_feed(source, encoding)
    if plain is None:
        feed = _table_feed(open_table(source, encoding=encoding), column, id_column, label_column)
    else:
        _refuse_columns(named, plain.name)
        feed = plain
    tally = Tally(feed.name)
    admitted = _admit(feed, tally)
    kept = list(admitted) if sample is None else draw(admitted, sample, seed=seed)
    report = tally.report(other_files=feed.other_files, guessed_column=feed.guessed_column)
    return Texts(
        ids=tuple(id_ for id_, _, _ in kept),
        texts=tuple(text for _, text, _ in kept),
        labels=tuple(label for _, _, label in kept) if feed.has_labels else None,
        source=feed.name,
        report=report if len(kept) == report.kept else replace(report, selected=len(kept)),
        column=feed.column,
        seed=None if len(kept) == report.kept else seed,
    )


def _builtin(name: str) -> Texts:
    from poolscope.texts.corpus import docstrings  # the corpus is made of Texts, so it is imported when asked for

    if name != BUILTIN:
        raise InputError(f"received '{name}'; the only built-in corpus is {BUILTIN}. Ask for that one.")
    return docstrings()


def _refuse_columns(named: Sequence[str], name: str) -> None:
    if named:
        raise InputError(
            f"{name}: received the column name '{named[0]}', but this source has no columns. Leave it out."
        )


def _plain_feed(source: Any, encoding: str | None) -> _Feed | None:
    """The rows of a source without columns; None if it is not one."""
    if isinstance(source, str | os.PathLike):
        if source == "-":
            return _Feed("stdin", _numbered(standard_input(encoding)))
        path = Path(source)
        if exists(path) and path.is_dir():
            return _folder_feed(path, encoding)
        if exists(path) and path.suffix.lower() == ".txt":
            return _Feed(path.name, _numbered(lines(path, encoding)))
        return None
    if is_table(source):
        return None
    if isinstance(source, bytes | bytearray) or not isinstance(source, Iterable):
        raise InputError(
            f"received {shorten(source)} ({type(source).__name__}); texts come from a path, a table or an "
            "iterable of strings. Pass one of these."
        )
    return _Feed("memory", _numbered(values(source) if hasattr(source, "to_pylist") else source))


def _numbered(texts: Iterable[Any]) -> Iterator[_Row]:
    return (_Row(str(number), text) for number, text in enumerate(texts))


def _folder_feed(folder: Path, encoding: str | None) -> _Feed:
    documents, others = folder_files(folder)
    rows = (_Row(scrub(path.relative_to(folder).as_posix()), whole_file(path, encoding)) for path in documents)
    return _Feed(folder.resolve().name, rows, other_files=others)


def _table_feed(table: Table, column: str | None, id_column: str | None, label_column: str | None) -> _Feed:
    for name, option in ((column, "--column"), (id_column, "--id-column"), (label_column, "--label-column")):
        if name is not None:
            table.require(name, option)
    text_column = column or _guess_column(table, {id_column, label_column})
    columns = [name for name in dict.fromkeys((text_column, id_column, label_column)) if name is not None]

    def rows() -> Iterator[_Row]:
        for number, values_ in enumerate(table.rows(columns)):
            found: dict[str | None, Any] = dict(zip(columns, values_, strict=True))
            yield _Row(str(number), found[text_column], found.get(id_column), found.get(label_column))

    surprising = column is None and text_column.casefold() not in WELL_KNOWN
    return _Feed(
        table.name,
        rows(),
        has_ids=id_column is not None,
        has_labels=label_column is not None,
        column=text_column,
        guessed_column=text_column if surprising else None,
    )


def _guess_column(table: Table, taken: set[str | None]) -> str:
    free = {name: kind for name, kind in table.kinds.items() if name not in taken}
    known = [name for name in free if name.casefold() in WELL_KNOWN]
    texts = [name for name, kind in free.items() if kind == "text"]
    for candidates in (known, texts, list(free)):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            break
    raise InputError(
        f"{table.name}: it is not clear which column holds the texts; the columns are {table.listing()}. "
        "Say which one with --column NAME (column=NAME in Python)."
    )


def _admit(feed: _Feed, tally: Tally) -> Iterator[tuple[str, str, str]]:
    """(id, text, label) of every row that is not empty."""
    places: dict[str, str] = {}
    for row in feed.rows:
        texts = tally.admit((row.text,), place=row.place)
        if texts is None:
            continue
        id_ = row.place
        if feed.has_ids:
            id_ = _name(row.id, f"{feed.name}: row {row.place}", what="id")
            if places.setdefault(id_, row.place) != row.place:
                raise InputError(
                    f"{feed.name}: rows {places[id_]} and {row.place} share the id '{id_}'; an id names one text. "
                    "Choose another id column, or leave it out to number the rows."
                )
        label = _name(row.label, f"{feed.name}: row {row.place}", what="label") if feed.has_labels else ""
        yield id_, texts[0], label


def _name(value: Any, place: str, *, what: str) -> str:
    """An id or a label as a string: text, whole numbers, and for labels any number or truth value."""
    allowed = str | int | float if what == "label" else str | int
    if is_missing(value) or not isinstance(value, allowed) or value == "":
        raise InputError(
            f"{place} holds {shorten(value)} as its {what}; every text needs one. Fill it in, drop the row, or "
            f"choose another {what} column."
        )
    return scrub(str(value))
