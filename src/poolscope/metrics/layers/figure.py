"""Figures of the anatomy of the layers, of one model or of several in the same panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolscope.charts.files import COLOURS, GREY, short_name, style, translucent
from poolscope.errors import InputError, require
from poolscope.metrics.layers.result import LayersResult

_WIDTH, _HEIGHT = 480, 330  # of one panel, in pixels


@dataclass(frozen=True)
class Curve:
    """What is drawn for one model: places, values with their interval, and the look of the line."""

    x: Any
    mean: Any
    low: Any
    high: Any
    dash: str = "solid"
    label: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: its title, its vertical axis, how to get the curves of a result, and a line to compare with."""

    title: str
    axis: str
    curves: Callable[[LayersResult], list[Curve]]
    reference: float | None = None
    log: bool = False


def _measured(name: str, *, dash: str = "solid", label: str = "") -> Callable[[LayersResult], list[Curve]]:
    """The curve of a quantity: by state from 0, by layer from 1."""

    def curves(result: LayersResult) -> list[Curve]:
        means = result.means(name)
        first = 0 if len(means.mean) == len(result.states) else 1
        places = np.arange(first, first + len(means.mean))
        return [Curve(places, means.mean, means.low, means.high, dash, label)]

    return curves


def _socm(result: LayersResult) -> list[Curve]:
    if result.socm is None:
        return []
    mean, low, high = np.array([(s.mean, s.low, s.high) for s in result.socm], dtype=np.float64).T  # no interval: NaN
    return [Curve(np.arange(len(result.socm)), mean, low, high)]


def _frequency(result: LayersResult) -> list[Curve]:
    return [
        *_measured("high_frequency", label="layer")(result),
        *_measured("high_frequency_branch", dash="dash", label="attention branch")(result),
        *_measured("high_frequency_bound", dash="dot", label="bound of the branch")(result),
        *_measured("high_frequency_published", dash="dashdot", label="published bound")(result),
    ]


PANELS = {
    "lambda": Panel("What attention does to the spread", "λ, mean over heads", _measured("lambda"), reference=1.0),
    "r": Panel("Spread left in the residual", "r = S(H)/‖μ(Y)‖²", _measured("r"), log=True),
    "C": Panel("What norms and feed-forward do", "C", _measured("C"), reference=1.0),
    "concentration_ratio": Panel(
        "Concentration of the clouds", "S(X)/‖μ(X)‖²", _measured("concentration_ratio"), log=True
    ),
    "cosine": Panel("Tokens of a text among each other", "within-text cosine", _measured("cosine")),
    "socm": Panel("Second-order collapse", "SOCM, mean over pairs", _socm),
    "sigma_a": Panel(
        "Largest singular value of PA", "σ<sub>a</sub>, mean over heads", _measured("sigma_a"), reference=1.0
    ),
    "high_frequency": Panel(
        "Deviations: layer (—), branch (– –), bound (···), published (–·)",
        "log of the ratio of norms",
        _frequency,
        reference=0.0,
    ),
}
PAPER = ("lambda", "r", "C", "concentration_ratio")


def layers_figure(*results: LayersResult, panels: Sequence[str] = PAPER) -> Any:
    """The panels by layer for one model, or for several side by side; bands are 95 % intervals over texts.

    Without `panels`, the four of Hara et al. 2026: λ, r, C and the concentration ratio. Allowed are the keys of PANELS;
    `layers_sheet` shows all. Layer 0 is the embedding output.
    """
    if not results or not panels or (unknown := [name for name in panels if name not in PANELS]):
        received = f"the panels {unknown}" if results and panels else f"{len(results)} results and {len(panels)} panels"
        raise InputError(f"received {received}; needed: at least one result, and panels among {', '.join(PANELS)}.")
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    subplots = require("plotly.subplots", "report")
    chosen = [PANELS[name] for name in panels]
    figure = subplots.make_subplots(
        rows,
        columns,
        subplot_titles=[panel.title for panel in chosen],
        horizontal_spacing=0.11,
        vertical_spacing=0.34 / (rows + 1),
    )
    for number, panel in enumerate(chosen):
        _draw(figure, divmod(number, columns), panel, results, legend=number == 0)
    texts = " and ".join(dict.fromkeys(f"{len(result.ids):,}" for result in results))
    title = f"Anatomy of the layers · {texts} texts · bands: 95 % intervals"
    return style(figure, title=title, width=_WIDTH * columns, height=_HEIGHT * rows + 110)


def layers_sheet(*results: LayersResult) -> Any:
    """All panels on one sheet; that of SOCM only where it was measured."""
    measured = any(result.socm is not None for result in results)
    return layers_figure(*results, panels=[name for name in PANELS if name != "socm" or measured])


def cosine_figure(*results: LayersResult) -> Any:
    """Within-text cosine by layer."""
    return layers_figure(*results, panels=["cosine"])


