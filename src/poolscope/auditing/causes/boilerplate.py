"""Boilerplate: most texts begin or end with the same words."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.encoding import STRIPPED, shared_words
from poolscope.auditing.search import Search
from poolscope.numbers.intervals import share_estimate


def share_of_boilerplate(search: Search) -> Symptom | None:
    """The share of texts that begin or end with words that at least half of the texts share."""
    if not len(search.texts):
        return None
    shared = shared_words(search)
    texts = np.array([bool(shared) and shared.parted(text)[1] != text for text in search.texts])
    words = len(f"{shared.head} {shared.tail}".split())
    values = {"count": int(texts.sum()), "texts": len(texts), "words": words}
    return Symptom(share_estimate(texts.astype(float), units=search.documents, each="texts"), texts, values=values)


BOILERPLATE = Cause(
    "boilerplate",
    title="Boilerplate",
    page="causes.md#boilerplate",
    symptom=share_of_boilerplate,
    cures=(STRIPPED,),
    stage="texts",
    words=Words(
        present="{count:count} of {texts:count text} {count:number has} the same {words:count word} at the start or "
        "the end.",
        absent="Texts do not begin or end with the same words.",
        unlooked="The texts are not at hand.",
        number="texts with shared words",
        marked="{affected:count} of {answers:count relevant text} {affected:number has} such words.",
    ),
)
