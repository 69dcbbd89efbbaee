"""What a SOCM computation returns, and the summaries of streams of values that are too long to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.plane import Plane, plane_figure
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, Interval, RegressionEstimate
from poolscope.results import Result, bulk, key, origin, plain, transient, with_provenance

PAIR_SCHEMA = pa.schema(
    [("i", pa.int64()), ("j", pa.int64()), ("d_mu", pa.float64()), ("d_sigma", pa.float64()), ("socm", pa.float64())]
)
# What the columns of pairs are called on screens and on the page.
PAIR_WORDS = {
    "i": "position of A",
    "j": "position of B",
    "id_i": "id of A",
    "id_j": "id of B",
    "d_mu": "d_μ, between the means",
    "d_sigma": "d_Σ, between the clouds",
    "d_sigma_bounded": "d_Σ, from 0 to 1",
    "d_sigma_floor": "d_Σ by chance",
    "d_sigma_low": "d_Σ by chance, low end",
    "d_sigma_high": "d_Σ by chance, high end",
    "p": "p",
    "socm": "SOCM",
    "text_i": "text A",
    "text_j": "text B",
}
_MOST_POINTS = 2_000  # of a figure: a page with more gets slow
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class WorstPair:
    """A pair with a high SOCM, with its texts where they are known; `d_mu` and `d_sigma` in files and tables."""

    i: int
    j: int
    id_i: str
    id_j: str
    mean_distance: float = field(metadata=key("d_mu"))
    covariance_distance: float = field(metadata=key("d_sigma"))
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

    def derived(self) -> dict[str, float]:
        """The share, for files."""
        return {"share_above": self.share}


@dataclass(frozen=True)
class PairColumns:
    """Columns of pairs: positions of the texts, d_μ, d_Σ and SOCM."""

    i: Index
    j: Index
    mean_distance: Array = field(metadata=key("d_mu"))
    covariance_distance: Array = field(metadata=key("d_sigma"))
    socm: Array

    @classmethod
    def of(cls, pairs: Sequence[WorstPair]) -> PairColumns:
        """The columns of some pairs."""
        return cls(*(np.array([getattr(pair, part.name) for pair in pairs]) for part in fields(cls)))

    def __len__(self) -> int:
        return len(self.i)

    def to_table(self) -> pa.Table:
        """One row a pair: i, j, d_mu, d_sigma, socm."""
        return pa.table(list(vars(self).values()), schema=PAIR_SCHEMA)

    def figure(self, name: str) -> Any:
        """d_μ against d_Σ, coloured by SOCM, with both histograms."""
        columns = np.column_stack([self.mean_distance, self.covariance_distance, self.socm])
        title = "Means (→ unlike) and covariances (↑ unlike) of pairs"
        return plane_figure({name: Plane.of(columns, most=_MOST_POINTS)}, title=title)

    def take(self, rows: Any) -> PairColumns:
        """The pairs of these rows."""
        return PairColumns(*(column[rows] for column in vars(self).values()))

    def ranked(self, k: int) -> PairColumns:
        """The k pairs of highest SOCM, highest first; a pair that was drawn twice stands once."""
        order = self._highest(4 * k)
        order = order[np.lexsort((self.j[order], self.i[order], -self.socm[order]))]
        again = (np.diff(self.i[order], prepend=-1) == 0) & (np.diff(self.j[order], prepend=-1) == 0)
        best = order[~again][:k]
        if len(best) < k and len(order) < len(self.i):  # so many repeated pairs that four times k was too few
            return self.ranked(4 * k).ranked(k)
        return self.take(best)

    def described(self, left: TokenClouds, right: TokenClouds) -> tuple[WorstPair, ...]:
        """The pairs with the ids and texts of their two sides."""
        ids, texts = (left.ids, right.ids), (left.texts, right.texts)
        return tuple(
            WorstPair(
                i=i,
                j=j,
                id_i=ids[0][i],
                id_j=ids[1][j],
                mean_distance=float(self.mean_distance[row]),
                covariance_distance=float(self.covariance_distance[row]),
                socm=float(self.socm[row]),
                text_i=None if texts[0] is None else texts[0][i],
                text_j=None if texts[1] is None else texts[1][j],
            )
            for row, (i, j) in enumerate(zip(self.i.tolist(), self.j.tolist(), strict=True))
        )

    def _highest(self, count: int) -> Index:
        """Rows that include the `count` highest values and all that tie with them; sorting all would take long."""
        if count >= len(self.socm):
            return np.arange(len(self.socm))
        return np.flatnonzero(self.socm >= np.partition(self.socm, -count)[-count])


# -- streams that are too long to keep ----------------------------------------------------------------------------


def _no_counts() -> Index:
    span = np.log(LogHistogram.CEILING) - np.log(LogHistogram.FLOOR)
    return np.zeros(int(np.ceil(span / LogHistogram.WIDTH)) + 2, dtype=np.int64)


@dataclass(frozen=True)
class LogHistogram:
    """Counts of non-negative values in bins of equal relative width (0.01 %), whatever their range.

    Values below `FLOOR`, zero and (in compatibility mode) slightly negative ones share the first bin. A quantile read
    from it is within 0.01 % of the exact one.
    """

    counts: Index = field(default_factory=_no_counts, repr=False)

    FLOOR = 1e-12
    CEILING = 1e6
    WIDTH = 1e-4

    def add(self, values: Array) -> None:
        """Count these values too."""
        logs = np.log(np.maximum(values, self.FLOOR))
        bins = ((logs - np.log(self.FLOOR)) / self.WIDTH).astype(np.int64) + 1
        bins[values <= self.FLOOR] = 0
        self.counts[:] += np.bincount(bins.clip(max=len(self.counts) - 1), minlength=len(self.counts))

    def edges(self) -> Array:
        """Lower edge of every bin, and the upper edge of the last."""
        inner = np.exp(np.log(self.FLOOR) + self.WIDTH * np.arange(len(self.counts)))
        return np.concatenate([[0.0], inner])

    def centres(self) -> Array:
        """Middle of every bin."""
        edges = self.edges()
        return np.asarray((edges[1:] + edges[:-1]) / 2)

    def quantile(self, q: float) -> float:
        """The value below which a share q of the values lies."""
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
        """Take in values, and keep the largest of all so far."""
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

    def pairs(self) -> PairColumns:
        """The pairs that were kept, where the values are SOCM and the columns i, j, d_μ and d_Σ."""
        i, j, mean_distance, covariance_distance = self.columns
        return PairColumns(i, j, mean_distance, covariance_distance, self.values)


# -- results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, kw_only=True)
class SocmResult(Result):
    """SOCM over some pairs of texts: the mean with its interval, the distribution, the worst pairs.

    `estimate` is the mean with its interval for the population of texts (also `mean` and `interval`);
    `corpus_interval`: for this corpus, where pairs were drawn at random; `regression`: the mean over all pairs of this
    corpus, from drawn pairs corrected by covariates. `mean_distance` and `covariance_distance` are the means of d_μ and
    d_Σ. `pairs` are the columns of every pair, None where there were too many to keep; then quantiles and rates come
    from `distribution`, a histogram of 0.01 % resolution, and only the pairs in `top` can be listed.
    """

    column_words = PAIR_WORDS

    kind: str
    count: int = field(metadata=key("pairs"))
    estimate: Estimate
    corpus_interval: Interval | None
    regression: RegressionEstimate | None
    mean_distance: float = field(metadata=key("mean_d_mu"))
    covariance_distance: float = field(metadata=key("mean_d_sigma"))
    trace_check: TraceCheck
    top: tuple[WorstPair, ...] = field(repr=False, metadata=key("worst"))
    provenance: Mapping[str, Any] = origin()
    pairs: PairColumns | None = bulk(key="columns")
    distribution: LogHistogram | None = bulk()
    left: TokenClouds | None = transient()
    right: TokenClouds | None = transient()

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f" {self.interval}"
        return f"SocmResult({self.kind}: {self.count:,} pairs, mean {self.mean:.4f}{interval})"

    @property
    def mean(self) -> float:
        """Mean SOCM over the pairs."""
        return self.estimate.value_or_raise

    @property
    def interval(self) -> Interval | None:
        """Interval of the mean, for the population of texts; None for fewer than three texts."""
        return self.estimate.interval

    def in_words(self) -> tuple[str, ...]:
        """How far the means and the clouds are apart, and what SOCM makes of that."""
        mean = f"{self.mean:.4g}" if self.interval is None else str(self.estimate)
        return (
            f"The mean vectors of two texts are {self.mean_distance:.2f} apart (d_μ), and their token clouds "
            f"{self.covariance_distance:.2f} (d_Σ).",
            f"SOCM is high where means agree and clouds differ: here {mean}, mean over {self.count:,} pairs "
            f"({self.kind}).",
        )

    def shown_table(self) -> pa.Table:
        """The worst pairs with their texts, the worst first."""
        shown = len(self.top) if self.pairs is None else min(len(self.pairs), self.shown_rows)
        return pa.Table.from_pylist([plain(pair) for pair in self.worst(shown)]) if shown else self.to_table()

    def quantile(self, q: float) -> float:
        """The value below which a share q of the pairs lies."""
        if not (isinstance(q, Real) and 0 <= q <= 1):
            raise InputError(f"quantile: received {q}; allowed is 0 to 1.")
        return self._histogram().quantile(q) if self.pairs is None else float(np.quantile(self.pairs.socm, q))

    def collapse_rate(self, threshold: float) -> float:
        """Share of the pairs with SOCM ≥ threshold."""
        if not (isinstance(threshold, Real) and np.isfinite(threshold)):
            raise InputError(f"threshold: received {threshold!r}; allowed is a finite number. Pass one, such as 0.5.")
        if self.pairs is None:
            return self._histogram().share_at_least(threshold)
        return float((self.pairs.socm >= threshold).mean())

    def histogram(self, bins: int = 40) -> tuple[Index, Array]:
        """Counts and edges of equal bins up to the largest value, as `numpy.histogram` returns them."""
        top = max(self.top[0].socm, 1e-12)
        if self.pairs is not None:
            counts, edges = np.histogram(self.pairs.socm, bins, range=(min(0.0, float(self.pairs.socm.min())), top))
        else:
            centres = self._histogram().centres().clip(max=top)
            counts, edges = np.histogram(centres, bins, range=(0.0, top), weights=self._histogram().counts)
        return counts.astype(np.int64), edges

    def worst(self, k: int = 10) -> list[WorstPair]:
        """The k pairs of highest SOCM, highest first, with their texts; fewer if there are fewer."""
        k = whole_number(k, "worst")
        if k <= len(self.top):
            return list(self.top[:k])
        if self.pairs is None or self.left is None or self.right is None:
            if len(self.top) == self.count:
                return list(self.top)
            raise InputError(
                f"worst: received k = {k}; allowed is 1 to {len(self.top)}; for more, compute with top={k}."
            )
        return list(self.pairs.ranked(k).described(self.left, self.right))

    def listed(self, k: int | None = None) -> PairColumns:
        """The columns of the k worst pairs (None: of all that were kept), without ids and texts."""
        if self.pairs is not None:
            return self.pairs if k is None else self.pairs.ranked(k)
        return PairColumns.of(self.top[:k])

    def all_pairs(self) -> PairColumns:
        """The columns of all pairs; refused where they were too many to keep."""
        if self.pairs is None:
            raise InputError(
                f"the {self.count:,} pairs were too many to keep. Write them as they come with "
                f"socm_table(clouds, 'pairs.parquet'), or compute again with keep={self.count}."
            )
        return self.pairs

    def to_table(self) -> pa.Table:
        """All pairs as an Arrow table with columns i, j, d_mu, d_sigma, socm, and the provenance as metadata."""
        return with_provenance(self.all_pairs().to_table(), self.provenance)

    def derived(self) -> dict[str, Any]:
        """Mean and interval by their own names, quantiles and histogram, where the values are still there."""
        content: dict[str, Any] = {"mean": self.mean, "interval": self.interval}
        if self.pairs is None and self.distribution is None:
            return content
        counts, edges = self.histogram()
        return content | {
            "quantiles": {str(q): self.quantile(q) for q in QUANTILES},
            "quantiles_exact": self.pairs is not None,
            "histogram": {"counts": counts, "edges": edges},
        }

    def to_dict(self, *, arrays: bool = False, worst: int = 10, threshold: float | None = None) -> dict[str, Any]:
        """Everything but the pairs, in plain types, with the `worst` pairs and the collapse rate at `threshold`."""
        content = super().to_dict(arrays=arrays)
        if not arrays:
            content["worst"] = content["worst"][:worst]
        rate = None if threshold is None else {"threshold": threshold, "rate": self.collapse_rate(threshold)}
        return content | {"collapse_rate": rate}

    def figure(self) -> Any:
        """d_μ against d_Σ of the pairs: high and left is what averaging hides."""
        return self.listed().figure(self.kind)

    def _histogram(self) -> LogHistogram:
        if self.distribution is None:
            raise InputError(
                "this result was restored from its summary and has no single values. Load what `save` wrote as .json, "
                "or measure again."
            )
        return self.distribution


@dataclass(frozen=True, repr=False, kw_only=True)
class WorstPairs(Result):
    """The k worst pairs, and how many of the `count` pairs had to be evaluated to be sure."""

    column_words = PAIR_WORDS

    pairs: tuple[WorstPair, ...] = field(metadata=key("worst"))
    evaluated: int
    count: int
    provenance: Mapping[str, Any] = origin()

    def in_words(self) -> tuple[str, ...]:
        """The worst pair in words, and how many were evaluated."""
        sure = f"{self.evaluated:,} of {self.count:,} pairs had to be evaluated to be sure of them."
        if not self.pairs:
            return (sure,)
        worst = self.pairs[0]
        return (
            f"SOCM is highest for {worst.id_i} and {worst.id_j} ({worst.socm:.2f}): their means are "
            f"{worst.mean_distance:.2f} apart and their token clouds {worst.covariance_distance:.2f}.",
            sure,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair, the worst first."""
        return [plain(pair) for pair in self.pairs]

    def figure(self) -> Any:
        """d_μ against d_Σ of the pairs: high and left is what averaging hides."""
        return PairColumns.of(self.pairs).figure(f"the {len(self.pairs):,} worst")
