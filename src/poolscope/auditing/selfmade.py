"""Self-made queries: a title, a heading or a sentence of a text asks for the text, which then goes without it.

They stand in for queries that nobody has yet, and are called self-made everywhere. Texts are changed before they are
encoded, so that nothing is encoded twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poolscope.numbers.streaming import marks_of
from poolscope.texts.groups import first_of_equal
from poolscope.texts.queries import JudgedQueries

MOST = 300
"""Texts that are asked for."""
FEWEST = 20
"""Queries that a kind must give; otherwise the next kind is tried."""
_HEADING = (2, 12)
_SENTENCE = (5, 30)
_REST = 12
_END = re.compile(r"(?<=[.!?。！？])\s+")


@dataclass(frozen=True)
class SelfMade:
    """Queries made from texts, and the texts as they are searched, without what became a query."""

    kind: str
    queries: JudgedQueries
    texts: list[str]


def make_queries(
    texts: Sequence[str], *, titles: Sequence[str | None] | None = None, most: int = MOST, seed: int = 0
) -> SelfMade | None:
    r"""Queries from the titles of texts, from their headings, or from a sentence of each; None for too few.

    >>> body = "Take a brush and go on until the whole wall is done. " * 2
    >>> texts = [f"How to paint room {k}\n{body}" for k in range(30)]
    >>> made = make_queries(texts)
    >>> made.kind, len(made.queries), made.texts[0][:12]
    ('heading', 30, 'Take a brush')
    """
    marks = marks_of(list(texts), seed=seed)
    order = np.argsort(marks, kind="stable")
    distinct = set(np.unique(first_of_equal(texts)).tolist())
    order = np.array([k for k in order.tolist() if k in distinct], dtype=np.int64)
    for kind, take in (("title", None), ("heading", _heading), ("sentence", _sentence)):
        if take is None:
            pairs = _of_titles(titles, order)
        else:
            cut = {k: parts for k in order[: 4 * most].tolist() if (parts := take(texts[k], int(marks[k]))) is not None}
            pairs = [(query, k, rest) for k, (query, rest) in cut.items()]
            if kind == "heading" and 2 * len(pairs) < len(order[: 4 * most]):
                continue
        made = _gathered(kind, pairs[:most], texts)
        if made is not None:
            return made
    return None


def _of_titles(titles: Sequence[str | None] | None, order: np.ndarray) -> list[tuple[str, int, str | None]]:
    if titles is None:
        return []
    return [(str(title).strip(), k, None) for k in order.tolist() if (title := titles[k]) and str(title).strip()]


def _heading(text: str, mark: int) -> tuple[str, str] | None:
    """A short first line without a full stop, and the rest of the text."""
    line, _, rest = text.strip().partition("\n")
    heading = line.strip().strip("#=*- ").strip()
    words = len(heading.split())
    if not _HEADING[0] <= words <= _HEADING[1] or heading.endswith((".", ",", ";")) or len(rest.split()) < _REST:
        return None
    return heading, rest.strip()


def _sentence(text: str, mark: int) -> tuple[str, str] | None:
    """A sentence out of three or more, drawn by the mark of the text, and the text without it."""
    sentences = [part for part in _END.split(text.strip()) if part.strip()]
    fit = [k for k, part in enumerate(sentences) if _SENTENCE[0] <= len(part.split()) <= _SENTENCE[1]]
    if len(sentences) < 3 or not fit:
        return None
    chosen = fit[mark % len(fit)]
    rest = " ".join(sentences[:chosen] + sentences[chosen + 1 :])
    return (" ".join(sentences[chosen].split()), rest) if len(rest.split()) >= _REST else None


def _gathered(kind: str, pairs: Sequence[tuple[str, int, str | None]], texts: Sequence[str]) -> SelfMade | None:
    """The queries, each distinct one once, with all texts that it was made from."""
    places: dict[str, list[int]] = {}
    changed = list(texts)
    for query, text, rest in pairs:
        places.setdefault(query, []).append(text)
        if rest is not None:
            changed[text] = rest
    if len(places) < FEWEST:
        return None
    relevant = np.array([(row, text) for row, where in enumerate(places.values()) for text in sorted(set(where))])
    judged = JudgedQueries(
        ids=tuple(str(row) for row in range(len(places))),
        texts=tuple(places),
        relevant=relevant,
        grades=np.ones(len(relevant)),
        source=f"self-made by {kind}",
        digest="",
    )
    return SelfMade(kind, judged, changed)
