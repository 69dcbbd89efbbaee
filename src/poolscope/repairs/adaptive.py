"""Several vectors for texts that need them, under one budget for the corpus; a text is found by its best vector.

A text whose tokens lie close together keeps one vector, their mean. Others get more. The next vectors go to the text
whose spread inside its parts falls most by them, for each vector. Parts are the adjacent spans that lose least, or
clusters of tokens (k-means, begun from those spans).
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds
from poolscope.clouds.vectors import Vectors
from poolscope.errors import InputError, did_you_mean, shorten, whole_number
from poolscope.files import atomic_file
from poolscope.numbers import Array, Index
from poolscope.numbers.bures.pairs import workers
from poolscope.numbers.moments import Spans, spans_of, window_scatters
from poolscope.numbers.ranking import unit_rows
from poolscope.surface import check_fields

PARTS = ("spans", "clusters")
TOKEN_POOLINGS = ("clusters", "spans", "merged")
_ROUNDS = 20  # of k-means; clouds are small and begin near their end


@dataclass(frozen=True, eq=False)
class SeveralVectors:
    """The vectors of texts (B × d), those of one text one after the other: text i has rows `offsets[i]:offsets[i + 1]`.

    `ids` name the texts. `plain()` hands them out as ordinary vectors, with ids such as "text#0", "text#1", for any
    index; whoever searches takes the best row of each text.
    """

    vectors: Array
    offsets: Index
    ids: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> Index:
        """Vectors of each text."""
        return np.diff(self.offsets)

    def plain(self) -> Vectors:
        """One row a vector; what stands after the last "#" of an id is the number of the vector within its text."""
        names = tuple(f"{name}#{k}" for name, count in zip(self.ids, self.counts, strict=True) for k in range(count))
        return Vectors(self.vectors, None, None, names, source="AdaptivePooling")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plain vectors and their ids as `.npz`, atomically; `read_vectors` and numpy read it."""
        if Path(path).suffix != ".npz":
            raise InputError(f"{path}: received the ending '{Path(path).suffix}'; allowed: .npz.")
        with atomic_file(path) as stream:
            np.savez(stream, vectors=self.vectors.astype(np.float32), ids=np.array(self.plain().ids))

    def scores(self, queries: Any) -> Array:
        """The best cosine of each query (rows) with the vectors of each text (columns)."""
        cosines = unit_rows(queries, "queries") @ unit_rows(self.vectors, "vectors").T
        return np.asarray(np.maximum.reduceat(cosines.astype(np.float64), self.offsets[:-1], axis=1))


@dataclass(frozen=True)
class AdaptivePooling:
    """From clouds to one to `most` vectors a text, `budget` a text on average over the corpus.

    Parameters
    ----------
    budget
        Vectors a text on average, 1 or more; the corpus gets `budget` times its number of texts, rounded.
    most
        No text gets more.
    parts
        "spans" (adjacent tokens, cut where they change) or "clusters" (k-means of the tokens).

    Examples
    --------
    >>> one = [[1.0, 0.0], [1.0, 0.1], [1.0, -0.1]]                     # says one thing
    >>> two = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]          # says two
    >>> several = AdaptivePooling(budget=1.5).transform(TokenClouds.from_arrays([one, two], ids=["a", "b"]))
    >>> several.counts.tolist(), several.plain().ids
    ([1, 2], ('a#0', 'b#0', 'b#1'))

    """

    budget: float = 2.0
    most: int = 8
    parts: str = "spans"

    def __post_init__(self) -> None:
        check_fields(self)
        whole_number(self.most, "most")
        if self.parts not in PARTS:
            raise InputError(
                f"parts: received {self.parts!r}; allowed: {', '.join(PARTS)}.{did_you_mean(self.parts, PARTS)}"
            )
        if not 1 <= self.budget <= self.most:
            raise InputError(f"budget: received {self.budget!r}; allowed: 1 to {self.most}, vectors a text on average.")

    @property
    def label(self) -> str:
        """In a few words, for tables."""
        return f"adaptive {self.parts}, {self.budget:g} a text"

    def transform(self, clouds: TokenClouds) -> SeveralVectors:
        """The vectors of every text; the budget is that of these texts together."""
        cut_one = partial(_Cuts.of, most=self.most, clusters=self.parts == "clusters")
        with workers() as pool:  # one thread of BLAS each: products of one text are too small to share
            cuts = list(pool.map(cut_one, map(np.asarray, clouds)))
        counts = allocate([cut.losses for cut in cuts], round(self.budget * len(cuts)))
        rows = [cut.means(count) for cut, count in zip(cuts, counts.tolist(), strict=True)]
        return owned_rows(np.concatenate(rows), [len(row) for row in rows], clouds.ids)


