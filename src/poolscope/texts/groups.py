"""Which texts belong together: chunks of one document, by a column, by ids like `doc#3`, or by a list.

And which repeat another, wholly or at one end: this is the one place that decides when two texts are the same.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.texts.reading import GROUP_COLUMNS
from poolscope.texts.sources import open_table

CHUNK_IDS = ("id", "_id", "chunk_id")
"""Columns of the ids of chunks, the usual name first."""

BOILERPLATE = 4
"""Words that texts share at an end, from which on they are named."""

_CHUNK = re.compile(r"(.+)#\d+")


def document_columns(
    source: Any, column: str | None = None, id_column: str | None = None
) -> tuple[str | None, str | None]:
    """The column of a table that names the documents, and that of the ids; without the first, ids like doc#3 may tell.

    >>> document_columns({"text": ["a", "b", "c"], "id": ["x#1", "x#2", "y#1"]})
    (None, 'id')
    """
    group = group_column(source, (column, id_column))
    if group is None and id_column is None:
        id_column = _first_column(source, CHUNK_IDS, (column,), _are_chunk_ids)
    return group, id_column


def group_column(source: Any, taken: Sequence[str | None] = ()) -> str | None:
    """The column of a table that names the documents; None without one, and for what is no table.

    >>> group_column({"text": ["a", "b", "c"], "url": ["x", "x", "y"]})
    'url'
    >>> group_column({"text": ["a", "b", "c"], "doc_id": ["1", "2", "3"], "title": ["x", "x", "y"]})
    'title'
    """
    return _first_column(
        source, GROUP_COLUMNS, taken, lambda names: tells([name for name in names if name is not None])
    )


def _first_column(
    source: Any, names: Sequence[str], taken: Sequence[str | None], suits: Callable[[list[str | None]], bool]
) -> str | None:
    """The first column of a table with one of the names whose values suit."""
    if not isinstance(source, str | os.PathLike | dict):
        return None
    try:
        table = open_table(source)
        for name in (name for name in names if name in table.kinds and name not in taken):
            if suits([None if row[0] is None else str(row[0]) for row in table.rows([name])]):
                return name
    except InputError:  # a folder, lines of text, a pipe
        return None
    return None


def _are_chunk_ids(ids: list[str | None]) -> bool:
    known = [name for name in ids if name is not None]
    return len(set(known)) == len(ids) and groups_of_ids(known) is not None


def groups_of_ids(ids: Sequence[str]) -> list[str] | None:
    """The documents of chunks whose ids are those of `poolscope chunk`; None where no two share one.

    >>> groups_of_ids(["a#1", "a#2", "b"])
    ['a', 'a', 'b']
    """
    names = [document_of_id(name) or name for name in ids]
    return names if tells(names) else None


def document_of_id(name: str) -> str | None:
    """The document that the id of a chunk names; None for other ids.

    >>> document_of_id("a#1"), document_of_id("a")
    ('a', None)
    """
    match = _CHUNK.fullmatch(name)
    return match[1] if match else None


def tells(names: Sequence[str]) -> bool:
    """Do some texts share a name, and not all?"""
    counts = Counter(names)
    return 1 < len(counts) < len(names)


def known_groups(groups: Sequence[Any] | NDArray[Any] | None, ids: Sequence[str]) -> list[str] | None:
    """The document of each text: as named, otherwise as the ids tell; None where they do not.

    >>> known_groups(None, ["a#1", "a#2", "b"]), known_groups(["x", "y", "x"], ["a#1", "a#2", "b"])
    (['a', 'a', 'b'], ['x', 'y', 'x'])
    """
    return groups_of_ids(ids) if groups is None else checked_groups(groups, len(ids))


def checked_groups(groups: Sequence[Any] | NDArray[Any], texts: int) -> list[str]:
    """One name a text."""
    names = [str(name) for name in groups]
    if len(names) != texts:
        raise InputError(
            f"groups: received {len(names)} for {texts} texts; needed: one for each. Pass a list of names."
        )
    return names


def first_of_equal(texts: Sequence[str]) -> NDArray[np.int64]:
    """For each text the position of the first one that it equals but for letter case and blanks.

    >>> first_of_equal(["One two", "three", "one  two"]).tolist()
    [0, 1, 0]
    """
    first: dict[bytes, int] = {}  # by a digest: a second copy of a large corpus is much memory

    def digest(text: str) -> bytes:
        return hashlib.blake2b(plain_text(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    firsts = (first.setdefault(digest(text), position) for position, text in enumerate(texts))
    return np.fromiter(firsts, dtype=np.int64, count=len(texts))


def shared_words(texts: Sequence[str], *, at_end: bool = False) -> tuple[str, int]:
    """The most words that at least half of the texts begin (or end) with, and how many texts do; they are never whole.

    >>> shared_words(["Acme manual: pumps", "Acme manual: how to weld", "Valves"])
    ('Acme manual:', 2)
    >>> shared_words(["Pumps (c) Acme", "Valves (c) Acme"], at_end=True)
    ('(c) Acme', 2)
    """
    step = -1 if at_end else 1
    left, words = [text.split()[::step] for text in texts], list[str]()
    sharing = 0
    while True:
        place = len(words)
        counts = Counter(row[place] for row in left if len(row) > place + 1)  # a word of its own is left to every text
        word, count = counts.most_common(1)[0] if counts else ("", 0)
        if 2 * count < len(texts) or count < 2:
            return " ".join(words[::step]), sharing
        left = [row for row in left if len(row) > place + 1 and row[place] == word]
        words.append(word)
        sharing = count


@dataclass(frozen=True)
class Boilerplate:
    """The words that at least half of some texts begin and end with, and how many do; "" where these are few words.

    >>> found = boilerplate(["Acme manual of pumps: oil", "Acme manual of pumps: how to weld", "Valves"])
    >>> found.head, found.heads, found.tail
    ('Acme manual of pumps:', 2, '')
    >>> found.parted("Acme manual of pumps: how to weld"), found.parted("Valves")
    (('Acme manual of pumps:', 'how to weld', ''), ('', 'Valves', ''))
    """

    head: str = ""
    heads: int = 0
    tail: str = ""
    tails: int = 0

    def __bool__(self) -> bool:
        return bool(self.head or self.tail)

    def parted(self, text: str) -> tuple[str, str, str]:
        """Split a line into prefix, text (never empty) and suffix."""
        spans, head, tail = list(re.finditer(r"\S+", text)), self.head.split(), self.tail.split()
        words = [span.group() for span in spans]
        begins = bool(head) and words[: len(head)] == head != words
        first = len(head) if begins else 0
        ends = bool(tail) and words[first:][-len(tail) :] == tail != words[first:]
        last = len(words) - len(tail) if ends else len(words)
        # What is inside stays as it is, line breaks and all.
        own = text[spans[first].start() : spans[last - 1].end()] if begins or ends else text
        return self.head if begins else "", own, self.tail if ends else ""


def boilerplate(texts: Sequence[str]) -> Boilerplate:
    """What the texts share at both ends; a few words are a turn of phrase and none."""
    ends = [shared_words(texts, at_end=at_end) for at_end in (False, True)]
    head, tail = (end if len(end[0].split()) >= BOILERPLATE else ("", 0) for end in ends)
    return Boilerplate(*head, *tail)


def plain_text(text: str) -> str:
    """A text in lower case with single blanks; two texts with equal results count as the same."""
    return " ".join(text.casefold().split())
