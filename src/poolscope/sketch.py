"""A figure as a small SVG drawing, without a browser and without scripts: what notebooks show beside a result.

It reads what our own figures are made of: panels of points, lines and bars with intervals, on linear, logarithmic and
named axes. Legends, labels and hovering are left to plotly (`result.figure()`).
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import Any

from poolscope.lines import short

_SIZE, _COLUMNS = (300, 190), 3  # of a panel in pixels; panels in a row at most
_LEFT, _BELOW, _ABOVE, _RIGHT = 46, 34, 20, 10
_NARROW = 8  # letters left of a panel
_LETTERS = 46  # of a title, so that it stays within its panel
_MOST = 400  # points of a trace that are drawn


def sketch(figure: Any, *, panels: int = 6) -> str:
    """The first panels of a plotly figure as one SVG element; empty where it has nothing that can be drawn.

    >>> import plotly.graph_objects as go
    >>> drawn = sketch(go.Figure(go.Scatter(x=[1, 2, 3], y=[2, 4, 3])))
    >>> drawn.startswith("<svg"), len(drawn) < 3000
    (True, True)
    """
    layout = figure.layout
    owners: dict[tuple[str, str], list[Any]] = {}
    for trace in figure.data:
        if trace.type in ("scatter", "bar") and trace.x is not None and trace.y is not None:
            owners.setdefault((trace.xaxis or "x", trace.yaxis or "y"), []).append(trace)
    shown = list(owners.items())[:panels]
    if not shown:
        return ""
    columns = min(len(shown), _COLUMNS)
    width, height = columns * _SIZE[0], -(-len(shown) // columns) * _SIZE[1]
    titles = [note.text for note in layout.annotations if note.xref == "paper" and note.yref == "paper" and note.text]
    parts = []
    for place, (axes, traces) in enumerate(shown):
        corner = (place % columns * _SIZE[0], place // columns * _SIZE[1])
        title = titles[place] if len(shown) > 1 and len(titles) >= len(shown) else ""
        parts.append(_panel(corner, title, [_axis(layout, name) for name in axes], traces))
    label = html.escape(_plain(layout.title.text or "figure"), quote=True)
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}" style="max-width:{width}px;width:100%" '
        f'font-family="sans-serif" font-size="10" fill="currentColor">{"".join(parts)}</svg>'
    )


def _axis(layout: Any, name: str) -> Any:
    return layout[f"{name[0]}axis{name[1:]}"]


def _plain(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", text)).strip()


class _Scale:
    """From values of an axis to pixels between two ends."""

    def __init__(self, axis: Any, values: Sequence[Any], start: float, end: float) -> None:
        self.title = _plain(axis.title.text or "")
        self._log, self._start, self._end = axis.type == "log", start, end
        known = [value for value in values if value is not None]
        self.names = list(dict.fromkeys(map(str, known))) if any(isinstance(value, str) for value in known) else None
        numbers = [self._number(value) for value in known]
        finite = [number for number in numbers if math.isfinite(number)] or [0.0]
        low, high = min(finite), max(finite)
        air = 0.5 if self.names else 0.05 * (high - low) or 0.5
        self._low, self._high = low - air, high + air
        if axis.autorange == "reversed":
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
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[tuple[float, str]]:
        if self.names is not None:
            kept = self.names[:: max(1, -(-len(self.names) // 6))]
            return [(self(name), _plain(name)[:14]) for name in kept]
        step = 10 ** math.floor(math.log10((self._high - self._low) / 3))
        step *= next((many for many in (1, 2, 5, 10) if (self._high - self._low) / (many * step) <= 4), 10)
        first = math.ceil(self._low / step)
        places = [k * step for k in range(first, first + 6) if k * step <= self._high]
        return [(self(10**x if self._log else x), f"{10**x if self._log else x:.3g}") for x in places]


def _values(trace: Any, axis: str) -> list[Any]:
    values = trace[axis]
    return [] if values is None else [value.item() if hasattr(value, "item") else value for value in values][:_MOST]


def _panel(corner: tuple[float, float], title: str, axes: Sequence[Any], traces: Sequence[Any]) -> str:
    left, right = corner[0] + _LEFT, corner[0] + _SIZE[0] - _RIGHT
    top, bottom = corner[1] + _ABOVE, corner[1] + _SIZE[1] - _BELOW
    base = [0.0] if any(trace.type == "bar" for trace in traces) else []
    flat = any(trace.type == "bar" and trace.orientation == "h" for trace in traces)
    values = [[value for trace in traces for value in _values(trace, axis)] for axis in "xy"]
    across = _Scale(axes[0], [*values[0], *(base if flat else [])], left, right)
    along = _Scale(axes[1], [*values[1], *([] if flat else base)], bottom, top)
    parts = [f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="currentColor" opacity=".4"/>']
    for x, words in across.ticks():
        parts.append(f'<text x="{x}" y="{bottom + 12}" text-anchor="middle" opacity=".7">{html.escape(words)}</text>')
    for y, words in along.ticks():
        words = html.escape(short(words, _NARROW))
        parts.append(f'<text x="{left - 4}" y="{y + 3}" text-anchor="end" opacity=".7">{words}</text>')
    heading = _plain(title) or along.title
    parts.append(f'<text x="{left}" y="{top - 7}">{html.escape(short(heading, _LETTERS))}</text>')
    middle = (left + right) / 2
    parts.append(
        f'<text x="{middle}" y="{bottom + 26}" text-anchor="middle">{html.escape(short(across.title, _LETTERS))}</text>'
    )
    return "".join([*parts, *(_trace(trace, across, along) for trace in traces)])


def _trace(trace: Any, across: _Scale, along: _Scale) -> str:
    points = [(across(x), along(y)) for x, y in zip(_values(trace, "x"), _values(trace, "y"), strict=False)]
    points = [point for point in points if all(map(math.isfinite, point))]
    if trace.type == "bar":
        return _bars(trace, points, _colour(trace.marker.color), across, along)
    mode = trace.mode or "lines"
    parts = []
    if "lines" in mode:
        stroke = _colour(trace.line.color)
        if trace.line.shape == "hv":  # steps
            points = [corner for k, (x, y) in enumerate(points) for corner in ((x, points[max(k - 1, 0)][1]), (x, y))]
        path = " ".join(f"{x},{y}" for x, y in points)
        if trace.fill and points:
            ends = f" {points[-1][0]},{along(0)} {points[0][0]},{along(0)}" if trace.fill == "tozeroy" else ""
            ink = _colour(trace.fillcolor or trace.line.color)
            parts.append(f'<polygon points="{path}{ends}" fill="{ink}" opacity=".25"/>')
        parts.append(f'<polyline points="{path}" stroke="{stroke}" stroke-width="1.5" fill="none"/>')
    if "markers" in mode:
        ink = _colour(trace.marker.color)
        parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{ink}" opacity=".75"/>' for x, y in points]
    return "".join(parts)


def _bars(trace: Any, points: Sequence[tuple[float, float]], ink: str, across: _Scale, along: _Scale) -> str:
    if not points:
        return ""
    flat = trace.orientation == "h"
    room = _SIZE[1] - _ABOVE - _BELOW if flat else _SIZE[0] - _LEFT - _RIGHT
    thick = max(min(0.7 * room / len(points), 26), 1)
    zero = across(0) if flat else along(0)
    made = []
    for x, y in points:
        level = (min(x, zero), y - thick / 2, abs(x - zero), thick)
        upright = (x - thick / 2, min(y, zero), thick, abs(y - zero))
        box = level if flat else upright
        made.append('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*box) + f' fill="{ink}"/>')
    return "".join(made)


def _colour(given: Any) -> str:
    """A colour as it may stand in an attribute; that of the words for several, and for anything else."""
    known = isinstance(given, str) and re.fullmatch(r"#[0-9a-fA-F]{3,8}|rgba?\([\d., ]+\)|[a-z]+", given)
    return str(given) if known else "currentColor"
