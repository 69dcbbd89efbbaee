"""Moments and draws that merge: from any number of pieces, in any order, what one pass over the whole gives.

Vectors are counted in groups (`GroupedMoments`). A draw keeps the texts with the smallest marks; a mark is a number
that hangs on the name (or content) of a text alone and is as good as drawn at random. A text among the smallest marks
of the whole is among those of every part, so the draws of parts merge to exactly the draw of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.numbers import Array, Index
from poolscope.texts.groups import document_of_id

# Elements of the float64 copy that is worked on at a time: 2 MB stay in the cache of a core.
BLOCK_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class Grouping:
    """Which rows form a group: `order[bounds[g]:bounds[g + 1]]` are the rows of the group named `keys[g]`.

    >>> grouping = Grouping.of(np.array([7, 3, 7]))
    >>> grouping.keys.tolist(), grouping.order.tolist(), grouping.sizes.tolist()
    ([3, 7], [1, 0, 2], [1, 2])
    """

    keys: Index
    order: Index
    bounds: Index

    @classmethod
    def of(cls, keys: NDArray[Any]) -> Grouping:
        """Group rows by the whole number that stands beside each of them; the groups in rising order of the number."""
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(keys) else order
        return cls(ordered[starts].astype(np.int64), order, np.append(starts, len(keys)).astype(np.int64))

    @property
    def sizes(self) -> Index:
        """Rows of each group."""
        return np.diff(self.bounds)


@dataclass
class DirectionSum:
    """Sum of unit vectors x/‖x‖ (d) over `count` vectors; `zeros` had no direction and are left out.

    >>> directions = DirectionSum(np.array([1.0, 1.0]), count=2)      # two orthogonal vectors
    >>> directions.mean_cosine
    0.0
    """

    total: Array
    count: int = 0
    zeros: int = 0

    @property
    def mean_cosine(self) -> float | None:
        """Mean cosine over all pairs of different vectors, (‖Σ x/‖x‖‖² − n)/(n(n − 1)); None for fewer than two."""
        if self.count < 2:
            return None
        return (float(self.total @ self.total) - self.count) / (self.count * (self.count - 1.0))

    def add(self, other: DirectionSum) -> None:
        """Take in the vectors of another sum."""
        self.total += other.total
        self.count += other.count
        self.zeros += other.zeros


@dataclass
class GroupedMoments:
    """Counts (G), means (G × d), scatters Σ‖x − μ‖² (G) and squares Σ‖x‖² (G) of G groups of vectors.

    >>> moments, _ = measure(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), Grouping.of(np.array([5, 9, 5])))
    >>> moments.means.tolist(), moments.variances.tolist(), moments.mean_squares.tolist()
    ([[2.0, 0.0], [0.0, 2.0]], [1.0, 0.0], [5.0, 4.0])
    """

    counts: Index
    means: Array
    scatters: Array
    squares: Array

    @classmethod
    def empty(cls, groups: int, dimension: int) -> GroupedMoments:
        """Groups without vectors."""
        return cls(np.zeros(groups, np.int64), np.zeros((groups, dimension)), np.zeros(groups), np.zeros(groups))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def mean_squares(self) -> Array:
        """Q (G): mean of ‖x‖². No group may be empty, here and in the next two."""
        return self.squares / self.counts

    @property
    def norms_of_means(self) -> Array:
        """M (G): ‖mean of x‖²."""
        return row_squares(self.means)

    @property
    def variances(self) -> Array:
        """V (G): sum of the variances of the dimensions, divided by n; Q = M + V."""
        return self.scatters / self.counts

    def select(self, groups: NDArray[Any]) -> GroupedMoments:
        """Some groups (numbers or a mask), copied."""
        return GroupedMoments(*(column[groups] for column in vars(self).values()))

    def grow(self, groups: int) -> None:
        """Make room for at least so many groups; doubles, so that growing one by one stays cheap."""
        if groups > len(self):
            room = GroupedMoments.empty(max(groups, 2 * len(self)) - len(self), self.means.shape[1])
            vars(self).update(vars(self.join(room)))

    def merge(self, groups: Index, other: GroupedMoments) -> None:
        """Take in the vectors of `other`: its group k into the group `groups[k]`, all of them different."""
        mine, theirs = self.counts[groups], other.counts
        total = mine + theirs
        share = theirs / np.maximum(total, 1)
        means = self.means[groups]
        shift = other.means - means
        self.scatters[groups] += other.scatters + row_squares(shift) * mine * share
        shift *= share[:, None]
        shift += means
        self.means[groups] = shift
        self.squares[groups] += other.squares
        self.counts[groups] = total

    def join(self, other: GroupedMoments) -> GroupedMoments:
        """The groups of both, those of `other` behind."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return GroupedMoments(*(np.concatenate(columns) for columns in both))

    def union(self) -> GroupedMoments:
        """The moments of all vectors together, as one group."""
        count, centre, between = self._between()
        return GroupedMoments(
            np.array([count]),
            centre[None],
            np.array([self.scatters.sum() + between]),
            np.array([self.squares.sum()]),
        )

    def decompose(self) -> Decomposition:
        """What the norms of all vectors are made of, with the groups as clusters; there must be a vector."""
        count, centre, between = self._between()
        return Decomposition(
            count,
            mean_square=float(self.squares.sum()) / count,
            norm_of_mean=float(centre @ centre),
            within=float(self.scatters.sum()) / count,
            between=between / count,
        )

    def _between(self) -> tuple[int, Array, float]:
        """Number of all vectors, their mean, and Σ n ‖μ − mean‖² over the groups."""
        count = int(self.counts.sum())
        centre = self.counts @ self.means / max(count, 1)
        return count, centre, float(self.counts @ row_squares(self.means - centre))


