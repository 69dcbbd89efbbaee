"""Figure of interventions that keep every mean: the change of SOCM and of retrieval, each with its interval."""

from __future__ import annotations

from typing import Any

from poolscope.charts.files import COLOURS, GREY, error_bars, style
from poolscope.errors import require
from poolscope.numbers.intervals import Estimate
from poolscope.research.interventions.run import COVARIANCE, WASSERSTEIN, Change, InterveneResult

_ROW, _WIDTH = 34, 980  # pixels of one intervention, and of the whole
RANKINGS = {WASSERSTEIN: "ranking by W<sub>2</sub> (two moments)", COVARIANCE: "ranking by d<sub>Σ</sub> alone"}


def intervene_figure(result: InterveneResult) -> Any:
    """One row an intervention: left the change of SOCM, right that of nDCG by what the ranking sees.

    Bars are 95 % intervals of the paired difference. Ranking by the means stays at zero by construction.
    """
    subplots = require("plotly.subplots", "report")
    titles = ["Change of SOCM", f"Change of nDCG@{result.baseline.k}"] if result.baseline else ["Change of SOCM"]
    figure = subplots.make_subplots(1, len(titles), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.06)
    changes = {effect.name: effect.socm for effect in result.effects}
    figure.add_trace(_points(changes, "SOCM", COLOURS[0]), 1, 1)
    if result.baseline is not None:
        for (key, label), colour in zip(RANKINGS.items(), COLOURS[1:3], strict=True):
            changes = {effect.name: effect.quality[key] for effect in result.effects if key in effect.quality}
            figure.add_trace(_points(changes, label, colour), 1, 2)
    for column in range(1, len(titles) + 1):
        figure.add_vline(0, line={"color": GREY, "width": 1, "dash": "dash"}, row=1, col=column)
        figure.update_xaxes(title_text="after − before", row=1, col=column)
    names = [effect.name for effect in result.effects]
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1])
    title = f"Every mean kept · {result.texts:,} texts, {result.queries:,} queries · bars: 95 % intervals"
    return style(figure, title=title, width=_WIDTH, height=_ROW * len(names) + 230)


def _points(changes: dict[str, Change], label: str, colour: str) -> Any:
    go = require("plotly.graph_objects", "report")
    found = list(changes.values())
    return go.Scatter(
        x=[change.difference for change in found],
        y=list(changes),
        mode="markers",
        name=label,
        marker={"color": colour, "size": 9},
        error_x=error_bars([Estimate(change.difference, change.interval) for change in found], colour),
        customdata=[[change.before, change.after] for change in found],
        hovertemplate="%{y}: %{customdata[0]:.4f} → %{customdata[1]:.4f} (%{x:+.4f})<extra>" + label + "</extra>",
    )
