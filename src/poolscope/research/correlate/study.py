"""What `correlate` returns: every metric against every score, with what can and cannot be concluded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.files import atomic_path, write_json
from poolscope.numbers.intervals import Estimate
from poolscope.research.correlate.rank_statistics import PValue
from poolscope.results import plain

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Association:
    """A coefficient with its bootstrap interval over models and its permutation p-value; None where not defined."""

    estimate: Estimate
    p: PValue | None

    def __str__(self) -> str:
        """Value and interval to two digits, – where there is none."""
        if self.estimate.value is None:
            return "–"
        interval = self.estimate.interval
        return f"{self.estimate.value:.2f}" + (
            "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
        )


@dataclass(frozen=True)
class PartialAssociation:
    """The correlation once some controls are accounted for, or the reason why it was not computed."""

    controls: tuple[str, ...]
    spearman: Association | None
    pearson: Association | None
    refused: str | None = None


@dataclass(frozen=True)
class WithoutFamily:
    """Spearman's ρ over the models outside one family; None where it is not defined."""

    family: str
    left_out: tuple[str, ...]
    models: int
    spearman: float | None


@dataclass(frozen=True)
class MetricScore:
    """One metric against one score over models.

    `models`, `x`, `y`: who was compared, the metric and the score. `lacking`: matched models without one of the two.
    `holm`: the p-value of ρ corrected for all metrics against this score, None for a single one. `undefined`: why there
    is no correlation.
    """

    metric: str
    score: str
    models: tuple[str, ...]
    families: tuple[str, ...]
    lacking: tuple[str, ...]
    x: Array = field(repr=False)
    y: Array = field(repr=False)
    spearman: Association
    pearson: Association
    kendall: Association
    partials: tuple[PartialAssociation, ...]
    without: tuple[WithoutFamily, ...]
    detectable: float | None
    holm: float | None = None
    undefined: str | None = None

    @property
    def range_without(self) -> tuple[float, float] | None:
        """Smallest and largest ρ when any one family is left out."""
        found = [part.spearman for part in self.without if part.spearman is not None]
        return (min(found), max(found)) if found else None

    def sentence(self) -> str:
        """The finding in one sentence, no stronger than the numbers."""
        if self.spearman.p is None:
            return f"{self.metric} against {self.score}: not defined ({self.undefined})."
        holm = "" if self.holm is None else f", {self.holm:.2g} corrected for all metrics"
        found_text = f"ρ = {self.spearman}, p = {self.spearman.p}{holm}"
        text = f"{self.metric} against {self.score} over {len(self.models)} models: {found_text}."
        edges = self.range_without
        if edges is not None:
            text += f" Without any one family ρ lies between {edges[0]:.2f} and {edges[1]:.2f}"
            text += ", so its sign hangs on a single family." if edges[0] * edges[1] <= 0 else "."
        return text


@dataclass(frozen=True)
class CorrelationStudy:
    """All metrics against all scores, and what a reader must know: who was not matched, what n models can show."""

    rows: tuple[MetricScore, ...]
    models: tuple[str, ...]
    families: Mapping[str, tuple[str, ...]]
    only_metrics: tuple[str, ...]
    only_scores: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        metrics, scores = ({getattr(row, part) for row in self.rows} for part in ("metric", "score"))
        return f"CorrelationStudy({len(self.models)} models, {len(metrics)} metrics, {len(scores)} scores)"

    def __getitem__(self, key: tuple[str, str]) -> MetricScore:
        """The row of (metric, score)."""
        for row in self.rows:
            if (row.metric, row.score) == tuple(key):
                return row
        pairs = ", ".join(f"({row.metric}, {row.score})" for row in self.rows)
        raise InputError(f"received {key!r}; measured: {pairs}.")

    def to_table(self) -> pa.Table:
        """One row a metric and score: the three coefficients with intervals and p-values, partials, families."""
        rows = [_flat(row) for row in self.rows]
        columns = dict.fromkeys(name for row in rows for name in row)
        words = {"metric", "score", "undefined"}
        schema = pa.schema(
            [
                (name, pa.string() if name in words else pa.int64() if name in ("models", "lacking") else pa.float64())
                for name in columns
            ],
            metadata={b"poolscope": json.dumps(plain(self.provenance)).encode()},
        )
        return pa.Table.from_pylist(rows, schema=schema)

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types."""
        content: dict[str, Any] = plain(self)
        return content

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict()` as JSON, atomically."""
        write_json(path, self.to_dict())

    def save_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write `to_table()` as Parquet, atomically."""
        table = self.to_table()
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)


def _flat(row: MetricScore) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "metric": row.metric,
        "score": row.score,
        "models": len(row.models),
        "lacking": len(row.lacking),
        "detectable": row.detectable,
    }
    for name in ("spearman", "pearson", "kendall"):
        flat |= _columns(name, getattr(row, name))
    flat |= {"holm": row.holm}
    edges = row.range_without or (None, None)
    flat |= {"without_family_low": edges[0], "without_family_high": edges[1]}
    for part in row.partials:
        for kind, found in (("spearman", part.spearman), ("pearson", part.pearson)):
            name = f"partial_{kind}_{'_'.join(part.controls)}"
            flat |= _columns(name, found or Association(Estimate(None), None))
    return {**flat, "undefined": row.undefined}


def _columns(name: str, found: Association) -> dict[str, float | None]:
    interval = found.estimate.interval
    return {
        name: found.estimate.value,
        f"{name}_low": None if interval is None else interval.low,
        f"{name}_high": None if interval is None else interval.high,
        f"{name}_p": None if found.p is None else found.p.value,
    }
