"""Figures of the audit's answers that no analysis draws by itself; plotly figures, as everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from poolscope.charts.files import COLOURS, GREY, style
from poolscope.errors import require

if TYPE_CHECKING:
    from poolscope.evaluation import Evaluation
    from poolscope.metrics.cone import Cone
    from poolscope.metrics.socm.result import SocmResult
    from poolscope.numbers.intervals import Interval

LEVEL_COLOURS = {"ok": "#009E73", "watch": "#E69F00", "repair": "#D55E00"}
_MOST_POINTS = 1500
_WIDTH = 860


def bars_figure(
    names: Sequence[str],
    values: Sequence[float | None],
    intervals: Sequence[Interval | None],
    *,
    title: str,
    floor: float | None = None,
    axis: str = "",
    colours: Sequence[str] | None = None,
) -> Any:
    """Horizontal bars with their intervals, and a dashed line at the floor."""
    go = require("plotly.graph_objects", "report")
    known = [(value, interval) for value, interval in zip(values, intervals, strict=True) if value is not None]
    reach = [0.0 if interval is None else interval.high - value for value, interval in known]
    back = [0.0 if interval is None else value - interval.low for value, interval in known]
    figure = go.Figure(
        go.Bar(
            y=[name for name, value in zip(names, values, strict=True) if value is not None],
            x=[value for value, _ in known],
            orientation="h",
            marker={"color": colours or COLOURS[0]},
            error_x={"type": "data", "symmetric": False, "array": reach, "arrayminus": back, "color": "#222222"},
            hovertemplate="%{y}: %{x:.4g}<extra></extra>",
            showlegend=False,
        )
    )
    if floor is not None:
        figure.add_vline(floor, line={"color": GREY, "dash": "dash"})
    height = 190 + 38 * max(len(known), 2)
    figure = style(figure, title=title, width=_WIDTH, height=height)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(title_text=axis)
    return figure


def cone_figure(found: Cone, before: Evaluation | None, after: Evaluation | None) -> Any:
    """Mean cosine of each text with all others; in the title what removing the mean does to retrieval."""
    go = require("plotly.graph_objects", "report")
    counts, edges = np.histogram(found.per_text, 60)
    figure = go.Figure(
        go.Bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=counts,
            width=np.diff(edges),
            marker={"color": COLOURS[0]},
            hovertemplate="mean cosine %{x:.3f}: %{y} texts<extra></extra>",
            showlegend=False,
        )
    )
    figure.add_vline(0, line={"color": GREY, "dash": "dash"})
    title = "How much a text shares with all others"
    if before is not None and after is not None:
        title += f" · {before.metric} {before.value:.3f}, without the mean {after.value:.3f}"
    figure = style(figure, title=title, width=_WIDTH, height=380)
    figure.update_xaxes(title_text="mean cosine with all other texts (0: no preferred direction)")
    figure.update_yaxes(title_text="texts")
    return figure


def lengths_figure(lengths: Any, truncated: Any, limit: int | None) -> Any:
    """Texts by their full length on a log scale, and the limit of the model."""
    go = require("plotly.graph_objects", "report")
    full = np.asarray(lengths) + np.asarray(truncated)
    edges = np.geomspace(1, max(float(full.max()), 2.0) * 1.01, 50)
    figure = go.Figure()
    for name, member, colour in (("whole", truncated == 0, COLOURS[0]), ("cut", truncated > 0, COLOURS[1])):
        counts, _ = np.histogram(full[member], edges)
        figure.add_trace(
            go.Bar(
                x=np.sqrt(edges[:-1] * edges[1:]),
                y=counts,
                width=np.diff(edges),
                name=name,
                marker={"color": colour},
                hovertemplate="%{x:.0f} tokens: %{y} texts<extra></extra>",
            )
        )
    if limit is not None:
        figure.add_vline(limit, line={"color": GREY, "dash": "dash"})
        # On a logarithmic axis the place of a text is given by its logarithm.
        figure.add_annotation(
            x=np.log10(limit), y=1, yref="paper", xanchor="left", text=f" limit {limit}", showarrow=False
        )
    title = f"Lengths of the texts; {int(np.sum(truncated)):,} tokens beyond the limit"
    figure = style(figure, title=title, width=_WIDTH, height=380)
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title_text="tokens", type="log")
    figure.update_yaxes(title_text="texts")
    return figure


def pairs_figure(every: SocmResult, near: SocmResult) -> Any:
    """d_μ against d_Σ of the pairs that were looked at, thinned; high and left is what averaging hides."""
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    for name, result, colour in ((every.kind, every, COLOURS[0]), ("neighbours", near, COLOURS[1])):
        pairs = result.pairs or result.top
        some = np.random.default_rng(0).permutation(len(pairs.socm))[:_MOST_POINTS]
        figure.add_trace(
            go.Scatter(
                x=pairs.d_mu[some],
                y=pairs.d_sigma[some],
                mode="markers",
                name=name,
                marker={"color": colour, "size": 5, "opacity": 0.5},
                hovertemplate="d<sub>μ</sub> %{x:.3f}, d<sub>Σ</sub> %{y:.3f}<extra></extra>",
            )
        )
    figure = style(figure, title="Means (→ unlike) and covariances (↑ unlike) of pairs", width=_WIDTH, height=480)
    figure.update_xaxes(title_text="d<sub>μ</sub>, distance of the means", rangemode="tozero")
    figure.update_yaxes(title_text="d<sub>Σ</sub>, distance of the covariances", rangemode="tozero")
    return figure


@dataclass(frozen=True)
class Standing:
    """The number of an answer and what it is judged by: its floor (0 where there is none) and its thresholds."""

    name: str
    value: float
    interval: Interval | None
    floor: float
    watch: float
    repair: float | None
    level: str

    def place(self, number: float) -> float:
        """On the common scale: 0 at the floor, 1 at the first threshold, 2 at the second, and in proportion between."""
        if number <= self.watch or self.repair is None:
            return (number - self.floor) / (self.watch - self.floor)
        return 1 + (number - self.watch) / (self.repair - self.watch)


_LEAST, _MOST = -0.5, 3.0  # the ends of the common scale; what lies beyond is drawn as a triangle


def standings_figure(standings: Sequence[Standing]) -> Any:
    """Where the numbers lie between their floors and their thresholds: one row an answer, all on one scale."""
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    for level, colour in LEVEL_COLOURS.items():
        rows = [standing for standing in standings if standing.level == level]
        if not rows:
            continue
        places = [row.place(row.value) for row in rows]
        shown = [min(max(place, _LEAST), _MOST) for place in places]
        ends = [
            (x, x) if row.interval is None else _ends(row, row.interval) for row, x in zip(rows, shown, strict=True)
        ]
        figure.add_trace(
            go.Scatter(
                x=shown,
                y=[row.name for row in rows],
                mode="markers",
                name=level,
                marker={
                    "color": colour,
                    "size": 13,
                    "symbol": [
                        "triangle-right" if place > _MOST else "triangle-left" if place < _LEAST else "circle"
                        for place in places
                    ],
                },
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [max(high - x, 0) for x, (_, high) in zip(shown, ends, strict=True)],
                    "arrayminus": [max(x - low, 0) for x, (low, _) in zip(shown, ends, strict=True)],
                    "color": colour,
                    "thickness": 3,
                    "width": 0,
                },
                customdata=[[row.value, row.floor, row.watch] for row in rows],
                hovertemplate="%{y}: %{customdata[0]:.4g}<br>floor %{customdata[1]:.4g}, "
                "first threshold %{customdata[2]:.4g}<extra></extra>",
            )
        )
    for place in (0, 1, 2):
        figure.add_vline(place, line={"color": GREY, "width": 1, "dash": "dash"}, layer="below")
    title = "Numbers that thresholds judge, between floor and thresholds; bars: 95 % intervals"
    figure = style(figure, title=title, width=_WIDTH, height=200 + 40 * len(standings))
    names = [standing.name for standing in standings]
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    marks = ["floor", "watch", "repair"]
    figure.update_xaxes(tickvals=[0, 1, 2], ticktext=marks, range=[_LEAST - 0.1, _MOST + 0.1], showgrid=False)
    return figure


def _ends(row: Standing, interval: Interval) -> tuple[float, float]:
    low, high = (min(max(row.place(end), _LEAST), _MOST) for end in (interval.low, interval.high))
    return low, high
