"""Averaging: what distinguishes two texts lies in how their tokens spread, and the mean does not show it."""

from __future__ import annotations

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.late import MAXSIM
from poolscope.auditing.search import Search
from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.floor import dealt_pairs
from poolscope.numbers import Index
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.numbers.streaming import marks_of, pair_marks, smallest

MOST_PAIRS = 100
"""Pairs of a relevant text and a wrong one that are looked at."""
LEVEL = 0.05


def hidden_differences(search: Search) -> Symptom | None:
    """The share of confused pairs whose token clouds differ by more than dealing their tokens at random gives."""
    if not len(search) or not search.has_tokens:
        return None
    pairs = confused_pairs(search)
    if len(pairs) < 2:
        return None
    texts = np.unique(pairs)
    clouds = TokenClouds.concatenate([part for _, part in search.tokens_of(texts)])
    _, dealt = dealt_pairs(clouds, np.searchsorted(texts, pairs), seed=search.seed)
    differ = dealt.p <= LEVEL
    groups = pairs[:, 0] if search.documents is None else search.documents[pairs[:, 0]]
    share = share_estimate(differ.astype(float), units=groups, each="pairs")
    number = Estimate(share.value, share.interval, floor=LEVEL)
    return Symptom(number, values={"count": int(differ.sum()), "pairs": len(pairs), "share": number})


def confused_pairs(search: Search) -> Index:
    """Pairs of a relevant text and a wrong one that ranks first before it; at most so many, drawn by their words."""
    judged = search.judgements
    best = search.before.text[np.lexsort((search.before.rank, judged.query))]
    query = np.sort(judged.query)
    first = np.unique(query, return_index=True)[1]
    relevant = best[first]
    keys = set((judged.relevant[:, 0] * judged.texts + judged.relevant[:, 1]).tolist())
    wrong = [
        next((text for text in row if number * judged.texts + text not in keys), -1)
        for number, row in enumerate(search.first.tolist())
    ]
    pairs = np.stack([relevant, np.array(wrong)], axis=1)
    own = np.einsum("qd,qd->q", search.query_vectors, search.vectors[relevant])
    other = np.einsum("qd,qd->q", search.query_vectors, search.vectors[pairs[:, 1]])
    pairs = np.unique(pairs[(pairs[:, 1] >= 0) & (other > own)], axis=0)
    if len(pairs) <= MOST_PAIRS:
        return pairs
    texts, places = np.unique(pairs, return_inverse=True)
    marks = marks_of([search.texts[k] for k in texts], seed=search.seed)[places.reshape(pairs.shape)]
    return np.asarray(pairs[smallest(pair_marks(*marks.T), MOST_PAIRS)])


AVERAGING = Cause(
    "averaging",
    title="Averaging",
    page="causes.md#averaging",
    symptom=hidden_differences,
    cures=(MAXSIM,),
    words=Words(
        present="Of {pairs:count pair} of a relevant text and a wrong one above it, {count:count} differ in ways that "
        "averages hide.",
        absent="Texts that are confused differ no more in their tokens than chance has it.",
        unlooked="No query ranks a wrong text above a relevant one, or tokens are not at hand.",
        number="confused pairs that differ",
    ),
)
