"""Short texts: they crowd the top results, because their vectors say one thing loudly."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.vectors import LENGTH_OFFSET
from poolscope.auditing.search import Search
from poolscope.errors import InputError
from poolscope.metrics.length.search import SHUFFLES, retrieval_by_length

_PLACES, _FEWEST = 4 * 10**7, 39  # places that are held for shuffles; 39 shuffles have a 95 % range


def crowding(search: Search) -> Symptom | None:
    """How often the shortest fifth is among the wrong results, as a multiple of its share of the texts."""
    if not len(search) or not len(search.texts):
        return None
    whole = search.lengths + search.truncated
    try:
        found = retrieval_by_length(
            search.query_vectors,
            search.vectors,
            search.judgements.relevant,
            search.lengths,
            truncated=search.truncated,
            k=search.k,
            groups=search.documents,
            shuffles=int(np.clip(_PLACES // len(search.texts), _FEWEST, SHUFFLES)),
            seed=search.seed,
        )
    except InputError:  # fewer texts than results
        return None
    ratio = found.shortest.ratio
    if found.unjudged or ratio.value is None:
        return None
    longer = whole > np.quantile(whole, 0.2)
    return Symptom(ratio, longer, values={"ratio": ratio, "k": search.k})


SHORT_TEXTS = Cause(
    "short-texts",
    title="Short texts",
    page="causes.md#short-texts",
    symptom=crowding,
    cures=(LENGTH_OFFSET,),
    words=Words(
        present="Short texts crowd the wrong results: the shortest fifth is there {ratio:times} times as often as "
        "chance has it.",
        absent="Short texts are among the wrong results no more often than chance has it.",
        unlooked="The texts are too few, or of one length.",
        number="short texts in wrong results",
        form="times",
        marked="{affected:count} of {answers:count relevant text} {affected:number is} longer than the shortest fifth.",
    ),
)
