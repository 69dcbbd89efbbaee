"""Texts with ids and labels, pairs of texts, and a report of everything noticed while reading."""

from __future__ import annotations

import hashlib
import heapq
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError, shorten
from poolscope.words import FIRST, rows_as_html

BUILTIN, MANUALS = "builtin:docstrings", "builtin:manuals"
LONG = 1_000_000
"""A text of more characters than this is reported as long."""

_Item = TypeVar("_Item")
# Zero-width spaces and joiners, marks of direction and of byte order, soft hyphens, invisible operators.
_NO_WIDTH = dict.fromkeys(
    [0x00AD, 0x034F, 0x061C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF]
)
_SURROGATE = re.compile("[\ud800-\udfff]")


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
                "character is shown as U+FFFD. If there are many, the encoding is another one."
            )
        if self.long:
            notes.append(f"{_count(self.long, unit)} longer than {LONG:,} characters.")
        if self.selected is not None:
            notes.append(f"{self.selected:,} of {_count(self.kept, unit)} selected.")
        return notes


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


class ArrowStrings(Sequence[str]):
    """A string column read on demand, so that a memory-mapped corpus stays on disk."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return list(self._column.slice(start, max(0, stop - start)).to_pylist())
            return [self[k] for k in range(start, stop, step)]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return str(self._column[int(index) % len(self)].as_py())

    def __iter__(self) -> Iterator[str]:
        for chunk in self._column.chunks:
            yield from chunk.to_pylist()

    def __repr__(self) -> str:
        return f"<{len(self)} strings>"


@dataclass(frozen=True, repr=False)
class Texts(Sequence[str]):
    """Texts in their order, with unique `ids` and, where there are any, `labels`.

    As a sequence it gives the texts; a slice is a `Texts` again. `column` is the column that they stood in and `seed`
    that of the draw, where they were drawn.

    >>> texts = Texts(("a", "b"), ("one", "two"), None, "memory", ReadReport(read=2, kept=2))
    >>> texts[1], len(texts), texts[:1].ids
    ('two', 2, ('a',))
    """

    ids: Sequence[str]
    texts: Sequence[str]
    labels: Sequence[str] | None
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
            twice = [name for name, count in Counter(self.ids).items() if count > 1]
            raise InputError(
                f"received {len(self.ids)} ids of which {len(set(self.ids))} are distinct (more than once: "
                f"{', '.join(map(shorten, twice[:3]))}); an id names exactly one text. Number the texts or pass unique "
                f"ids."
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

    def _repr_html_(self) -> str:
        """The first texts with their ids, for notebooks."""
        shown = min(len(self), FIRST)
        rows = zip(self.ids[:shown], self.texts[:shown], strict=True)
        return rows_as_html(repr(self), ["id", "text"], rows, len(self) - shown)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the ordered (id, text) pairs.

        Each string is preceded by the length of its UTF-8 form (8 bytes, little endian), so that no two
        lists of pairs share their bytes.
        """
        sha = hashlib.sha256()
        for pair in zip(self.ids, self.texts, strict=True):
            add_strings(sha, *pair)
        return sha.hexdigest()

    def origin(self) -> dict[str, Any]:
        """Origin of the texts in plain types, as clouds and results keep it."""
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
        run = positions if isinstance(positions, range) and positions.step == 1 else None
        positions = list(positions)

        def taken(values: Sequence[str]) -> tuple[str, ...]:
            return tuple(values[p] for p in positions) if run is None else tuple(values[run.start : run.stop])

        return replace(
            self,
            ids=taken(self.ids),
            texts=taken(self.texts),
            labels=None if self.labels is None else taken(self.labels),
            report=replace(self.report, selected=len(positions)),
            seed=None,
        )

    def sample(self, n: int, seed: int = 0, *, keep: Collection[str] = ()) -> Texts:
        """`n` texts drawn without replacement, in the order of the corpus; all of them if `n` >= len.

        The draw depends on `n`, `seed` and the number of texts only; a smaller sample of the same seed is
        part of a larger one. Texts whose ids are in `keep` come before all others.
        """
        wanted = frozenset(keep)
        positions = draw(range(len(self)), n, seed=seed, sure=lambda position: self.ids[position] in wanted)
        return self if len(positions) == len(self) else replace(self.take(positions), seed=seed)


