"""Texts by length: bins of fixed width, of equal numbers, or with given edges; those with too few texts are merged.

What every part of a report on length has: its table and its panels. And the simplest part: of labelled texts, how well
a logistic regression on the vectors tells the labels in each bin, and how sure it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from poolscope.errors import InputError, require, shorten, whole_number
from poolscope.numbers import Index
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result, cells
from poolscope.show.charts import COLOURS, GREY, error_bars, grid, style

# Where fewer than a tenth of the texts have so many tokens, bins of 50 tokens part them too coarsely: quantiles do.
_LONG, _QUANTILE_BINS = 100, 5
MIN_TEXTS = 20  # mean cosines of fewer say little: 20 texts are 190 pairs
_MOST_BINS = 20
_MOST_GIVEN = 10_000
_WIDTHS = (1, 2, 4, 5, 10)  # times 50, 500, 5000, …
FOLDS = 5
_MOST_ITERATIONS = 2000
_PANEL_WIDTH, _PANEL_HEIGHT, _COLUMNS = 460, 340, 3
TOKENS = "tokens"
_DASHES = {"solid": "—", "dash": "– –", "dot": "···"}


@dataclass(frozen=True)
class LengthBins:
    """Bin b holds the lengths edges[b] ≤ n < edges[b + 1]; the last one holds its upper edge too.

    `of` gives the bin of every text, `counts` the texts of every bin. `merged` says which bins had too few texts and
    were joined with a neighbour.
    """

    edges: tuple[float, ...]
    of: Index = field(repr=False)
    counts: Index
    merged: tuple[str, ...]
    kind: str

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins in words, such as "50–100"."""
        return tuple(_label(low, high) for low, high in pairwise(self.edges))

    def notes(self) -> tuple[str, ...]:
        """What was done to the bins, in sentences."""
        return tuple(f"Bins were merged so that each has enough texts: {sentence}." for sentence in self.merged)


def length_bins(lengths: Index, bins: int | Sequence[float] | None = None, *, min_texts: int = MIN_TEXTS) -> LengthBins:
    """Put lengths into bins. `bins`: None for widths of 50 (more where texts are so long that there would be more than
    20 bins), or fifths of the texts where under a tenth of them has 100 tokens; a number for that many bins of about
    equal numbers of texts, or the edges themselves.

    A bin with fewer than `min_texts` texts is merged with the next longer one, the last with the one before it.

    >>> by_bin = length_bins(np.array([3, 60, 70, 130, 140]), min_texts=2)
    >>> by_bin.labels, by_bin.counts.tolist(), by_bin.merged
    (('0–100', '100–150'), [3, 2], ('0–50, 50–100 → 0–100',))
    """
    min_texts = whole_number(min_texts, "min_texts")
    if bins is None and np.quantile(lengths, 0.9) < _LONG:
        bins = _QUANTILE_BINS
    edges, kind = _edges(lengths, bins)
    counts = np.histogram(lengths, edges)[0]
    joined_edges, merged = _merge(edges, counts, min_texts)
    of = np.minimum(np.searchsorted(joined_edges, lengths, side="right") - 1, len(joined_edges) - 2)
    return LengthBins(tuple(joined_edges), of, np.bincount(of, minlength=len(joined_edges) - 1), merged, kind)