@dataclass(frozen=True)
class Decomposition:
    """Mean squared norm of `count` vectors in clusters, Q = M + V_W + V_B.

    `mean_square` Q: mean of ‖x‖²; `norm_of_mean` M: ‖mean of x‖²; `within` V_W: mean squared distance of a vector to
    the mean of its cluster; `between` V_B: mean squared distance of that mean to the mean of all. Q is summed on its
    own, so that `residual`, |Q − M − V|/Q, tells how far rounding went.
    """

    count: int
    mean_square: float
    norm_of_mean: float
    within: float
    between: float

    @property
    def variance(self) -> float:
        """V = V_W + V_B, the sum of the variances of the dimensions."""
        return self.within + self.between

    @property
    def residual(self) -> float:
        """|Q − M − V|/Q (0 where Q is 0)."""
        gap = abs(self.mean_square - self.norm_of_mean - self.variance)
        return gap / self.mean_square if self.mean_square else gap

    @property
    def shares(self) -> tuple[float, float, float]:
        """M/Q, V_W/Q, V_B/Q; they sum to 1 (all 0 where every vector is zero)."""
        scale = self.mean_square or 1.0
        return self.norm_of_mean / scale, self.within / scale, self.between / scale


def measure(
    rows: NDArray[Any],
    grouping: Grouping,
    *,
    directed: NDArray[np.bool_] | None = None,
    block_elements: int = BLOCK_ELEMENTS,
) -> tuple[GroupedMoments, DirectionSum]:
    """Moments of the groups of rows (n × d, any float type), and the sum of the unit vectors of the `directed` groups.

    `directed` is a mask over the groups (None: all of them). NaN and infinity are an error. `block_elements` numbers at
    a time are held in double precision.
    """
    most_rows = max(1, block_elements // rows.shape[1])
    bounds, owner = text_windows(grouping.bounds, most_rows)  # a large group is measured in parts, which merge
    pieces = np.bincount(owner)
    first = np.cumsum(pieces) - pieces
    wanted = np.full(len(owner), True) if directed is None else directed[owner]
    result = GroupedMoments.empty(len(owner), rows.shape[1])
    result.counts[:] = np.diff(bounds)
    directions = DirectionSum(np.zeros(rows.shape[1]))
    for parts in _runs(bounds, most_rows):
        block = rows[grouping.order[bounds[parts.start] : bounds[parts.stop]]].astype(np.float64)
        directions.add(_measure_block(block, bounds[parts] - bounds[parts.start], result, parts, wanted[parts]))
    groups = result.select(first)
    for number in range(1, pieces.max(initial=1)):
        longer = np.flatnonzero(pieces > number)
        groups.merge(longer, result.select(first[longer] + number))
    return groups, directions


def _measure_block(
    block: Array, starts: Index, result: GroupedMoments, parts: slice, wanted: NDArray[np.bool_]
) -> DirectionSum:
    """Put the moments of the parts of a block into `result`, and sum the directions of the `wanted` ones.

    The block is used up: in the end it holds deviations.
    """
    sizes = result.counts[parts]
    lengths = row_squares(block)
    if not np.isfinite(lengths).all():
        raise DegenerateCloudError(
            "the token vectors hold NaN, infinite or immense values; all must be finite. Encode the texts again, in "
            "float32."
        )
    result.squares[parts] = np.add.reduceat(lengths, starts)
    rows_wanted = np.repeat(wanted, sizes)
    counted = rows_wanted & (lengths > 0)
    inverse = np.zeros(len(lengths))
    np.divide(1, np.sqrt(lengths), out=inverse, where=counted)
    directions = DirectionSum(inverse @ block, int(counted.sum()), int(rows_wanted.sum()) - int(counted.sum()))
    centres = np.add.reduceat(block, starts, axis=0) / sizes[:, None]
    result.means[parts] = centres
    block -= np.repeat(centres, sizes, axis=0)
    result.scatters[parts] = np.add.reduceat(row_squares(block), starts)
    return directions


def text_windows(offsets: Index, ratio: int) -> tuple[Index, Index]:
    """Windows of texts that stand one after the other: their bounds in the row of tokens, and the text of each.

    >>> [part.tolist() for part in text_windows(np.array([0, 3, 5]), 2)]
    [[0, 2, 3, 5], [0, 0, 1]]
    """
    counts = -(-np.diff(offsets) // ratio)
    owner = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    return np.append(offsets[owner] + within * ratio, offsets[-1]), owner


def _runs(bounds: Index, most: int) -> Iterator[slice]:
    """Consecutive parts with at most `most` rows together."""
    start = 0
    while start < len(bounds) - 1:
        stop = int(np.searchsorted(bounds, bounds[start] + most, side="right")) - 1
        yield slice(start, stop)
        start = stop


def row_squares(rows: Array) -> Array:
    """‖x‖² of every row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def added(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """The sum of two arrays, the shorter one padded with zeros: histograms merge so.

    >>> added(np.array([1, 2]), np.array([1, 0, 3])).tolist()
    [2, 2, 3]
    """
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


def histogram_quantile(histogram: Index, share: float) -> int:
    """The whole number that a share of what was counted does not exceed, from how often 0, 1, 2, … came.

    >>> histogram_quantile(np.array([0, 2, 0, 2]), 0.5)
    1
    """
    below = np.cumsum(histogram)
    return int(np.searchsorted(below, share * below[-1]))


def mark_of(content: bytes) -> int:
    """The mark of a text: 63 bits of its digest.

    >>> mark_of(b"A man bites a dog.") == mark_of(b"A man bites a dog.") != mark_of(b"A dog bites a man.")
    True
    """
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1


def marks_of(names: Iterable[str | bytes], *, seed: int | None = None) -> Index:
    r"""Marks of texts by their words or ids; marks of two seeds are independent.

    This is the one place that turns words into draws: a blank more or less makes no other text of one.

    >>> texts = ["A man bites a dog.", "It rains."]
    >>> marks_of(texts, seed=1).tolist() == marks_of(texts[::-1], seed=1)[::-1].tolist() != marks_of(texts).tolist()
    True
    >>> bool(marks_of(["It rains."]) == marks_of([" It  rains.\n"]))
    True
    """
    start = b"" if seed is None else b"%d " % seed
    contents = (
        name if isinstance(name, bytes) else " ".join(name.split()).encode("utf-8", "surrogatepass") for name in names
    )
    return np.array([mark_of(start + content) for content in contents], dtype=np.int64)


def numbered_by_words(of: Index, words: Iterable[str], *, seed: int) -> Index:
    """The unit of each text, with units numbered by the words of their texts: what is drawn for them has no order.

    >>> words = ["A man bites a dog.", "It rains.", "A dog bites a man."]
    >>> one, other = (numbered_by_words(np.arange(3), own, seed=0).tolist() for own in (words, words[::-1]))
    >>> one == other[::-1]
    True
    """
    marks = np.full(int(of.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(marks, of, marks_of(words, seed=seed))
    return np.asarray(np.argsort(np.argsort(marks, kind="stable"))[of])


def row_marks(rows: NDArray[Any], texts: Sequence[str] | None = None, *, seed: int | None = None) -> Index:
    """The marks of rows of numbers, by the words of their texts; by the numbers where the words are not known.

    Words come first, since vectors that are encoded in another order differ in their last digits.
    """
    return marks_of((row.tobytes() for row in rows) if texts is None else texts, seed=seed)


def document_marks(ids: Iterable[str]) -> Index:
    """The marks of the documents that ids of chunks name (doc#3); −1 for ids that name none.

    >>> found = document_marks(["a#1", "a#2", "b"])
    >>> bool(found[0] == found[1] >= 0), int(found[2])
    (True, -1)
    """
    names = [document_of_id(name) for name in ids]
    return np.array([-1 if name is None else mark_of(name.encode("utf-8", "surrogatepass")) for name in names])


def shuffled_order(names: Iterable[str], *, seed: int) -> Index:
    """Their positions in an order that names and seed give: whoever stands first in it is no matter of place.

    >>> [["a", "b", "c"][k] for k in shuffled_order("abc", seed=3)] == ["cab"[k] for k in shuffled_order("cab", seed=3)]
    True
    """
    return np.argsort(marks_of(names, seed=seed), kind="stable")


def text_marks(clouds: TokenClouds, texts: Index, *, seed: int | None = None) -> Index:
    """The marks of these texts by their words; by their vectors where the words are not known (`row_marks`)."""
    words = clouds.texts
    return marks_of((clouds[k].tobytes() if words is None else words[k] for k in texts.tolist()), seed=seed)


def pair_marks(first: Index, second: Index) -> Index:
    """The mark of each pair of two things with marks, the same for (i, j) and (j, i).

    Their sum modulo 2⁶³, which is as even as they are, and independent for any two pairs, also of one text.
    """
    return (first + second) & np.iinfo(np.int64).max


def smallest(marks: Index, most: int) -> Index:
    """The positions of the `most` smallest marks, in rising order of the positions: a draw that is no matter of place.

    >>> smallest(np.array([5, 1, 9, 3]), 2).tolist()
    [1, 3]
    """
    return np.sort(np.argsort(marks, kind="stable")[:most])


@dataclass(frozen=True, eq=False)
class VectorDraw:
    """A draw of at most `size` texts by smallest marks, in rising order: vectors, lengths and positions.

    `documents` tells the documents apart; a text whose document is not known has a number of its own, below 0.

    >>> marks = np.array([5, 1, 9])
    >>> draw = VectorDraw.of(np.eye(3), marks, size=2, lengths=np.array([7, 8, 9]))
    >>> draw.positions.tolist(), draw.lengths.tolist()
    ([1, 0], [8, 7])
    """

    size: int
    marks: Index
    positions: Index
    vectors: NDArray[Any]
    lengths: Index
    documents: Index

    @classmethod
    def of(
        cls,
        vectors: NDArray[Any],
        marks: Index,
        *,
        size: int,
        lengths: Index | None = None,
        documents: Index | None = None,
        start: int = 0,
    ) -> VectorDraw:
        """The draw of some texts; `start` is the position of the first of them in the corpus.

        `documents` are marks of them, below 0 where a text has none (`document_marks`).
        """
        drawn = _smallest(marks, size)
        counts = np.zeros(len(marks), dtype=np.int64) if lengths is None else lengths
        alone = -1 - start - np.arange(len(marks))
        own = alone if documents is None else np.where(documents < 0, alone, documents)
        return cls(size, marks[drawn], start + drawn, np.asarray(vectors[drawn]), counts[drawn], own[drawn])

    def merge(self, other: VectorDraw) -> VectorDraw:
        """The draw of the texts of both."""
        shapes = [draw.vectors.shape[1] for draw in (self, other)]
        if shapes[0] != shapes[1]:
            raise InputError(f"received parts of dimension {shapes[0]} and {shapes[1]}; all must be of one model.")
        marks = np.concatenate([self.marks, other.marks])
        drawn = _smallest(marks, self.size)
        columns = ("positions", "vectors", "lengths", "documents")
        joined = [np.concatenate([getattr(self, name), getattr(other, name)])[drawn] for name in columns]
        return VectorDraw(self.size, marks[drawn], *joined)

    def __len__(self) -> int:
        return len(self.marks)


def _smallest(marks: Index, size: int) -> Index:
    """Positions of the smallest marks, rising."""
    few = np.argpartition(marks, size)[:size] if len(marks) > size else np.arange(len(marks))
    return np.asarray(few[np.argsort(marks[few], kind="stable")])
