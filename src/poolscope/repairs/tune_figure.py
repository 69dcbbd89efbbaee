"""The figure of a search for repairs: the difference that every candidate makes, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolscope.charts.files import COLOURS, GREY, short_name, style
from poolscope.errors import require
from poolscope.evaluation import Difference
from poolscope.repairs.tune_result import TuneResult

_ROW = 26  # pixels


def tune_figure(result: TuneResult) -> Any:
    """Candidates from top to bottom, best first: difference to the model as it is, bars are 95 % intervals.

    Grey: on the half that chose, where the best flatters itself. Coloured: the chosen one on the half that reports, the
    only one that counts.
    """
    go = require("plotly.graph_objects", "report")
    trials = sorted(result.trials, key=lambda trial: trial.search.mean)
    figure = go.Figure()
    chose = f"half that chose ({len(result.chosen_on.observations):,} {result.chosen_on.unit})"
    labels = [trial.label for trial in trials]
    figure.add_trace(_points(go, labels, [trial.search for trial in trials], chose, GREY))
    if result.selected is not None and result.difference is not None:
        reports = f"half that reports ({result.difference.count:,} {result.difference.unit})"
        selected = [result.selected.label]
        figure.add_trace(_points(go, selected, [result.difference], reports, COLOURS[1], symbol="diamond", size=12))
    figure.add_vline(0, line={"color": GREY, "width": 1, "dash": "dash"})
    metric = result.chosen_on.metric
    verdict = result.outcome if result.recommendation is None else result.recommendation.label
    title = f"<b>{verdict}</b>   {short_name(result.model)}, {result.chosen_on.task}"
    style(figure, title=title, width=860, height=_ROW * max(len(trials), 4) + 190)
    figure.update_layout(margin={"l": 300})
    figure.update_xaxes(title_text=f"difference in {metric} to the model as it is ({result.chosen_on.value:.3f})")
    figure.update_yaxes(categoryorder="array", categoryarray=labels)
    return figure


def _points(
    go: Any,
    labels: Sequence[str],
    differences: Sequence[Difference],
    name: str,
    colour: str,
    *,
    symbol: str = "circle",
    size: int = 8,
) -> Any:
    means = [found.mean for found in differences]
    high = [0.0 if found.interval is None else found.interval.high - found.mean for found in differences]
    low = [0.0 if found.interval is None else found.mean - found.interval.low for found in differences]
    return go.Scatter(
        x=means,
        y=list(labels),
        mode="markers",
        name=name,
        marker={"color": colour, "size": size, "symbol": symbol},
        error_x={"type": "data", "array": high, "arrayminus": low, "color": colour, "thickness": 1.5, "width": 4},
        text=[str(found) for found in differences],
        hovertemplate="%{y}<br>%{text}<extra></extra>",
    )
