"""Where the tokens of a text stand in it, found again from their names."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# Marks that tokenizers put before a piece (start of a word, inside a word) or after it.
_BEFORE, _AFTER = ("##", "▁", "Ġ"), ("</w>", "@@")
# How far ahead of the last token the next may stand; each token that was not found allows as much again.
_REACH = 40


def token_spans(text: str, names: Sequence[str]) -> list[tuple[int, int] | None]:
    """Start and end of each token in the text, in order; None for a token whose letters do not stand there.

    Clouds keep the ids of their tokens but not their places, and tokenizers change letters (case, accents), so tokens
    are looked up one after the other, without regard to case and accents. Special and unknown tokens are not found, nor
    are pieces of letters in byte-level vocabularies.

    >>> token_spans("Café-au-lait!", ["[CLS]", "cafe", "-", "au", "-", "la", "##it", "!", "[SEP]"])
    [None, (0, 4), (4, 5), (5, 7), (7, 8), (8, 10), (10, 12), (12, 13), None]
    """
    pieces = ["".join(map(_folded, _letters(name))) for name in names]
    furthest = _REACH * (len(pieces) + 1) + sum(map(len, pieces))  # beyond it no token can stand
    folded = "".join(map(_folded, text[:furthest]))
    spans: list[tuple[int, int] | None] = []
    position, missed = 0, 0
    for piece in pieces:
        reach = position + _REACH * (1 + missed) + len(piece)
        start = folded.find(piece, position, reach) if piece else -1
        if start < 0:
            spans.append(None)
            missed += 1
            continue
        position, missed = start + len(piece), 0
        spans.append((start, position))
    return spans


def _letters(name: str) -> str:
    for mark in _BEFORE:
        if name != mark:
            name = name.removeprefix(mark)
    for mark in _AFTER:
        name = name.removesuffix(mark)
    return name


def _folded(character: str) -> str:
    """One character for one, so that places stay: small, without its accent."""
    small = unicodedata.normalize("NFD", character)[0].lower()
    return small if len(small) == 1 else character
