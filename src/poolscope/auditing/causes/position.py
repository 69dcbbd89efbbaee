"""Position: a vector shows more of the beginning of a text than of its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.late import LATE_CHUNKS, MAXSIM
from poolscope.auditing.search import Search
from poolscope.numbers import Index
from poolscope.numbers.intervals import mean_estimate
from poolscope.numbers.ranking import unit_rows

QUARTERS = 4
SHORTEST = 64
"""Tokens of a text from which on its quarters are told apart."""


def lead_of_the_start(search: Search) -> Symptom | None:
    """How much nearer a vector is to the first quarter of its text than to the last, over the relevant texts."""
    if not len(search) or search.pooling.name != "mean" or not search.has_tokens:
        return None
    texts = np.unique(search.before.text)
    texts = texts[search.lengths[texts] >= SHORTEST]
    if len(texts) < 2:
        return None
    parts = []
    for _, clouds in search.tokens_of(texts):
        for block in clouds.blocks():
            lengths = np.diff(block.offsets)[:, None]
            starts = block.offsets[:-1, None] + lengths * np.arange(QUARTERS) // QUARTERS
            parts.append(search.pooling.vectors(block.matrix, np.append(starts, block.offsets[-1])))
    quarters = unit_rows(np.concatenate(parts), "quarters").reshape(len(texts), QUARTERS, -1)
    near = np.einsum("td,tqd->tq", search.vectors[texts], quarters)
    groups = None if search.documents is None else search.documents[texts]
    lead = replace(mean_estimate(near[:, 0] - near[:, -1], groups), floor=0.0)
    return Symptom(lead, answers=_late(search, texts, quarters), values={"lead": lead, "count": len(texts)})


def _late(search: Search, texts: Index, quarters: NDArray[np.float32]) -> NDArray[np.bool_]:
    """The rows whose query is nearest to the last quarter of the relevant text."""
    place = np.searchsorted(texts, search.before.text)
    known = np.isin(search.before.text, texts)
    late = np.zeros(len(known), bool)
    near = np.einsum("rd,rqd->rq", search.query_vectors[search.judgements.query[known]], quarters[place[known]])
    late[known] = near.argmax(axis=1) == QUARTERS - 1
    return late


POSITION = Cause(
    "position",
    title="End of a text",
    page="causes.md#position",
    symptom=lead_of_the_start,
    cures=(),
    shared=(*LATE_CHUNKS, MAXSIM),
    words=Words(
        present="A vector shows more of the start of a text than of its end: the cosines differ by {lead:score}.",
        absent="A vector shows the end of a text as well as its start.",
        unlooked="Too few relevant texts are long enough, or the model does not pool by a mean.",
        number="lead of the start of a text",
        form="signed",
        marked="For {affected:count} of {answers:count relevant text}, the last quarter is nearest to the query.",
    ),
)