def socm_figure(*results: LayersResult) -> Any:
    """SOCM by layer: at which depth does a model concentrate?"""
    if any(result.socm is None for result in results):
        raise InputError("socm_figure: received a result without SOCM; compute it with socm_texts of at least 2.")
    return layers_figure(*results, panels=["socm"])


def frequency_figure(*results: LayersResult) -> Any:
    """σₐ by layer, and the growth of the high-frequency part beside its bound."""
    return layers_figure(*results, panels=["sigma_a", "high_frequency"])


def _draw(figure: Any, cell: tuple[int, int], panel: Panel, results: Sequence[LayersResult], *, legend: bool) -> None:
    row, column = cell[0] + 1, cell[1] + 1
    axis = _vertical(panel, [curve for result in results for curve in panel.curves(result)])
    floor = 10.0 ** axis["range"][0] if panel.log and axis else -np.inf
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(results))]
    for result, name, colour in zip(results, _names(results), colours, strict=True):
        for curve in panel.curves(result):
            for trace in _traces(curve, name, colour, result.states, floor=floor, legend=legend):
                figure.add_trace(trace, row, column)
    if panel.reference is not None:
        figure.add_hline(panel.reference, line={"color": GREY, "width": 1, "dash": "dash"}, row=row, col=column)
    figure.update_yaxes(title_text=panel.axis, title_standoff=8, row=row, col=column, **axis)
    longest = max((result.states for result in results), key=len)
    step = -(-len(longest) // 13)
    shown = list(range(0, len(longest), step))
    if longest[-1] == "output":  # named even where not every layer is
        shown = [*(k for k in shown if k <= len(longest) - 1 - step), len(longest) - 1]
    figure.update_xaxes(
        title_text="layer",
        title_standoff=4,
        range=[-0.4, len(longest) - 0.6],
        tickvals=shown,
        ticktext=[longest[k] for k in shown],
        row=row,
        col=column,
    )


def _vertical(panel: Panel, curves: Sequence[Curve]) -> dict[str, Any]:
    """Range and ticks of the vertical axis: a tenth of air around what is drawn, round numbers on a log scale.

    An interval that reaches down to nothing must not stretch a log scale: it is cut at half of the smallest mean.
    """
    means = _finite([curve.mean for curve in curves], above=0.0 if panel.log else -np.inf)
    if not len(means):
        return {}
    drawn = _finite([part for curve in curves for part in (curve.mean, curve.low, curve.high)])
    if panel.log:
        drawn = np.log10(np.maximum(drawn, means.min() / 2))
    elif panel.reference is not None:
        drawn = np.append(drawn, panel.reference)
    air = max(float(np.ptp(drawn)), 1e-3) / 10
    low, high = float(drawn.min()) - air, float(drawn.max()) + air
    if not panel.log:
        return {"range": [low, high]}
    steps = (1, 1.5, 2, 3, 4, 5, 7) if high - low < 1 else (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = [step * 10.0**power for power in range(int(low) - 2, int(high) + 2) for step in steps]
    return {"type": "log", "range": [low, high], "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _finite(parts: Sequence[Any], *, above: float = -np.inf) -> Any:
    joined = np.concatenate([np.zeros(0), *(np.asarray(part, dtype=np.float64) for part in parts)])
    return joined[np.isfinite(joined) & (joined > above)]


def _names(results: Sequence[LayersResult]) -> list[str]:
    """One name a model in the legend: its last part, the whole where two end alike, numbered where two are the same."""
    short = [short_name(result.model) for result in results]
    whole = [name if short.count(name) == 1 else result.model for name, result in zip(short, results, strict=True)]
    return [
        name if whole.count(name) == 1 else f"{name} ({whole[:place].count(name) + 1})"
        for place, name in enumerate(whole)
    ]


def _traces(curve: Curve, model: str, colour: str, states: Sequence[str], *, floor: float, legend: bool) -> list[Any]:
    """The band of the interval, cut at the floor of the panel, and the line over it."""
    go = require("plotly.graph_objects", "report")
    name = f"{model}: {curve.label}" if curve.label else model
    low, high = (np.asarray(edge, dtype=np.float64) for edge in (curve.low, curve.high))
    band = go.Scatter(
        x=np.concatenate([curve.x, curve.x[::-1]]),
        y=np.maximum(np.concatenate([high, low[::-1]]), floor),
        mode="lines",
        fill="toself",
        fillcolor=translucent(colour, 0.18),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=model,
    )
    line = go.Scatter(
        x=curve.x,
        y=curve.mean,
        mode="lines+markers",
        name=name,
        legendgroup=model,
        showlegend=legend,
        line={"color": colour, "width": 2.5, "dash": curve.dash},
        marker={"size": 6},
        customdata=np.stack([low, high], axis=1),
        text=[states[int(k)] for k in curve.x],
        hovertemplate=f"{name}<br>layer %{{text}}: %{{y:.4g}}<br>95 %: %{{customdata[0]:.4g}} to %{{customdata[1]:.4g}}"
        "<extra></extra>",
    )
    return [band, line] if np.isfinite(low).any() else [line]
