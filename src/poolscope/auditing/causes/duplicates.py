"""Duplicates: equal texts take several places among the results."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.vectors import MERGED
from poolscope.auditing.search import Search
from poolscope.numbers.intervals import share_estimate

DEFECT = 0.1
"""The share of repeated texts from which on an index is wrong whatever the queries say."""


def share_repeated(search: Search) -> Symptom | None:
    """The share of texts that equal an earlier one but for letter case and blanks."""
    if not len(search.texts):
        return None
    repeated = search.first_equal != np.arange(len(search.texts))
    values = {"count": int(repeated.sum()), "texts": len(repeated)}
    number = share_estimate(repeated.astype(float), units=search.documents, each="texts")
    return Symptom(number, values=values, defect=bool(repeated.mean() >= DEFECT))


DUPLICATES = Cause(
    "duplicates",
    title="Duplicates",
    page="causes.md#duplicates",
    symptom=share_repeated,
    cures=(MERGED,),
    stage="texts",
    words=Words(
        present="{count:count} of {texts:count text} {count:number is} a copy of another.",
        absent="No text is a copy of another.",
        unlooked="The texts are not at hand.",
        number="texts that repeat another",
    ),
)
