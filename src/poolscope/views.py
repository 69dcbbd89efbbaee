"""What a notebook shows of a result, as a little HTML: words, numbers, the first rows of a table, and the figure.

The figure is a small SVG drawing, without a browser and without scripts. It reads what our own figures are made of:
panels of points, lines, bands and bars with intervals and lines of reference, on linear, logarithmic and named axes,
with a legend in one line. Hovering is left to plotly (`result.figure()`).
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from poolscope.lines import short

_LETTERS = 100  # of a text in a cell
_COLUMNS, _NAMED = 9, 6  # of a table; of the others so many are named below it
_WIDE = 24  # letters from which on a cell may break them
_TINY = 1e-9  # what is nearer to zero is rounding
_QUIET = "opacity:0.75;margin:4px 0"
_PANEL, _ALONE, _IN_A_ROW = (300, 190), (420, 210), 3  # pixels of a panel, of the only one; panels in a row at most
_LEFT, _BELOW, _ABOVE, _RIGHT = 46, 34, 20, 10
_LINE, _LETTER = 14, 5.1  # pixels of a line of words, and of a letter
_NAMES, _LONG = 24, 48  # letters of a name left of a panel at most, and left of the only one
_GREY = "#666666"  # of lines of reference, too dark on a dark ground
_INK = "#0072B2"  # of what has no colour of its own, or one a number
_POINTS = 300  # of a trace that are drawn: of more, every second, third, …
_DASHES = {"dash": "5 3", "dot": "1.5 3", "dashdot": "5 3 1.5 3", "longdash": "9 4"}


def word(value: Any) -> str:
    """A value as a reader takes it in.

    >>> word(0.123456), word(12345), word(True), word(4e-17)
    ('0.1235', '12,345', 'yes', '0')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "0" if abs(value) < _TINY else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def opening(name: str, sentences: Sequence[str], numbers: Sequence[tuple[str, str]]) -> str:
    """The name of a result, what is seen in words, and the numbers below."""
    words = "".join(f"<br>{html.escape(sentence)}" for sentence in sentences)
    told = " · ".join(html.escape(f"{name} {number}") for name, number in numbers)
    return f'<p style="margin:4px 0"><b>{html.escape(name)}</b>{words}</p><p style="{_QUIET}">{told}</p>'


def note(text: str) -> str:
    """A quiet line below a drawing or a table."""
    return f'<p style="{_QUIET}">{html.escape(text)}</p>'


def shown_columns(table: pa.Table) -> list[str]:
    """The columns of a table that a screen shows: not empty ones, lists, nor the ends and floors of others."""
    names = [
        column.name
        for column in table.schema
        if table[column.name].null_count < len(table) and not pa.types.is_nested(column.type)
    ]
    beside = {f"{name}_{end}" for name in names for end in ("low", "high", "floor")}
    return [name for name in names if name not in beside]


def heading(name: str, words: Mapping[str, str]) -> str:
    """The heading of a column: the words for it where there are any, else its name."""
    return words.get(name) or name.replace("_", " ")


def table_view(table: pa.Table, rows: int, words: Mapping[str, str]) -> str:
    """The first rows and columns of a table, with `words` for their names, and what more there is."""
    kept = min(rows, len(table))
    names = shown_columns(table) if kept else []
    shown, others = names[:_COLUMNS], names[_COLUMNS:]
    parts = []
    if shown:
        head = "".join(
            f"<th style='text-align:{_side(table.schema.field(name).type)}'>{html.escape(heading(name, words))}</th>"
            for name in shown
        )
        body = "".join(
            "<tr>" + "".join(_cell(row[name], table.schema.field(name).type) for name in shown) + "</tr>"
            for row in table.slice(0, kept).to_pylist()
        )
        parts.append(f"<div style='overflow-x:auto'><table><tr>{head}</tr>{body}</table></div>")
    left = len(table) - kept
    more = [f"{left:,} {'more ' if kept else ''}row{'' if left == 1 else 's'}"] if left else []
    if others:
        named = [*(heading(name, words) for name in others[:_NAMED]), *(["…"] if len(others) > _NAMED else [])]
        more.append(f"{len(others)} more column{'' if len(others) == 1 else 's'} ({', '.join(named)})")
    if more:
        parts.append(note(f"{' and '.join(more)}: to_pandas(), to_polars(), to_table()"))
    return "".join(parts)


