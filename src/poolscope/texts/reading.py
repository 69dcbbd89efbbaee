"""From whatever holds them to texts (`read_texts`), pairs of texts (`read_pairs`) and pairs of positions."""

from __future__ import annotations

import io
import math
import operator
import os
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError, did_you_mean, shorten
from poolscope.texts.corpus import docstrings, heading_pairs, manuals, summary_body_pairs
from poolscope.texts.plain import folder_files, kind_of_file, lines, standard_input, whole_file
from poolscope.texts.records import (
    BUILTIN,
    MANUALS,
    PairRow,
    Pairs,
    Tally,
    Texts,
    draw,
    is_missing,
    row_place,
    scrub,
    share,
)
from poolscope.texts.sources import (
    Benchmark,
    exists,
    is_pattern,
    matching_files,
    open_benchmark,
    open_table,
    refuse_no_name,
    table_files,
)
from poolscope.texts.tables import Table, documents_table, is_documents, is_table, values

WELL_KNOWN = ("text", "content", "body", "sentence", "passage", "document")
"""Column names that are taken as the text column when exactly one of them is there; `document` only by itself, as it
names the document of a chunk beside any of the others."""

GROUP_COLUMNS = ("group", "document_id", "document", "doc_id", "source", "url", "title")
"""Columns that name the document of a chunk, the most telling first; `poolscope chunk` writes the first two."""

_RESULTS = {"i", "j", "d_mu", "d_sigma", "socm"}  # the columns of every pair that was measured


class _Row(NamedTuple):
    name: str  # its id where there is no column of ids
    place: str  # how a message names it
    text: Any
    id: Any = None
    label: Any = None


@dataclass(frozen=True)
class Feed:
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
    limit: int | None = None,
    seed: int = 0,
    keep: Collection[Any] = (),
    encoding: str | None = None,
) -> Texts:
    """Read texts from a file, a folder, standard input, a hub data set, the built-in corpus or memory.

    Empty texts are dropped and counted; ids and the report of the reading stay with the texts.

    Parameters
    ----------
    source
        A path (`.txt`: a line a text; `.csv`, `.tsv`, `.jsonl`, `.ndjson`, `.json`, `.parquet`, `.arrow`, `.feather`: a
        row a text; text formats also packed as `.gz`; a folder: a `.txt` or `.md` file a text, tables, or a benchmark
        of BEIR or mteb with its corpus), a pattern such as `"data/*.parquet"`, `"-"` (lines of standard input),
        `"builtin:docstrings"`, `"builtin:manuals"`, `"hub:ORGANISATION/NAME[/CONFIG][:SPLIT]"` (`"stream:…"`: row by
        row, nothing kept), a table in memory (data frame, Arrow table, data set, dict of lists) or any iterable of
        strings.
    column
        The column of the texts; needed where it is not clear which one holds them.
    id_column
        The column of the ids. Without one, the relative path in a folder, otherwise the row number from "0" on, empty
        rows included.
    label_column
        The column of the labels, if they are wanted.
    limit
        Draw that many texts, as `Texts.sample` does, without holding the rest.
    seed
        The seed of the draw.
    keep
        Ids of texts that are in every draw, such as those that queries ask for.
    encoding
        That of the files, UTF-8 unless another one is named.

    Returns
    -------
    Texts
        A sequence of strings with `ids`, `labels` (None without a column) and `report`.

    Examples
    --------
    >>> texts = read_texts(["one", "", "two", "one"])
    >>> texts.ids, list(texts), texts.report.empty, texts.report.duplicates
    (('0', '2', '3'), ['one', 'two', 'one'], 1, 1)

    """
    wanted = _wanted(keep)
    if isinstance(source, str) and source.startswith("builtin:"):
        source = _builtin(source)
    if isinstance(source, Texts):
        _refuse_columns(source.source, column, id_column, label_column)
        return source if limit is None else source.sample(limit, seed, keep=wanted)
    if is_documents(source):
        table = documents_table(source)  # type: ignore[arg-type]
        source, column = table, column or "text"
        id_column = id_column or ("id" if "id" in table else None)
    feed = open_feed(source, column, id_column, label_column, encoding)
    tally = Tally(feed.name)
    admitted = admit(feed, tally)
    chosen = list(admitted) if limit is None else draw(admitted, limit, seed=seed, sure=lambda row: row[0] in wanted)
    report = tally.report(other_files=feed.other_files, guessed_column=feed.guessed_column)
    return Texts(
        ids=tuple(id_ for id_, _, _ in chosen),
        texts=tuple(text for _, text, _ in chosen),
        labels=tuple(label for _, _, label in chosen) if feed.has_labels else None,
        source=feed.name,
        report=report if len(chosen) == report.kept else replace(report, selected=len(chosen)),
        column=feed.column,
        seed=None if len(chosen) == report.kept else seed,
    )


