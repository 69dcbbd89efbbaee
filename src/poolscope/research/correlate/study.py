"""What `correlate` returns: every metric against every score, with what can and cannot be concluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.charts.files import COLOURS, short_name, style
from poolscope.errors import InputError, require
from poolscope.numbers.intervals import Estimate
from poolscope.research.correlate.rank_statistics import PValue
from poolscope.results import Result, key, origin

Array = NDArray[np.float64]

MOST_PANELS = 9
_COLUMNS = 3
_PANEL = (380, 330)  # width and height of one panel, in pixels
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")


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


NOTHING = Association(Estimate(None), None)


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
    detectable: float | None
    spearman: Association = NOTHING
    pearson: Association = NOTHING
    kendall: Association = NOTHING
    partials: tuple[PartialAssociation, ...] = ()
    without: tuple[WithoutFamily, ...] = ()
    holm: float | None = None
    undefined: str | None = None

    @property
    def range_without(self) -> tuple[float, float] | None:
        """Smallest and largest ρ when any one family is left out."""
        left = [part.spearman for part in self.without if part.spearman is not None]
        return (min(left), max(left)) if left else None

    def sentence(self) -> str:
        """The finding in one sentence, no stronger than the numbers."""
        if self.spearman.p is None:
            return f"{self.metric} against {self.score}: not defined ({self.undefined})."
        holm = "" if self.holm is None else f", {self.holm:.2g} corrected for all metrics"
        numbers = f"ρ = {self.spearman}, p = {self.spearman.p}{holm}"
        text = f"{self.metric} against {self.score} over {len(self.models)} models: {numbers}."
        edges = self.range_without
        if edges is not None:
            text += f" Without any one family ρ lies between {edges[0]:.2f} and {edges[1]:.2f}"
            text += ", so its sign hangs on a single family." if edges[0] * edges[1] <= 0 else "."
        return text


@dataclass(frozen=True, repr=False)
class CorrelationStudy(Result):
    """All metrics against all scores, and what a reader must know: who was not matched, what n models can show."""

    correlations: tuple[MetricScore, ...] = field(metadata=key("rows"))
    models: tuple[str, ...]
    families: Mapping[str, tuple[str, ...]]
    only_metrics: tuple[str, ...]
    only_scores: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, Any] = origin()

    def __getitem__(self, names: tuple[str, str]) -> MetricScore:
        """The entry of (metric, score)."""
        for row in self.correlations:
            if (row.metric, row.score) == tuple(names):
                return row
        pairs = ", ".join(f"({row.metric}, {row.score})" for row in self.correlations)
        raise InputError(f"received {names!r}; measured: {pairs}.")

    def headline(self) -> dict[str, Any]:
        """How many models, metrics and scores."""
        metrics, scores = ({getattr(row, part) for row in self.correlations} for part in ("metric", "score"))
        return {"models": len(self.models), "metrics": len(metrics), "scores": len(scores)}

    def rows(self) -> list[dict[str, Any]]:
        """One row a metric and score: the three coefficients with intervals and p-values, partials, families."""
        return [_flat(row) for row in self.correlations]

    def figure(self, *, panels: Sequence[tuple[str, str]] | None = None) -> Any:
        """Metric against score, a panel a pair, a point a model, a colour and symbol a family.

        `panels` names the pairs (metric, score); by default the pairs of largest |ρ|, at most nine. Each title holds ρ,
        its interval and its p-value. Pairs without a correlation can be drawn when they are named.
        """
        rows = [self[pair] for pair in panels] if panels is not None else _strongest(self.correlations)
        if not rows:
            raise InputError("no metric has a correlation to draw; name pairs with panels, or add models.")
        columns = min(len(rows), _COLUMNS)
        lines = -(-len(rows) // columns)
        figure = require("plotly.subplots", "report").make_subplots(
            rows=lines,
            cols=columns,
            subplot_titles=[_title(row) for row in rows],
            horizontal_spacing=0.24 / columns,
            vertical_spacing=0.36 / lines,
        )
        shown: set[str] = set()
        looks = {family: k for k, family in enumerate(self.families)}
        for number, row in enumerate(rows):
            cell = (number // columns + 1, number % columns + 1)
            _add_points(figure, cell, row, looks, shown)
            figure.update_xaxes(title_text=row.metric, title_standoff=6, row=cell[0], col=cell[1])
            figure.update_yaxes(title_text=row.score, row=cell[0], col=cell[1])
        style(
            figure,
            title=f"Metrics against scores over {len(self.models)} models",
            width=columns * _PANEL[0] + 120,
            height=lines * _PANEL[1] + 150,
        )
        figure.update_layout(margin={"t": 120})
        figure.update_annotations(font={"size": 12})
        return figure


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
        for kind, association in (("spearman", part.spearman), ("pearson", part.pearson)):
            name = f"partial_{kind}_{'_'.join(part.controls)}"
            flat |= _columns(name, association or NOTHING)
    return {**flat, "undefined": row.undefined}


def _columns(name: str, association: Association) -> dict[str, float | None]:
    interval = association.estimate.interval
    return {
        name: association.estimate.value,
        f"{name}_low": None if interval is None else interval.low,
        f"{name}_high": None if interval is None else interval.high,
        f"{name}_p": None if association.p is None else association.p.value,
    }


def _strongest(rows: Sequence[MetricScore]) -> list[MetricScore]:
    defined = [row for row in rows if row.spearman.estimate.value is not None]
    return sorted(defined, key=lambda row: -abs(row.spearman.estimate.value or 0.0))[:MOST_PANELS]


def _title(row: MetricScore) -> str:
    if row.spearman.p is None:
        return f"ρ not defined ({len(row.models)} models)"
    return f"ρ = {row.spearman}, p = {row.spearman.p}, n = {len(row.models)}"


def _add_points(figure: Any, cell: tuple[int, int], row: MetricScore, looks: dict[str, int], shown: set[str]) -> None:
    """One trace a family, so that the legend switches it off; a model that is its own family has no legend entry."""
    go = require("plotly.graph_objects", "report")
    families = np.array(row.families)
    names = np.array([short_name(model) for model in row.models])
    # Neighbours along the axis have their names above and below their points in turn.
    places = np.array(["top center", "bottom center"])[np.argsort(np.argsort(row.x)) % 2]
    for family in dict.fromkeys(row.families):
        members = families == family
        look = looks[family]
        figure.add_trace(
            go.Scatter(
                x=row.x[members],
                y=row.y[members],
                mode="markers+text" if len(row.models) <= 15 else "markers",
                text=names[members],
                textposition=places[members],
                textfont={"size": 9},
                hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
                name=family,
                legendgroup=family,
                showlegend=family not in shown and len(looks) < len(row.models),
                marker={
                    "size": 9,
                    "color": COLOURS[look % len(COLOURS)],
                    "symbol": _SYMBOLS[look // len(COLOURS) % len(_SYMBOLS)],
                },
                cliponaxis=False,
            ),
            *cell,
        )
        shown.add(family)
