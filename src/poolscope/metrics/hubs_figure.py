"""Figure of the hubs: how often texts come back, beside Gaussian vectors of the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from poolscope.charts.files import COLOURS, style
from poolscope.errors import require


def hubs_figure(occurrences: Mapping[str, Any], *, k: int, floor: str | None = None) -> Any:
    """Share of texts that come back at least x times (log scales), one curve a name; that of `floor` is dashed."""
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    for number, (name, counts) in enumerate(occurrences.items()):
        dash = "dash" if name == floor else "solid"
        figure.add_trace(_curve(go, counts, name, COLOURS[number % len(COLOURS)], dash))
    figure = style(figure, title=f"How often a text is among the {k} nearest of another", width=860, height=420)
    figure.update_xaxes(title_text="times found (+ 1)", type="log")
    figure.update_yaxes(title_text="share of texts found so often or more", type="log", tickformat=".3~%", dtick="D2")
    return figure


def _curve(go: Any, occurrences: Any, name: str, colour: str, dash: str) -> Any:
    found, counts = np.unique(occurrences, return_counts=True)
    share = counts[::-1].cumsum()[::-1] / len(occurrences)
    return go.Scatter(
        x=found + 1,
        y=share,
        mode="lines",
        name=name,
        line={"color": colour, "dash": dash, "width": 2.5, "shape": "hv"},
        customdata=found,
        hovertemplate="found %{customdata} times or more: %{y:.2%} of the texts<extra></extra>",
    )
