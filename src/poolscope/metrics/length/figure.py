"""Figures of length: the profile by bin, the mechanism, the null models, the probes, and who wins a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from poolscope.charts import COLOURS, GREY, error_bars, short_name, style
from poolscope.errors import InputError, require

if TYPE_CHECKING:
    from poolscope.metrics.length.bins import LengthLabels, LengthPart
    from poolscope.metrics.length.mechanism import LengthMechanism
    from poolscope.metrics.length.probes import LengthNulls, LengthProbe
    from poolscope.metrics.length.profile import LengthProfile
    from poolscope.metrics.length.report import LengthReport
    from poolscope.metrics.length.search import LengthRetrieval, PositionProbe
    from poolscope.metrics.length.shift import SemanticShift
    from poolscope.numbers.intervals import Estimate

_WIDTH, _HEIGHT, _COLUMNS = 460, 340, 3
_TOKENS = "tokens"
_DASHES = {"solid": "—", "dash": "– –", "dot": "···"}


@dataclass(frozen=True)
class Series:
    """One curve: places, estimates, its name in the legend, and its colour (a number of the palette) and dash."""

    name: str
    x: Sequence[Any]
    values: Sequence[Estimate]
    colour: int = 0
    dash: str = "solid"


@dataclass(frozen=True)
class Panel:
    """One panel; `log` doubles the horizontal axis from tick to tick, `limit` marks where the model's own limit is."""

    title: str
    across: str
    up: str
    series: Sequence[Series]
    log: bool = False
    limit: float | None = None
    reference: float | None = None


def length_figure(part: LengthPart) -> Any:
    """The panels of one part of a report on length, or of the whole report on one sheet."""
    panels, title = _PARTS[type(part).__name__]
    return _figure(title(part), panels(part))


# -- panels -------------------------------------------------------------------------------------------------------


def _by_row(
    rows: Sequence[Any], places: Sequence[Any], across: str, shown: Mapping[str, tuple[str, str]]
) -> list[Panel]:
    """A panel for each of some estimates of every row: its name in the row, the title, and the words at its axis."""
    return [
        Panel(title, across, up, [Series("measured", places, [getattr(row, name) for row in rows])])
        for name, (title, up) in shown.items()
    ]


def _profile_panels(profile: LengthProfile) -> list[Panel]:
    shown = {
        "cosine": ("Do texts look alike?", "mean pairwise cosine"),
        "distance": ("How far from the centre?", "mean distance from the centre"),
        "norm": ("How long are the vectors?", "norm before normalisation"),
        "effective_rank": ("How many directions?", "effective rank (equal numbers of texts)"),
        "same_bin_neighbours": ("Neighbours of the same length", "share of nearest neighbours in the bin"),
    }
    return _by_row(profile.bins, [row.label for row in profile.bins], profile.unit, shown)


def _mechanism_panels(mechanism: LengthMechanism) -> list[Panel]:
    labels = [row.label for row in mechanism.bins]
    shown = {
        "sigma_a": ("Largest singular value of PA", "σ<sub>a</sub>, last layer"),
        "frobenius": ("What attention leaves", "‖PA‖²/(n − 1), last layer"),
        "high_frequency": ("Deviations of the tokens", "‖PX‖²/n"),
        "words": ("Plain averages of input words", "mean pairwise cosine"),
    }
    panels = _by_row(mechanism.bins, labels, _TOKENS, shown)
    bound = Series("published bound", labels, [row.bound for row in mechanism.bins], 1, "dash")
    panels[0] = replace(panels[0], series=[*panels[0].series, bound])
    words = replace(panels[3].series[0], name="input words")
    panels[3] = replace(panels[3], series=[words])
    return [panel for panel in panels if any(value.value is not None for value in panel.series[0].values)]


def _null_panels(nulls: LengthNulls) -> list[Panel]:
    tokens = [row.tokens for row in nulls.averaging]
    series = [
        Series("whole documents", tokens, [row.full for row in nulls.averaging]),
        Series("averages of chunks", tokens, [row.averaged for row in nulls.averaging], 1, "dash"),
    ]
    placed = [row.placed for row in nulls.averaging if row.placed is not None]
    if placed:
        series.append(Series("averages, chunks in place", tokens, placed, 2, "dot"))
    panels = [Panel("Is it only averaging?", _TOKENS, "mean pairwise cosine", series, log=True, limit=nulls.limit)]
    if nulls.positions:
        moved = Series(
            f"{nulls.chunk} tokens, moved",
            [row.offset + nulls.chunk for row in nulls.positions],
            [row.cosine for row in nulls.positions],
            3,
        )
        across = "position of the last token"
        panels.append(
            Panel("Is it the position?", across, "mean pairwise cosine", [moved], log=True, limit=nulls.limit)
        )
    return panels