def is_numeric(kind: pa.DataType) -> bool:
    """Does a column of this type hold numbers, which stand at its right?"""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _side(kind: Any) -> str:
    return "right" if is_numeric(kind) else "left"


def _cell(value: Any, kind: Any) -> str:
    words = "" if value is None else short(word(value), _LETTERS)
    width = ";white-space:nowrap" if _side(kind) == "right" else ""
    if len(words) > _WIDE:
        width = f";min-width:{'16em' if ' ' in words else '9em'};overflow-wrap:anywhere"
    return f"<td style='text-align:{_side(kind)};vertical-align:top{width}'>{html.escape(words)}</td>"


def sketch(figure: Any, *, panels: int = 6) -> str:
    """The first panels of a plotly figure as one SVG element; empty where it has nothing that can be drawn.

    >>> import plotly.graph_objects as go
    >>> drawn = sketch(go.Figure(go.Scatter(x=[1, 2, 3], y=[2, 4, 3])))
    >>> drawn.startswith("<svg"), len(drawn) < 3000
    (True, True)
    """
    layout = figure.layout
    owners: dict[tuple[str, str], list[_Trace]] = {}
    for trace in figure.data:
        if trace.type in ("scatter", "bar") and trace.x is not None and trace.y is not None and len(trace.x):
            axes = (trace.xaxis or "x", trace.yaxis or "y")
            owners.setdefault(axes, []).append(_Trace(trace))
    shown = list(owners.items())[:panels]
    if not shown:
        return ""
    columns = min(len(shown), _IN_A_ROW)
    wide, high = _PANEL if len(shown) > 1 else _ALONE
    if len(shown) == 1:  # names at its left make it wider, and many of them higher
        names_left = {_plain(value) for trace in shown[0][1] for value in trace.y if isinstance(value, str)}
        wide += int(min(max(map(len, names_left), default=0), _LONG) * _LETTER)
        high = max(high, _ABOVE + _BELOW + _LINE * len(names_left))
    most = _LONG if len(shown) == 1 else _NAMES
    titles = [note.text for note in layout.annotations if note.xref == "paper" and note.yref == "paper" and note.text]
    if len(titles) < len(shown) or (len(shown) == 1 and layout[f"yaxis{shown[0][0][1][1:]}"].title.text):
        titles = [""] * len(shown)
    names = [_coloured_names(title, wide) for title in titles]
    high += _LINE * max(map(len, names))
    legend, above = _legend([trace for _, traces in shown for trace in traces], columns * wide)
    parts = [legend]
    for place, ((across, along), traces) in enumerate(shown):
        box = (place % columns * wide, above + place // columns * high, wide, high)
        scales = (layout[f"xaxis{across[1:]}"], layout[f"yaxis{along[1:]}"])
        lines = _references(layout.shapes, across, along)
        if layout.barmode in ("stack", "relative"):
            _stack(traces)
        parts.append(_panel(box, (titles[place].split("<br>")[0], names[place]), scales, traces, lines, most))
    width, height = columns * wide, above + -(-len(shown) // columns) * high
    label = html.escape(_plain(layout.title.text or "figure"), quote=True)
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}" style="max-width:{width}px;width:100%" '
        f'font-family="sans-serif" font-size="10" fill="currentColor">{"".join(parts)}</svg>'
    )


def _plain(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"</?su[bp]>", "", re.sub(r"<(?!/?su[bp]>)[^>]*>", " ", text))).split())


