"""What reading gives: the texts with their ids and labels, and a report of what was noticed."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, TypeVar, overload

from poolscope.errors import InputError

BUILTIN = "builtin:docstrings"
LONG = 1_000_000
"""A text of more characters than this is reported as long."""

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class ReadReport:
    """Counts of one reading: `read` rows, of which `empty` ones were dropped and `kept` ones remain.

    Kept and counted: `duplicates` (equal to an earlier one), `undecodable` (bytes that are not valid in
    the encoding became U+FFFD) and `long` (more than 1,000,000 characters). `other_files` of a folder
    were not read, `guessed_column` was taken without being asked for, and `selected` of the kept ones
    were chosen afterwards (None: all of them).
    """

    read: int
    kept: int
    empty: int = 0
    duplicates: int = 0
    undecodable: int = 0
    long: int = 0
    other_files: int = 0
    guessed_column: str | None = None
    selected: int | None = None

    def notes(self, unit: str = "text") -> list[str]:
        """Plain sentences for the terminal; none when there is nothing to say.

        >>> ReadReport(read=10, kept=9, empty=1, duplicates=2).notes()
        ['1 text is empty and left out (10 read).', '2 texts equal an earlier one; all are kept.']
        """
        notes = []
        if self.guessed_column is not None:
            notes.append(f"The texts are those of column '{self.guessed_column}', the only one that fits.")
        if self.other_files:
            notes.append(f"{_count(self.other_files, 'file')} not ending in .txt or .md left unread.")
        if self.empty:
            verb = "is" if self.empty == 1 else "are"
            notes.append(f"{_count(self.empty, unit)} {verb} empty and left out ({self.read:,} read).")
        if self.duplicates:
            verb = "equals" if self.duplicates == 1 else "equal"
            notes.append(f"{_count(self.duplicates, unit)} {verb} an earlier one; all are kept.")
        if self.undecodable:
            notes.append(
                f"{_count(self.undecodable, unit)} with characters that cannot be decoded; each such "
                "character stands as U+FFFD. If there are many, the encoding is another one."
            )
        if self.long:
            notes.append(f"{_count(self.long, unit)} longer than {LONG:,} characters.")
        if self.selected is not None:
            notes.append(f"{self.selected:,} of {_count(self.kept, unit)} selected.")
        return notes


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


@dataclass(frozen=True, repr=False)
class Texts(Sequence[str]):
    """Texts in their order, with unique `ids` and, where there are any, `labels`.

    As a sequence it gives the texts; a slice is a `Texts` again. `column` is the column that they stood in and `seed`
    that of the draw, where they were drawn.

    >>> texts = Texts(("a", "b"), ("one", "two"), None, "memory", ReadReport(read=2, kept=2))
    >>> texts[1], len(texts), texts[:1].ids
    ('two', 2, ('a',))
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    labels: tuple[str, ...] | None
    source: str
    report: ReadReport
    column: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        sizes = {len(self.ids), len(self.texts), len(self.texts if self.labels is None else self.labels)}
        if len(sizes) > 1:
            raise InputError(
                f"received {len(self.texts)} texts, {len(self.ids)} ids and "
                f"{'no' if self.labels is None else len(self.labels)} labels; every text needs one id and, "
                "with labels, one label. Pass tuples of the same length."
            )
        if len(set(self.ids)) != len(self.ids):
            raise InputError(
                f"received {len(self.ids)} ids of which {len(set(self.ids))} are distinct; an id names "
                "exactly one text. Number the texts or pass unique ids."
            )

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Texts: ...

    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        return self.texts[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __repr__(self) -> str:
        return f"Texts({len(self):,} texts from {self.source})"

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the ordered (id, text) pairs.

        Each string is preceded by the length of its UTF-8 form (8 bytes, little endian), so that no two
        lists of pairs share their bytes.
        """
        sha = hashlib.sha256()
        for pair in zip(self.ids, self.texts, strict=True):
            for string in pair:
                data = string.encode("utf-8")
                sha.update(len(data).to_bytes(8, "little"))
                sha.update(data)
        return sha.hexdigest()

    def origin(self) -> dict[str, Any]:
        """Which texts these are, in plain types: what clouds and results keep of them."""
        return {
            "source": self.source,
            "digest": self.digest,
            "count": len(self),
            "column": self.column,
            "read": self.report.read,
            "empty": self.report.empty,
            "selected": self.report.selected,
            "seed": self.seed,
            "notes": list(self.report.notes()),
        }

    def take(self, positions: Iterable[int]) -> Texts:
        """The texts at these positions, in the order given; no position twice."""
        positions = list(positions)
        return replace(
            self,
            ids=tuple(self.ids[p] for p in positions),
            texts=tuple(self.texts[p] for p in positions),
            labels=None if self.labels is None else tuple(self.labels[p] for p in positions),
            report=replace(self.report, selected=len(positions)),
            seed=None,
        )

    def sample(self, n: int, seed: int = 0) -> Texts:
        """`n` texts drawn without replacement, in the order of the corpus; all of them if `n` >= len.

        The draw depends on `n`, `seed` and the number of texts only; a smaller sample of the same seed is
        part of a larger one.
        """
        positions = draw(range(len(self)), n, seed=seed)
        return self if len(positions) == len(self) else replace(self.take(positions), seed=seed)


def draw(items: Iterable[_Item], n: int, *, seed: int) -> list[_Item]:
    """`n` of the items without replacement, in their order, holding no more than `n` in memory.

    Every item gets a random number and the `n` smallest win. The numbers are those of
    `random.Random.random`, the one generator whose sequence Python promises to keep for a seed.
    """
    if not isinstance(n, Integral) or n < 1:
        raise InputError(f"received a sample size of {n!r}; it is a whole number of at least 1. Ask for one.")
    generator = random.Random(seed)
    tickets = ((generator.random(), position, item) for position, item in enumerate(items))
    winners = heapq.nsmallest(n, tickets)  # equal numbers are decided by position, never by the item
    return [item for _, _, item in sorted(winners, key=lambda winner: winner[1])]