def draw(
    items: Iterable[_Item], n: int, *, seed: int, sure: Callable[[_Item], bool] = lambda item: False
) -> list[_Item]:
    """`n` of the items without replacement, in their order, holding no more than `n` in memory.

    Every item gets a random number and the `n` smallest win; those that are `sure` come before all others. The numbers
    are those of `random.Random.random`, the one generator whose sequence Python promises to keep for a seed.
    """
    if not isinstance(n, Integral) or n < 1:
        raise InputError(f"received a sample size of {n!r}; it is a whole number of at least 1. Ask for one.")
    generator = random.Random(seed)
    tickets = ((generator.random() - sure(item), position, item) for position, item in enumerate(items))
    winners = heapq.nsmallest(n, tickets)  # equal numbers are decided by position, never by the item
    return [item for _, _, item in sorted(winners, key=lambda winner: winner[1])]


# -- pairs ------------------------------------------------------------------------------------------------------------


class PairRow(NamedTuple):
    """One pair as it stands in its source; the label counts only where there are labels at all."""

    query_id: str
    query: str
    document_id: str
    document: str
    label: float = 0.0


@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries and documents, each distinct text once, and the pairs between them.

    `index` is an m × 2 matrix of (query position, document position); `labels`, if there are any, has one
    number a pair. `report` counts the rows of the source (None for pairs made in memory).
    """

    queries: Texts
    documents: Texts
    index: NDArray[np.int64]
    labels: NDArray[np.float64] | None = None
    report: ReadReport | None = None

    def __post_init__(self) -> None:
        sizes = np.array([len(self.queries), len(self.documents)])
        if self.index.ndim != 2 or self.index.shape[1] != 2 or self.index.dtype != np.int64:
            raise InputError(
                f"received an index of shape {self.index.shape} and type {self.index.dtype}; expected m × 2 of "
                "int64. Give one row (query position, document position) a pair."
            )
        if len(self.index) and (self.index.min() < 0 or (self.index.max(axis=0) >= sizes).any()):
            raise InputError(f"received positions beyond the {sizes[0]} queries or {sizes[1]} documents. Count from 0.")
        if self.labels is not None and self.labels.shape != (len(self.index),):
            raise InputError(
                f"received labels of shape {self.labels.shape} for {len(self.index)} pairs. Give one number a pair."
            )

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Pairs({len(self):,} pairs from {self.queries.source})"

    def sample(self, n: int, seed: int = 0) -> Pairs:
        """`n` pairs drawn without replacement, in their order, with the texts they need; all if `n` >= len."""
        positions = draw(range(len(self)), n, seed=seed)
        if len(positions) == len(self):
            return self
        labels = np.zeros(len(self)) if self.labels is None else self.labels
        rows = (
            PairRow(self.queries.ids[q], self.queries[q], self.documents.ids[d], self.documents[d], label)
            for (q, d), label in zip(self.index[positions], labels[positions], strict=True)
        )
        report = None if self.report is None else replace(self.report, selected=n)
        return share(rows, source=self.queries.source, labelled=self.labels is not None, report=report)


def share(rows: Iterable[PairRow], *, source: str, labelled: bool = False, report: ReadReport | None = None) -> Pairs:
    """Pairs in which equal queries, and equal documents, are one text, under the id that it came with first."""
    queries: dict[str, tuple[int, str]] = {}  # of each text: its position, its id
    documents: dict[str, tuple[int, str]] = {}
    index, labels = [], []
    for row in rows:
        query, _ = queries.setdefault(row.query, (len(queries), row.query_id))
        document, _ = documents.setdefault(row.document, (len(documents), row.document_id))
        index.append((query, document))
        labels.append(row.label)

    def texts(side: dict[str, tuple[int, str]]) -> Texts:
        ids = tuple(id_ for _, id_ in side.values())
        return Texts(ids, tuple(side), None, source, ReadReport(read=len(ids), kept=len(ids)))

    return Pairs(
        queries=texts(queries),
        documents=texts(documents),
        index=np.array(index, dtype=np.int64).reshape(-1, 2),
        labels=np.array(labels, dtype=np.float64) if labelled else None,
        report=report,
    )


def add_strings(hashed: Any, *strings: str) -> None:
    """Take strings into a hash, each with its length, so that no two lists share their bytes."""
    for string in strings:
        data = string.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)


# -- one value becomes one text ---------------------------------------------------------------------------------------


def scrub(text: str) -> str:
    r"""The text with U+FFFD for every lone surrogate, which no encoding can write.

    Surrogates come from undecodable bytes (`plain.py` marks them so) and from broken JSON escapes.

    >>> scrub("a\udfffb")
    'a�b'
    """
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def is_missing(value: object) -> bool:
    """Whether a value stands for "nothing here": None, NaN, or the NA and NaT of pandas."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def shows_nothing(text: str) -> bool:
    r"""Whether a text is empty to a reader: nothing, blanks, or characters without width.

    >>> shows_nothing(" \u200b\ufeff\n"), shows_nothing("a\u200b")
    (True, False)
    """
    return not text or text.isspace() or (not text.isascii() and not text.translate(_NO_WIDTH).strip())


