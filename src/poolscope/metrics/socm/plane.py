"""The plane of both distances: pairs coloured by SOCM, with the histograms of d_μ and d_Σ on the margins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import require
from poolscope.show.charts import GREY, style

Array = NDArray[np.float64]
_BINS, _COLUMNS, _SIDE = 40, 4, 300
MARGINS = ("d_mu", "d_sigma")
MEANS, COVARIANCES = "d<sub>μ</sub>, distance of the means", "d<sub>Σ</sub>, distance of the covariances"


@dataclass(frozen=True)
class Margin:
    """A histogram of one distance: so many pairs between each two edges."""

    edges: Array
    counts: Array

    @classmethod
    def of(cls, distances: Array) -> Margin:
        """The histogram of all pairs, from 0 to 1 or to the largest where that is more.

        >>> Margin.of(np.array([0.01, 0.02, 0.9])).counts[[0, 36]].tolist()
        [2, 1]
        """
        counts, edges = np.histogram(distances, bins=_BINS, range=(0.0, max(1.0, float(distances.max(initial=0.0)))))
        return cls(edges, counts)

    @property
    def centres(self) -> Array:
        """The middle of every bin."""
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2)


@dataclass(frozen=True)
class Plane:
    """Pairs to draw (d_μ, d_Σ, SOCM; one row each), and the histograms of all pairs."""

    pairs: Array
    means: Margin
    covariances: Margin

    @property
    def margins(self) -> dict[str, Margin]:
        """Both histograms by the name of their distance."""
        return dict(zip(MARGINS, (self.means, self.covariances), strict=True))

    @classmethod
    def of(cls, pairs: Array, *, most: int) -> Plane:
        """All pairs in the histograms, and `most` of them, drawn at random, as points."""
        drawn = np.random.default_rng(0).permutation(len(pairs))[:most]
        return cls(pairs[drawn], Margin.of(pairs[:, 0]), Margin.of(pairs[:, 1]))


def plane_figure(planes: Mapping[str, Plane], *, title: str) -> Any:
    """A panel a name, four side by side: high and left is what averaging hides."""
    go = require("plotly.graph_objects", "report")
    across = min(max(len(planes), 1), _COLUMNS)
    down = -(-max(len(planes), 1) // across)
    panels: list[Any] = [{}] * (2 * across)
    gap = [None] * (2 * across)  # room for the axis titles above and the names below
    figure = require("plotly.subplots", "report").make_subplots(
        rows=3 * down - 1,
        cols=2 * across,
        specs=[panels, panels, *[gap, panels, panels] * (down - 1)],
        column_widths=[0.8, 0.2] * across,
        row_heights=[0.2, 0.8, *[0.25, 0.2, 0.8] * (down - 1)],
        horizontal_spacing=0.07 / across,
        vertical_spacing=0.08 / down,
        subplot_titles=[name for row in range(down) for name in _titles(list(planes)[row * across :][:across], across)],
    )
    hover = "d<sub>μ</sub> %{x:.3f}, d<sub>Σ</sub> %{y:.3f}, SOCM %{marker.color:.3f}<extra></extra>"
    for number, plane in enumerate(planes.values()):
        row, column = 3 * (number // across) + 1, 2 * (number % across) + 1
        look = {"size": 4, "opacity": 0.6, "color": plane.pairs[:, 2], "coloraxis": "coloraxis"}
        points = {"x": plane.pairs[:, 0], "y": plane.pairs[:, 1], "marker": look, "hovertemplate": hover}
        bars = {"marker": {"color": GREY}, "hoverinfo": "skip"}
        means, covariances = plane.means, plane.covariances
        figure.add_trace(go.Scatter(mode="markers", **points), row + 1, column)
        figure.add_trace(go.Bar(x=means.centres, y=means.counts, **bars), row, column)
        figure.add_trace(
            go.Bar(x=covariances.counts, y=covariances.centres, orientation="h", **bars), row + 1, column + 1
        )
        widest, highest = float(means.edges[-1]), float(covariances.edges[-1])
        for place, lane in ((row, column), (row + 1, column)):
            figure.update_xaxes(range=[0, widest], row=place, col=lane)
        for place, lane in ((row + 1, column), (row + 1, column + 1)):
            figure.update_yaxes(range=[0, highest], row=place, col=lane)
        figure.update_xaxes(showticklabels=False, row=row, col=column)
        figure.update_xaxes(title_text=MEANS, row=row + 1, col=column)
        figure.update_yaxes(title_text=COVARIANCES if column == 1 else "", row=row + 1, col=column)
        figure.update_yaxes(showticklabels=False, row=row, col=column)
        figure.update_xaxes(showticklabels=False, row=row + 1, col=column + 1)
        figure.update_yaxes(showticklabels=False, row=row + 1, col=column + 1)
    style(figure, title=title, width=_SIDE * (across + 1) + 160, height=_SIDE * (down + 1))
    figure.update_layout(
        showlegend=False, bargap=0, coloraxis={"colorscale": "Viridis", "colorbar": {"title": {"text": "SOCM"}}}
    )
    return figure


def _titles(names: list[str], across: int) -> list[str]:
    """Titles of two rows of panels: above the upper histograms, and nothing elsewhere."""
    upper = [title for name in names for title in (name, "")]
    return [*upper, *[""] * (2 * across - len(upper)), *[""] * (2 * across)]
