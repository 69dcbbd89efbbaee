"""Texts by length: bins of fixed width, of equal numbers, or with given edges; bins with too few texts are merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError, shorten, whole_number
from poolscope.results import cells

Index = NDArray[np.int64]

# Mean cosines of fewer texts say little: 20 texts are 190 pairs.
# Where fewer than a tenth of the texts have so many tokens, bins of 50 tokens part them too coarsely: quantiles do.
LONG, QUANTILE_BINS = 100, 5
MIN_TEXTS = 20
_MOST_BINS = 20
_MOST_GIVEN = 10_000
_WIDTHS = (1, 2, 4, 5, 10)  # times 50, 500, 5000, …


@dataclass(frozen=True)
class LengthBins:
    """Bin b holds the lengths edges[b] ≤ n < edges[b + 1]; the last one holds its upper edge too.

    `of` gives the bin of every text, `counts` the texts of every bin. `merged` says which bins had too few texts and
    were joined with a neighbour.
    """

    edges: tuple[float, ...]
    of: Index = field(repr=False)
    counts: Index
    merged: tuple[str, ...]
    kind: str

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins in words, such as "50–100"."""
        return tuple(_label(low, high) for low, high in pairwise(self.edges))

    def notes(self) -> tuple[str, ...]:
        """What was done to the bins, in sentences."""
        return tuple(f"Bins with too few texts were merged: {sentence}." for sentence in self.merged)


def length_bins(lengths: Index, bins: int | Sequence[float] | None = None, *, min_texts: int = MIN_TEXTS) -> LengthBins:
    """Put lengths into bins. `bins`: None for widths of 50 (more where texts are so long that there would be more than
    20 bins), a number for that many bins of about equal numbers of texts, or the edges themselves.

    A bin with fewer than `min_texts` texts is merged with the next longer one, the last with the one before it.

    >>> by_bin = length_bins(np.array([3, 60, 70, 130, 140]), min_texts=2)
    >>> by_bin.labels, by_bin.counts.tolist(), by_bin.merged
    (('0–100', '100–150'), [3, 2], ('0–50, 50–100 → 0–100',))
    """
    min_texts = whole_number(min_texts, "min_texts")
    edges, kind = _edges(lengths, bins)
    counts = np.histogram(lengths, edges)[0]
    kept, merged = _merge(edges, counts, min_texts)
    of = np.minimum(np.searchsorted(kept, lengths, side="right") - 1, len(kept) - 2)
    return LengthBins(tuple(kept), of, np.bincount(of, minlength=len(kept) - 1), merged, kind)


def histogram_bins(histogram: Index, bins: Sequence[float] | None = None, *, min_texts: int = MIN_TEXTS) -> LengthBins:
    """The bins of `length_bins` from the number of texts of every length (0, 1, 2, …); `of` is empty.

    >>> histogram_bins(np.bincount([3, 60, 70, 130, 140]), min_texts=2).labels
    ('0–100', '100–150')
    """
    present = np.flatnonzero(histogram)
    edges, kind = _edges(present[[0, -1]], bins)
    counts = np.histogram(np.arange(len(histogram)), edges, weights=histogram)[0].astype(np.int64)
    kept, merged = _merge(edges, counts, min_texts)
    counts = np.histogram(np.arange(len(histogram)), kept, weights=histogram)[0].astype(np.int64)
    return LengthBins(tuple(kept), np.zeros(0, dtype=np.int64), counts, merged, kind)


def _edges(lengths: Index, bins: int | Sequence[float] | None) -> tuple[list[float], str]:
    longest = float(lengths.max())
    if bins is None:
        width = _width(longest)
        return [float(edge) for edge in np.arange(0, longest + width + 1, width) if edge - width <= longest], "fixed"
    if not isinstance(bins, Iterable) or isinstance(bins, str):
        number = float(bins) if isinstance(bins, Real) and not isinstance(bins, bool) else 0.0
        if not 1 <= number <= _MOST_GIVEN or not number.is_integer():
            raise InputError(
                f"bins: received {shorten(bins)}; allowed: a number of bins from 1 to {_MOST_GIVEN:,}, "
                f"edges, or None for widths of 50."
            )
        # The last edge is above the longest, so that texts that were all cut at one length get a bin of their own.
        lower = np.unique(np.quantile(lengths, np.arange(number) / number, method="closest_observation"))
        return [*(float(edge) for edge in lower), longest + 1], "quantile"
    try:
        edges = [float(edge) for edge in bins]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"bins: received {shorten(bins)}; edges are numbers that rise. Pass these.") from None
    rising = len(edges) > 1 and all(low < high for low, high in pairwise(edges))
    if not rising or lengths.min() < edges[0] or longest > edges[-1]:
        raise InputError(
            f"bins: received the edges {edges}; needed are two or more that rise and hold all lengths, here "
            f"{lengths.min()} to {lengths.max()}. Widen the first or the last, or give a number of bins."
        )
    return edges, "given"


def _width(longest: float) -> int:
    """50, or the first round number above it with which the bins are few enough to read.

    >>> [_width(longest) for longest in (256, 1000, 8709)]
    [50, 100, 500]
    """
    power = 50
    while True:
        for times in _WIDTHS:
            if longest / (power * times) < _MOST_BINS:
                return power * times
        power *= 10


def _merge(edges: Sequence[float], counts: Index, min_texts: int) -> tuple[list[float], tuple[str, ...]]:
    """The edges that remain, and in words what was joined."""
    kept, held = [edges[0]], 0
    for high, count in zip(edges[1:], counts, strict=True):
        held += int(count)
        if held >= min_texts:
            kept.append(high)
            held = 0
    if kept[-1] != edges[-1]:  # what is left at the end joins the bin before it
        kept = [*(kept[:-1] if len(kept) > 1 else kept), edges[-1]]
    merged = []
    for low, high in pairwise(kept):
        parts = [_label(a, b) for a, b in pairwise(edges) if low <= a and b <= high]
        if len(parts) > 1:
            merged.append(f"{', '.join(parts)} → {_label(low, high)}")
    return kept, tuple(merged)


def _label(low: float, high: float) -> str:
    return f"{low:g}–{high:g}"


def table_rows(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Records of one kind (of bins, places, lengths) as rows of a table: the same columns in all, `label` as `bin`."""
    rows = []
    for record in records:
        values = {part.name: getattr(record, part.name) for part in fields(record)}
        rows.append(cells({"bin" if name == "label" else name: value for name, value in values.items()}))
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]
