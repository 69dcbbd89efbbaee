"""Shared direction: all vectors share a part, which tells no text from another."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.vectors import MEAN_PROJECTED, MEAN_SUBTRACTED
from poolscope.auditing.search import Search
from poolscope.metrics.scores import cone
from poolscope.numbers.intervals import Estimate


def mean_cosine(search: Search) -> Symptom | None:
    """The mean cosine of two texts; 0 for vectors without a preferred direction."""
    if len(search.vectors) < 3:
        return None
    shared = cone(search.vectors, groups=None if search.documents is None else search.documents.tolist())
    number = Estimate(shared.mean_cosine.value, shared.mean_cosine.interval, floor=0.0)
    length = float(np.linalg.norm(search.vectors.mean(axis=0)))
    return Symptom(number, values={"cosine": number, "length": length})


SHARED_DIRECTION = Cause(
    "shared-direction",
    title="Shared direction",
    page="causes.md#shared-direction",
    symptom=mean_cosine,
    cures=(MEAN_PROJECTED, MEAN_SUBTRACTED),
    words=Words(
        present="All vectors share a direction, which makes up {length:percent} of their length (mean cosine "
        "{cosine:score}).",
        absent="The vectors share no direction.",
        unlooked="Too few texts to tell.",
        number="mean cosine of two texts",
        form="score",
    ),
)
