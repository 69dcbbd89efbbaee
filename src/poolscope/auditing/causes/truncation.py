"""Truncation: the model stops reading before a text ends."""

from __future__ import annotations

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.encoding import CHUNKS_THAT_FIT
from poolscope.auditing.search import Search
from poolscope.encoders.capabilities import longest_of
from poolscope.numbers.intervals import share_estimate


def share_truncated(search: Search) -> Symptom | None:
    """The share of texts that the model does not read to their end."""
    if not search.counts_tokens:
        return None
    texts = search.truncated > 0
    lost, whole = int(search.truncated.sum()), int((search.lengths + search.truncated).sum())
    values = {
        "count": int(texts.sum()),
        "texts": len(texts),
        "limit": longest_of(search.encoder) or int(search.lengths.max()),
        "tokens": lost,
        "token_share": lost / whole,
    }
    return Symptom(share_estimate(texts.astype(float), units=search.documents, each="texts"), texts, values=values)


TRUNCATION = Cause(
    "truncation",
    title="Truncation",
    page="causes.md#truncation",
    symptom=share_truncated,
    cures=(CHUNKS_THAT_FIT,),
    stage="texts",
    words=Words(
        present="{count:count} of {texts:count text} {count:number is} longer than {limit:count token}: the model "
        "never reads {tokens:count token} ({token_share:percent} of all).",
        absent="The model reads every text to its end.",
        unlooked="The tokens of the texts were not counted.",
        number="texts truncated",
        marked="{affected:count} of {answers:count relevant text} {affected:number is} truncated.",
    ),
)