def narrow_edges(lengths: Index, counts: Index, *, min_texts: int = MIN_TEXTS) -> list[float]:
    """Edges of as many bins of about equal numbers of texts as there can be, up to 20 with `min_texts` texts each.

    For the cosine within bins, which a wide bin lowers: where vectors go with the length, texts of 8 and of 48 tokens
    are less alike than two of 8, so that short texts seem to be less alike where one bin holds all of them. A length
    that fills a bin has one of its own, such as that of texts which were all cut. `lengths` rise, each with the number
    of its texts; the last edge lies above the longest.

    >>> narrow_edges(np.array([3, 4, 5, 9, 12]), np.array([1, 2, 2, 1, 7]), min_texts=2)
    [3.0, 5.0, 12.0, 13.0]
    """
    least = max(whole_number(min_texts, "min_texts"), -(-int(counts.sum()) // _MOST_BINS))
    starts, sizes = [float(lengths[0])], [0]
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        if sizes[-1] >= least:
            starts, sizes = [*starts, float(length)], [*sizes, 0]
        elif count >= least and len(starts) > 1:
            sizes[-2:] = [sizes[-2] + sizes[-1], 0]  # what is not enough for a bin joins the one before
            starts[-1] = float(length)
        sizes[-1] += count
    if sizes[-1] < least and len(starts) > 1:
        del starts[-1]
    return [*starts, float(lengths[-1]) + 1]


def histogram_bins(histogram: Index, bins: Sequence[float] | None = None, *, min_texts: int = MIN_TEXTS) -> LengthBins:
    """Bins from the number of texts of every length (0, 1, 2, …), with widths of 50 or the edges; `of` is empty.

    >>> histogram_bins(np.bincount([3, 60, 70, 130, 140]), min_texts=2).labels
    ('0–100', '100–150')
    """
    present = np.flatnonzero(histogram)
    edges, kind = _edges(present[[0, -1]], bins)
    counts = np.histogram(np.arange(len(histogram)), edges, weights=histogram)[0].astype(np.int64)
    joined_edges, merged = _merge(edges, counts, min_texts)
    counts = np.histogram(np.arange(len(histogram)), joined_edges, weights=histogram)[0].astype(np.int64)
    return LengthBins(tuple(joined_edges), np.zeros(0, dtype=np.int64), counts, merged, kind)


def _edges(lengths: Index, bins: int | Sequence[float] | None) -> tuple[list[float], str]:
    longest = float(lengths.max())
    if bins is None:
        width = _width(longest)
        return [float(edge) for edge in np.arange(0, longest + width + 1, width) if edge - width <= longest], "fixed"
    if not isinstance(bins, Iterable) or isinstance(bins, str):
        number = float(bins) if isinstance(bins, Real) and not isinstance(bins, bool) else 0.0
        if not 1 <= number <= _MOST_GIVEN or not number.is_integer():
            raise InputError(
                f"bins: received {shorten(bins)}; allowed: a number of bins from 1 to {_MOST_GIVEN:,}, "
                f"edges, or None for widths of 50."
            )
        # The last edge is above the longest, so that texts that were all cut at one length get a bin of their own.
        lower = np.unique(np.quantile(lengths, np.arange(number) / number, method="closest_observation"))
        return [*(float(edge) for edge in lower), longest + 1], "quantile"
    try:
        edges = [float(edge) for edge in bins]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"bins: received {shorten(bins)}; edges are numbers that rise. Pass these.") from None
    rising = len(edges) > 1 and all(low < high for low, high in pairwise(edges))
    if not rising or lengths.min() < edges[0] or longest > edges[-1]:
        raise InputError(
            f"bins: received the edges {edges}; needed are two or more that rise and hold all lengths, here "
            f"{lengths.min()} to {lengths.max()}. Widen the first or the last, or give a number of bins."
        )
    return edges, "given"


def _width(longest: float) -> int:
    """50, or the first round number above it with which the bins are few enough to read.

    >>> [_width(longest) for longest in (256, 1000, 8709)]
    [50, 100, 500]
    """
    power = 50
    while True:
        for times in _WIDTHS:
            if longest / (power * times) < _MOST_BINS:
                return power * times
        power *= 10


def _merge(edges: Sequence[float], counts: Index, min_texts: int) -> tuple[list[float], tuple[str, ...]]:
    """The edges that remain, and in words what was joined."""
    joined_edges, size = [edges[0]], 0
    for high, count in zip(edges[1:], counts, strict=True):
        size += int(count)
        if size >= min_texts:
            joined_edges.append(high)
            size = 0
    if joined_edges[-1] != edges[-1]:  # what is left at the end joins the bin before it
        joined_edges = [*(joined_edges[:-1] if len(joined_edges) > 1 else joined_edges), edges[-1]]
    merged = []
    for low, high in pairwise(joined_edges):
        parts = [_label(a, b) for a, b in pairwise(edges) if low <= a and b <= high]
        if len(parts) > 1:
            merged.append(f"{', '.join(parts)} → {_label(low, high)}")
    return joined_edges, tuple(merged)


def _label(low: float, high: float) -> str:
    return f"{low:g}–{high:g}"


# -- what every part of a report has: a table, and panels ----------------------------------------------------------


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


def row_panels(
    rows: Sequence[Any], places: Sequence[Any], across: str, shown: Mapping[str, tuple[str, str]]
) -> list[Panel]:
    """A panel for each of some estimates of every row: its name in the row, the title, and the words at its axis."""
    return [
        Panel(title, across, up, [Series("measured", places, [getattr(row, name) for row in rows])])
        for name, (title, up) in shown.items()
    ]


def table_rows(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Records of one kind (of bins, places, lengths) as rows of a table: the same columns in all, `label` as `bin`."""
    rows = []
    for record in records:
        values = {part.name: getattr(record, part.name) for part in fields(record)}
        rows.append(cells({"bin" if name == "label" else name: value for name, value in values.items()}))
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


@dataclass(frozen=True, repr=False)
class LengthPart(Result):
    """What a report on length holds: a table, and panels that stand alone or on the sheet of the report.

    `table_of` names the field whose records are the rows of its table.
    """

    table_of: ClassVar[str] = "bins"

    def rows(self) -> list[dict[str, Any]]:
        """One row a bin, place or length."""
        return table_rows(getattr(self, self.table_of))

    def figure_title(self) -> str:
        """The title of its figure."""
        return ""

    def panels(self) -> list[Panel]:
        """What its figure shows, panel by panel."""
        return []

    def figure(self) -> Any:
        """All panels of this part, with intervals; grey is chance."""
        panels = self.panels()
        if not panels:
            raise InputError("received a result without anything to draw; measure at least one part of it.")
        figure, places, (across, down) = grid([_heading(panel) for panel in panels], _COLUMNS)
        for panel, place in zip(panels, places, strict=False):
            _draw(figure, panel, place)
        width, height = max(_PANEL_WIDTH * across, 620), _PANEL_HEIGHT * down + 110
        return style(figure, title=self.figure_title(), width=width, height=height)


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


def _draw(figure: Any, panel: Panel, place: dict[str, int]) -> None:
    for series in panel.series:
        floor = _floor_trace(series)
        if floor is not None:
            figure.add_trace(floor, **place)
        figure.add_trace(_trace(series), **place)
    if panel.reference is not None:
        figure.add_hline(panel.reference, line={"color": GREY, "width": 1, "dash": "dash"}, **place)
    places: list[Any] = [x for series in panel.series for x in series.x]
    axis: dict[str, Any] = {"categoryorder": "array", "categoryarray": list(dict.fromkeys(map(str, places)))}
    across = panel.across
    if panel.log:
        places = sorted({float(x) for x in places})
        axis = {"type": "log", "tickvals": places, "ticktext": [f"{place:.0f}" for place in places], "tickangle": 0}
        if panel.limit is not None and places[-1] > panel.limit:
            figure.add_vline(panel.limit, line={"color": GREY, "width": 1, "dash": "dot"}, **place)
            across = f"{across} (dotted: the limit, {panel.limit:g})"
    figure.update_xaxes(title_text=across, title_standoff=4, **place, **axis)
    figure.update_yaxes(title_text=panel.up, title_standoff=8, **place)


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
        hovertemplate="%{x}: %{y:.4g}<br>95%: %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra>"
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
