"""Tasks that need no labels. They screen repairs of one model; they do not tell which of two models is better."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.evaluation.tasks import RetrievalTask
from poolscope.texts import read_pairs
from poolscope.texts.records import BUILTIN

# Words that a text needs to be cut in two.
MIN_WORDS = 8


class Halves(NamedTuple):
    """First halves as queries, second halves as documents, and who belongs to whom: (k, k) for every k."""

    queries: list[str]
    documents: list[str]
    relevant: NDArray[np.int64]


def split_half(texts: Sequence[str], *, min_words: int = MIN_WORDS) -> Halves:
    """Cut each text in the middle, between words; its first half shall find its second half.

    Left out are texts of fewer than `min_words` words, and those that share a half with another text, which no model
    could tell apart; how many is the difference of the lengths.

    >>> split_half(["a b c d e f g h", "short", "i j k l m n o p q"]).documents
    ['e f g h', 'm n o p q']
    """
    cut = [half for text in texts if (half := _cut(text, min_words)) is not None]
    starts, ends = (Counter(side) for side in zip(*cut, strict=True)) if cut else (Counter[str](), Counter[str]())
    alone = [(start, end) for start, end in cut if starts[start] == ends[end] == 1]
    if len(alone) < 2:
        raise InputError(
            f"received {len(texts)} texts of which {len(alone)} can be cut into halves of their own; needed: at least "
            f"2 different texts of {min_words} words or more. Pass longer texts, or pairs of a query and a document."
        )
    positions = np.arange(len(alone))
    return Halves([start for start, _ in alone], [end for _, end in alone], np.stack([positions, positions], axis=1))


def _cut(text: str, min_words: int) -> tuple[str, str] | None:
    words = list(_words(text))
    if len(words) < max(min_words, 2):
        return None
    middle = words[len(words) // 2]
    return text[:middle].strip(), text[middle:].strip()


def _words(text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(r"\S+", text))


def split_half_task(texts: Sequence[str], *, min_words: int = MIN_WORDS, k: int = 10) -> RetrievalTask:
    """Split-half self-retrieval as a task; the notes count the texts that could not be cut."""
    halves = split_half(texts, min_words=min_words)
    left_out = len(texts) - len(halves.queries)
    note = (
        f"{left_out:,} of {len(texts):,} texts left out: shorter than {min_words} words, or a half shared with another."
    )
    return RetrievalTask(*halves, name="split-half", k=k, roles=(None, None), notes=(note,) if left_out else ())


def summary_body_task(*, sample: int | None = None, seed: int = 0, k: int = 10) -> RetrievalTask:
    """Summary → body of the docstrings of the built-in corpus: the first paragraph finds the rest."""
    pairs = read_pairs(BUILTIN, sample=sample, seed=seed)
    return RetrievalTask(pairs.queries, pairs.documents, pairs.index, name="summary-body", k=k)