def _probe_panels(probe: LengthProbe) -> list[Panel]:
    tokens = [row.tokens for row in probe.steps]
    series = [Series("measured", tokens, [row.cosine for row in probe.steps])]
    averaged = [row.averaged for row in probe.steps if row.averaged is not None]
    if averaged:
        series.append(Series("averages of the parts", tokens, averaged, 1, "dash"))
    return [Panel(probe.meaning, _TOKENS, "mean pairwise cosine", series, log=True)]


def _shift_panels(shift: SemanticShift) -> list[Panel]:
    shown = {"shift": ("How much does the subject change?", "shift L·D"), "cosine": ("Are they alike?", "mean cosine")}
    labels, across = [row.label for row in shift.made], f"{shift.sentences} sentences of"
    return _by_row(shift.made, labels, across, shown) if labels else []


def _retrieval_panels(retrieval: LengthRetrieval) -> list[Panel]:
    labels = [row.label for row in retrieval.bins]
    quality = [
        Series(name, labels, [getattr(row, part) for row in retrieval.bins], colour)
        for colour, (part, name) in enumerate((("hit", "hit rate"), ("ndcg", "nDCG"), ("mrr", "MRR")))
    ]
    k, across = retrieval.k, "tokens of the document"
    shares = [Series("observed / expected", labels, [row.ratio for row in retrieval.bins])]
    return [
        Panel("Which answers are found?", across, f"quality at {k}", quality),
        Panel("Which documents crowd the top?", across, f"share of the first {k} / expected", shares, reference=1.0),
    ]


def _position_panels(probe: PositionProbe) -> list[Panel]:
    shown = {
        "similarity": ("Is the answer still near?", "cosine with the query"),
        "rank": ("Is it still found?", f"mean rank of {probe.among:.0f}"),
    }
    places = [row.position for row in probe.places]
    return _by_row(probe.places, places, "place of the segment (0: start, 1: end)", shown)


def _label_panels(labels: LengthLabels) -> list[Panel]:
    shown = {"accuracy": ("Are labels told?", "accuracy"), "entropy": ("How sure?", "entropy in bits")}
    return _by_row(labels.bins, [row.label for row in labels.bins], _TOKENS, shown)


def _sheet_panels(report: LengthReport) -> list[Panel]:
    """Everything that a report holds."""
    measured = [report.profile, report.mechanism, report.nulls, *report.probes, report.shift]
    parts: list[LengthPart | None] = [*measured, report.retrieval, report.position, report.labels]
    return [panel for part in parts if part is not None for panel in _PARTS[type(part).__name__][0](part)]


# The panels of each part, and the title of their figure.
_PARTS: dict[str, tuple[Callable[[Any], list[Panel]], Callable[[Any], str]]] = {
    "LengthProfile": (
        _profile_panels,
        lambda part: f"Length profile · {part.texts:,} texts · bars: 95 % intervals · grey: lengths shuffled",
    ),
    "LengthMechanism": (_mechanism_panels, lambda part: "What the last layer does, by length"),
    "LengthNulls": (
        _null_panels,
        lambda part: f"Null models · {short_name(part.model)} · the same {part.documents} documents",
    ),
    "LengthProbe": (_probe_panels, lambda part: "Probes: only the length changes"),
    "SemanticShift": (
        _shift_panels,
        lambda part: f"Texts of {part.sentences} sentences: only the change of subject differs",
    ),
    "LengthRetrieval": (
        _retrieval_panels,
        lambda part: f"Who wins · {part.queries:,} queries, {part.documents:,} documents",
    ),
    "PositionProbe": (
        _position_panels,
        lambda part: f"A segment of {part.segment} tokens within {part.tokens} · {part.queries} queries",
    ),
    "LengthLabels": (_label_panels, lambda part: f"{part.labels} labels · {part.texts:,} texts"),
    "LengthReport": (
        _sheet_panels,
        lambda part: (
            " · ".join(
                ["Length", *([short_name(part.model["name"])] if part.model else []), f"{part.profile.texts:,} texts"]
            )
            + " · bars: 95 % intervals · grey: chance"
        ),
    ),
}


