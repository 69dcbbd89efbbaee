"""Approximate search: the index misses texts that are nearest."""

from __future__ import annotations

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.search import Search
from poolscope.metrics.queries import search_recall
from poolscope.numbers.intervals import Estimate, Interval

FEWEST = 100
"""Vectors from which on an approximate search saves anything."""


def share_missed(search: Search) -> Symptom | None:
    """The share of the nearest texts that the index does not find as it is set."""
    collection = search.collection
    find = None if collection is None else collection.search
    if collection is None or find is None or find.exact or len(collection) < FEWEST:
        return None
    if len(collection) + collection.fault_count < collection.rows:  # what is nearest is known of all vectors only
        return None
    measured = search_recall(
        collection.vectors,
        collection.ids,
        find.find,
        distance=collection.distance or "cosine",
        values=(None, *find.values),
        current=find.current,
        kind=find.kind,
        setting=find.setting,
        k=search.k,
        seed=search.seed,
    )
    recall, enough = measured.in_use.recall, measured.reaching()
    around = recall.interval
    missed = Estimate(
        1 - recall.value_or_raise,
        None
        if around is None
        else Interval(1 - around.high, 1 - around.low, around.level, around.answers, around.method, around.unit),
        floor=0.0,
    )
    setting = f"{measured.setting} {enough.value}" if enough is not None else "a larger index"
    values = {"missed": missed, "k": search.k, "kind": measured.kind[:24], "setting": setting}
    return Symptom(missed, values=values)


RECALL = Cause(
    "recall",
    title="Approximate search",
    page="causes.md#recall",
    symptom=share_missed,
    cures=(),
    stage="index",
    words=Words(
        present="The index ({kind}) misses {missed:percent} of the {k:count} nearest texts; {setting} would find 99%.",
        absent="The index finds the nearest texts.",
        unlooked="No approximate index was named.",
        number="nearest texts that are missed",
    ),
)
