"""Figures of the token statistics, of one model or of several beside each other (plotly)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from poolscope.charts import COLOURS, GREY, error_bars, short_name, style
from poolscope.errors import InputError, require

if TYPE_CHECKING:
    from poolscope.metrics.tokens.result import LayerTokens, TokenStatistics
    from poolscope.numbers.intervals import Estimate

_PARTS = {
    "mean_share": ("M/Q: mean", "#0072B2"),
    "within_share": ("V_W/Q: within", "#E69F00"),
    "between_share": ("V_B/Q: between", "#009E73"),
}
_SPECIAL = "#D55E00"
_COLUMNS = 4
_PANEL = (330, 300)  # width and height of one panel, in pixels
_MOST_POINTS = 1000  # of a panel: a page with more gets slow; the note of the sheet says how many are left out


def norm_variance_figure(*results: TokenStatistics, layers: Sequence[int] | None = None) -> Any:
    """M against V of the groups, one panel a layer, coloured by the number of tokens; special tokens as crosses.

    Shown are the groups with `min_count` tokens or more, at most the 1,000 most frequent. The dashed line is M + V = Q
    with Q the mean over all of them, shown or not: the closer the points, the less the norms vary. Of each model at
    most eight layers are shown (four if there are several models), the first and the last among them. What is left out
    stands below the title.
    """
    return _sheet("M against V", results, _point_panels(results, layers), note=_left_out(results, layers))


def shares_figure(*results: TokenStatistics) -> Any:
    """What the mean squared norm is made of, layer by layer: M/Q, V_W/Q and V_B/Q; the circles are the mean cosine.

    A whisker at the upper end of a part is the interval of the height of that part (over texts), not of its place.
    """
    return _sheet("Shares of the mean squared norm", results, _share_panels(results))


def variation_figure(*results: TokenStatistics) -> Any:
    """By layer, with intervals: how much Q varies over the groups, and how M goes with V and with the frequency."""
    return _sheet("Variation and correlations", results, _curve_panels(results))


def tokens_figure(*results: TokenStatistics) -> Any:
    """All of the above on one sheet."""
    points = _point_panels(results, None)
    points += [("", None)] * (-len(points) % _COLUMNS)  # the next kind of panel begins a new row
    title = "Norm and variance of token embeddings"
    panels = [*points, *_share_panels(results), *_curve_panels(results)]
    return _sheet(title, results, panels, note=_left_out(results, None))


# -- panels -------------------------------------------------------------------------------------------------------

# The title of a panel, and what draws it at a place (row, column); None leaves the place empty.
_Panel = tuple[str, Callable[[Any, tuple[int, int]], None] | None]


def _point_panels(results: Sequence[TokenStatistics], numbers: Sequence[int] | None) -> list[_Panel]:
    panels: list[_Panel] = []
    for result in results:
        for layer in _shown(_asked(result, numbers), of_several=len(results) > 1):
            name = {0: "layer 0 (embeddings)", -1: "last layer"}.get(layer.layer, f"layer {layer.layer}")
            title = name if len(results) == 1 else f"{short_name(result.model)}, {name}"
            panels.append((title, partial(_add_points, result=result, layer=layer)))
        panels += [("", None)] * (-len(panels) % _COLUMNS if result is not results[-1] else 0)
    return panels


def _asked(result: TokenStatistics, numbers: Sequence[int] | None) -> Sequence[LayerTokens]:
    return result.layers if numbers is None else tuple(result[number] for number in numbers)


def _shown(layers: Sequence[LayerTokens], *, of_several: bool) -> list[LayerTokens]:
    """The layers that have a panel: all, or some at equal distances, the first and the last among them."""
    most = min(len(layers), _COLUMNS if of_several else 2 * _COLUMNS)
    places = np.unique(np.linspace(0, len(layers) - 1, most).round().astype(int))
    return [layers[k] for k in places]


def _left_out(results: Sequence[TokenStatistics], numbers: Sequence[int] | None) -> str:
    """What the panels of M against V do not show, in one line; empty where they show everything."""
    parts = []
    for result in results:
        layers = _asked(result, numbers)
        shown = len(_shown(layers, of_several=len(results) > 1))
        missing = [f"{shown} of {len(layers)} layers"] if shown < len(layers) else []
        if result.coverage.counted > _MOST_POINTS:
            missing.append(f"the {_MOST_POINTS:,} most frequent of {result.coverage.counted:,} {result.grouping}s")
        if missing:
            parts.append(f"{short_name(result.model)}: " * (len(results) > 1) + ", ".join(missing))
    return f"M against V shows {' · '.join(parts)}" if parts else ""


def _share_panels(results: Sequence[TokenStatistics]) -> list[_Panel]:
    return [
        (f"shares: {short_name(result.model)}", partial(_add_shares, result=result, legend=result is results[0]))
        for result in results
    ]


def _curve_panels(results: Sequence[TokenStatistics]) -> list[_Panel]:
    legend = {name: len(results) > 1 and name == next(iter(_CURVES)) for name in _CURVES}
    return [(name, partial(_add_curves, results=results, name=name, legend=legend[name])) for name in _CURVES]


def _add_points(figure: Any, cell: tuple[int, int], result: TokenStatistics, layer: LayerTokens) -> None:
    go = require("plotly.graph_objects", "report")
    shown = slice(min(result.coverage.counted, _MOST_POINTS))
    mean, variance = layer.types.norms_of_means[shown], layer.types.variances[shown]
    counts, names = result.types.counts[shown], result.types.names[shown]
    hover = "<b>%{text}</b><br>M %{x:.3g}<br>V %{y:.3g}<br>%{customdata:,} tokens<extra></extra>"
    figure.add_trace(
        go.Scatter(
            x=mean,
            y=variance,
            mode="markers",
            text=names,
            customdata=counts,
            hovertemplate=hover,
            marker={"size": 4, "opacity": 0.7, "color": np.log10(counts), "coloraxis": "coloraxis"},
            showlegend=False,
        ),
        *cell,
    )
    if len(mean):
        square = float(layer.types.mean_squares[: result.coverage.counted].mean())
        reach = np.array([max(mean.min(), square - variance.max()), min(mean.max(), square)])
        line = {"color": GREY, "width": 1, "dash": "dash"}
        figure.add_trace(
            go.Scatter(x=reach, y=square - reach, mode="lines", line=line, hoverinfo="skip", showlegend=False), *cell
        )
    figure.add_trace(
        go.Scatter(
            x=layer.special.norms_of_means,
            y=layer.special.variances,
            mode="markers",
            text=result.special.names,
            customdata=result.special.counts,
            hovertemplate=hover,
            marker={"size": 8, "symbol": "x", "color": _SPECIAL},
            cliponaxis=False,
            showlegend=False,
        ),
        *cell,
    )
    figure.update_xaxes(title_text="M", rangemode="tozero", row=cell[0], col=cell[1])
    figure.update_yaxes(title_text="V", rangemode="tozero", row=cell[0], col=cell[1])


def _add_shares(figure: Any, cell: tuple[int, int], result: TokenStatistics, *, legend: bool) -> None:
    go = require("plotly.graph_objects", "report")
    numbers = [layer.layer for layer in result.layers]
    for part, (name, colour) in _PARTS.items():
        shares = [layer.estimate(part) for layer in result.layers]
        figure.add_trace(
            go.Bar(
                x=numbers,
                y=[share.value for share in shares],
                error_y=error_bars(shares),
                width=0.8,
                name=name,
                marker_color=colour,
                showlegend=legend,
                legendgroup=name,
            ),
            *cell,
        )
    cosines = [layer.estimate("mean_cosine") for layer in result.layers]
    marker = {"color": "black", "size": 8, "symbol": "circle-open", "line": {"width": 2}}
    figure.add_trace(
        go.Scatter(
            x=numbers,
            y=[cosine.value for cosine in cosines],
            error_y=error_bars(cosines),
            mode="markers",
            name="mean cosine",
            marker=marker,
            showlegend=legend,
            legendgroup="c",
        ),
        *cell,
    )
    figure.update_xaxes(title_text="layer", dtick=max(1, len(numbers) // 8), row=cell[0], col=cell[1])
    figure.update_yaxes(title_text="share of Q", row=cell[0], col=cell[1])


_CURVES = {
    "coefficient of variation of Q": lambda layer: layer.variation,
    "Spearman of M and V": lambda layer: layer.associations.mean_and_variance.spearman,
    "Spearman of M and log n, corrected": lambda layer: layer.corrected.mean_and_frequency.spearman,
}


def _add_curves(
    figure: Any, cell: tuple[int, int], results: Sequence[TokenStatistics], name: str, *, legend: bool
) -> None:
    go = require("plotly.graph_objects", "report")
    for number, result in enumerate(results):
        estimates: list[Estimate] = [_CURVES[name](layer) for layer in result.layers]
        figure.add_trace(
            go.Scatter(
                x=[layer.layer for layer in result.layers],
                y=[estimate.value for estimate in estimates],
                error_y=error_bars(estimates),
                mode="lines+markers",
                name=short_name(result.model),
                line={"color": COLOURS[number % len(COLOURS)]},
                showlegend=legend,
                legendgroup=f"model {number}",
            ),
            *cell,
        )
    deepest = max(layer.layer for result in results for layer in result.layers)
    figure.update_xaxes(title_text="layer", dtick=max(1, deepest // 8), row=cell[0], col=cell[1])
    bounds = {"range": [-1.05, 1.05]} if name.startswith("Spearman") else {"rangemode": "tozero"}
    figure.update_yaxes(**bounds, row=cell[0], col=cell[1])


# -- the sheet ----------------------------------------------------------------------------------------------------


def _sheet(title: str, results: Sequence[TokenStatistics], panels: Sequence[_Panel], *, note: str = "") -> Any:
    """The panels in reading order under one title, with a note below it."""
    if not results:
        raise InputError("received no results to draw; pass at least one TokenStatistics.")
    columns = min(len(panels), _COLUMNS)
    rows = -(-len(panels) // columns)
    figure = require("plotly.subplots", "report").make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[name for name, _ in panels],
        horizontal_spacing=0.26 / columns,
        vertical_spacing=0.34 / rows,
    )
    for number in range(rows * columns):
        cell = (number // columns + 1, number % columns + 1)
        draw = panels[number][1] if number < len(panels) else None
        if draw is None:
            figure.update_xaxes(visible=False, row=cell[0], col=cell[1])
            figure.update_yaxes(visible=False, row=cell[0], col=cell[1])
        else:
            draw(figure, cell)
    ticks = list(range(8))
    bar = {"title": "tokens", "tickvals": ticks, "ticktext": [f"{10**k:,}" for k in ticks]}
    width, height = _PANEL
    style(figure, title=_title(title, results), width=columns * width + 170, height=rows * height + 150)
    figure.update_layout(
        barmode="stack",
        margin={"r": 110},
        coloraxis={"colorscale": "Viridis", "colorbar": {**bar, "len": 0.45, "y": 0.75}},
    )
    if note:  # its line lies between the title and the legend
        below = {"t": figure.layout.margin.t + 16}
        figure.update_layout(title_subtitle={"text": note, "font": {"size": 13}}, margin=below)
        figure.update_layout(legend_y=figure.layout.legend.y - 20 / figure.layout.height)
    return figure


def _title(title: str, results: Sequence[TokenStatistics]) -> str:
    parts = (f"{short_name(r.model)}: {r.coverage.texts:,} texts, {r.coverage.tokens:,} tokens" for r in results)
    return f"{title} · {' · '.join(dict.fromkeys(parts))}"
