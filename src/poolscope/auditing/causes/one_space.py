"""Vectors of another origin: an index that two models wrote, told by the words of its texts alone."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import SHOWN, Cause, Symptom, Words
from poolscope.auditing.search import Search
from poolscope.metrics.one_space import FEWEST_TEXTS, one_space


def share_of_another_origin(search: Search) -> Symptom | None:
    """Share of vectors that the words of their texts do not predict, where the other vectors are predicted.

    Where the model of the index is named, the cause `server` compares row by row, which says more.
    """
    if search.collection is None or len(search.texts) < FEWEST_TEXTS or search.runtime is not None:
        return None
    groups = None if search.documents is None else search.documents.tolist()
    measured = one_space(search.vectors, search.texts, groups=groups, seed=search.seed)
    if measured.other.value is None:
        return None
    texts = np.zeros(len(search.texts), bool)
    texts[measured.strays] = True
    values = {
        "count": int(texts.sum()),
        "texts": measured.texts,
        "rows": [int(k) for k in measured.strays],
        "examples": [str(search.text_ids[k]) for k in measured.strays[:SHOWN]] if len(search.text_ids) else [],
    }
    return Symptom(measured.other, texts, values=values, defect=measured.above_floor)


ONE_SPACE = Cause(
    "one_space",
    title="Mixed models",
    page="causes.md#mixed-models",
    symptom=share_of_another_origin,
    cures=(),
    stage="index",
    words=Words(
        present="{count:count} of {texts:count vector} {count:number is} of another origin than the rest: "
        "the words of their texts do not predict them.",
        absent="By the words of their texts, all vectors of the index are of one origin.",
        unlooked="This needs an index without --reference, with 100 texts whose words predict their vectors.",
        number="vectors of another origin",
        marked="{affected:count} of {answers:count relevant text} {affected:number has} a vector of another origin.",
    ),
)
