"""The figure that an answer and a comparison share: bars with their intervals; plotly, as everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from poolscope.charts.files import COLOURS, GREY, style
from poolscope.errors import require

if TYPE_CHECKING:
    from poolscope.numbers.intervals import Interval


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
    figure = style(figure, title=title, width=860, height=height)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(title_text=axis)
    return figure
