"""Language: the tokenizer breaks the words of a text into many pieces, because it was made for another language."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.search import Search
from poolscope.encoders.capabilities import has, tokenizer_of
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate, mean_estimate
from poolscope.texts import read_texts
from poolscope.texts.records import BUILTIN

_WORD = re.compile(r"\w+|[^\w\s]")
_SAMPLE = 200
_LONGEST = 15
"""Characters of a mean word beyond which a text has no blanks between its words, and words cannot be counted."""


def tokens_a_word(search: Search) -> Symptom | None:
    """Tokens for each word and sign of a text, beside those of the English that comes with poolscope."""
    if not has(search.encoder, "tokenize") or not search.counts_tokens:
        return None
    words = np.array([len(_WORD.findall(text)) for text in search.texts])
    sizes = np.array([len(text) for text in search.texts])
    known = words > 0
    if not known.any() or sizes[known].sum() / words[known].sum() > _LONGEST:
        return None
    rates = (search.lengths + search.truncated) / np.maximum(words, 1)
    usual = _of_texts(search, read_texts(BUILTIN, limit=_SAMPLE, seed=0).texts)
    groups = None if search.documents is None else search.documents[known]
    mean = mean_estimate(rates[known], groups)
    low, high = np.quantile(usual, [0.025, 0.975])
    number = Estimate(mean.value, mean.interval, float(usual.mean()), float(low), float(high))
    values = {"rate": number, "usual": number.floor, "model": search.encoder.card.name.rpartition("/")[2][:32]}
    return Symptom(number, known & (rates > high), values=values)


def _of_texts(search: Search, texts: Sequence[str]) -> Array:
    lengths = tokenizer_of(search.encoder).tokenize(list(texts), None).lengths
    return np.asarray(lengths / np.maximum([len(_WORD.findall(text)) for text in texts], 1))


LANGUAGE = Cause(
    "language",
    title="Language",
    page="causes.md#language",
    symptom=tokens_a_word,
    cures=(),
    stage="texts",
    words=Words(
        present="The tokenizer needs {rate:times} tokens a word here, and {usual:times} for English: try a model for "
        "your language.",
        absent="The tokenizer needs {rate:times} tokens a word here, about as many as for English.",
        unlooked="The model has no tokenizer here, or the texts have no blanks between words.",
        number="tokens a word",
        form="times",
        marked="{affected:count} of {answers:count relevant text} {affected:number is} broken into more pieces a word "
        "than English.",
        floor="for English",
    ),
)