def _wanted(keep: Collection[str]) -> frozenset[str]:
    try:
        if not isinstance(keep, str | bytes):
            return frozenset(keep)
    except TypeError:  # no collection, or one of lists
        pass
    raise InputError(f"keep: received {shorten(keep)}; allowed: ids of texts in a list. Pass [id] for a single one.")


def open_feed(
    source: object, column: str | None, id_column: str | None, label_column: str | None, encoding: str | None
) -> Feed:
    """The rows of a source, about to be read one by one."""
    plain = _plain_feed(source, encoding)
    if plain is None:
        return _table_feed(open_table(source, encoding=encoding), column, id_column, label_column)
    _refuse_columns(plain.name, column, id_column, label_column)
    return plain


def as_texts(source: Any) -> Sequence[str]:
    """What was passed as texts, as a sequence: the one door of every function that takes a model and texts.

    A path, a folder or a table (data frame, Arrow table, data set, dict of lists) is read as `read_texts` reads it, so
    that `Texts` come back. A list stays as it is, with its empty texts, and any other iterable becomes a list. What
    would be taken for something else by being iterated is refused by name.

    >>> as_texts({"text": ["one", "two"]}), as_texts(text for text in ("one", ""))
    (Texts(2 texts from memory), ['one', ''])
    """
    if isinstance(source, Texts):
        return source
    named = isinstance(source, str) and _is_name(source)
    if isinstance(source, os.PathLike) or is_table(source) or named or is_documents(source):
        return read_texts(source)
    if isinstance(source, str):
        raise InputError(
            f"texts: received one string, {shorten(source)}, which names no file or folder here; allowed: a list of "
            f"texts. Pass [text] for a single one, or a path that exists."
        )
    _refuse_no_texts(source)
    if hasattr(source, "to_pylist"):
        return values(source)
    return source if isinstance(source, Sequence) else list(source)


def _is_name(text: str) -> bool:
    return text.startswith(("builtin:", "hub:", "stream:")) or (text != "" and exists(Path(text)))


def _refuse_no_texts(source: Any) -> None:
    """Refuse an object that cannot be iterated as texts in a fixed order."""
    reason = "it holds no texts"
    if isinstance(source, io.IOBase):
        reason = "an open file gives its lines with their ends"
    elif isinstance(source, Set):
        reason = "a set has no order, so that its texts would have other places in every run"
    elif not isinstance(source, bytes | bytearray | memoryview) and _is_iterable(source):
        return
    raise InputError(
        f"texts: received {shorten(source)} ({type(source).__name__}); {reason}. Allowed: "
        f"a path, a table or an iterable of strings. Pass one of these."
    )


def _is_iterable(source: Any) -> bool:
    """Whether it gives entries: an array of no dimension says that it does, and does not."""
    return isinstance(source, Iterable) and getattr(source, "shape", (1,)) != ()


def _builtin(name: str) -> Texts:
    corpora = {BUILTIN: docstrings, MANUALS: manuals}
    if name not in corpora:
        raise InputError(
            f"received '{name}'; the built-in corpora are {' and '.join(corpora)}.{did_you_mean(name, corpora)}"
        )
    return corpora[name]()


def _refuse_columns(source: str, *columns: str | None) -> None:
    for name in columns:
        if name is not None:
            raise InputError(
                f"{source}: received the column name '{name}', but this source has no columns. Leave it out."
            )


def _plain_feed(source: Any, encoding: str | None) -> Feed | None:
    """The rows of a source without columns; None if it is not one."""
    if isinstance(source, str | os.PathLike):
        if source == "-":
            return Feed("stdin", _numbered(standard_input(encoding)))
        refuse_no_name(source)
        path = Path(source)
        if exists(path) and path.is_dir():
            benchmark = open_benchmark(path, encoding=encoding)
            return _folder_feed(path, encoding) if benchmark is None else _benchmark_feed(benchmark)
        files = matching_files(source) if is_pattern(source) else [path] * exists(path)
        if files and all(kind_of_file(file) == ".txt" for file in files):
            return Feed(path.name, _numbered(chain.from_iterable(lines(file, encoding) for file in files)))
    if isinstance(source, str | os.PathLike) or is_table(source):
        return None
    _refuse_no_texts(source)
    return Feed("memory", _numbered(values(source) if hasattr(source, "to_pylist") else source))


def _numbered(texts: Iterable[Any]) -> Iterator[_Row]:
    return (_Row(str(number), row_place(number), text) for number, text in enumerate(texts))


