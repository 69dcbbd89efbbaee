"""Where a text may be cut, and which of these places to take.

Places are between words, each with how good it is, and inside a word if there is no other way. Pieces are of about
equal weight, each cut at the best place near its end.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ranks = NDArray[np.int8]

# Pieces aim at most at this share of the room, so that there is a choice of places on both sides of the aim …
_FILL = 0.85
# … and a place may be this share of the aim away from it.
_REACH = 0.25

# The kinds of places, best first: their position in this tuple is their rank.
KINDS = ("blank line", "line", "sentence", "blank", "word")
BLANK_LINE, LINE, SENTENCE, BLANK, WORD = range(len(KINDS))

# Scripts that write no blanks have marks of full width, after each of which a text may be cut.
_WIDE_STOPS = "。！？｡"
_WIDE = _WIDE_STOPS + "，、；：」』】》〉）"
_STOPS = frozenset(".!?…؟۔।॥" + _WIDE_STOPS)
_CLOSERS = "\"'”’»)]」』】》〉）"

_UNIT = re.compile(rf"[^\s{_WIDE}]+[{_WIDE}]*|[{_WIDE}]+")
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

_JOINER = "\u200d"
_SKIN = range(0x1F3FB, 0x1F400)  # colours of the emoji before them


@dataclass(frozen=True)
class Units:
    r"""The parts of a text that are not cut: unit k is `text[starts[k]:ends[k]]`, what lies between is blank.

    `kinds[k]` is the rank of the place after unit k (the end of the text, after the last one, counts as a blank).

    >>> units = find_units("One two.  Three\n\nfour")
    >>> [(units.text[a:b], KINDS[kind]) for a, b, kind in zip(units.starts, units.ends, units.kinds)]
    [('One', 'blank'), ('two.', 'sentence'), ('Three', 'blank line'), ('four', 'blank')]
    """

    text: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    kinds: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.starts)

    def strings(self) -> list[str]:
        """Every unit with all blanks before it, as a tokenizer meets it inside the text."""
        return self._strings([0, *self.ends[:-1].tolist()])

    def words(self) -> list[str]:
        """Every unit with at most one blank before it: what is left of it where the text is not cut inside it."""
        before = np.concatenate([self.starts[:1], self.ends[:-1]])
        return self._strings(np.maximum(before, self.starts - 1).tolist())

    def _strings(self, starts: Sequence[int]) -> list[str]:
        return [self.text[a:b] for a, b in zip(starts, self.ends.tolist(), strict=True)]


def find_units(text: str) -> Units:
    """Words as blanks divide them, and the clauses of scripts without blanks."""
    spans = [match.span() for match in _UNIT.finditer(text)]
    edges = np.array(spans, dtype=np.int64).reshape(-1, 2)
    following = [start for start, _ in spans[1:]]
    kinds = [_kind(text, *span, after) for span, after in zip(spans, following, strict=False)]
    return Units(text, edges[:, 0], edges[:, 1], np.array([*kinds, BLANK][: len(spans)], dtype=np.int8))


def _kind(text: str, start: int, end: int, after: int) -> int:
    """The rank of the place between the unit `text[start:end]` and the next one, which begins at `after`."""
    gap = text[end:after]
    if gap not in ("", " "):
        lines = len(_LINE_END.findall(gap))
        if lines:
            return BLANK_LINE if lines > 1 else LINE
    last = text[start:end].rstrip(_CLOSERS)[-1:]
    # A small letter after the point: an abbreviation rather than a sentence.
    return SENTENCE if last in _STOPS and not text[after].islower() else BLANK


def open_units(units: Units, opened: Sequence[int]) -> tuple[Units, NDArray[np.int64]]:
    r"""The same units with some of them taken apart into characters, and for each new unit which one it was part of.

    Combining marks, joined emoji and the like stay with the character before them.

    >>> parts, owner = open_units(find_units("ab cde\u0301"), [1])
    >>> parts.starts.tolist(), parts.ends.tolist(), owner.tolist()
    ([0, 3, 4, 5], [2, 4, 5, 7], [0, 1, 1, 1])
    """
    apart = {k: _characters(units.text, int(units.starts[k]), int(units.ends[k])) for k in opened}
    sizes = np.array([len(apart[k]) if k in apart else 1 for k in range(len(units))], dtype=np.int64)
    owner = np.repeat(np.arange(len(units)), sizes)
    first = np.cumsum(sizes) - sizes
    starts, ends, kinds = units.starts[owner], units.ends[owner], units.kinds[owner]
    for k, places in apart.items():
        stretch = slice(first[k], first[k] + sizes[k])
        starts[stretch] = places
        ends[stretch] = [*places[1:], units.ends[k]]
        kinds[first[k] : first[k] + sizes[k] - 1] = WORD
    return Units(units.text, starts, ends, kinds), owner


def _characters(text: str, start: int, end: int) -> list[int]:
    """Where the characters, as readers count them, of a stretch of text begin; code points if it is only one."""
    word = text[start:end]
    joined = {character for character in set(word) if _joins(character)}
    if not joined:
        return list(range(start, end))
    begins = [start + k for k in range(len(word)) if k == 0 or (word[k] not in joined and word[k - 1] != _JOINER)]
    return begins if len(begins) > 1 else list(range(start, end))


def _joins(character: str) -> bool:
    """Whether it belongs to the character before it."""
    return character == _JOINER or ord(character) in _SKIN or unicodedata.category(character).startswith("M")


# -- which places to take ---------------------------------------------------------------------------------------------


def choose_cuts(weights: Array, ranks: Ranks, room: float, *, blanks: Array | float = 0.0) -> list[int]:
    """The units after which to cut, such that no piece weighs more than `room` (a single unit may).

    The rest is always divided into as many equal parts as needed; the cut is at the place of the best rank within a
    quarter of that aim, the nearest of equals. `blanks` is the part of each weight that is gone if the unit is the
    first of its piece.

    >>> choose_cuts(np.ones(10), np.array([3, 3, 3, 2, 3, 3, 3, 3, 3, 3], np.int8), room=8)
    [3]
    """
    reached = np.cumsum(weights)
    begun = reached - weights + blanks  # what lies before a piece that begins with this unit
    total, last = float(reached[-1]), len(weights) - 1
    cuts: list[int] = []
    done, first = float(begun[0]), 0
    while total - done > room and first < last:
        rest = total - done
        aim = rest / math.ceil(rest / (_FILL * room))
        low, high = done + (1 - _REACH) * aim, done + min(room, (1 + _REACH) * aim)
        places = _between(reached, low, high, first, last)
        if not len(places):
            places = _between(reached, done, done + room, first, last)
        if not len(places):
            places = np.array([first])  # one unit is more than the room
        cuts.append(_best(places, ranks, reached, done + aim))
        first = cuts[-1] + 1
        done = float(begun[first])
    return cuts


def choose_overlap(weights: Array, ranks: Ranks, most: float) -> int | None:
    """The unit at which the repeated end of a piece begins: of at most the weight `most`, and half of it if possible.

    None where the last unit alone is heavier.

    >>> choose_overlap(np.ones(10), np.array([3, 3, 3, 3, 3, 3, 2, 3, 3, 3], np.int8), most=4)
    7
    """
    reached = np.cumsum(weights)
    end, last = float(reached[-1]), len(weights) - 1
    places = _between(reached, end - most, end - most / 2, 0, last)
    if not len(places):
        places = _between(reached, end - most, end, 0, last)
    return _best(places, ranks, reached, end - most) + 1 if len(places) else None


def _between(reached: Array, low: float, high: float, first: int, last: int) -> NDArray[np.int64]:
    """The places from `first` on, before `last`, that are reached between two weights (rounding aside)."""
    start = max(first, int(np.searchsorted(reached, low - 1e-9, side="left")))
    stop = min(last, int(np.searchsorted(reached, high + 1e-9, side="right")))
    return np.arange(start, stop)


def _best(places: NDArray[np.int64], ranks: Ranks, reached: Array, aim: float) -> int:
    """The place of the best rank; of equals the one nearest to the aim."""
    of_rank = places[ranks[places] == ranks[places].min()]
    return int(of_rank[np.argmin(np.abs(reached[of_rank] - aim))])
