"""Summaries of a stream of values that is too long to keep: counts, sums, quantiles, largest entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class LogHistogram:
    """Counts of non-negative values in bins of equal relative width (0.01 %), whatever their range.

    Values below `FLOOR`, zero and (in compatibility mode) slightly negative ones share the first bin. A quantile read
    from it is within 0.01 % of the exact one.
    """

    FLOOR, CEILING, WIDTH = 1e-12, 1e6, 1e-4

    def __init__(self) -> None:
        self._log_floor = np.log(self.FLOOR)
        bins = int(np.ceil((np.log(self.CEILING) - self._log_floor) / self.WIDTH)) + 2
        self.counts = np.zeros(bins, dtype=np.int64)

    def add(self, values: Array) -> None:
        logs = np.log(np.maximum(values, self.FLOOR))
        bins = ((logs - self._log_floor) / self.WIDTH).astype(np.int64) + 1
        bins[values <= self.FLOOR] = 0
        self.counts += np.bincount(bins.clip(max=len(self.counts) - 1), minlength=len(self.counts))

    def edges(self) -> Array:
        """Lower edge of every bin, and the upper edge of the last."""
        inner = np.exp(self._log_floor + self.WIDTH * np.arange(len(self.counts)))
        return np.concatenate([[0.0], inner])

    def centres(self) -> Array:
        """Middle of every bin."""
        edges = self.edges()
        return np.asarray((edges[1:] + edges[:-1]) / 2)

    def quantile(self, q: float) -> float:
        cumulative = np.cumsum(self.counts)
        k = int(np.searchsorted(cumulative, q * cumulative[-1]))
        return 0.0 if k == 0 else float(self.centres()[k])

    def share_at_least(self, threshold: float) -> float:
        """Share of the values ≥ threshold; the bin that holds the threshold is split evenly."""
        edges = self.edges()
        k = int(np.searchsorted(edges, threshold, side="right")) - 1
        if k >= len(self.counts):
            return 0.0
        inside = (edges[k + 1] - threshold) / (edges[k + 1] - edges[k])
        return float((self.counts[k + 1 :].sum() + inside * self.counts[k]) / self.counts.sum())


class Largest:
    """The k largest values of a stream, with their columns; ties go to the smaller first columns."""

    def __init__(self, k: int) -> None:
        self.size = k
        self.values: Array = np.empty(0)
        self.columns: tuple[NDArray[Any], ...] = ()

    def add(self, values: Array, *columns: NDArray[Any]) -> None:
        if len(self.values) == self.size:  # most pieces have nothing to add
            candidates = values >= self.values[-1]
            values, columns = values[candidates], tuple(column[candidates] for column in columns)
        if self.columns:
            values = np.concatenate([self.values, values])
            columns = tuple(np.concatenate(both) for both in zip(self.columns, columns, strict=True))
        order = np.lexsort((*columns[::-1], -values))[: self.size]
        self.values, self.columns = values[order], tuple(column[order] for column in columns)

    @property
    def threshold(self) -> float:
        """What a value must reach to enter; −∞ while there is room."""
        return float(self.values[-1]) if len(self.values) == self.size else -np.inf