def _folder_feed(folder: Path, encoding: str | None) -> Feed | None:
    """A document a file; None for a folder of tables."""
    documents, others = folder_files(folder)
    if not documents and table_files(folder):
        return None
    names = (scrub(path.relative_to(folder).as_posix()) for path in documents)
    rows = (_Row(name, name, whole_file(path, encoding)) for name, path in zip(names, documents, strict=True))
    return Feed(folder.resolve().name, rows, other_files=others)


def _benchmark_feed(benchmark: Benchmark) -> Feed:
    rows = (_Row(str(number), row_place(number), text, name) for number, (name, text) in enumerate(benchmark.texts()))
    return Feed(benchmark.corpus.name, rows, has_ids=True)


def _table_feed(table: Table, column: str | None, id_column: str | None, label_column: str | None) -> Feed:
    table.require_columns()
    table.require(column, "--column")
    table.require(id_column, "--id-column")
    table.require(label_column, "--label-column (--group in an audit)")
    text_column = column or _guess_column(table, {id_column, label_column})
    columns = [name for name in dict.fromkeys((text_column, id_column, label_column)) if name is not None]

    def rows() -> Iterator[_Row]:
        for number, values_ in enumerate(table.rows(columns)):
            cells: dict[str | None, Any] = dict(zip(columns, values_, strict=True))
            name, place = str(number), row_place(number)
            yield _Row(name, place, cells[text_column], cells.get(id_column), cells.get(label_column))

    surprising = column is None and text_column.casefold() not in WELL_KNOWN
    return Feed(
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
    plain = [name for name in known if name.casefold() != "document"]
    texts = [name for name, kind in free.items() if kind == "text"]
    for candidates in (plain, known, texts, list(free)):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            break
    raise InputError(
        f"{table.name}: it is not clear which column holds the texts; the columns are {table.listing()}. "
        "Say which one with --column NAME (column=NAME in Python)."
    )


def admit(feed: Feed, tally: Tally) -> Iterator[tuple[str, str, str]]:
    """(id, text, label) of every row that is not empty."""
    places: dict[str, str] = {}
    for row in feed.rows:
        texts = tally.admit((row.text,), place=row.place)
        if texts is None:
            continue
        id_ = row.name
        if feed.has_ids:
            id_ = _name(row.id, f"{feed.name}: {row.place}", what="id")
            if places.setdefault(id_, row.place) != row.place:
                raise InputError(
                    f"{feed.name}: {places[id_]} and {row.place} share the id '{id_}'; an id names one text. "
                    "Choose another id column, or leave it out to number the rows."
                )
        label = _name(row.label, f"{feed.name}: {row.place}", what="label") if feed.has_labels else ""
        yield id_, texts[0], label


def _name(value: Any, place: str, *, what: str) -> str:
    """An id or a label as a string: text, whole numbers, and for labels any number or truth value."""
    remedy = f"Fill it in, drop the row, or choose another {what} column."
    if is_missing(value) or value == "":
        raise InputError(f"{place} has no {what}; every text needs one. {remedy}")
    if what == "id" and isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas makes whole numbers of a column with a gap into these
    if not isinstance(value, str | int | float if what == "label" else str | int):
        raise InputError(f"{place} holds {shorten(value)} as its {what}; every text needs one. {remedy}")
    return scrub(str(value))


# -- pairs ------------------------------------------------------------------------------------------------------------


def read_pairs(
    source: object,
    *,
    query_column: str = "query",
    document_column: str = "document",
    label_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    encoding: str | None = None,
) -> Pairs:
    """Read query-document pairs, one a row, from any table that `read_texts` reads.

    A row in which the query or the document is empty is dropped and counted.

    Parameters
    ----------
    source
        A table as `read_texts` takes it: a path, a hub name, a data frame, a dict of lists. `"builtin:docstrings"`
        gives the pairs summary → body of the built-in corpus, `"builtin:manuals"` those of heading → passage.
    query_column, document_column
        The columns of the two texts.
    label_column
        A column with one number a pair, if there is one.
    limit
        Draw that many pairs.
    seed
        The seed of the draw.
    encoding
        That of the file, UTF-8 unless another one is named.

    Returns
    -------
    Pairs
        Each distinct query and document once, and `index`, a row (query position, document position) a pair.

    Examples
    --------
    >>> pairs = read_pairs({"query": ["a", "a", "b"], "document": ["x", "y", "x"]})
    >>> list(pairs.queries), list(pairs.documents), pairs.index.tolist()
    (['a', 'b'], ['x', 'y'], [[0, 0], [0, 1], [1, 0]])

    """
    if isinstance(source, str) and source in (BUILTIN, MANUALS):
        pairs = summary_body_pairs() if source == BUILTIN else heading_pairs()
        return pairs if limit is None else pairs.sample(limit, seed)
    table = open_table(source, encoding=encoding)
    table.require(query_column, "--query-column", default="query")
    table.require(document_column, "--document-column", default="document")
    table.require(label_column, "--label-column")
    columns = [query_column, document_column, *([] if label_column is None else [label_column])]
    if len(set(columns)) != len(columns):
        raise InputError(
            f"{table.name}: received the columns {columns}; each part needs its own. Name different columns."
        )
    tally = Tally(table.name)
    admitted = _admit_pairs(table, columns, tally)
    chosen = list(admitted) if limit is None else draw(admitted, limit, seed=seed)
    report = tally.report()
    report = report if len(chosen) == report.kept else replace(report, selected=len(chosen))
    return share(chosen, source=table.name, labelled=label_column is not None, report=report)


def _admit_pairs(table: Table, columns: list[str], tally: Tally) -> Iterator[PairRow]:
    """Every row of which query and document are not empty."""
    for number, (query, document, *label) in enumerate(table.rows(columns)):
        name, place = str(number), row_place(number)
        texts = tally.admit((query, document), place=place)
        if texts is not None:
            value = _label(label[0], f"{table.name}: {place}") if label else 0.0
            yield PairRow(name, texts[0], name, texts[1], value)


def _label(value: Any, place: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{place} holds {shorten(value)} as its label; a pair is labelled by a number, such as 0 or 1. "
            "Correct the row or choose another label column."
        )
    return number


def read_index_pairs(
    path: str | os.PathLike[str], *, ids: tuple[Sequence[str], Sequence[str]] | None = None
) -> NDArray[np.int64]:
    """Read pairs of texts as an m × 2 matrix of positions, counted from 0.

    The file (`.csv`, `.tsv`, `.jsonl`, `.parquet`, ...) has the columns `i` and `j`, or exactly two columns of whole
    numbers. With `ids`, those of the texts on either side, they hold ids, as every list of pairs shows them; empty
    rows and a draw then shift nothing. Without, and in the table of results that `socm` writes, they hold positions,
    and whether a position exists is for the caller to check: only it knows the texts.
    """
    table = open_table(path)
    columns = _index_columns(table)
    sides = None if ids is None or table.kinds.keys() >= _RESULTS else [_Places(side) for side in ids]
    pairs = [
        [_position(value, place) if sides is None else sides[side].find(value, place) for side, value in enumerate(row)]
        for place, row in ((f"{table.name}: {row_place(k)}", row) for k, row in enumerate(table.rows(columns)))
    ]
    if not pairs:
        raise InputError(f"{table.name}: received no pairs. Give one row (i, j) a pair.")
    return np.array(pairs, dtype=np.int64)


class _Places:
    """Where the text of an id stands."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._count = len(ids)
        self._places: dict[str, int] = {}
        self._shared = {id_ for k, id_ in enumerate(ids) if self._places.setdefault(id_, k) != k}

    def find(self, value: Any, place: str) -> int:
        """The position of the text of this id; a whole number stands for its digits."""
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        id_ = str(value) if whole or isinstance(value, str) else ""
        if id_ not in self._places:
            id_ = id_.strip()
        if id_ in self._shared:
            raise InputError(f"{place} names the id {shorten(value)}, which several texts share. Give each its own id.")
        if id_ not in self._places or not (whole or isinstance(value, str)):
            first = next(iter(self._places))
            raise InputError(
                f"{place} names the text {shorten(value)}, and none of the {self._count:,} texts has that id; the "
                f"first is '{first}'. Ids are row numbers from 0, the empty rows that are left out counted too, or "
                "those of --id-column; a drawn sample has only some of them."
            )
        return self._places[id_]


def _index_columns(table: Table) -> list[str]:
    if {"i", "j"} <= table.kinds.keys():
        return ["i", "j"]
    whole = [name for name, kind in table.kinds.items() if kind == "integer"]
    if any(name.strip().isdigit() for name in table.kinds):
        raise InputError(
            f"{table.name}: received {table.listing()} as column names; the first line is a header. Add the line i,j."
        )
    if len(whole) != 2:
        raise InputError(
            f"{table.name}: received the columns {table.listing()}; pairs are read from the columns 'i' and 'j' or "
            "from exactly two columns of whole numbers. Rename the two columns."
        )
    return whole


def _position(value: Any, place: str) -> int:
    try:
        number = operator.index(int(value) if isinstance(value, str) else value)
    except (TypeError, ValueError):
        number = -1
    if isinstance(value, bool) or not 0 <= number < 2**63:
        raise InputError(f"{place} holds {shorten(value)}; the position of a text is 0, 1, 2, ... Correct the row.")
    return number
