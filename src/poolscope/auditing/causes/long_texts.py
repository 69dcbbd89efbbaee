"""Long texts: their vectors look more alike, because a mean of many tokens moves towards the mean of all."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.encoding import TEMPERATURE
from poolscope.auditing.cures.late import LATE_CHUNKS
from poolscope.auditing.search import Search
from poolscope.errors import InputError
from poolscope.metrics.length.profile import length_profile


def slope_of_length(search: Search) -> Symptom | None:
    """How much the mean cosine of texts rises with each doubling of their length."""
    if not len(search.texts):
        return None
    try:
        groups = None if search.documents is None else search.documents.tolist()
        slope = length_profile(
            search.vectors, search.lengths, groups=groups, texts=search.texts, seed=search.seed
        ).slope
    except InputError:  # too few texts, or all of one length
        return None
    if slope.value is None:
        return None
    longest = search.lengths >= max(np.quantile(search.lengths, 0.8), np.median(search.lengths) + 1)
    return Symptom(slope, longest, values={"slope": slope})


LONG_TEXTS = Cause(
    "long-texts",
    title="Long texts",
    page="causes.md#long-texts",
    symptom=slope_of_length,
    cures=(*LATE_CHUNKS, TEMPERATURE),
    words=Words(
        present="Longer texts look more alike: their mean cosine rises by {slope:score} with each doubling of length.",
        absent="Longer texts look no more alike than short ones.",
        unlooked="Too few texts, or all of one length.",
        number="cosine per doubled length",
        form="signed",
        marked="{affected:count} of {answers:count relevant text} {affected:number is} among the longest fifth.",
    ),
)
