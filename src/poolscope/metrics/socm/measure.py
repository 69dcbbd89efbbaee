"""SOCM over a corpus: does mean pooling hide differences between these texts? (Hara et al. 2026, arXiv 2604.27398)"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, whole_number
from poolscope.files import atomic_path
from poolscope.metrics.socm.regression import socm_regression
from poolscope.metrics.socm.result import PAIR_SCHEMA, PairColumns, SocmResult, TraceCheck, columns_of, table_metadata
from poolscope.metrics.socm.score import SocmFormula
from poolscope.metrics.socm.selection import (
    AllPairs,
    CrossedPairs,
    ListedPairs,
    PairSelection,
    listed,
    nearest,
    sampled,
)
from poolscope.metrics.socm.tally import Largest, LogHistogram
from poolscope.numbers.bures import native
from poolscope.numbers.bures.factors import ReducedCache
from poolscope.numbers.intervals import (
    Interval,
    corpus_interval,
    dyadic_interval,
    jackknife_interval,
)
from poolscope.numbers.moments import TextMoments, text_moments
from poolscope.results import provenance

Array = NDArray[np.float64]

# Pairs kept in memory (40 bytes each) before the result falls back to a histogram and the worst pairs.
KEEP_PAIRS = 5_000_000


def socm(
    clouds: TokenClouds,
    other: TokenClouds | None = None,
    *,
    pairs: Any = None,
    neighbours: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    scale: str = "paper",
    a: float = 1.0,
    b: float = 1.0,
    eps: float = 0.0,
    top: int = 100,
    keep: int = KEEP_PAIRS,
    table: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
    reduced: tuple[ReducedCache, ReducedCache] | None = None,
) -> SocmResult:
    """SOCM = (1 − d_μ)^a · d_Σ^b of pairs of texts: high where the means agree while the token clouds differ.

    Which pairs: all pairs of `clouds`; with `other`, every text of one with every text of the other; `pairs`, a list of
    (i, j); `neighbours`, each text with its k nearest by mean vector; `sample`, that many random pairs (`seed`).
    `scale`, `a`, `b`, `eps`: see `SocmFormula`. At most `keep` pairs stay in memory; beyond, the mean and its interval
    are still exact, quantiles are good to 0.01 %, and the `top` worst pairs are kept. `table` writes every pair to a
    Parquet file as it comes. `progress` is called with the number of pairs just done. Who asks for several lists of
    pairs of the same clouds passes `reduced`, the `poolscope.numbers.bures.pairs.reduced_caches` of them, to all calls.

    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> round(socm(clouds).mean, 6)           # (1/4 + 1/4 + 1)/3
    0.5
    """
    formula = SocmFormula(scale=scale, a=a, b=b, eps=eps)
    top, keep = whole_number(top, "top"), whole_number(keep, "keep", least=0)
    right = clouds if other is None else other
    _check_corpora(clouds, right)
    moments = text_moments(clouds)
    right_moments = moments if right is clouds else text_moments(right)
    selection = _select(clouds, right, pairs, neighbours, sample, seed, moments, right_moments)
    if reduced is not None and isinstance(selection, ListedPairs):
        selection = replace(selection, reduced=reduced)
    settings = {**formula.to_dict(), "pairs": selection.kind, "sample": sample, "neighbours": neighbours}
    settings |= {"seed": seed if sample else None, "kernel": "numpy" if native.kernel() is None else "compiled"}
    origin = provenance(*([clouds] if right is clouds else [clouds, right]), settings=settings)

    tally = _Tally(selection, top=top, keep=selection.count <= keep, positive=not eps)
    with _table_writer(table, origin) as write:
        for numbers, found in selection.distances(eps=eps):
            d_sigma = formula.covariance_distance(found.bures, found.trace_sum)
            columns = PairColumns(
                found.i, found.j, found.mean_distance, d_sigma, formula.score(found.mean_distance, d_sigma)
            )
            tally.add(numbers, columns, found.overlap)
            write(columns)
            if progress is not None:
                progress(len(found))
    kept = tally.columns()
    estimate = None
    if sample is not None and kept is not None:
        estimate = socm_regression(kept, tally.overlap, (clouds, moments), (right, right_moments))
    return SocmResult(
        kind=selection.kind,
        count=selection.count,
        mean=tally.total / selection.count,
        interval=tally.interval(),
        corpus_interval=None if sample is None or kept is None else corpus_interval(kept.socm, positive=not eps),
        regression=estimate,
        mean_d_mu=tally.total_d_mu / selection.count,
        mean_d_sigma=tally.total_d_sigma / selection.count,
        trace_check=_trace_check(clouds, right, moments, right_moments),
        provenance=origin,
        pairs=kept,
        top=tally.worst(),
        distribution=tally.distribution,
        left=clouds,
        right=right,
    )


def pair_count(
    clouds: TokenClouds, other: TokenClouds | None, pairs: Any, neighbours: int | None, sample: int | None
) -> int | None:
    """How many pairs `socm` will compute for this choice, or None where that is known only later (neighbours)."""
    if pairs is not None:
        return len(pairs)
    if sample is not None or neighbours is not None:
        return sample
    return CrossedPairs(clouds, other).count if other is not None else AllPairs(clouds).count


class _Tally:
    """Everything that is added up while the distances stream by."""

    def __init__(self, selection: PairSelection, *, top: int, keep: bool, positive: bool) -> None:
        self._selection, self._positive = selection, positive
        self._crossed = selection.left is not selection.right
        # A list of pairs is in memory anyway, and its interval needs the values.
        self._keep = keep or isinstance(selection, ListedPairs)
        self._kept = np.empty((4, selection.count if self._keep else 0))
        self._largest = Largest(top)
        self.distribution = LogHistogram()
        self.total = self.total_d_mu = self.total_d_sigma = 0.0
        self._sums = [np.zeros(len(selection.left)), np.zeros(len(selection.right) if self._crossed else 0)]

    def add(self, numbers: NDArray[np.int64], columns: PairColumns, overlap: Array) -> None:
        self.total += float(columns.socm.sum())
        self.total_d_mu += float(columns.d_mu.sum())
        self.total_d_sigma += float(columns.d_sigma.sum())
        left, right = self._sums[0], self._sums[1 if self._crossed else 0]
        left += np.bincount(columns.i, columns.socm, minlength=len(left))
        right += np.bincount(columns.j, columns.socm, minlength=len(right))
        if self._keep:
            self._kept[:, numbers] = columns.d_mu, columns.d_sigma, columns.socm, overlap
        else:
            self.distribution.add(columns.socm)
            self._largest.add(columns.socm, columns.i, columns.j, columns.d_mu, columns.d_sigma)

    def columns(self) -> PairColumns | None:
        return PairColumns(*self._selection.indices(), *self._kept[:3]) if self._keep else None

    @property
    def overlap(self) -> Array:
        """The overlap tr Σ₁Σ₂ of the kept pairs."""
        return np.asarray(self._kept[3])

    def worst(self) -> PairColumns:
        kept = self.columns()
        if kept is not None:
            return kept.ranked(self._largest.size)
        return columns_of(self._largest)

    def interval(self) -> Interval | None:
        """For the population of texts: jackknife over all pairs, clustered by text over a list of pairs."""
        selection, count = self._selection, self._selection.count
        if isinstance(selection, ListedPairs):
            indices = selection.indices()
            return dyadic_interval(self._kept[2], *indices, crossed=self._crossed, positive=self._positive)
        if self._crossed:
            sums, each = self._sums, [len(selection.right), len(selection.left)]
        else:
            sums, each = self._sums[:1], [len(selection.left) - 1]
        return jackknife_interval(sums, each, self.total, count, positive=self._positive)


def _check_corpora(left: TokenClouds, right: TokenClouds) -> None:
    if left.dimension != right.dimension:
        raise InputError(
            f"received clouds of dimension {left.dimension} and {right.dimension}; both must come from the same model "
            f"and layer."
        )
    if left is right and len(left) < 2:
        raise InputError("received one text; SOCM compares pairs, so at least two texts are needed.")


def _select(
    left: TokenClouds,
    right: TokenClouds,
    pairs: Any,
    neighbours: int | None,
    sample: int | None,
    seed: int,
    left_moments: TextMoments,
    right_moments: TextMoments,
) -> PairSelection:
    asked = [
        name for name, value in (("pairs", pairs), ("neighbours", neighbours), ("sample", sample)) if value is not None
    ]
    if len(asked) > 1:
        raise InputError(f"received {' and '.join(asked)}; they exclude each other. Pass one of them, or none.")
    if pairs is not None:
        return listed(left, right, pairs)
    if neighbours is not None:
        return nearest(left, right, neighbours, left_moments, right_moments)
    if sample is not None:
        return sampled(left, right, sample, seed)
    return AllPairs(left) if left is right else CrossedPairs(left, right)


def _trace_check(left: TokenClouds, right: TokenClouds, moments: TextMoments, right_moments: TextMoments) -> TraceCheck:
    same = left is right
    traces = moments.traces if same else np.concatenate([moments.traces, right_moments.traces])
    lengths = left.lengths if same else np.concatenate([left.lengths, right.lengths])
    return TraceCheck(len(traces), int((traces > 2).sum()), float(traces.max()), int((lengths == 1).sum()))


@contextmanager
def _table_writer(path: Any, origin: dict[str, Any]) -> Iterator[Callable[[PairColumns], None]]:
    """Write pairs to a Parquet file as they come, a row group a piece; nothing if no path is given."""
    if path is None:
        yield lambda columns: None
        return
    schema = PAIR_SCHEMA.with_metadata(table_metadata(origin))
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        yield lambda columns: writer.write_table(columns.to_table().cast(schema))
