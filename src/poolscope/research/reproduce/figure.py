"""Figures of reproductions: measured values beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from poolscope.charts.files import COLOURS, GREY, short_name, style
from poolscope.errors import require

_ROW = 34  # height of one model, in pixels
# Drawn in this order: the open marks lie over the full one.
_MARKS = (
    ("exact", COLOURS[0], "circle"),
    ("compatible", COLOURS[4], "circle-open"),
    ("published", GREY, "diamond-open"),
)
_TICKS = [base * 10**power for power in range(6) for base in (1, 2, 5)]


def averages_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Average SOCM, a panel a set and a line a model: published, compatible, and exact with its interval."""
    go = require("plotly.graph_objects", "report")
    sets = list(dict.fromkeys(row["set"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure = require("plotly.subplots", "report").make_subplots(
        rows=1, cols=len(sets), subplot_titles=sets, shared_yaxes=True, horizontal_spacing=0.04
    )
    for column, pair_set in enumerate(sets, 1):
        members = [row for row in rows if row["set"] == pair_set]
        for mark, colour, symbol in _MARKS:
            shown = [row for row in members if row.get(mark) is not None]
            figure.add_trace(
                go.Scatter(
                    x=[row[mark] for row in shown],
                    y=[short_name(row["model"]) for row in shown],
                    error_x=_reach(shown, "exact") if mark == "exact" else None,
                    mode="markers",
                    name=mark,
                    legendgroup=mark,
                    showlegend=column == 1,
                    marker={"size": 8 if mark == "exact" else 11, "color": colour, "symbol": symbol},
                ),
                1,
                column,
            )
        figure.update_xaxes(title_text="SOCM", rangemode="tozero", row=1, col=column)
    style(figure, title="Average SOCM", width=360 * len(sets) + 260, height=_ROW * len(models) + 190)
    figure.update_yaxes(
        categoryorder="array", categoryarray=[short_name(model) for model in reversed(models)], automargin=True
    )
    return figure


# Columns of the tables by length bin, and their titles.
_LENGTH_PANELS = {
    "cosine": "mean pairwise cosine",
    "distance": "distance from the centre",
    "sigma_a": "σₐ, last layer",
    "frobenius": "‖PA‖²/(n − 1), last layer",
}


def length_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Cosine, distance from the centre, σₐ and ‖PA‖²/(n − 1) by length bin, a line a temperature; one model."""
    go = require("plotly.graph_objects", "report")
    panels = {name: title for name, title in _LENGTH_PANELS.items() if any(row.get(name) is not None for row in rows)}
    figure = require("plotly.subplots", "report").make_subplots(
        rows=1, cols=len(panels), subplot_titles=list(panels.values()), horizontal_spacing=0.24 / len(panels)
    )
    taus = list(dict.fromkeys(row["tau"] for row in rows))
    for number, tau in enumerate(taus):
        members = [row for row in rows if row["tau"] == tau]
        for column, name in enumerate(panels, 1):
            figure.add_trace(
                go.Scatter(
                    x=[row["mean_length"] for row in members],
                    y=[row[name] for row in members],
                    error_y=_reach(members, name),
                    mode="lines+markers",
                    name=f"τ = {tau:g}",
                    legendgroup=str(tau),
                    showlegend=column == 1,
                    text=[f"{row['bin']}: {row['texts']:,} texts" for row in members],
                    line={"color": _shade(number, len(taus)), "width": 2.5 if tau == 1 else 1.5},
                ),
                1,
                column,
            )
    style(figure, title=f"By length and temperature · {rows[0]['model']}", width=340 * len(panels) + 80, height=440)
    figure.update_xaxes(title_text="tokens", type="log", tickvals=_TICKS)
    return figure


def grid_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Change of nDCG@10 against τ = 1 by temperature, with paired intervals: all queries, and those for long texts."""
    go = require("plotly.graph_objects", "report")
    groups = list(dict.fromkeys(row["queries"] for row in rows))
    figure = require("plotly.subplots", "report").make_subplots(rows=1, cols=len(groups), subplot_titles=groups)
    for number, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
        for column, group in enumerate(groups, 1):
            members = [row for row in rows if row["model"] == model and row["queries"] == group]
            figure.add_trace(
                go.Scatter(
                    x=[row["tau"] for row in members],
                    y=[row["change"] for row in members],
                    error_y=_reach(members, "change"),
                    mode="lines+markers",
                    name=model,
                    legendgroup=model,
                    showlegend=column == 1,
                    line={"color": COLOURS[number % len(COLOURS)]},
                ),
                1,
                column,
            )
    style(figure, title="Retrieval by temperature", width=430 * len(groups) + 80, height=440)
    figure.update_xaxes(title_text="τ")
    figure.update_yaxes(title_text="nDCG@10 − nDCG@10 at τ = 1", col=1)
    figure.add_hline(y=0, line={"color": GREY, "width": 1, "dash": "dot"})
    return figure


def _shade(number: int, count: int) -> str:
    """From dark (the first) to light."""
    share = number / max(count - 1, 1)
    low, high = (0, 60, 120), (190, 215, 235)
    return f"rgb{tuple(round(a + (b - a) * share) for a, b in zip(low, high, strict=True))}"


def _reach(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The interval of a column as error bars; none where there is no interval."""

    def gap(row: Mapping[str, Any], edge: str) -> float:
        known = row.get(f"{name}_{edge}") is not None and row.get(name) is not None
        return abs(row[f"{name}_{edge}"] - row[name]) if known else 0.0

    bars = {
        "type": "data",
        "array": [gap(row, "high") for row in rows],
        "arrayminus": [gap(row, "low") for row in rows],
    }
    return {**bars, "thickness": 1.5, "width": 3}
