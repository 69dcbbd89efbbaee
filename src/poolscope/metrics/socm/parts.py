"""SOCM of a store in parts that any process computes: each is told where the store lies and which pairs are its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.result import Largest
from poolscope.metrics.socm.score import SocmFormula
from poolscope.metrics.socm.selection import TILE_TEXTS, AllPairs, CrossedPairs, ListedPairs, PairSelection
from poolscope.metrics.socm.tally import PairTally, TallyOptions, tallied
from poolscope.metrics.socm.worst import WorstSearch
from poolscope.numbers.bures.pairs import reduced_caches
from poolscope.stores.store import open_clouds

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
