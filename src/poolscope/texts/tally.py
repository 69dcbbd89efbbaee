"""One value becomes one text, and everything noteworthy about it is counted."""

from __future__ import annotations

import hashlib
import re

from poolscope.errors import InputError
from poolscope.texts.records import LONG, ReadReport

_SURROGATE = re.compile("[\ud800-\udfff]")


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


def shorten(value: object) -> str:
    """A value as an error message can show it."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


class Tally:
    """Counts rows while they pass, and turns into a `ReadReport` at the end.

    >>> tally = Tally("example")
    >>> [tally.admit(row, place=str(i)) for i, row in enumerate([("a",), (None,), ("a",)])]
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
        if any(not text or text.isspace() for text in raw):
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
            f"{self.source}: row {place} holds {shorten(value)} ({type(value).__name__}) where a text is "
            "expected. Choose another column, or convert the values to text first."
        )

    def report(self, *, other_files: int = 0, guessed_column: str | None = None) -> ReadReport:
        """The counts so far; a source without any text is an error."""
        kept = self.read - self.empty
        if kept == 0:
            found = "nothing" if self.read == 0 else f"{self.read:,} rows, every one empty"
            if other_files:
                found = f"{other_files:,} files, none of them with text in a .txt or .md file"
            raise InputError(
                f"{self.source}: received {found}; at least one text is needed. Check that this is the "
                "file, folder or column that was meant."
            )
        return ReadReport(
            read=self.read,
            kept=kept,
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
    for text in texts:
        data = text.encode("utf-8")
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.digest()
