"""Texts that do not fit a model into pieces that do.

Every piece is measured alone, by how many tokens the model sees in it, and cut again if it does not fit.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import tokenizer_of
from poolscope.encoders.tokens import tokenize_prompted
from poolscope.errors import InputError

# -- where a text may be cut ------------------------------------------------------------------------------------------
#
# Places are between words, each with how good it is, and inside a word if there is no other way. Pieces are of about
# equal weight, each cut at the best place near its end.

Ranks = NDArray[np.int8]
Array = NDArray[np.float64]

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
    """Choose the units after which to cut, so that no piece weighs more than `room`; a single unit may.

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


# -- pieces that fit --------------------------------------------------------------------------------------------------

# Long words are weighed in slices of so many characters, to know where in the word its tokens are.
_SLICE = 32


class TokenRuler:
    """Measures texts with the tokenizer of an encoder, as the encoder itself will.

    `limit` is the most tokens that a chunk may have and `added` how many of them the prompt and the special tokens
    take; the rest is the `room` for the text.
    """

    def __init__(self, encoder: TokenEncoder, tokens: int | None = None) -> None:
        self._encoder = tokenizer_of(encoder)
        self._longest = self._encoder.max_length
        self.added = int(tokenize_prompted(self._encoder.tokenize, self._encoder.prompt, [""], None).lengths[0])
        self._special = int(self._encoder.tokenize([""], None).lengths[0])
        self.limit = self._limit(tokens)
        self.room = self.limit - self.added

    def measure(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The tokens of whole texts, each tokenised alone with the prompt before it, and whether nothing is cut off."""
        prompt = self._encoder.prompt
        tokenized = tokenize_prompted(self._encoder.tokenize, prompt, texts, self._longest)
        tokens = tokenized.lengths + tokenized.cut
        return tokens, (tokenized.cut == 0) & (tokens <= self.limit)

    def weigh(self, strings: Sequence[str]) -> NDArray[np.float64]:
        """About how many tokens each string is in the middle of a text; equal strings are tokenised once."""
        distinct = {string: k for k, string in enumerate(dict.fromkeys(strings))}
        lengths = self._encoder.tokenize(list(distinct), None).lengths - self._special
        return np.maximum(lengths, 0)[[distinct[string] for string in strings]].astype(np.float64)

    def weigh_characters(self, word: str) -> NDArray[np.float64]:
        """About how many tokens each character of a long word is, up to a factor."""
        slices = [word[start : start + _SLICE] for start in range(0, len(word), _SLICE)]
        sizes = np.array([len(part) for part in slices])
        return np.repeat((self.weigh(slices) + 1e-3) / sizes, sizes)

    def _limit(self, tokens: int | None) -> int:
        name = self._encoder.card.name
        limit = self._longest if tokens is None else tokens
        if limit is None:
            raise InputError(
                f"tokens: received none, and {name} declares no limit. Say how many tokens a chunk may have."
            )
        if isinstance(limit, bool) or not isinstance(limit, int) or limit <= self.added:
            raise InputError(
                f"tokens: received {limit!r}; the special tokens and the prompt of {name} already "
                f"take {self.added}. Use {self.added + 1} or more."
            )
        if self._longest is not None and limit > self._longest:
            raise InputError(
                f"tokens: received {limit}, but {name} takes {self._longest} tokens (special tokens and prompt "
                f"included) and cuts off the rest. Ask for at most {self._longest}."
            )
        return limit


class Piece(NamedTuple):
    """`text[start:end]` of the text number `owner`; `cut` is the rank of the place after it (None: the text ends)."""

    owner: int
    start: int
    end: int
    tokens: int = 0
    cut: int | None = None

    def of(self, texts: Sequence[str]) -> str:
        """The piece itself."""
        return texts[self.owner][self.start : self.end]


def split_texts(texts: Sequence[str], ruler: TokenRuler, *, overlap: int = 0) -> list[list[Piece]]:
    """For every text its pieces in order; one piece, the text as it is, where it fits.

    Without overlap every character that is not blank stands in exactly one piece. A piece begins and ends with a
    character that is not blank, unless it is a text that fits as it is.
    """
    pieces_of: list[list[Piece]] = [[] for _ in texts]
    fitting, waiting = _measured(texts, [Piece(owner, 0, len(text)) for owner, text in enumerate(texts)], ruler)
    while True:
        for piece in fitting:
            pieces_of[piece.owner].append(piece)
        if not waiting:
            break
        fitting, waiting = _measured(texts, _smaller(texts, waiting, ruler, room=ruler.room - overlap), ruler)
    pieces_of = [sorted(pieces, key=lambda piece: piece.start) for pieces in pieces_of]
    return _overlapping(texts, pieces_of, ruler, overlap=overlap) if overlap else pieces_of


def _measured(texts: Sequence[str], pieces: Sequence[Piece], ruler: TokenRuler) -> tuple[list[Piece], list[Piece]]:
    """Count the tokens of the pieces; give pieces that fit and pieces that do not."""
    if not pieces:
        return [], []
    tokens, fits = ruler.measure([piece.of(texts) for piece in pieces])
    counted = [piece._replace(tokens=n) for piece, n in zip(pieces, tokens.tolist(), strict=True)]
    fitting = [piece for piece, fit in zip(counted, fits, strict=True) if fit]
    return fitting, [piece for piece, fit in zip(counted, fits, strict=True) if not fit]


def _smaller(texts: Sequence[str], pieces: Sequence[Piece], ruler: TokenRuler, *, room: int) -> list[Piece]:
    """Pieces instead of those that do not fit: without the blanks around them, or cut in two or more."""
    stripped = [_strip(texts, piece) for piece in pieces]
    blank = [bare for bare, piece in zip(stripped, pieces, strict=True) if bare != piece]
    whole = [bare for bare, piece in zip(stripped, pieces, strict=True) if bare == piece]
    return [*blank, *(_cut(texts, whole, ruler, room=room) if whole else ())]


def _strip(texts: Sequence[str], piece: Piece) -> Piece:
    text = piece.of(texts)
    start = piece.start + len(text) - len(text.lstrip())
    return piece._replace(start=start, end=start + len(text.strip()))


def _cut(texts: Sequence[str], pieces: Sequence[Piece], ruler: TokenRuler, *, room: int) -> list[Piece]:
    single = next((piece for piece in pieces if piece.end - piece.start == 1), None)
    if single is not None:
        raise InputError(
            f"tokens: received {ruler.limit}, but the character {single.of(texts)!r} alone takes {single.tokens} "
            f"(special tokens and prompt included). Ask for at least {single.tokens}."
        )
    # What does not fit is heavier than the room, even where something else than the number of tokens is the reason.
    totals = [max(piece.tokens - ruler.added, ruler.room + 1) for piece in pieces]
    smaller = []
    for piece, (units, weights, blanks) in zip(pieces, _weighed(texts, pieces, totals, ruler), strict=True):
        cuts = choose_cuts(weights, units.kinds, room, blanks=blanks)
        ends = [*((k, int(units.kinds[k])) for k in cuts), (len(units) - 1, piece.cut)]
        for first, (last, rank) in zip([0, *(k + 1 for k in cuts)], ends, strict=True):
            start, end = int(units.starts[first]), int(units.ends[last])
            smaller.append(piece._replace(start=piece.start + start, end=piece.start + end, cut=rank))
    return smaller


def _weighed(
    texts: Sequence[str], pieces: Sequence[Piece], totals: Sequence[float], ruler: TokenRuler
) -> list[tuple[Units, Array, Array]]:
    """Units of every piece, their weights (which add up to the piece), and the weights of the blanks before them.

    Weights are estimates: a tokenizer may join what stands side by side. Units heavier than the room are taken apart.
    """
    units = [find_units(piece.of(texts)) for piece in pieces]
    edges = np.cumsum([len(part) for part in units])[:-1]
    strings = [string for part in units for string in part.strings()]
    weights_of_all = ruler.weigh([*strings, *(word for part in units for word in part.words())])
    whole, words = (np.split(half, edges) for half in np.split(weights_of_all, 2))
    weighed = []
    for part, weights, own, total in zip(units, whole, words, totals, strict=True):
        if not weights.any():
            weights = own = np.ones(len(part))
        scale = total / weights.sum()
        weighed.append(_opened(part, weights * scale, np.maximum(weights - own, 0) * scale, ruler))
    return weighed


def _opened(units: Units, weights: Array, blanks: Array, ruler: TokenRuler) -> tuple[Units, Array, Array]:
    """The units, with each one that is heavier than the room, blanks aside, taken apart into characters."""
    heavy = np.flatnonzero(weights - blanks > ruler.room).tolist()
    if not heavy:
        return units, weights, blanks
    parts, owner = open_units(units, heavy)
    spread, before = weights[owner], np.zeros(len(parts))
    before[np.searchsorted(owner, np.arange(len(units)))] = blanks
    for k in heavy:
        inside = slice(*np.searchsorted(owner, [k, k + 1]))
        start, end = int(units.starts[k]), int(units.ends[k])
        upto = np.concatenate([[0.0], np.cumsum(ruler.weigh_characters(units.text[start:end]))])
        shares = upto[parts.ends[inside] - start] - upto[parts.starts[inside] - start]
        spread[inside] = shares * ((weights[k] - blanks[k]) / shares.sum()) + before[inside]
    return parts, spread, before


def _overlapping(
    texts: Sequence[str], pieces_of: list[list[Piece]], ruler: TokenRuler, *, overlap: float
) -> list[list[Piece]]:
    """The pieces, each beginning with the end of the piece before, as far as it then fits."""
    originals = [list(pieces) for pieces in pieces_of]
    places = [(owner, k) for owner, pieces in enumerate(pieces_of) for k in range(1, len(pieces))]
    before = [pieces_of[owner][k - 1] for owner, k in places]
    weighed = _weighed(texts, before, [piece.tokens - ruler.added for piece in before], ruler) if before else []
    waiting = dict(zip(places, zip(before, weighed, strict=True), strict=True))
    while waiting and overlap >= 1:
        longer = {}
        for (owner, k), (piece, (units, weights, _)) in waiting.items():
            first = choose_overlap(weights, units.kinds, overlap)
            if first is not None:
                longer[owner, k] = pieces_of[owner][k]._replace(start=piece.start + int(units.starts[first]))
        fitting, others = _measured(texts, list(longer.values()), ruler)
        number = {(piece.owner, piece.end): place for place, piece in longer.items()}
        for piece in fitting:
            owner, k = number[piece.owner, piece.end]
            originals[owner][k] = piece
        waiting = {number[p.owner, p.end]: waiting[number[p.owner, p.end]] for p in others}
        overlap /= 2
    return originals
