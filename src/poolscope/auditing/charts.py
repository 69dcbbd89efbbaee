"""Figures that several answers share: bars with intervals, and where numbers stand between floors and thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolscope.auditing.question import QUESTIONS, Answer, Gauge
from poolscope.charts import COLOURS, GREY, style
from poolscope.errors import require
from poolscope.numbers.intervals import Interval
from poolscope.verdicts import LEVEL_COLOURS


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


# -- where numbers stand between floors and thresholds ----------------------------------------------------------------

# Where numbers stand between their floors and their thresholds, all on one scale: 0 floor, 1 `watch`, 2 `repair`.

LEAST, MOST = -0.5, 3.0  # the ends of the common scale; what lies beyond is drawn at its end, as a triangle


@dataclass(frozen=True)
class Standing:
    """A number of an answer and what it is judged by; None where it has no interval or a threshold is missing."""

    key: str
    number: int
    name: str
    value: float
    interval: Interval | None
    floor: float
    watch: float | None
    repair: float | None
    level: str
    form: str = ".3g"
    falls: bool = False

    @property
    def zero(self) -> float:
        """What lies at 0 of the common scale: the floor; 0 itself where chance alone reaches the first threshold.

        Of a number that falls from 1 it is 1: the floor, which is what chance gives, lies far beyond the thresholds.
        """
        if self.falls:
            return 1.0
        first = self.repair if self.watch is None else self.watch
        return self.floor if first is not None and self.floor < first else 0.0

    def place(self, value: float) -> float:
        """On the common scale: 0 at the floor, 1 at the first threshold, 2 at the second, and in proportion between.

        Where there is only one of them, what lies between it and the floor is in proportion too.
        """
        if self.watch is None:
            assert self.repair is not None
            return 2 * (value - self.zero) / (self.repair - self.zero)
        place = (value - self.zero) / (self.watch - self.zero)
        if self.repair is None or place <= 1:
            return place
        return 1 + (value - self.watch) / (self.repair - self.watch)

    def shown(self, value: float) -> float:
        """The place, or the end of the scale where it lies beyond."""
        return min(max(self.place(value), LEAST), MOST)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The places of the ends of the interval; None where there is none."""
        interval = self.interval
        if interval is None:
            return None
        low, high = sorted((self.shown(interval.low), self.shown(interval.high)))
        return low, high


def standings(answers: Sequence[Answer], thresholds: Mapping[str, float]) -> list[Standing]:
    """Every number of the answers that thresholds judge, and whose thresholds follow each other."""
    rows = [_standing(each, gauge, thresholds) for each in answers for gauge in _gauges(each)]
    return [row for row in rows if row is not None]


def _gauges(answer: Answer) -> Sequence[Gauge]:
    """Those that the question declares; `judged_on` is one for the number of the verdict."""
    question = QUESTIONS.get(answer.key)
    if question is None:
        return ()
    name = question.judged_on
    known = {threshold.name for threshold in question.thresholds}
    own = () if name is None else (Gauge("", "", f"{name}_watch", f"{name}_repair"),)
    declared = [*own, *question.gauges]
    return [gauge for gauge in declared if {gauge.watch, gauge.repair} & known]


def _standing(answer: Answer, gauge: Gauge, thresholds: Mapping[str, float]) -> Standing | None:
    verdict, numbers = answer.verdict, answer.numbers
    value = numbers.get(gauge.number) if gauge.number else verdict.value
    if not isinstance(value, int | float):
        return None
    interval = numbers.get(f"{gauge.number}_interval") if gauge.number else verdict.interval
    floor = (numbers.get(f"{gauge.number}_floor") if gauge.number else verdict.floor) or 0.0
    base = floor if gauge.above_floor else 0.0
    watch, repair = (base + thresholds[name] if name in thresholds else None for name in (gauge.watch, gauge.repair))
    edges = [edge for edge in (watch, repair) if edge is not None]
    away = [1 - edge for edge in edges] if gauge.falls else edges
    if not away or away[0] <= 0 or away != sorted(set(away)):  # thresholds of one's own need not be in order
        return None
    form = gauge.form or (answer.number_format if not gauge.number else None) or ".3g"
    words = gauge.words or answer.number_name
    return Standing(
        answer.key, answer.number, words, value, interval, floor, watch, repair, verdict.level, form, gauge.falls
    )


def standings_figure(standings: Sequence[Standing]) -> Any:
    """Where the numbers lie between their floors and their thresholds: one row a number, all on one scale."""
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    names = [f"{row.number}. {row.name}" for row in standings]
    for level, colour in LEVEL_COLOURS.items():
        rows = [(name, row) for name, row in zip(names, standings, strict=True) if row.level == level]
        if not rows:
            continue
        places = [row.place(row.value) for _, row in rows]
        shown = [row.shown(row.value) for _, row in rows]
        ends = [row.ends or (x, x) for (_, row), x in zip(rows, shown, strict=True)]
        figure.add_trace(
            go.Scatter(
                x=shown,
                y=[name for name, _ in rows],
                mode="markers",
                name=level,
                marker={"color": colour, "size": 13, "symbol": [_symbol(place) for place in places]},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [max(high - x, 0) for x, (_, high) in zip(shown, ends, strict=True)],
                    "arrayminus": [max(x - low, 0) for x, (low, _) in zip(shown, ends, strict=True)],
                    "color": colour,
                    "thickness": 3,
                    "width": 0,
                },
                customdata=[[row.value, row.floor] for _, row in rows],
                hovertemplate="%{y}: %{customdata[0]:.4g}<br>floor %{customdata[1]:.4g}<extra></extra>",
            )
        )
    for place in (0, 1, 2):
        figure.add_vline(place, line={"color": GREY, "width": 1, "dash": "dash"}, layer="below")
    title = "Numbers that thresholds judge, between floor and thresholds; bars: 95 % intervals"
    figure = style(figure, title=title, width=860, height=200 + 40 * len(standings))
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    marks = ["floor", "watch", "repair"]
    figure.update_xaxes(tickvals=[0, 1, 2], ticktext=marks, range=[LEAST - 0.1, MOST + 0.1], showgrid=False)
    return figure


def _symbol(place: float) -> str:
    return "triangle-right" if place > MOST else "triangle-left" if place < LEAST else "circle"
