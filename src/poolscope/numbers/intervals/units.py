"""The unit of an interval: what the independent draws behind a number are, chosen in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from poolscope.numbers import Array, Index
from poolscope.numbers.intervals.estimate import Estimate

FEWEST_UNITS = 10
"""Of fewer independent units a number has no interval; `benchmarks/interval_coverage.py` says how intervals cover."""
FEWEST_DOCUMENTS = 30
"""The same for the mean of values without bounds over documents, whose skewness is not told from their sizes."""
FEWEST_PAIRED = 30
"""The same for a mean of paired differences, which are mostly 0 and skewed."""
FEWEST_PAIRED_DOCUMENTS = 50
"""The same for paired differences over documents, whose skewness is not told from their sizes either."""
FEWEST_OF_PAIRS = 30
"""The same for a mean over pairs of texts, each of which is in many of them."""
ON_THESE_TEXTS = "queries on these texts"
"""The unit of queries that relevant texts link into too few groups."""
FEWEST_CHANGED = 6
"""The fewest units that a two-sided sign test at 5% tells from chance: all alike, 2/2⁶ = 0.03, but 2/2⁵ = 0.06."""


@dataclass(frozen=True, eq=False)
class Units:
    """The independent draws behind a number: what they are (`name`), and the unit of each value (`of`, from 0)."""

    name: str
    of: Index

    @property
    def sizes(self) -> Array:
        """How many values each unit has."""
        return np.bincount(self.of).astype(np.float64)

    def sums(self, values: Array) -> Array:
        """The sum of the values of each unit."""
        return np.asarray(np.bincount(self.of, values, len(self)), dtype=np.float64)

    def among(self, chosen: NDArray[np.bool_] | Index) -> Units:
        """The units of the chosen values."""
        return Units(self.name, np.unique(self.of[chosen], return_inverse=True)[1].ravel())

    def shuffled(self, random: np.random.Generator) -> Index:
        """Deal the values anew, whole units at a time: the position of the value that comes to each place.

        The values of a unit stay together, in their order. Units of unequal size meet at other places than before, so
        that a few are cut there.

        >>> dealt = chosen_units(4, ["a", "b", "a", "b"]).shuffled(np.random.default_rng(3))
        >>> dealt.tolist() in ([0, 1, 2, 3], [1, 0, 3, 2])
        True
        """
        order, sizes = np.argsort(self.of, kind="stable"), self.sizes.astype(np.int64)
        drawn = random.permutation(len(self))
        ends = np.cumsum(sizes[drawn])
        starts = (np.cumsum(sizes) - sizes)[drawn]
        dealt = np.empty_like(order)
        dealt[order] = order[np.repeat(starts - ends + sizes[drawn], sizes[drawn]) + np.arange(len(order))]
        return dealt

    def __len__(self) -> int:
        return int(self.of.max()) + 1 if len(self.of) else 0


def chosen_units(count: int, documents: ArrayLike | Units | None = None, *, each: str = "texts") -> Units:
    """Choose the unit of an interval: the document where documents are known, otherwise each value is one.

    This is the one place that decides it. Documents that all hold one value each change nothing, so the unit is then
    named by what the values are (`each`). Units are numbered as they come, whatever they are called. Units that were
    chosen before stay as they are.

    >>> chosen_units(3, ["a", "a", "b"]).name, chosen_units(3).name, chosen_units(2, ["a", "b"], each="queries").name
    ('documents', 'texts', 'queries')
    >>> chosen_units(3, ["b", "a", "b"]).of.tolist()
    [0, 1, 0]
    """
    if documents is None:
        return Units(each, np.arange(count))
    if isinstance(documents, Units):
        return documents
    names = np.asarray(documents)
    if names.shape != (count,):
        raise ValueError(f"units: received shape {names.shape}; needed: one for each of the {count} values.")
    _, first, of = np.unique(names, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return Units("documents" if len(first) < count else each, number[of.ravel()])


def answers(relevant: Index, marks: Index) -> tuple[Index, Index]:
    """The queries that a text is relevant to, and the one text of each that decides its unit: the smallest mark's.

    >>> [side.tolist() for side in answers(np.array([[0, 2], [1, 0], [0, 1]]), np.array([7, 5, 3]))]
    [[0, 1], [1, 0]]
    """
    order = np.lexsort((marks, relevant[:, 0]))
    queries, place = np.unique(relevant[order, 0], return_index=True)
    return queries, relevant[order[place], 1]


def query_units(relevant: Index, documents: ArrayLike | None = None, *, queries: int | None = None) -> Units:
    """The unit of each query of a search: queries that share a relevant text, or its document, are one.

    So are queries that others link: of the graph of queries and texts each connected component is a unit. Where links
    alone leave too few of them, as a text does that answers every query, each query is a unit: an interval then speaks
    of other queries on these same texts, and its unit says so.

    relevant (m × 2): query and text, from 0; of `queries` those without one stand by themselves.

    >>> pairs = np.array([[0, 2], [1, 0], [1, 3], [2, 3], [3, 1]])
    >>> query_units(pairs).of.tolist(), query_units(pairs).name
    ([0, 1, 1, 2], 'query groups')
    >>> query_units(pairs, ["a", "b", "a", "c"]).of.tolist(), query_units(pairs[[0, 4]]).name
    ([0, 0, 0, 1], 'queries')
    >>> chain = [[k // 2, (k + 1) // 2] for k in range(80)]  # each query shares one text with the next
    >>> query_units(np.array(chain)).name
    'queries on these texts'
    """
    judged, query = np.unique(relevant[:, 0], return_inverse=True)
    if queries is not None:
        judged, query = np.arange(queries), relevant[:, 0]
    named = relevant[:, 1] if documents is None else np.asarray(documents)[relevant[:, 1]]
    text = np.unique(named, return_inverse=True)[1].ravel()
    texts = int(text.max(initial=-1)) + 1
    size = len(judged) + texts
    linked = sparse.coo_array((np.ones(len(text)), (query.ravel(), len(judged) + text)), shape=(size, size))
    of = sparse.csgraph.connected_components(linked, directed=False)[1][: len(judged)]
    units = chosen_units(len(judged), of, each="queries")
    if len(units) < FEWEST_PAIRED <= min(texts, len(judged)):
        return Units(ON_THESE_TEXTS, np.arange(len(judged)))
    return replace(units, name="query groups") if documents is None and units.name == "documents" else units


def not_by_documents(estimate: Estimate, units: Units) -> Estimate:
    """The estimate without its interval where the unit is the document, which its interval cannot go by.

    >>> not_by_documents(Estimate(2.0), chosen_units(3, ["a", "a", "b"])).no_interval
    'no interval: the texts are of 2 documents, and for this number none is known by documents'
    """
    if units.name != "documents":
        return estimate
    why = f"no interval: the texts are of {len(units):,} documents, and for this number none is known by documents"
    return replace(estimate, interval=None, no_interval=why)


def too_few(count: int, unit: str, needed: int = FEWEST_UNITS) -> str:
    """Say why so few units have no interval; empty where they suffice.

    >>> too_few(4, "documents")
    'no interval: 4 documents, 10 are needed'
    """
    return f"no interval: {count:,} {unit}, {needed:,} are needed" if count < needed else ""