def row_place(number: int) -> str:
    """How messages name a row, by its number from 0: they count from 1, as people and editors do.

    >>> row_place(0)
    'row 1'
    """
    return f"row {number + 1}"


class Tally:
    """Counts rows while they pass, and turns into a `ReadReport` at the end.

    >>> tally = Tally("example")
    >>> [tally.admit(row, place=row_place(i)) for i, row in enumerate([("a",), (None,), ("a",)])]
    [('a',), None, ('a',)]
    >>> tally.report()
    ReadReport(read=3, kept=2, empty=1, duplicates=1, undecodable=0, long=0, other_files=0, \
guessed_column=None, selected=None)
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.read = self.empty = self.duplicates = self.undecodable = self.long = 0
        self._seen: set[bytes] = set()

    def admit(self, values: tuple[object, ...], *, place: str) -> tuple[str, ...] | None:
        """The texts of one row, or None if one of them is empty: such a row is dropped and counted."""
        self.read += 1
        raw = tuple(self._text(value, place) for value in values)
        if any(shows_nothing(text) for text in raw):
            self.empty += 1
            return None
        texts = tuple(scrub(text) for text in raw)
        self.undecodable += texts != raw
        self.long += any(len(text) > LONG for text in texts)
        fingerprint = _fingerprint(texts)
        self.duplicates += fingerprint in self._seen
        self._seen.add(fingerprint)
        return texts

    def _text(self, value: object, place: str) -> str:
        if isinstance(value, str):
            return str(value)  # plain str for its subclasses, such as numpy's
        if is_missing(value):
            return ""
        raise InputError(
            f"{self.source}: {place} holds {shorten(value)} ({type(value).__name__}) where a text is "
            "expected. Choose another column, or convert the values to text first."
        )

    def report(self, *, other_files: int = 0, guessed_column: str | None = None) -> ReadReport:
        """The counts so far; a source without any text is an error."""
        usable = self.read - self.empty
        if usable == 0:
            contents = "nothing" if self.read == 0 else f"{self.read:,} rows, every one empty"
            if other_files:
                contents = f"{other_files:,} files, none of them with text in a .txt or .md file"
            raise InputError(
                f"{self.source}: received {contents}; at least one text is needed. Check that this is the "
                "file, folder or column that was meant."
            )
        return ReadReport(
            read=self.read,
            kept=usable,
            empty=self.empty,
            duplicates=self.duplicates,
            undecodable=self.undecodable,
            long=self.long,
            other_files=other_files,
            guessed_column=guessed_column,
        )


def _fingerprint(texts: tuple[str, ...]) -> bytes:
    """16 bytes for the texts of a row, so that a sampled reading need not hold every text it passes."""
    hasher = hashlib.blake2b(digest_size=16)
    add_strings(hasher, *texts)
    return hasher.digest()