def _coloured_names(title: str, width: float) -> list[list[tuple[str, str]]]:
    """The names of curves that a title gives in their colours, with the colours, in lines that fit a panel."""
    lines: list[list[tuple[str, str]]] = []
    room = 0.0
    for ink, words in re.findall(r'<span style="color:([^"]*)">(.*?)</span>', title):
        name = _plain(words)
        room -= (len(name) + 1) * _LETTER
        if room < 0:
            lines.append([])
            room = width - _LEFT - (len(name) + 1) * _LETTER
        lines[-1].append((name, _colour(ink)))
    return lines


def _words(x: float, y: float, text: str, *, anchor: str = "start", faint: bool = False) -> str:
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    weak = ' opacity=".7"' if faint else ""
    return f'<text x="{x:g}" y="{y:g}"{side}{weak}>{html.escape(text)}</text>'


def _legend(traces: Sequence[_Trace], width: float) -> tuple[str, float]:
    """The names of the curves beside their colours, and the height that they take; nothing for a single one."""
    named = {trace.name: trace for trace in traces if trace.named}
    if len(named) < 2:
        return "", 0
    parts, x, y = [], 4.0, 11.0
    for trace in named.values():
        name = short(trace.name, int(width / _LETTER) - 6)
        wide = 26 + len(name) * _LETTER
        if x > 4 and x + wide > width:
            x, y = 4.0, y + _LINE
        mark = f'<rect x="{x + 2:g}" y="{y - 8:g}" width="9" height="9" fill="{trace.ink}"/>'
        if trace.mode == "lines" and not trace.fill:
            dash = f' stroke-dasharray="{trace.dash}"' if trace.dash else ""
            mark = f'<path d="M{x:g} {y - 3:g}h13" stroke="{trace.ink}" stroke-width="2"{dash}/>'
        parts.append(mark + _words(x + 17, y, name))
        x += wide
    return "".join(parts), y + 5


def _references(shapes: Sequence[Any], across: str, along: str) -> list[tuple[str, Any]]:
    """Straight lines through a whole panel: the axis that they stand on, and the shape."""
    lines = [shape for shape in shapes if shape.type == "line"]
    upright = [("x", line) for line in lines if line.xref == across and line.yref == f"{along} domain"]
    return upright + [("y", line) for line in lines if line.yref == along and line.xref == f"{across} domain"]


