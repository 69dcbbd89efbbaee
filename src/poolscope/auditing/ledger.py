"""The ledger: one row a query and relevant text, with its rank before, its symptoms, and its rank under each cure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.words import fill
from poolscope.errors import InputError
from poolscope.numbers import Array, Index
from poolscope.results import Result

Marks = NDArray[np.bool_]
_MISSED = "{missed:count} of {queries:count query} {missed:number is} missed."


@dataclass(frozen=True)
class Explained:
    """A cure, and the missed queries that it finds and no earlier one of the list does."""

    name: str
    queries: tuple[int, ...]


@dataclass(frozen=True, repr=False, kw_only=True)
class Ledger(Result):
    """Where every relevant text of every query stands, before and under each cure.

    One row an answer: `query`, `text` (by which it ranks first), `rank`. `symptoms` (causes × rows) says which rows
    have which; `ranks` (cures × rows) holds NaN where a cure was not tried on a row. `yardsticks` likewise. Queries are
    numbered from 0, and each of them has a row.
    """

    k: int
    query: Index = field(metadata={"bulk": True, "required": True}, repr=False)
    text: Index = field(metadata={"bulk": True, "required": True}, repr=False)
    rank: Array = field(metadata={"bulk": True, "required": True}, repr=False)
    symptoms: Mapping[str, Marks] = field(metadata={"bulk": True, "required": True}, repr=False)
    ranks: Mapping[str, Array] = field(metadata={"bulk": True, "required": True}, repr=False)
    yardsticks: Mapping[str, Array] = field(metadata={"bulk": True, "required": True}, repr=False)

    def __post_init__(self) -> None:
        columns = (self.query, self.text, self.rank, *self.symptoms.values(), *self.ranks.values(),
                   *self.yardsticks.values())  # fmt: skip
        if {np.shape(each) for each in columns} != {(len(self.query),)}:
            raise InputError(f"ledger: received columns of other lengths than its {len(self.query):,} rows.")
        own = np.unique(self.query)
        if not len(own) or not np.array_equal(own, np.arange(len(own))):
            raise InputError("ledger: received queries without a row; needed: numbers from 0, each with a row.")

    @property
    def queries(self) -> int:
        """How many queries were asked."""
        return int(self.query.max()) + 1

    def best(self, rank: Array) -> Array:
        """The rank of the best relevant text of each query; NaN where no row of it has a rank."""
        best = np.full(self.queries, np.inf)
        np.fmin.at(best, self.query, rank)
        return np.where(np.isinf(best), np.nan, best)

    def misses(self) -> Index:
        """The queries that are missed: no relevant text in the top k."""
        return np.flatnonzero(self.best(self.rank) > self.k)

    def missed_rows(self) -> Index:
        """For each missed query the row of the relevant text that ranks best."""
        rows = (np.flatnonzero(self.query == query) for query in self.misses().tolist())
        return np.array([each[np.argmin(self.rank[each])] for each in rows], dtype=np.int64)

    def rescued(self, name: str) -> Index:
        """The missed queries that a cure or a yardstick finds."""
        rank = self.ranks[name] if name in self.ranks else self.yardsticks[name]
        return np.intersect1d(self.misses(), np.flatnonzero(self.best(rank) <= self.k))

    def explained(self, names: Sequence[str] | None = None) -> tuple[Explained, ...]:
        """Cures by what each adds: first the one that finds most misses, then the one that finds most of the rest.

        `names` are the cures to choose from; of equals the earlier one comes first.
        """
        left = set(self.misses().tolist())
        finds = {name: set(self.rescued(name).tolist()) for name in (self.ranks if names is None else names)}
        chosen = []
        while finds:
            name = max(finds, key=lambda each: len(finds[each] & left))
            added = finds.pop(name) & left
            if not added:
                break
            chosen.append(Explained(name, tuple(sorted(added))))
            left -= added
        return tuple(chosen)

    def unexplained(self, names: Sequence[str] | None = None) -> Index:
        """The missed queries that no cure finds."""
        found = {query for each in self.explained(names) for query in each.queries}
        return np.array([query for query in self.misses().tolist() if query not in found], dtype=np.int64)

    def in_words(self) -> tuple[str, ...]:
        """How many queries are missed."""
        return (fill(_MISSED, {"missed": len(self.misses()), "queries": self.queries}),)

    def rows(self) -> list[dict[str, Any]]:
        """One row a query and relevant text."""
        columns = {
            "query": self.query,
            "text": self.text,
            "rank": self.rank,
            **{f"symptom_{name}": marks for name, marks in self.symptoms.items()},
            **{f"rank_{name}": rank for name, rank in {**self.ranks, **self.yardsticks}.items()},
        }
        return [
            dict(zip(columns, row, strict=True))
            for row in zip(*(column.tolist() for column in columns.values()), strict=True)
        ]
