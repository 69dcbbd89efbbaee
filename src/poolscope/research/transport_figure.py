"""Figure of the shares of the exact distance that the means and two moments see, by layer."""

from __future__ import annotations

from typing import Any

from poolscope.charts.files import COLOURS, GREY, error_bars, short_name, style
from poolscope.errors import require
from poolscope.numbers.intervals import Estimate
from poolscope.research.transport import TransportResult


def transport_figure(result: TransportResult, *, name: str = "") -> Any:
    """Shares of the exact W₂² by layer with 95 % intervals: means, two moments, and two moments of random lists."""
    go = require("plotly.graph_objects", "report")
    layers = [str(entry.layer) for entry in result.layers]
    figure = go.Figure()
    curves = (
        ("two moments", [entry.two_moments for entry in result.layers], COLOURS[0], "solid"),
        ("two moments, random lists", [entry.two_moments_surrogate for entry in result.layers], GREY, "dash"),
        ("means alone", [entry.means for entry in result.layers], COLOURS[1], "solid"),
    )
    for label, shares, colour, dash in curves:
        figure.add_trace(
            go.Scatter(
                x=layers,
                y=[share.value for share in shares],
                mode="lines+markers",
                name=label,
                line={"color": colour, "width": 2.5, "dash": dash},
                error_y=error_bars([Estimate(share.value, share.interval) for share in shares], colour),
                hovertemplate="layer %{x}: %{y:.1%}<extra>" + label + "</extra>",
            )
        )
    figure.update_xaxes(title_text="layer", type="category")
    figure.update_yaxes(title_text="share of the exact W₂²", tickformat=".0%", range=[0, 1.03])
    model = f"{short_name(name)} · " if name else ""
    title = f"What two moments see · {model}{result.pairs:,} pairs of {result.texts:,} texts"
    return style(figure, title=title, width=820, height=480)
