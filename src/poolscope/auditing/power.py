"""What the number of queries at hand can show, said before anything is encoded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poolscope.auditing.words import fill
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import FEWEST_PAIRED, ON_THESE_TEXTS, query_units

_USUAL = 0.8
"""The smallest gain in nDCG that a trial would have shown, times √queries that are units: the median of the audits that
`benchmarks/held_back.py` makes, of which eight in ten lie between 0.57 and 0.93."""
_QUERIES = {
    "queries": "{queries:count query}",
    "documents": "{queries:count query} about {units:count document}",
    "query groups": "{queries:count query} in {units:count group} that share no relevant text",
    ON_THESE_TEXTS: "{queries:count query}, which share many relevant texts",
}
"""What the queries are, by the unit of their intervals."""
_SHOWS = "a gain in nDCG@{k:count} of {gain:score} or more usually shows."
_SHOWS_NONE = "too few to prove a gain, whatever its size."
_SHOWN = "only a change of {smallest:score} or more would have shown."
_SHOWN_NONE = "no change could have shown."
POWER_WORDS = tuple(
    words
    for name in _QUERIES.values()
    for words in (
        f"{name}: {_SHOWS}",
        f"{name}: {_SHOWS_NONE}",
        f"With {name}, {_SHOWN}",
        f"With {name}, {_SHOWN_NONE}",
    )
)


_ALIKE = 0.05
"""How much the gains of two queries of one unit correlate; on the manuals no correlation is seen."""


def usual_reach(sizes: Array) -> float:
    """The smallest gain in nDCG that queries usually prove, from the number of queries of each unit.

    Queries of one unit count for less, by the design effect of Kish (1965, Survey Sampling).

    >>> import numpy as np
    >>> round(usual_reach(np.ones(100)), 4), round(usual_reach(np.full(50, 2)), 4)
    (0.08, 0.082)
    """
    queries = float(sizes.sum())
    alike = (sizes**2).sum() / queries - 1  # others of its unit, for a mean query
    return _USUAL * math.sqrt((1 + _ALIKE * alike) / queries)


def shown_sentence(queries: int, smallest: float, *, units: int = 0, unit: str = "queries") -> str:
    """What a trial could have shown: no change of nDCG is larger than 1. `unit` is that of its interval.

    >>> shown_sentence(188, 0.051)
    'With 188 queries, only a change of 0.051 or more would have shown.'
    >>> shown_sentence(170, 1.0, units=7, unit="documents")
    'With 170 queries about 7 documents, no change could have shown.'
    """
    words = f"With {_QUERIES[unit]}, {_SHOWN if smallest < 1 else _SHOWN_NONE}"
    return fill(words, {"queries": queries, "smallest": smallest, "units": units})


def reach_sentence(relevant: Index, documents: Sequence[str] | None, *, k: int) -> str:
    """What queries can show, in words, from their judgements (query, text) and the document of each text.

    >>> import numpy as np
    >>> reach_sentence(np.array([[0, 0], [1, 2], [2, 3]]), ["a", "a", "b", "b"], k=10)
    '3 queries about 2 documents: too few to prove a gain, whatever its size.'
    """
    units = query_units(relevant, documents)
    values = {"queries": len(units.of), "units": len(units), "k": k, "gain": usual_reach(units.sizes)}
    return fill(f"{_QUERIES[units.name]}: {_SHOWS if len(units) >= FEWEST_PAIRED else _SHOWS_NONE}", values)
