"""Hubs: a few texts come back for very many queries."""

from __future__ import annotations

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.vectors import HUBS_BY_QUERIES, HUBS_BY_TEXTS
from poolscope.auditing.search import Search
from poolscope.metrics.neighbourhood import hubs


def largest_hub(search: Search) -> Symptom | None:
    """The share of queries that have the most frequent text among their top results."""
    if len(search.vectors) <= search.k + 1 or 0 < len(search) < 10:
        return None
    asking = search.query_vectors if len(search) else None  # without queries every text asks for its neighbours
    found = hubs(search.vectors, k=search.k, queries=asking, seed=search.seed)
    values = {"share": found.largest, "k": search.k, "never": found.antihubs, "chance": found.largest.floor}
    return Symptom(found.largest, values=values)


HUBS = Cause(
    "hubs",
    title="Hubs",
    page="causes.md#hubs",
    symptom=largest_hub,
    cures=(HUBS_BY_QUERIES, HUBS_BY_TEXTS),
    words=Words(
        present="One text is in the top {k:count} of {share:percent} of the queries; chance gives {chance:percent}.",
        absent="No text comes back too often: the most frequent is in the top {k:count} of {share:percent} of the "
        "queries.",
        unlooked="Too few texts or queries to tell.",
        number="queries with the first hub",
    ),
)
