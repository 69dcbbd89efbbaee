"""Figure of SOCM: the two distances of every pair, in which high and left is what averaging hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from poolscope.charts.files import COLOURS, style
from poolscope.errors import require
from poolscope.metrics.socm.result import SocmResult

_MOST_POINTS = 1500  # of one colour: a page with more gets slow


def pairs_figure(results: Mapping[str, SocmResult]) -> Any:
    """d_μ against d_Σ of the pairs that were looked at, thinned, one colour a name."""
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    for number, (name, result) in enumerate(results.items()):
        pairs = result.listed()
        shown = pairs.take(np.random.default_rng(0).permutation(len(pairs))[:_MOST_POINTS])
        figure.add_trace(
            go.Scatter(
                x=shown.mean_distance,
                y=shown.covariance_distance,
                mode="markers",
                name=name,
                marker={"color": COLOURS[number % len(COLOURS)], "size": 5, "opacity": 0.5},
                hovertemplate="d<sub>μ</sub> %{x:.3f}, d<sub>Σ</sub> %{y:.3f}<extra></extra>",
            )
        )
    figure = style(figure, title="Means (→ unlike) and covariances (↑ unlike) of pairs", width=860, height=480)
    figure.update_xaxes(title_text="d<sub>μ</sub>, distance of the means", rangemode="tozero")
    figure.update_yaxes(title_text="d<sub>Σ</sub>, distance of the covariances", rangemode="tozero")
    return figure
