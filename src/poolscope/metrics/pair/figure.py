"""The picture of two clouds: tokens, means and covariances of two texts in one plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poolscope.charts.files import COLOURS, style
from poolscope.errors import require
from poolscope.metrics.pair.measure import FlatCloud, PairProjection

_SYMBOLS = ("circle", "diamond")


def pair_figure(
    pair: PairProjection,
    *,
    names: Sequence[str] = ("text a", "text b"),
    tokens: Sequence[Sequence[str]] | None = None,
    model: str = "",
) -> Any:
    """Tokens as points, means as crosses, covariances as ellipses of one and two standard deviations.

    `names` label the two clouds (shortened); `tokens` are shown when the pointer is on a point. Both axes have one
    scale, and the origin is that of the embedding space: the angle between the two means is what the cosine sees.
    """
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    for k, cloud in enumerate((pair.left, pair.right)):
        shown = None if tokens is None else [shortened(token) for token in tokens[k]]
        figure.add_traces(_cloud(go, cloud, COLOURS[k], _SYMBOLS[k], shortened(names[k]), shown))
    for k, cloud in enumerate((pair.left, pair.right)):
        figure.add_trace(_arrow(go, cloud, COLOURS[k]))
    found = pair.distances
    title = (
        f"<b>SOCM {found.socm:.3f}</b>   d<sub>μ</sub> {found.mean_distance:.3f}   "
        f"d<sub>Σ</sub> {found.covariance_distance:.3f}   <span style='font-size:14px'>{shortened(model)}</span>"
    )
    style(figure, title=title, width=860, height=760)
    figure.update_layout(margin={"t": 125}, legend={"orientation": "v"})
    figure.update_xaxes(title_text="first singular direction")
    figure.update_yaxes(
        title_text=f"second singular direction ({pair.kept:.0%} in the plane)", scaleanchor="x", scaleratio=1
    )
    return figure


def _cloud(go: Any, cloud: FlatCloud, colour: str, symbol: str, name: str, tokens: Sequence[str] | None) -> list[Any]:
    traces = []
    for deviations, width in ((2.0, 1.0), (1.0, 2.0)):
        outline = cloud.ellipse(deviations)
        traces.append(
            go.Scatter(
                x=outline[:, 0],
                y=outline[:, 1],
                mode="lines",
                line={"color": colour, "width": width},
                fill="toself",
                fillcolor=f"rgba({int(colour[1:3], 16)}, {int(colour[3:5], 16)}, {int(colour[5:7], 16)}, 0.07)",
                hoverinfo="skip",
                showlegend=False,
                legendgroup=name,
            )
        )
    shown = {"text": list(tokens), "hovertemplate": "%{text}<extra></extra>"} if tokens is not None else {}
    traces.append(
        go.Scatter(
            x=cloud.points[:, 0],
            y=cloud.points[:, 1],
            mode="markers",
            name=name,
            legendgroup=name,
            marker={
                "color": colour,
                "size": 8,
                "symbol": symbol,
                "opacity": 0.75,
                "line": {"color": "white", "width": 1},
            },
            **shown,
        )
    )
    return traces


def _arrow(go: Any, cloud: FlatCloud, colour: str) -> Any:
    """From the origin to the mean, with a cross at the mean."""
    return go.Scatter(
        x=[0, cloud.mean[0]],
        y=[0, cloud.mean[1]],
        mode="lines+markers",
        line={"color": colour, "width": 1.5, "dash": "dot"},
        marker={
            "symbol": ["circle", "x"],
            "size": [1, 15],
            "color": colour,
            "line": {"color": "white", "width": np.array([0, 2])},
        },
        hovertemplate="mean<extra></extra>",
        showlegend=False,
    )


def shortened(text: str, width: int = 90) -> str:
    """One line of a text, cut at a width; nothing in it can be read as markup.

    >>> shortened("a <b>bold</b>   line")
    'a &lt;b&gt;bold&lt;/b&gt; line'
    """
    line = " ".join(text.split())
    line = line if len(line) <= width else line[: width - 1] + "…"
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
