"""SOCM of a store on an engine: parts of the pairs are tallied by workers, and the tallies merge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.engines.base import Engine, as_engine, merged
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.measure import socm_in_parts
from poolscope.metrics.socm.result import Largest, SocmResult, WorstPairs
from poolscope.metrics.socm.score import SocmFormula
from poolscope.metrics.socm.selection import (
    TILE_TEXTS,
    AllPairs,
    CrossedPairs,
    ListedPairs,
    PairSelection,
    PairTally,
    TallyOptions,
    tallied,
)
from poolscope.metrics.socm.worst import WorstSearch, worst_result
from poolscope.numbers.bures.pairs import reduced_caches
from poolscope.stores.remote import located
from poolscope.stores.store import open_clouds

Told = Callable[[int], None]


def socm_with(
    engine: Engine | str | None,
    folder: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    layer: int | None = None,
    progress: Told | None = None,
    **options: Any,
) -> SocmResult:
    """`socm` of a finished store (with another, `against`), its pairs on an engine; `options` are those of `socm`.

    Which pairs belong together is decided by the pairs alone, so that every engine gives the same bytes. The nearest
    texts of `neighbours` are searched by the process that asks.
    """
    clouds = open_clouds(folder, layer=layer)
    other = None if against is None else open_clouds(against, layer=layer)

    def in_parts(selection: PairSelection, wanted: TallyOptions) -> PairTally:
        pairs = selection.pairs if isinstance(selection, ListedPairs) else None
        places = located(folder), None if against is None else located(against)
        job, parts = PairsJob(*places, layer, wanted, pairs), range(selection.parts)
        each = max(1, selection.count // len(parts))
        tally: PairTally = merged(_told(as_engine(engine).run(job, parts), progress, each), parts, PairTally.merge)
        return tally

    return socm_in_parts(clouds, other, in_parts, **options)


def worst_with(
    engine: Engine | str | None,
    folder: str | os.PathLike[str],
    k: int = 100,
    *,
    layer: int | None = None,
    progress: Told | None = None,
    **formula: Any,
) -> WorstPairs:
    """`worst_pairs` of a finished store on an engine: blocks of texts are searched by workers."""
    clouds = open_clouds(folder, layer=layer)
    selection, chosen = AllPairs(clouds), SocmFormula(**formula)
    if not 1 <= (k := whole_number(k, "worst")) <= selection.count:
        raise InputError(f"worst: received k = {k}; allowed is 1 to {selection.count}, the number of pairs.")
    job, parts = WorstJob(located(folder), layer, chosen, k), range(selection.parts)
    each = max(1, selection.count // len(parts))
    largest, evaluated = merged(_told(as_engine(engine).run(job, parts), progress, each), parts, merge_worst)
    return worst_result(clouds, chosen, largest, evaluated)


def _told(outcomes: Iterator[tuple[int, Any]], progress: Told | None, each: int) -> Iterator[tuple[int, Any]]:
    """The outcomes, each told when it comes."""
    for part, outcome in outcomes:
        if progress is not None:
            progress(each)
        yield part, outcome


# -- parts that any process computes ----------------------------------------------------------------------------------

# SOCM of a store in parts that any process computes: each is told where the store lies and which pairs are its own.

Index = NDArray[np.int64]


@dataclass(frozen=True)
class PairsJob:
    """Tallies parts of a selection of pairs of a store, or of one with another; `pairs` is a list of them, or None."""

    folder: str
    against: str | None
    layer: int | None
    wanted: TallyOptions
    pairs: Index | None = field(default=None, repr=False)

    def start(self) -> Callable[[int], PairTally]:
        """Open the stores; the reduced texts of a list are kept from part to part."""
        left = open_clouds(self.folder, layer=self.layer)
        right = left if self.against is None else open_clouds(self.against, layer=self.layer)
        selection = self._selection(left, right)
        eps = self.wanted.formula.eps
        return lambda part: tallied(selection, selection.part_distances(part, eps=eps), self.wanted)

    def _selection(self, left: TokenClouds, right: TokenClouds) -> PairSelection:
        if self.pairs is None:
            return AllPairs(left) if left is right else CrossedPairs(left, right)
        caches = reduced_caches(left, right, published=bool(self.wanted.formula.eps))
        return ListedPairs(left, right, self.pairs, "", caches)


@dataclass(frozen=True)
class WorstJob:
    """Searches the worst pairs of one block of texts of a store with another; parts are numbered as `AllPairs` does."""

    folder: str
    layer: int | None
    formula: SocmFormula
    top: int

    def start(self) -> Callable[[int], tuple[Largest, int]]:
        """Open the store."""
        clouds = open_clouds(self.folder, layer=self.layer)
        rows, columns = np.triu_indices(-(-len(clouds) // TILE_TEXTS))
        return lambda part: self._searched(clouds, int(rows[part]) * TILE_TEXTS, int(columns[part]) * TILE_TEXTS)

    def _searched(self, clouds: TokenClouds, row: int, column: int) -> tuple[Largest, int]:
        left = clouds[row : row + TILE_TEXTS]
        right = left if row == column else clouds[column : column + TILE_TEXTS]
        if left is right and len(left) < 2:
            return Largest(self.top), 0
        search = WorstSearch(left, right, self.formula, self.top, _ignored)
        search.run()
        i, j, *distances = search.largest.columns
        merged = Largest(self.top)
        merged.add(search.largest.values, i + row, j + column, *distances)
        return merged, search.evaluated


def merge_worst(first: tuple[Largest, int], second: tuple[Largest, int]) -> tuple[Largest, int]:
    """The worst pairs of both, and how many were evaluated."""
    largest, evaluated = first
    if second[0].columns:
        largest.add(second[0].values, *second[0].columns)
    return largest, evaluated + second[1]


def _ignored(settled: Any) -> None:
    """Progress is told by the part."""