class _Trace:
    """A trace of plotly as what is drawn: points, intervals, colours."""

    def __init__(self, trace: Any) -> None:
        self.bar, self.flat = trace.type == "bar", trace.type == "bar" and trace.orientation == "h"
        self.mode = "" if self.bar else trace.mode or ("lines" if len(trace.x) > 20 else "lines+markers")
        self.fill = None if self.bar else trace.fill
        self.step = not self.bar and trace.line.shape == "hv"
        every = -(-len(trace.x) // _POINTS) or 1
        self.x, self.y = ([_item(value) for value in trace[axis]][::every] for axis in "xy")
        colours = trace.marker.color
        own = None if self.bar else trace.line.color
        self.ink = next((_colour(one) for one in (own, colours) if isinstance(one, str)), _INK)
        several = isinstance(colours, Sequence) and not isinstance(colours, str)
        self.inks = [_colour(one, self.ink) for one in colours][::every] if several else None
        self.band = _colour(getattr(trace, "fillcolor", None), self.ink)
        self.width = 0 if self.bar else 1.5 if trace.line.width is None else min(trace.line.width, 1.5)
        self.dash = "" if self.bar else _DASHES.get(str(trace.line.dash), "")
        self.name = _plain(trace.name or "")
        self.named = bool(self.name) and trace.showlegend is not False
        self.base: list[float] = []
        self.ends = {axis: _ends(trace[f"error_{axis}"], every) for axis in "xy"}

    def values(self, axis: str) -> list[Any]:
        """Its places on an axis, the ends of intervals among them."""
        own = self.x if axis == "x" else self.y
        around = [
            end
            for value, (low, high) in zip(own, self.ends[axis], strict=False)
            if isinstance(value, int | float)
            for end in (value - low, value + high)
        ]
        return [*own, *around]


def _stack(traces: Sequence[_Trace]) -> None:
    """Let each bar begin where the one before it at its place ends."""
    reached: dict[Any, float] = {}
    for trace in (trace for trace in traces if trace.bar and not trace.flat):
        trace.base = [reached.get(place, 0.0) for place in trace.x]
        trace.y = [None if high is None else low + high for low, high in zip(trace.base, trace.y, strict=True)]
        reached |= {place: high for place, high in zip(trace.x, trace.y, strict=True) if high is not None}


def _item(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _ends(bars: Any, every: int) -> list[tuple[float, float]]:
    above = [] if bars.array is None else [float(_item(length) or 0) for length in bars.array][::every]
    below = above if bars.arrayminus is None else [float(_item(length) or 0) for length in bars.arrayminus][::every]
    return list(zip(below, above, strict=False)) if any(above) or any(below) else []


class _Scale:
    """From values of an axis to pixels between two ends."""

    def __init__(self, axis: Any, values: Sequence[Any], start: float, end: float) -> None:
        self.title = _plain(axis.title.text or "")
        self._log, self._start, self._end = axis.type == "log", start, end
        known = [value for value in values if value is not None]
        words = any(isinstance(value, str) for value in known)
        listed = dict.fromkeys(map(str, [*(axis.categoryarray or ()), *known]))
        self.names = [name for name in listed if name in set(map(str, known))] if words else None
        finite = [number for number in map(self._number, known) if math.isfinite(number)] or [0.0]
        low, high = min(finite), max(finite)
        self._only = low if low == high and self.names is None else None
        air = 0.5 if self.names else 0.05 * (high - low) or 0.5
        self._low, self._high = low - air, high + air
        if axis.range is not None and self.names is None:
            self._low, self._high = sorted(map(float, axis.range))
        self._given = None if axis.tickvals is None else list(zip(axis.tickvals, axis.ticktext or (), strict=False))
        if axis.autorange == "reversed" or (axis.range is not None and axis.range[0] > axis.range[1]):
            self._start, self._end = end, start

    def _number(self, value: Any) -> float:
        if self.names is not None:
            return float(self.names.index(str(value))) if str(value) in self.names else math.nan
        try:
            number = float(value)
        except (TypeError, ValueError):
            return math.nan
        return (math.log10(number) if number > 0 else math.nan) if self._log else number

    def __call__(self, value: Any) -> float:
        share = (self._number(value) - self._low) / (self._high - self._low)
        return round(self._start + min(max(share, 0.0), 1.0) * (self._end - self._start), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Places and words of a few marks, none upon another."""
        if self.names is not None:
            return [(self(name), _plain(name)) for name in self.names]
        if self._given:
            inside = [(x, y) for x, y in self._given if self._low <= self._number(x) <= self._high]
            return [(self(place), _plain(str(words))) for place, words in inside]
        return [(self(place), f"{place:.3g}") for place in self._places()]

    def _places(self) -> list[float]:
        if self._only is not None:
            return [10**self._only if self._log else self._only]
        if self._log:
            powers = range(math.floor(self._low), math.ceil(self._high) + 1)
            for leading in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
                inside = [many * 10.0**power for power in powers for many in leading]
                inside = [place for place in inside if self._low <= math.log10(place) <= self._high]
                if len(inside) >= 3:
                    return inside[:: -(-len(inside) // 6)]
            return inside
        step = 10 ** math.floor(math.log10((self._high - self._low) / 3))
        step *= next((many for many in (1, 2, 5, 10) if (self._high - self._low) / (many * step) <= 5), 10)
        first = math.ceil(self._low / step)
        return [k * step for k in range(first, first + 6) if k * step <= self._high]


def _panel(
    box: tuple[float, float, float, float],
    title: tuple[str, list[list[tuple[str, str]]]],
    axes: tuple[Any, Any],
    traces: Sequence[_Trace],
    lines: Sequence[tuple[str, Any]],
    most: int,
) -> str:
    heading, names = title
    values = {axis: [value for trace in traces for value in trace.values(axis)] for axis in "xy"}
    for axis, line in lines:
        if not any(isinstance(value, str) for value in values[axis]):
            values[axis].append(_item(line[f"{axis}0"]))
    if any(trace.bar for trace in traces):
        values["x" if any(trace.flat for trace in traces) else "y"].append(0.0)
    long = max((len(_plain(value)) for value in values["y"] if isinstance(value, str)), default=0)
    room = max(_LEFT, 8 + min(long, most) * _LETTER)
    beside = _plain(axes[1].title.text or "") if _plain(heading) else ""  # a title above leaves the axis without a name
    room += _LINE * bool(beside)
    left, right = box[0] + room, box[0] + box[2] - _RIGHT
    top, bottom = box[1] + _ABOVE + _LINE * len(names), box[1] + box[3] - _BELOW
    across, along = _Scale(axes[0], values["x"], left, right), _Scale(axes[1], values["y"], bottom, top)
    letters = int(box[2] / _LETTER)
    parts = [f'<path d="M{left:g} {top:g}V{bottom:g}H{right:g}" fill="none" stroke="currentColor" opacity=".4"/>']
    parts += [_words(x, bottom + 12, text, anchor="middle", faint=True) for x, text in _apart(across, right - left)]
    parts += [_words(left - 4, y + 3, short(text, most), anchor="end", faint=True) for y, text in along.ticks()]
    parts.append(_words(left, box[1] + 13, _fitting(_plain(heading) or along.title, letters - int(room / _LETTER))))
    if beside:
        middle = f"{box[0] + 10:g} {(top + bottom) / 2:g}"
        turned = _fitting(beside, int((bottom - top) / _LETTER))
        parts.append(
            f'<text transform="translate({middle}) rotate(-90)" text-anchor="middle">{html.escape(turned)}</text>'
        )
    for number, line in enumerate(names, 1):
        spans = "".join(f'<tspan fill="{ink}">{html.escape(name)}</tspan>  ' for name, ink in line)
        parts.append(f'<text x="{left:g}" y="{box[1] + 13 + number * _LINE:g}">{spans}</text>')
    parts.append(_words((left + right) / 2, bottom + 26, _fitting(across.title, letters), anchor="middle"))
    for axis, line in lines:
        place = (across if axis == "x" else along)(_item(line[f"{axis}0"]))
        path = f"M{place:g} {top:g}V{bottom:g}" if axis == "x" else f"M{left:g} {place:g}H{right:g}"
        dash = _DASHES.get(str(line.line.dash), "")
        ink = _colour(line.line.color)
        ink = "currentColor" if ink == _GREY else ink
        parts.append(f'<path d="{path}" stroke="{ink}" stroke-dasharray="{dash}" opacity=".7"/>')
    return "".join([*parts, *(part for trace in traces for part in _drawn(trace, across, along))])


def _apart(scale: _Scale, width: float) -> list[tuple[float, str]]:
    """The marks below a panel, so few and so short that none touches the next."""
    ticks = scale.ticks()
    widest = max((min(len(text), 14) for _, text in ticks), default=1) * _LETTER + 8
    kept = ticks[:: max(1, math.ceil(len(ticks) * widest / width))]
    return [(x, short(text, max(int(width / len(kept) / _LETTER) - 1, 4))) for x, text in kept]


def _fitting(text: str, letters: int) -> str:
    """A title within its room: without what stands in brackets at its end, if that helps."""
    return short(text if len(text) <= letters else re.sub(r" \([^()]*\)$", "", text), letters)


def _drawn(trace: _Trace, across: _Scale, along: _Scale) -> Iterator[str]:
    placed = [(across(x), along(y), k) for k, (x, y) in enumerate(zip(trace.x, trace.y, strict=False))]
    placed = [point for point in placed if all(map(math.isfinite, point))]
    if not placed:
        return
    points = [(x, y) for x, y, _ in placed]
    if trace.bar:
        yield from _bars(trace, placed, across, along)
    if "lines" in trace.mode:
        yield from _line(trace, points, along)
    yield _intervals(trace, placed, across, along)
    if "markers" in trace.mode:
        for ink in dict.fromkeys([trace.ink] if trace.inks is None else trace.inks):
            chosen = [(x, y) for x, y, k in placed if trace.inks is None or trace.inks[k % len(trace.inks)] == ink]
            dots = "".join(f"M{x:g} {y:g}h0" for x, y in chosen)
            yield f'<path d="{dots}" stroke="{ink}" stroke-width="5" stroke-linecap="round" opacity=".75"/>'


def _line(trace: _Trace, points: Sequence[tuple[float, float]], along: _Scale) -> Iterator[str]:
    if trace.step:
        points = [corner for k, (x, y) in enumerate(points) for corner in ((x, points[max(k - 1, 0)][1]), (x, y))]
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    if trace.fill:
        ends = f" {points[-1][0]:g},{along(0):g} {points[0][0]:g},{along(0):g}" if trace.fill == "tozeroy" else ""
        faint = "" if trace.band.startswith("rgba") else ' opacity=".25"'
        yield f'<polygon points="{path}{ends}" fill="{trace.band}"{faint}/>'
    if trace.width:
        dash = f' stroke-dasharray="{trace.dash}"' if trace.dash else ""
        yield f'<polyline points="{path}" stroke="{trace.ink}" stroke-width="{trace.width:g}"{dash} fill="none"/>'


def _intervals(trace: _Trace, placed: Sequence[tuple[float, float, int]], across: _Scale, along: _Scale) -> str:
    """Bars from end to end of the intervals."""
    path = ""
    for axis, scale, own in (("x", across, trace.x), ("y", along, trace.y)):
        for x, y, k in placed:
            low, high = trace.ends[axis][k] if k < len(trace.ends[axis]) else (0.0, 0.0)
            if low or high:
                first, last = scale(own[k] - low), scale(own[k] + high)
                path += f"M{first:g} {y:g}H{last:g}" if axis == "x" else f"M{x:g} {first:g}V{last:g}"
    return f'<path d="{path}" stroke="{trace.ink}" fill="none"/>' if path else ""


def _bars(trace: _Trace, placed: Sequence[tuple[float, float, int]], across: _Scale, along: _Scale) -> Iterator[str]:
    places = sorted({y if trace.flat else x for x, y, _ in placed})
    gaps = [after - before for before, after in pairwise(places)]
    thick = max(min(0.8 * min(gaps, default=26), 26), 1)
    for x, y, k in placed:
        zero = across(0) if trace.flat else along(trace.base[k] if trace.base else 0)
        level = (min(x, zero), y - thick / 2, abs(x - zero), thick)
        upright = (x - thick / 2, min(y, zero), thick, abs(y - zero))
        ink = trace.ink if trace.inks is None else trace.inks[k % len(trace.inks)]
        box = level if trace.flat else upright
        yield '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*box) + f' fill="{ink}"/>'


def _colour(given: Any, otherwise: str = "currentColor") -> str:
    """A colour as it may stand in an attribute; another one for anything else."""
    known = isinstance(given, str) and re.fullmatch(r"#[0-9a-fA-F]{3,8}|rgba?\([\d., ]+\)|[a-z]+", given)
    return str(given) if known else otherwise