def pooled_tokens(clouds: TokenClouds, counts: Sequence[int], *, by: str = "clusters") -> dict[int, SeveralVectors]:
    """The means of so many groups of tokens a text, for each of these numbers.

    by: "clusters" (k-means, begun from spans), "spans" (neighbours that lose least), or "merged" (hierarchical: the two
    groups whose union spreads least are merged, Ward, of tokens at length 1). A text of fewer tokens keeps them all;
    where a cluster runs empty, or groups are equally near, the text has fewer.

    >>> clouds = TokenClouds.from_arrays([[[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]]])
    >>> {count: several.counts.tolist() for count, several in pooled_tokens(clouds, [2, 4]).items()}
    {2: [2], 4: [3]}
    >>> pooled_tokens(clouds, [2], by="merged")[2].vectors.round(2).tolist()
    [[0.95, 0.05], [0.0, 1.0]]
    """
    if by not in TOKEN_POOLINGS:
        raise InputError(
            f"by: received {by!r}; allowed: {', '.join(TOKEN_POOLINGS)}.{did_you_mean(by, TOKEN_POOLINGS)}"
        )
    rows: dict[int, list[Array]] = {count: [] for count in counts}
    with workers() as pool:
        for means in pool.map(partial(_means_of_groups, counts=counts, by=by), map(np.asarray, clouds)):
            for count, own in zip(counts, means, strict=True):
                rows[count].append(own)
    return _by_count(rows, clouds.ids)


def _means_of_groups(tokens: NDArray[Any], counts: Sequence[int], by: str) -> list[Array]:
    """The means of the groups of one text, for each number of groups."""
    labels = _merged(tokens, counts) if by == "merged" else _grouped(tokens, counts, clusters=by == "clusters")
    return [_part_means(tokens, label) for label in labels]


def attended_tokens(
    clouds: TokenClouds, counts: Sequence[int], salience: Sequence[ArrayLike]
) -> dict[int, SeveralVectors]:
    """So many groups of tokens a text around those that matter most, each as the mean of its tokens by salience.

    salience: how much each token matters, an array of 0 or more a text, such as the attention that it receives. The
    most salient tokens are the centres; every other token goes to the centre of the highest cosine.

    >>> clouds = TokenClouds.from_arrays([[[1.0, 0.0], [0.0, 1.0], [0.8, 0.2]]])
    >>> attended_tokens(clouds, [2], [[3.0, 2.0, 1.0]])[2].vectors.round(2).tolist()
    [[0.95, 0.05], [0.0, 1.0]]
    """
    try:
        weights = [np.asarray(each, dtype=np.float64) for each in salience]
    except (TypeError, ValueError) as error:
        raise InputError(f"salience: received {shorten(salience)}; needed: an array of numbers a text.") from error
    if [each.shape for each in weights] != [(length,) for length in clouds.lengths]:
        raise InputError(
            f"salience: received {len(weights)} arrays of {sum(each.size for each in weights):,} numbers; needed: one "
            f"a token of each of the {len(clouds)} texts, {int(clouds.lengths.sum()):,} in all."
        )
    if not all(np.isfinite(each).all() and (each >= 0).all() for each in weights):
        raise InputError("salience: received a number that is negative or not finite; allowed: 0 or more, one a token.")
    rows: dict[int, list[Array]] = {count: [] for count in counts}
    for cloud, weight in zip(clouds, weights, strict=True):
        tokens = np.asarray(cloud, dtype=np.float64)
        lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
        unit, order = tokens / np.where(lengths > 0, lengths, 1.0), np.argsort(-weight, kind="stable")
        for count in counts:
            centres = np.sort(order[:count])
            label = (unit @ unit[centres].T).argmax(axis=1)
            label[centres] = np.arange(len(centres))  # equal tokens stay apart
            share = weight if weight.any() else np.ones(len(tokens))
            sums = np.stack([np.bincount(label, share * column, len(centres)) for column in tokens.T], axis=1)
            whole = np.bincount(label, share, len(centres))[:, None]
            rows[count].append(np.divide(sums, whole, out=tokens[centres].copy(), where=whole > 0))
    return _by_count(rows, clouds.ids)


def _grouped(tokens: NDArray[Any], counts: Sequence[int], *, clusters: bool) -> Iterator[Index]:
    """A label for every token: its span, or its cluster."""
    spans = Spans.of(tokens)
    for count in counts:
        bounds = spans.bounds(min(count, len(tokens)))
        label = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        yield _clusters(tokens, label) if clusters else label


