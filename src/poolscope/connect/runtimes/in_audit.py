"""Server or index: your runtime's vectors of the texts differ from the model's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cause import SHOWN, Cause, Symptom, Words
from poolscope.auditing.search import Search
from poolscope.connect.runtimes.causes import Reference
from poolscope.connect.runtimes.match import Index, RuntimeMatch, match_reference
from poolscope.numbers.intervals import share_estimate

SAMPLE = 200
"""Texts that are re-encoded, one of each of so many stretches of the rows."""


def share_of_other_vectors(search: Search) -> Symptom | None:
    """The share of texts whose vector from a server or an index is not the model's."""
    if search.runtime is None or not search.can_encode or not len(search.texts):
        return None
    rows = sampled_rows(len(search.texts), SAMPLE, seed=search.seed)
    whole = len(rows) == len(search.texts)
    match = match_reference(
        Reference(search.encoder, [search.texts[k] for k in rows.tolist()], clouds=search.tokens if whole else None),
        search.runtime[rows],
        seed=search.seed,
        index=Index(search.runtime, rows, search.text_ids or None),
    )
    texts = np.zeros(len(rows), bool)
    texts[list(match.differ)] = True
    values = {
        "count": int(texts.sum()),
        "texts": len(texts),
        "explained": explanation(match)[:60],
        "cosine": match.own.cosine,
        "kinds": {} if match.by_row is None else match.by_row.counts,
        "order": "" if match.by_row is None else match.by_row.order,
        "examples": [str(search.text_ids[k]) for k in rows[texts][:SHOWN]] if len(search.text_ids) else [],
    }
    documents = None if search.documents is None else search.documents[rows]
    number = share_estimate(texts.astype(float), units=documents, each="texts")
    return Symptom(number, texts if whole else None, values=values, defect=bool(texts.any()))


def explanation(match: RuntimeMatch) -> str:
    """Name in a few words why vectors differ: a cause, another order of rows, or the commonest kind of row."""
    rest = None if match.rest is None else match.rest.cause
    by_row = match.by_row
    if by_row is not None and by_row.main == "moved":
        return by_row.explained
    cause = match.cause or rest
    if cause is not None:
        return f"pooled by {cause.name}" if cause.kind == "pooling" else cause.name
    return "unknown" if by_row is None else by_row.explained


def sampled_rows(count: int, size: int, *, seed: int) -> NDArray[np.int64]:
    """One row of each of `size` stretches, in their order; all where there are no more.

    At even distances every second row could be seen up to a place and never after it, as if something began there.
    """
    if count <= size:
        return np.arange(count)
    edges = np.linspace(0, count, size + 1).round().astype(np.int64)
    return np.asarray(np.random.default_rng(seed).integers(edges[:-1], edges[1:]))


SERVER = Cause(
    "server",
    title="Server or index",
    page="causes.md#server",
    symptom=share_of_other_vectors,
    cures=(),
    stage="index",
    words=Words(
        present="Your server or index has other vectors than the model for {count:count} of {texts:count text}: "
        "{explained}.",
        absent="Your server or index has the vectors of the model.",
        unlooked="No vectors of a server or an index were named.",
        number="texts with other vectors",
    ),
)
