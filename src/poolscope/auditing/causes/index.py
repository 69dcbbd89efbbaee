"""Rows of an index: some cannot be found, whatever is asked, or have the vector of another text."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import SHOWN, Cause, Symptom, Words
from poolscope.auditing.search import Search
from poolscope.connectors import Collection
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.lengths import odd_lengths
from poolscope.texts.groups import plain_text


def share_of_bad_rows(search: Search) -> Symptom | None:
    """The share of rows without a usable vector, of another length than the others, or with another text's vector."""
    collection = search.collection
    if collection is None:
        return None
    lengths = np.linalg.norm(np.asarray(collection.vectors, np.float64), axis=1)
    odd = np.zeros(len(collection), bool)
    if collection.distance in ("dot", "l2"):  # by cosine the length counts for nothing
        odd[odd_lengths(lengths)] = True
    shared = _shared(collection)
    marked = ((odd, "another length"), (shared, "the vector of another text"))
    named = [f"{collection.ids[k]}: {reason}" for rows, reason in marked for k in np.flatnonzero(rows)[:SHOWN].tolist()]
    broken = collection.fault_count + len(collection.without_vector)
    total = collection.rows + len(collection.without_vector)
    count = broken + int((odd | shared).sum())
    values = {
        "count": count,
        "rows": total,
        "broken": broken,
        "odd": int(odd.sum()),
        "shared": int(shared.sum()),
        "examples": [*(f"{name}: {reason}" for name, reason in collection.aside), *named][:SHOWN],
    }
    number = Estimate(count / max(total, 1), floor=0.0)
    return Symptom(number, odd | shared, values=values, defect=count > 0)


def _shared(collection: Collection) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows whose vector equals, bit by bit, that of a different text."""
    groups: dict[bytes, list[int]] = {}
    for position, row in enumerate(np.ascontiguousarray(collection.vectors)):
        groups.setdefault(row.tobytes(), []).append(position)
    texts, shared = collection.texts, np.zeros(len(collection), bool)
    for group in groups.values():
        if len(group) > 1 and texts is not None and len({plain_text(texts[k]) for k in group}) > 1:
            shared[group] = True
    return shared


INDEX = Cause(
    "index",
    title="Rows of the index",
    page="causes.md#index",
    symptom=share_of_bad_rows,
    cures=(),
    stage="index",
    words=Words(
        present="{count:count} of {rows:count row} {count:number is} wrong: {broken:count} without a usable vector, "
        "{odd:count} of another length, {shared:count} with the vector of another text.",
        absent="Every row of the index has a usable vector of its own.",
        unlooked="No index was named.",
        number="rows that are wrong",
        marked="{affected:count} of {answers:count relevant text} {affected:number has} a row that is wrong.",
    ),
)