def _merged(tokens: NDArray[Any], counts: Sequence[int]) -> Iterator[Index]:
    """A label for every token: its branch of the tree of merged groups, cut so that so many are left."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(tokens) == 1:
        yield from (np.zeros(1, dtype=np.int64) for _ in counts)
        return
    lengths = np.linalg.norm(tokens.astype(np.float64), axis=1, keepdims=True)
    tree = linkage(tokens / np.where(lengths > 0, lengths, 1.0), method="ward")
    yield from (fcluster(tree, min(count, len(tokens)), criterion="maxclust") for count in counts)


def allocate(losses: Sequence[Array], budget: int) -> Index:
    """How many vectors each text gets: one each, then further ones where the loss falls most for each vector.

    losses: of each text what is lost with 1, 2, … vectors. A second vector may win little and a third much: a text
    takes as many at once as win most for each. So no other way to spend what was spent loses less, but for the last
    vectors, where such a step no longer fits. Fewer than `budget` are given only if no text can take more.

    >>> allocate([np.array([4.0, 1.0, 0.5]), np.array([2.0, 1.5])], 4).tolist()
    [3, 1]
    >>> allocate([np.array([4.0, 3.9, 0.0]), np.array([2.0, 1.5])], 4).tolist()
    [3, 1]
    """
    counts = np.ones(len(losses), dtype=np.int64)
    left = budget - len(losses)
    heap = [_step(loss, 1, text) for text, loss in enumerate(losses) if len(loss) > 1]
    heapq.heapify(heap)
    while heap and left > 0:
        _, text, more = heapq.heappop(heap)
        loss, count = losses[text], int(counts[text])
        if more > left:  # what fits of it
            heapq.heappush(heap, _step(loss[: count + left], count, text))
            continue
        counts[text], left = count + more, left - more
        if count + more < len(loss):
            heapq.heappush(heap, _step(loss, count + more, text))
    return counts


def _step(loss: Array, count: int, text: int) -> tuple[float, int, int]:
    """The further vectors of a text with `count` that win most for each: what they change for each, text, how many."""
    slopes = (loss[count:] - loss[count - 1]) / np.arange(1, len(loss) - count + 1)
    more = int(slopes.argmin()) + 1
    return float(slopes[more - 1]), text, more


@dataclass(frozen=True)
class _Cuts:
    """The parts of one text for 1, 2, … vectors: a label for every token, and the spread inside the parts."""

    tokens: NDArray[Any]
    labels: list[Index]
    losses: Array

    @classmethod
    def of(cls, tokens: NDArray[Any], most: int, *, clusters: bool) -> _Cuts:
        spans, labels, losses = spans_of(tokens, most), [], []
        for count in range(1, min(most, len(tokens)) + 1):
            bounds = spans.bounds(count)
            label = np.repeat(np.arange(count), np.diff(bounds))
            if clusters and count > 1:
                label = _clusters(tokens, label)
            labels.append(label)
            if not clusters:
                losses.append(float(spans.losses[count - 1]) / len(tokens))
                continue
            order = np.argsort(label, kind="stable")
            starts = np.append(np.flatnonzero(np.diff(label[order], prepend=-1)), len(tokens))
            losses.append(float(window_scatters(tokens[order], starts).sum()) / len(tokens))
        return cls(tokens, labels, np.array(losses))

    def means(self, count: int) -> Array:
        """The mean of each part, in the order in which the parts begin."""
        return _part_means(self.tokens, self.labels[count - 1])


def _part_means(tokens: NDArray[Any], label: Index) -> Array:
    """The mean of the tokens of each label, in the order in which the labels first occur."""
    first = np.unique(label, return_index=True)[1]
    return np.stack([tokens[label == label[at]].astype(np.float64).mean(axis=0) for at in np.sort(first)])


def _clusters(tokens: NDArray[Any], label: Index) -> Index:
    """k-means from these parts: each token to the nearest mean, until nothing moves; a part may become empty."""
    X = tokens.astype(np.float64)
    for _ in range(_ROUNDS):
        belongs = (label[:, None] == np.arange(label.max() + 1)).astype(np.float64)
        means = belongs.T @ X / belongs.sum(axis=0)[:, None]
        nearest = ((means**2).sum(axis=1) - 2 * X @ means.T).argmin(axis=1)
        if np.array_equal(nearest, label):
            break
        label = np.unique(nearest, return_inverse=True)[1]
    return label


def _by_count(rows: Mapping[int, Sequence[Array]], ids: Sequence[str]) -> dict[int, SeveralVectors]:
    """The rows of every text, for each number of groups."""
    return {count: owned_rows(np.concatenate(parts), [len(own) for own in parts], ids) for count, parts in rows.items()}


def owned_rows(vectors: Array, counts: Sequence[int], ids: Sequence[str]) -> SeveralVectors:
    """The vectors of texts by their numbers of vectors."""
    return SeveralVectors(vectors, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), tuple(ids))
