"""Cutting a sequence of token vectors into adjacent windows, and how much of its variance lies inside them.

A window is kept as its mean. What is lost under mean squared error is exact: the scatter Σ‖x − μ‖² inside the windows,
as a share of the scatter of the whole text. Windows of equal length are `window_bounds`; windows that are cut where the
vectors change are `Spans`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.streaming import Grouping, measure

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def window_bounds(tokens: int, ratio: int) -> Index:
    """Where windows of `ratio` tokens begin, and the end; the last one may be shorter.

    >>> window_bounds(7, 3).tolist()
    [0, 3, 6, 7]
    """
    return np.append(np.arange(0, tokens, ratio), tokens)


def text_windows(offsets: Index, ratio: int) -> tuple[Index, Index]:
    """Windows of texts that stand one after the other: their bounds in the row of tokens, and the text of each.

    >>> [part.tolist() for part in text_windows(np.array([0, 3, 5]), 2)]
    [[0, 2, 3, 5], [0, 0, 1]]
    """
    counts = -(-np.diff(offsets) // ratio)
    owner = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    return np.append(offsets[owner] + within * ratio, offsets[-1]), owner


def window_scatters(tokens: NDArray[Any], bounds: Index) -> Array:
    """Σ‖x − μ‖² of each window of a row of vectors (n × d); NaN and infinity are an error.

    >>> window_scatters(np.array([[0.0], [2.0], [5.0]]), np.array([0, 2, 3])).tolist()
    [2.0, 0.0]
    """
    windows = len(bounds) - 1
    return measure(tokens, Grouping(np.arange(windows), np.arange(len(tokens)), bounds))[0].scatters


def leading_scatters(windows: NDArray[Any]) -> Array:
    """The part of Σ‖x − μ‖² along the direction in which a window spreads most, of windows of one length (w × n × d).

    >>> leading_scatters(np.array([[[1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, -0.5]]])).round(12).tolist()
    [2.0]
    """
    centred = windows - windows.mean(axis=1, dtype=np.float64, keepdims=True)
    turned = centred.transpose(0, 2, 1)
    small = centred @ turned if centred.shape[1] < centred.shape[2] else turned @ centred
    return np.maximum(np.linalg.eigvalsh(small)[:, -1], 0.0)


def second_order_loss(tokens: NDArray[Any], ratio: int) -> float:
    """Σ‖x − μ‖² that neither the means nor the first directions of windows hold, at the storage of plain windows.

    Two neighbouring windows of `ratio` tokens become one, kept as two vectors: its mean and the direction in which it
    spreads most, as long as its standard deviation there. A window without a partner stays as it is. The order of the
    tokens along that direction is not kept, so this bounds from below what can be had back of each token.

    >>> round(second_order_loss(np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [9.0, 1.0]]), 2), 12)
    0.0
    """
    windows, pairs = -(-len(tokens) // ratio), window_bounds(len(tokens), 2 * ratio)
    lost = window_scatters(tokens, pairs)
    whole = len(tokens) // (2 * ratio)
    if whole:
        lost[:whole] -= leading_scatters(tokens[: pairs[whole]].reshape(whole, 2 * ratio, -1))
    if whole < len(lost) and windows % 2 == 0:  # a last pair, whose second window is short
        lost[whole] -= leading_scatters(tokens[None, pairs[whole] :])[0]
    return float(np.maximum(lost, 0.0).sum())


def exchangeable_share(tokens: Any, windows: Any) -> Any:
    """What windows lose on average of tokens in random order, 1 − (m − 1)/(n − 1); 0 for one token.

    >>> exchangeable_share(np.array([9, 1]), np.array([3, 1])).tolist()
    [0.75, 0.0]
    """
    return np.where(tokens > 1, 1 - (windows - 1) / np.maximum(tokens - 1, 1), 0.0)


@dataclass(frozen=True)
class Spans:
    """Adjacent windows of a text, cut where its vectors change, for every number of windows at once.

    Begun with one window a token, the two neighbours whose union costs least are joined again and again (Ward, with
    neighbours only). `losses[k − 1]` is the scatter inside k windows; `removed` are the places of the cuts in the order
    in which they fell. The cuts of a budget are not the best there are: each step is, given those before it.

    >>> spans = Spans.of(np.array([[0.0], [0.1], [5.0], [5.1], [5.2]]))
    >>> spans.bounds(2).tolist(), spans.losses[1:3].round(3).tolist()
    ([0, 2, 5], [0.025, 0.01])
    """

    losses: Array
    removed: Index

    @classmethod
    def of(cls, tokens: NDArray[Any]) -> Spans:
        """Join windows from single tokens to the whole text (n × d); takes n steps of O(d)."""
        count = len(tokens)
        means = tokens.astype(np.float64)
        sizes, following = [1] * count, [*range(1, count), -1]
        previous = list(range(-1, count - 1))
        steps = means[1:] - means[:-1]
        heap = [(cost, k, 1, 1) for k, cost in enumerate((0.5 * np.einsum("ij,ij->i", steps, steps)).tolist())]
        heapq.heapify(heap)
        costs, removed = np.zeros(count - 1), np.zeros(count - 1, np.int64)
        done = 0
        while done < count - 1:
            cost, left, left_size, right_size = heapq.heappop(heap)
            right = following[left]
            # An entry is of the past if one of its two windows has grown, or is gone, since.
            if right < 0 or sizes[left] != left_size or sizes[right] != right_size:
                continue
            costs[done], removed[done] = cost, right
            done += 1
            sizes[left] += right_size
            means[left] += (means[right] - means[left]) * (right_size / sizes[left])
            sizes[right], after = 0, following[right]
            following[left] = after
            if after >= 0:
                previous[after] = left
                heapq.heappush(heap, _joining(means, sizes, left, after))
            if previous[left] >= 0:
                heapq.heappush(heap, _joining(means, sizes, previous[left], left))
        return cls(np.append(np.cumsum(costs)[::-1], 0.0), removed)

    def bounds(self, windows: int) -> Index:
        """Where so many windows begin, and the end; there are at most as many as tokens."""
        count = len(self.removed) + 1
        kept = self.removed[count - min(windows, count) :]
        return np.concatenate([[0], np.sort(kept), [count]])


def _joining(means: Array, sizes: list[int], left: int, right: int) -> tuple[float, int, int, int]:
    """What the scatter grows by when two windows become one, n_a n_b/(n_a + n_b) · ‖μ_a − μ_b‖²."""
    step = means[right] - means[left]
    a, b = sizes[left], sizes[right]
    return float(step @ step) * a * b / (a + b), left, a, b
