"""Pairs of texts (query and document) and pairs of positions."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.texts.records import BUILTIN, ReadReport, Texts, draw
from poolscope.texts.sources import open_table
from poolscope.texts.tables import Table
from poolscope.texts.tally import Tally, shorten


class PairRow(NamedTuple):
    """One pair as it stands in its source; the label counts only where there are labels at all."""

    query_id: str
    query: str
    document_id: str
    document: str
    label: float = 0.0


@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries and documents, each distinct text once, and which belongs to which.

    `index` is an m × 2 matrix of (query position, document position); `labels`, if there are any, has one
    number a pair. `report` counts the rows of the source (None for pairs made in memory).
    """

    queries: Texts
    documents: Texts
    index: NDArray[np.int64]
    labels: NDArray[np.float64] | None = None
    report: ReadReport | None = None

    def __post_init__(self) -> None:
        sizes = np.array([len(self.queries), len(self.documents)])
        if self.index.ndim != 2 or self.index.shape[1] != 2 or self.index.dtype != np.int64:
            raise InputError(
                f"received an index of shape {self.index.shape} and type {self.index.dtype}; expected m × 2 of "
                "int64. Give one row (query position, document position) a pair."
            )
        if len(self.index) and (self.index.min() < 0 or (self.index.max(axis=0) >= sizes).any()):
            raise InputError(f"received positions beyond the {sizes[0]} queries or {sizes[1]} documents. Count from 0.")
        if self.labels is not None and self.labels.shape != (len(self.index),):
            raise InputError(
                f"received labels of shape {self.labels.shape} for {len(self.index)} pairs. Give one number a pair."
            )

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Pairs({len(self):,} pairs from {self.queries.source})"

    def sample(self, n: int, seed: int = 0) -> Pairs:
        """`n` pairs drawn without replacement, in their order, with the texts they need; all if `n` >= len."""
        positions = draw(range(len(self)), n, seed=seed)
        if len(positions) == len(self):
            return self
        labels = np.zeros(len(self)) if self.labels is None else self.labels
        rows = (
            PairRow(self.queries.ids[q], self.queries[q], self.documents.ids[d], self.documents[d], label)
            for (q, d), label in zip(self.index[positions], labels[positions], strict=True)
        )
        report = None if self.report is None else replace(self.report, selected=n)
        return share(rows, source=self.queries.source, labelled=self.labels is not None, report=report)


class _Distinct:
    """Texts in the order of their first appearance, each once, under the id it came with first."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._positions: dict[str, int] = {}

    def add(self, text: str, id_: str) -> int:
        position = self._positions.setdefault(text, len(self._positions))
        if position == len(self._ids):
            self._ids.append(id_)
        return position

    def texts(self, source: str) -> Texts:
        count = len(self._ids)
        return Texts(tuple(self._ids), tuple(self._positions), None, source, ReadReport(read=count, kept=count))


def share(rows: Iterable[PairRow], *, source: str, labelled: bool = False, report: ReadReport | None = None) -> Pairs:
    """Pairs in which equal queries, and equal documents, are one text."""
    queries, documents = _Distinct(), _Distinct()
    index, labels = [], []
    for row in rows:
        index.append((queries.add(row.query, row.query_id), documents.add(row.document, row.document_id)))
        labels.append(row.label)
    return Pairs(
        queries=queries.texts(source),
        documents=documents.texts(source),
        index=np.array(index, dtype=np.int64).reshape(-1, 2),
        labels=np.array(labels, dtype=np.float64) if labelled else None,
        report=report,
    )


def read_pairs(
    source: object,
    *,
    query_column: str = "query",
    document_column: str = "document",
    label_column: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    encoding: str | None = None,
) -> Pairs:
    """Read query-document pairs, one a row, from any table that `read_texts` reads.

    A row in which the query or the document is empty is dropped and counted. `"builtin:docstrings"` gives
    the pairs summary → body of the built-in corpus.

    >>> pairs = read_pairs({"query": ["a", "a", "b"], "document": ["x", "y", "x"]})
    >>> list(pairs.queries), list(pairs.documents), pairs.index.tolist()
    (['a', 'b'], ['x', 'y'], [[0, 0], [0, 1], [1, 0]])
    """
    if isinstance(source, str) and source == BUILTIN:
        from poolscope.texts.corpus import summary_body_pairs  # made of Pairs, so imported when asked for

        pairs = summary_body_pairs()
        return pairs if sample is None else pairs.sample(sample, seed)
    table = open_table(source, encoding=encoding)
    table.require(query_column, "--query-column")
    table.require(document_column, "--document-column")
    columns = [query_column, document_column]
    if label_column is not None:
        table.require(label_column, "--label-column")
        columns.append(label_column)
    if len(set(columns)) != len(columns):
        raise InputError(f"{table.name}: received the columns {columns}; each part needs its own. Name another.")
    tally = Tally(table.name)
    admitted = _admit(table, columns, tally)
    kept = list(admitted) if sample is None else draw(admitted, sample, seed=seed)
    report = tally.report()
    if len(kept) < report.kept:
        report = replace(report, selected=len(kept))
    return share(kept, source=table.name, labelled=label_column is not None, report=report)


def _admit(table: Table, columns: list[str], tally: Tally) -> Iterator[PairRow]:
    """Every row of which query and document are not empty."""
    for number, (query, document, *label) in enumerate(table.rows(columns)):
        place = str(number)
        texts = tally.admit((query, document), place=place)
        if texts is not None:
            value = _label(label[0], f"{table.name}: row {place}") if label else 0.0
            yield PairRow(place, texts[0], place, texts[1], value)


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
        for place, row in ((f"{table.name}: row {number}", row) for number, row in enumerate(table.rows(columns)))
    ]
    if not pairs:
        raise InputError(f"{table.name}: received no pairs. Give one row (i, j) a pair.")
    return np.array(pairs, dtype=np.int64)


_RESULTS = {"i", "j", "d_mu", "d_sigma", "socm"}  # the columns of every pair that was measured


class _Places:
    """Where the text of an id stands."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._count = len(ids)
        self._places: dict[str, int] = {}
        self._shared: set[str] = set()
        for position, id_ in enumerate(ids):
            if self._places.setdefault(id_, position) != position:
                self._shared.add(id_)

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
