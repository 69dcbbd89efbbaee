"""Drawings of the papers, each from rows of plain numbers: lines by panel, heat maps, clouds of points, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from poolscope.errors import require
from poolscope.lab.papers.cell import Row, row_estimate
from poolscope.show.charts import COLOURS, GREY, error_bars, grid, style

_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_PANEL, _SIDES, _HEIGHT, _LINE = 330, 110, 440, 34
_LETTER, _KEY, _ROW = 6.5, 50, 28  # of a legend, in pixels
_DASHES = ("solid", "dash", "dot", "dashdot")
_SCALE = "Blues"  # the darker a cell, the more, as the papers draw it
_CHANGES = "BrBG"  # of losses and gains: what stays as it was is white


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows if row.get(column) is not None))


def _name(row: Row, by: Sequence[str]) -> str:
    """What a line or a bar is called; a temperature is written as one."""
    values = [(column, row[column]) for column in by if row.get(column) is not None]
    written = [
        f"τ = {value:g}" if column == "tau" and not isinstance(value, str) else str(value) for column, value in values
    ]
    return " · ".join(written)


def _look(number: int) -> dict[str, str]:
    """Colour and dashes of a line: where colours begin again, dashes change."""
    return {"color": COLOURS[number % len(COLOURS)], "dash": _DASHES[number // len(COLOURS) % len(_DASHES)]}


def _finish(figure: Any, *, title: str, width: int, names: Sequence[str] = (), height: int = _HEIGHT) -> Any:
    """One look, and room for the legend: its rows push the panels down, and do not squeeze them."""
    letters = max((len(name) for name in names), default=0)
    rows = -(-len(names) // max(1, int((width - _SIDES) // (_LETTER * letters + _KEY))))
    more = _ROW * max(rows - 1, 0)
    style(figure, title=title, width=width, height=height + more)
    figure.update_layout(margin={"t": figure.layout.margin.t + more})
    figure.update_yaxes(exponentformat="power")
    return figure


def _panels(titles: Sequence[str], **looks: Any) -> Any:
    """Panels side by side."""
    return grid(titles, len(titles), **looks)[0]


def lines(
    rows: Sequence[Row],
    *,
    x: str,
    panels: Mapping[str, str],
    by: Sequence[str] = ("model",),
    title: str,
    across: str,
    level: float | None = None,
) -> Any:
    """A panel a quantity, a line a model (or what `by` names), bars for intervals; `level`: a line to compare with."""
    go = require("plotly.graph_objects", "report")
    shown = {name: words for name, words in panels.items() if any(row.get(name) is not None for row in rows)} or panels
    figure = _panels(list(shown.values()))
    drawn = [row for row in rows if row.get(x) is not None and any(row.get(name) is not None for name in shown)]
    if not drawn:
        return None
    names = list(dict.fromkeys(_name(row, by) for row in drawn))
    for number, name in enumerate(names):
        own = [row for row in drawn if _name(row, by) == name]
        for column, quantity in enumerate(shown, 1):
            known = [row for row in own if row.get(quantity) is not None]
            trace = go.Scatter(
                x=[row[x] for row in known],
                y=[row[quantity] for row in known],
                error_y=error_bars([row_estimate(row, quantity) for row in known]),
                mode="lines+markers",
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                line=_look(number),
            )
            figure.add_trace(trace, 1, column)
    _finish(figure, title=title, width=_PANEL * len(shown) + _SIDES, names=names)
    figure.update_xaxes(title_text=across)
    if level is not None:
        figure.add_hline(y=level, line={"color": GREY, "width": 1, "dash": "dot"})
    return figure


def by_panel(
    rows: Sequence[Row],
    *,
    x: str,
    lines: Mapping[str, str],
    by: Sequence[str] = (),
    title: str,
    across: str,
    along: str,
    level: float | None = None,
) -> Any:
    """A panel a model, a line a quantity (and what `by` names), on axes that the panels share; bars for intervals."""
    go = require("plotly.graph_objects", "report")
    known = [row for row in rows if row.get(x) is not None and any(row.get(name) is not None for name in lines)]
    if not known:
        return None
    models = _values(known, "model") or [""]
    figure = _panels([str(model) for model in models], shared_yaxes=True)
    places: dict[str, int] = {}
    for column, model in enumerate(models, 1):
        for quantity, words in lines.items():
            own = [row for row in known if row.get("model") == model and row.get(quantity) is not None]
            for group in dict.fromkeys(_name(row, by) for row in own):
                name = f"{words} {group}".strip()
                number = places.setdefault(name, len(places))
                members = [row for row in own if _name(row, by) == group]
                trace = go.Scatter(
                    x=[row[x] for row in members],
                    y=[row[quantity] for row in members],
                    error_y=error_bars([row_estimate(row, quantity) for row in members]),
                    mode="lines+markers",
                    name=name,
                    legendgroup=name,
                    showlegend=not any(name == drawn.name for drawn in figure.data),
                    line=_look(number),
                )
                figure.add_trace(trace, 1, column)
    _finish(figure, title=title, width=_PANEL * len(models) + _SIDES + 100, names=list(places))
    figure.update_xaxes(title_text=across)
    figure.update_yaxes(title_text=along, col=1)
    if level is not None:
        figure.add_hline(y=level, line={"color": GREY, "width": 1, "dash": "dot"})
    return figure


def heat(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    value: str,
    title: str,
    across: str,
    along: str,
    panel: str | None = None,
    words: str = "",
    downwards: bool = False,
) -> Any:
    """A map of one number over two others, a panel a value of `panel`; `downwards`: the first row on top."""
    go = require("plotly.graph_objects", "report")
    known = [row for row in rows if row.get(value) is not None]
    if not known:
        return None
    panels = _values(known, panel) if panel else [""]
    figure = _panels([str(name) for name in panels])
    for number, name in enumerate(panels, 1):
        own = [row for row in known if panel is None or row[panel] == name]
        places = {(row[x], row[y]): row[value] for row in own}
        columns, lanes = _values(own, x), _values(own, y)
        trace = go.Heatmap(
            x=columns,
            y=lanes,
            z=[[places.get((column, lane)) for column in columns] for lane in lanes],
            coloraxis="coloraxis",
            texttemplate="%{z:.3g}" if len(columns) * len(lanes) <= 100 else None,
        )
        figure.add_trace(trace, 1, number)
    width = _PANEL * max(len(panels), 1) + _SIDES + 100
    style(figure, title=title, width=width, height=_HEIGHT)
    numbers = [row[value] for row in known]
    scale = {"colorscale": _CHANGES, "cmid": 0} if min(numbers) < 0 < max(numbers) else {"colorscale": _SCALE}
    figure.update_layout(coloraxis={**scale, "colorbar": {"title": {"text": words}}})
    figure.update_xaxes(title_text=across)
    figure.update_yaxes(title_text=along, col=1)
    if downwards:
        figure.update_yaxes(autorange="reversed")
    return figure


def dots(
    rows: Sequence[Row], *, marks: Mapping[str, str], title: str, across: str, by: Sequence[str] = ("model",)
) -> Any:
    """A line a model: numbers side by side, such as ours with its interval and the printed one."""
    go = require("plotly.graph_objects", "report")
    rows = [row for row in rows if _name(row, by) and any(row.get(column) is not None for column in marks)]
    if not rows:
        return None
    names = list(dict.fromkeys(_name(row, by) for row in rows))
    figure = go.Figure()
    for number, (column, words) in enumerate(marks.items()):
        known = [row for row in rows if row.get(column) is not None]
        figure.add_trace(
            go.Scatter(
                x=[row[column] for row in known],
                y=[_name(row, by) for row in known],
                error_x=error_bars([row_estimate(row, column) for row in known]),
                mode="markers",
                name=words,
                marker={"size": 9, "symbol": _MARKS[number] + "-open" * (number > 0), "color": COLOURS[number]},
            )
        )
    _finish(figure, title=title, width=760, names=list(marks.values()), height=_LINE * len(names) + 190)
    figure.update_xaxes(title_text=across)
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    return figure


def points(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    title: str,
    across: str,
    along: str,
    panel: str = "model",
    by: str | None = None,
    colour: str | None = None,
    size: float = 5,
    logarithmic: bool = False,
) -> Any:
    """Points in a panel a model, a mark a name of `by`, and a colour a name of `colour`, which is `by` without it."""
    go = require("plotly.graph_objects", "report")
    known = [row for row in rows if row.get(x) is not None and row.get(y) is not None]
    if not known:
        return None
    panels = _values(known, panel) or [""]
    figure = _panels([str(name) for name in panels])
    everywhere, tints = (_values(known, column) if column else [None] for column in (by, colour or by))
    for number, name in enumerate(panels, 1):
        own = [row for row in known if row.get(panel) == name or name == ""]
        groups = [group for group in everywhere if by is None or any(row[by] == group for row in own)]
        for group in groups:
            members = [row for row in own if by is None or row[by] == group]
            place, tint = everywhere.index(group), tints.index(members[0][colour] if colour else group)
            look: dict[str, Any] = {"size": [row.get("size", size) for row in members]}
            mark = _MARKS[place % len(_MARKS)] + "-open" * (place > 0 and colour is None)  # what lies below is seen
            look |= {"color": COLOURS[tint % len(COLOURS)], "symbol": mark}
            trace = go.Scatter(
                x=[row[x] for row in members],
                y=[row[y] for row in members],
                text=[str(row.get("text", "")) for row in members],
                mode="markers",
                marker=look,
                name=str(group or ""),
                legendgroup=str(group),
                showlegend=by is not None and not any(drawn.legendgroup == str(group) for drawn in figure.data),
            )
            figure.add_trace(trace, 1, number)
    names = [str(group) for group in everywhere if by is not None]
    _finish(figure, title=title, width=_PANEL * len(panels) + _SIDES + 100, names=names)
    if logarithmic:
        figure.update_yaxes(type="log")
    figure.update_xaxes(title_text=across)
    figure.update_yaxes(title_text=along, col=1)
    return figure


def bars(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    by: Sequence[str],
    title: str,
    across: str,
    along: str,
    panel: str | None = None,
) -> Any:
    """Bars side by side, a colour for what `by` names, with their intervals; a panel a model where `panel` says so."""
    go = require("plotly.graph_objects", "report")
    known = [row for row in rows if row.get(y) is not None]
    if not known:
        return None
    panels = _values(known, panel) if panel else [""]
    figure = _panels([str(name) for name in panels])
    names = list(dict.fromkeys(_name(row, by) for row in known))
    for column, place in enumerate(panels, 1):
        for number, name in enumerate(names):
            own = [row for row in known if _name(row, by) == name and (panel is None or row[panel] == place)]
            trace = go.Bar(
                x=[str(row[x]) for row in own],
                y=[row[y] for row in own],
                error_y=error_bars([row_estimate(row, y) for row in own]),
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                marker_color=COLOURS[number % len(COLOURS)],
            )
            figure.add_trace(trace, 1, column)
    _finish(figure, title=title, width=_PANEL * len(panels) + _SIDES + 200, names=names)
    figure.update_xaxes(title_text=across)
    figure.update_yaxes(title_text=along, col=1)
    return figure