# -- drawing ------------------------------------------------------------------------------------------------------


def _figure(title: str, panels: Sequence[Panel]) -> Any:
    if not panels:
        raise InputError("received a result without anything to draw; measure at least one part of it.")
    subplots = require("plotly.subplots", "report")
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = subplots.make_subplots(
        rows,
        columns,
        subplot_titles=[_heading(panel) for panel in panels],
        horizontal_spacing=0.24 / columns,
        vertical_spacing=0.38 / (rows + 1),
    )
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        _draw(figure, panel, row + 1, column + 1)
    return style(figure, title=title, width=max(_WIDTH * columns, 620), height=_HEIGHT * rows + 110)


def _heading(panel: Panel) -> str:
    """The title of a panel; where it holds several curves, their names below it in their colours."""
    if len(panel.series) == 1:
        return panel.title
    names = (
        f'<span style="color:{_colour(series)}">{_DASHES[series.dash]} {series.name}</span>' for series in panel.series
    )
    return f"{panel.title}<br><sup>{' · '.join(names)}</sup>"


def _colour(series: Series) -> str:
    return COLOURS[series.colour % len(COLOURS)]


def _draw(figure: Any, panel: Panel, row: int, column: int) -> None:
    for series in panel.series:
        floor = _floor_trace(series)
        if floor is not None:
            figure.add_trace(floor, row, column)
        figure.add_trace(_trace(series), row, column)
    if panel.reference is not None:
        figure.add_hline(panel.reference, line={"color": GREY, "width": 1, "dash": "dash"}, row=row, col=column)
    places: list[Any] = [x for series in panel.series for x in series.x]
    axis: dict[str, Any] = {"categoryorder": "array", "categoryarray": list(dict.fromkeys(map(str, places)))}
    across = panel.across
    if panel.log:
        places = sorted({float(x) for x in places})
        axis = {"type": "log", "tickvals": places, "ticktext": [f"{place:.0f}" for place in places], "tickangle": 0}
        if panel.limit is not None and places[-1] > panel.limit:
            figure.add_vline(panel.limit, line={"color": GREY, "width": 1, "dash": "dot"}, row=row, col=column)
            across = f"{across} (dotted: the limit, {panel.limit:g})"
    figure.update_xaxes(title_text=across, title_standoff=4, row=row, col=column, **axis)
    figure.update_yaxes(title_text=panel.up, title_standoff=8, row=row, col=column)


def _trace(series: Series) -> Any:
    go = require("plotly.graph_objects", "report")
    values = [float("nan") if value.value is None else value.value for value in series.values]
    nothing = (float("nan"), float("nan"))
    around = [value.interval for value in series.values]
    ends = [nothing if interval is None else (interval.low, interval.high) for interval in around]
    return go.Scatter(
        x=list(series.x),
        y=np.array(values),
        error_y=error_bars(series.values) | {"thickness": 1.5, "width": 4},
        mode="lines+markers",
        name=series.name,
        showlegend=False,
        line={"color": _colour(series), "width": 2.5, "dash": series.dash},
        marker={"size": 7},
        customdata=np.array(ends),
        hovertemplate="%{x}: %{y:.4g}<br>95 %: %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra>"
        + series.name
        + "</extra>",
    )


def _floor_trace(series: Series) -> Any:
    """The range that chance gives, as a grey band; None where nothing was shuffled."""
    go = require("plotly.graph_objects", "report")
    shown = [(x, value) for x, value in zip(series.x, series.values, strict=True) if value.floor is not None]
    if not shown:
        return None
    places = [x for x, _ in shown]
    return go.Scatter(
        x=[*places, *places[::-1]],
        y=[*(value.floor_high for _, value in shown), *(value.floor_low for _, value in shown[::-1])],
        mode="lines",
        fill="toself",
        fillcolor="rgba(102, 102, 102, 0.25)",
        line={"width": 1, "color": "rgba(102, 102, 102, 0.5)"},
        hoverinfo="skip",
        showlegend=False,
    )
