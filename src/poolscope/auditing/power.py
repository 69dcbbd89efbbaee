"""What the number of queries at hand can show, said before anything is encoded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poolscope.auditing.words import fill
from poolscope.numbers import Index
from poolscope.numbers.intervals import ON_THESE_TEXTS, query_units

_USUAL = 0.8
"""The smallest gain in nDCG that a trial would have shown, times √units: the median of the audits that
`benchmarks/held_back.py` makes, of which eight in ten lie between 0.57 and 0.93."""
_SHOWS = "a gain in nDCG@{k:count} of {gain:score} or more usually shows."
_BY_DOCUMENTS = f"{{queries:count query}} about {{units:count document}}: {_SHOWS}"
_BY_GROUPS = f"{{queries:count query}} in {{units:count group}} that share no relevant text: {_SHOWS}"
_ALONE = f"{{queries:count query}}: {_SHOWS}"
_ON_THESE_TEXTS = f"{{queries:count query}}, which share many relevant texts: {_SHOWS}"
_SHOWN = "With {queries:count query}, only a change of {smallest:score} or more would have shown."
_NONE_SHOWN = "No change could have shown with {queries:count query}."
POWER_WORDS = (_BY_DOCUMENTS, _BY_GROUPS, _ALONE, _ON_THESE_TEXTS, _SHOWN, _NONE_SHOWN)


def usual_reach(units: int) -> float:
    """The smallest gain in nDCG that queries about so many documents or texts usually prove.

    >>> usual_reach(100)
    0.08
    """
    return _USUAL / math.sqrt(max(units, 1))


def shown_sentence(queries: int, smallest: float) -> str:
    """What a trial could have shown: no change of nDCG is larger than 1.

    >>> shown_sentence(188, 0.051), shown_sentence(2, 1.1)
    ('With 188 queries, only a change of 0.051 or more would have shown.', 'No change could have shown with 2 queries.')
    """
    return fill(_SHOWN if smallest < 1 else _NONE_SHOWN, {"queries": queries, "smallest": smallest})


def reach_sentence(relevant: Index, documents: Sequence[str] | None, *, k: int) -> str:
    """What queries can show, in words, from their judgements (query, text) and the document of each text.

    >>> import numpy as np
    >>> reach_sentence(np.array([[0, 0], [1, 2], [2, 3]]), ["a", "a", "b", "b"], k=10)
    '3 queries about 2 documents: a gain in nDCG@10 of 0.566 or more usually shows.'
    """
    units = query_units(relevant, documents)
    values = {"queries": len(units.of), "units": len(units), "k": k, "gain": usual_reach(len(units))}
    words = {"documents": _BY_DOCUMENTS, "query groups": _BY_GROUPS, "queries": _ALONE, ON_THESE_TEXTS: _ON_THESE_TEXTS}
    return fill(words[units.name], values)
