"""Figures of the scores: what unrelated pairs score, and the cone that the vectors lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from poolscope.charts.files import COLOURS, GREY, short_name, style
from poolscope.errors import require

if TYPE_CHECKING:
    from poolscope.metrics.scores import ScoreDistribution

_SIZE = {"width": 860, "height": 420}


def scores_figure(*results: ScoreDistribution, names: Sequence[str] = ("unrelated pairs",)) -> Any:
    """Histogram of the cosines of unrelated pairs, one outline a model, with floor (dots) and cut-off (line)."""
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    for result, name, colour in zip(results, names, COLOURS, strict=False):
        widths = result.edges[1:] - result.edges[:-1]
        density = result.counts / result.pairs / widths
        label = short_name(name)
        figure.add_trace(
            go.Scatter(
                x=result.edges[:-1],
                y=density,
                name=label,
                line={"shape": "hv", "color": colour, "width": 2},
                fill="tozeroy",
                hovertemplate="cosine %{x:.3f}<extra></extra>",
            )
        )
        top = float(density.max())
        figure.add_traces(
            [
                _line(go, result.floor, top, colour, "dot", f"floor {result.floor:.3f}"),
                _line(go, result.cut_off, top, colour, "solid", f"cut-off {result.cut_off:.3f}"),
            ]
        )
    if len(results) == 1:
        isotropic = results[0].isotropic_cut_off
        figure.add_trace(_line(go, isotropic, top, GREY, "dash", f"cut-off without a cone {isotropic:.3f}"))
    named = {result.cut_off_name for result in results}
    cut_offs = f"and the {named.pop()}" if len(named) == 1 else "and their cut-offs"
    figure = style(figure, title=f"What unrelated pairs score, {cut_offs}", **_SIZE)
    figure.update_xaxes(title_text="cosine")
    figure.update_yaxes(title_text="density of pairs", rangemode="tozero")
    return figure


def _line(go: Any, x: float, top: float, colour: str, dash: str, label: str) -> Any:
    return go.Scatter(
        x=[x, x],
        y=[0, top],
        mode="lines",
        name=label,
        line={"color": colour, "dash": dash, "width": 2},
        hovertemplate=f"{label}<extra></extra>",
    )
