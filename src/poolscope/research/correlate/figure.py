"""The scatter figure of metrics against scores, one point a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poolscope.charts.files import COLOURS, short_name, style
from poolscope.errors import InputError, require

if TYPE_CHECKING:
    from poolscope.research.correlate.study import CorrelationStudy, MetricScore

_COLUMNS = 3
_PANEL = (380, 330)  # width and height of one panel, in pixels
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")
MOST_PANELS = 9


def correlation_figure(study: CorrelationStudy, *, panels: Sequence[tuple[str, str]] | None = None) -> Any:
    """Metric against score, a panel a pair, a point a model, a colour and symbol a family.

    `panels` names the pairs (metric, score); by default the pairs of largest |ρ|, at most nine. Each title holds ρ, its
    interval and its p-value. Pairs without a correlation can be drawn when they are asked for.
    """
    rows = [study[pair] for pair in panels] if panels is not None else _strongest(study)
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
    looks = {family: k for k, family in enumerate(study.families)}
    for number, row in enumerate(rows):
        cell = (number // columns + 1, number % columns + 1)
        _add_points(figure, cell, row, looks, shown)
        figure.update_xaxes(title_text=row.metric, title_standoff=6, row=cell[0], col=cell[1])
        figure.update_yaxes(title_text=row.score, row=cell[0], col=cell[1])
    style(
        figure,
        title=f"Metrics against scores over {len(study.models)} models",
        width=columns * _PANEL[0] + 120,
        height=lines * _PANEL[1] + 150,
    )
    figure.update_layout(margin={"t": 120})
    figure.update_annotations(font={"size": 12})
    return figure


def _strongest(study: CorrelationStudy) -> list[MetricScore]:
    defined = [row for row in study.rows if row.spearman.estimate.value is not None]
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
