"""What a SOCM computation returns."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, whole_number
from poolscope.files import atomic_path, write_json
from poolscope.metrics.socm.tally import Largest, LogHistogram
from poolscope.numbers.intervals import Interval, RegressionEstimate
from poolscope.results import plain

Array = NDArray[np.float64]

PAIR_SCHEMA = pa.schema(
    [("i", pa.int64()), ("j", pa.int64()), ("d_mu", pa.float64()), ("d_sigma", pa.float64()), ("socm", pa.float64())]
)
METADATA_KEY = b"poolscope"


@dataclass(frozen=True)
class WorstPair:
    """A pair with a high SOCM, with its texts where they are known."""

    i: int
    j: int
    id_i: str
    id_j: str
    d_mu: float
    d_sigma: float
    socm: float
    text_i: str | None
    text_j: str | None


@dataclass(frozen=True)
class TraceCheck:
    """Does tr Σ ≤ 2 hold, which keeps d_Σ ≤ 1 on the scale of the paper? `share` is that of the texts that break it."""

    texts: int
    above: int
    largest: float
    one_token: int

    @property
    def share(self) -> float:
        return self.above / self.texts


@dataclass(frozen=True)
class PairColumns:
    """Columns of pairs: positions of the texts, d_μ, d_Σ and SOCM."""

    i: NDArray[np.int64]
    j: NDArray[np.int64]
    d_mu: Array
    d_sigma: Array
    socm: Array

    def to_table(self) -> pa.Table:
        return pa.table([self.i, self.j, self.d_mu, self.d_sigma, self.socm], schema=PAIR_SCHEMA)

    def ranked(self, k: int) -> PairColumns:
        """The k pairs of highest SOCM, highest first; a pair that was drawn twice stands once."""
        order = self._highest(4 * k)
        order = order[np.lexsort((self.j[order], self.i[order], -self.socm[order]))]
        again = (np.diff(self.i[order], prepend=-1) == 0) & (np.diff(self.j[order], prepend=-1) == 0)
        best = order[~again][:k]
        if len(best) < k and len(order) < len(self.i):  # so many repeated pairs that four times k was too few
            return self.ranked(4 * k).ranked(k)
        return PairColumns(self.i[best], self.j[best], self.d_mu[best], self.d_sigma[best], self.socm[best])

    def _highest(self, count: int) -> NDArray[np.int64]:
        """Rows that include the `count` highest values and all that tie with them; sorting all would take long."""
        if count >= len(self.socm):
            return np.arange(len(self.socm))
        return np.flatnonzero(self.socm >= np.partition(self.socm, -count)[-count])


@dataclass(frozen=True)
class SocmResult:
    """SOCM over some pairs of texts: the mean with its interval, the distribution, the worst pairs.

    interval: for the population of texts; corpus_interval: for this corpus, where pairs were sampled; regression: the
    mean over all pairs of this corpus, from a sample corrected by covariates. `pairs` are the columns of every pair,
    None where there were too many to keep; then quantiles and rates come from a histogram of 0.01 % resolution, and
    only the pairs in `top` can be listed.
    """

    kind: str
    count: int
    mean: float
    interval: Interval | None
    corpus_interval: Interval | None
    regression: RegressionEstimate | None
    mean_d_mu: float
    mean_d_sigma: float
    trace_check: TraceCheck
    provenance: Mapping[str, Any] = field(repr=False)
    pairs: PairColumns | None = field(repr=False)
    top: PairColumns = field(repr=False)
    distribution: LogHistogram = field(repr=False)
    left: TokenClouds = field(repr=False)
    right: TokenClouds = field(repr=False)

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f" {self.interval}"
        return f"SocmResult({self.kind}: {self.count:,} pairs, mean {self.mean:.4f}{interval})"

    def quantile(self, q: float) -> float:
        """The value below which a share q of the pairs lies."""
        if not (isinstance(q, Real) and 0 <= q <= 1):
            raise InputError(f"quantile: received {q}; allowed is 0 to 1.")
        return self.distribution.quantile(q) if self.pairs is None else float(np.quantile(self.pairs.socm, q))

    def collapse_rate(self, threshold: float) -> float:
        """Share of the pairs with SOCM ≥ threshold."""
        if not (isinstance(threshold, Real) and np.isfinite(threshold)):
            raise InputError(f"threshold: received {threshold!r}; allowed is a finite number. Pass one, such as 0.5.")
        if self.pairs is None:
            return self.distribution.share_at_least(threshold)
        return float((self.pairs.socm >= threshold).mean())

    def histogram(self, bins: int = 40) -> tuple[NDArray[np.int64], Array]:
        """Counts and edges of equal bins up to the largest value, as `numpy.histogram` returns them."""
        top = max(float(self.top.socm[0]), 1e-12)
        if self.pairs is not None:
            counts, edges = np.histogram(self.pairs.socm, bins, range=(min(0.0, float(self.pairs.socm.min())), top))
        else:
            centres = self.distribution.centres().clip(max=top)
            counts, edges = np.histogram(centres, bins, range=(0.0, top), weights=self.distribution.counts)
        return counts.astype(np.int64), edges

    def worst(self, k: int = 10) -> list[WorstPair]:
        """The k pairs of highest SOCM, highest first, with their texts; fewer if there are fewer."""
        k = whole_number(k, "worst")
        if self.pairs is None and k > len(self.top.i):
            raise InputError(
                f"worst: received k = {k}; allowed is 1 to {len(self.top.i)}; for more, compute with top={k}."
            )
        return describe_pairs((self.pairs or self.top).ranked(k), self.left, self.right)

    def to_table(self) -> pa.Table:
        """All pairs as an Arrow table with columns i, j, d_mu, d_sigma, socm, and the provenance as metadata."""
        if self.pairs is None:
            raise InputError(
                f"the {self.count:,} pairs were too many to keep. Compute again with table='pairs.parquet', which "
                f"writes them as they come, or with keep={self.count}."
            )
        return self.pairs.to_table().replace_schema_metadata(table_metadata(self.provenance))

    def save_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write `to_table()` as Parquet, atomically."""
        table = self.to_table()
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)

    def to_dict(self, *, worst: int = 10, threshold: float | None = None) -> dict[str, Any]:
        """Everything but the pairs, in plain types."""
        counts, edges = self.histogram()
        quantiles = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
        return {
            "kind": self.kind,
            "pairs": self.count,
            "mean": self.mean,
            "interval": plain(self.interval),
            "corpus_interval": plain(self.corpus_interval),
            "regression": plain(self.regression),
            "mean_d_mu": self.mean_d_mu,
            "mean_d_sigma": self.mean_d_sigma,
            "quantiles": {str(q): self.quantile(q) for q in quantiles},
            "quantiles_exact": self.pairs is not None,
            "collapse_rate": None
            if threshold is None
            else {"threshold": threshold, "rate": self.collapse_rate(threshold)},
            "histogram": {"counts": plain(counts), "edges": plain(edges)},
            "trace_check": {**plain(self.trace_check), "share_above": self.trace_check.share},
            "worst": plain(self.worst(min(worst, len(self.top.i)))),
            "provenance": plain(self.provenance),
        }

    def save_json(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write `to_dict(**options)` as JSON, atomically."""
        write_json(path, self.to_dict(**options))


def columns_of(largest: Largest) -> PairColumns:
    """The pairs that a `Largest` of SOCM values with columns i, j, d_μ and d_Σ has kept."""
    i, j, d_mu, d_sigma = largest.columns
    return PairColumns(i, j, d_mu, d_sigma, largest.values)


def describe_pairs(pairs: PairColumns, left: TokenClouds, right: TokenClouds) -> list[WorstPair]:
    """The pairs with the ids and texts of their two sides."""
    left_ids, right_ids, left_texts, right_texts = left.ids, right.ids, left.texts, right.texts
    return [
        WorstPair(
            i=i,
            j=j,
            id_i=left_ids[i],
            id_j=right_ids[j],
            d_mu=float(pairs.d_mu[row]),
            d_sigma=float(pairs.d_sigma[row]),
            socm=float(pairs.socm[row]),
            text_i=None if left_texts is None else left_texts[i],
            text_j=None if right_texts is None else right_texts[j],
        )
        for row, (i, j) in enumerate(zip(pairs.i.tolist(), pairs.j.tolist(), strict=True))
    ]


def table_metadata(provenance: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Schema metadata that says where a table of pairs came from."""
    return {METADATA_KEY: json.dumps(plain(provenance)).encode()}
