"""Figure of a training run: SOCM, concentration and retrieval quality by step, one curve a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from poolscope.charts.files import COLOURS, style
from poolscope.errors import InputError, require

PANELS = {"socm": "SOCM", "concentration_ratio": "S(X)/‖μ(X)‖²", "ndcg": "nDCG@10"}


def training_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Curves over the steps of each stage, from rows with `stage`, `step` and the numbers of the evaluators.

    Bars are the 95 % intervals (`…_low`, `…_high`) where a row has them. Stages that continue the first one start
    where it ends.
    """
    if not rows or any("stage" not in row or "step" not in row for row in rows):
        raise InputError(f"received {len(rows)} rows; needed: at least one, each with 'stage' and 'step'.")
    subplots = require("plotly.subplots", "report")
    figure = subplots.make_subplots(1, len(PANELS), subplot_titles=list(PANELS.values()), horizontal_spacing=0.07)
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    first = [row for row in rows if row["stage"] == stages[0]]
    for column, name in enumerate(PANELS, start=1):
        for number, stage in enumerate(stages):
            later = [row for row in rows if row["stage"] == stage]
            start = first[-1]["step"] if number else 0
            points = [(row["step"] + start, row) for row in later]
            if number:  # the curve begins at what the first stage left
                points = [(start, first[-1]), *points]
            figure.add_trace(_curve(points, name, stage, COLOURS[number], legend=column == 1), 1, column)
        figure.update_xaxes(title_text="steps of training", row=1, col=column)
        figure.update_yaxes(rangemode="tozero", row=1, col=column)
    return style(figure, title="A model in training · bars: 95 % intervals", width=1180, height=440)


def _curve(points: Sequence[tuple[int, Mapping[str, Any]]], name: str, stage: str, colour: str, *, legend: bool) -> Any:
    go = require("plotly.graph_objects", "report")
    values = [row[name] for _, row in points]
    return go.Scatter(
        x=[step for step, _ in points],
        y=values,
        mode="lines+markers",
        name=stage,
        legendgroup=stage,
        showlegend=legend,
        line={"color": colour, "width": 2.5},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row.get(f"{name}_high", row[name]) - row[name] for _, row in points],
            "arrayminus": [row[name] - row.get(f"{name}_low", row[name]) for _, row in points],
            "color": colour,
            "thickness": 1.2,
        },
    )
