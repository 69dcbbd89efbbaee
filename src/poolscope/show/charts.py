"""What all figures share: colours and look, bars of intervals, and files."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolscope.errors import InputError, MissingExtraError, require, shorten
from poolscope.files import atomic_file
from poolscope.numbers.cosines import equal_bins
from poolscope.numbers.intervals import Estimate
from poolscope.words import clean, with_texts

PAGE, PICTURES = ".html", (".png", ".svg", ".pdf")

# Colours that people with a colour deficiency tell apart too (Okabe and Ito); one a model or a text.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#666666"
_FONT = "Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Drawing:
    """A picture that is no chart, as SVG; `save_figure` writes it like a figure of plotly."""

    svg: str
    width: int
    height: int

    def to_html(self, **_: Any) -> str:
        """One page with the drawing in it."""
        return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>poolscope</title>{self.svg}</html>'

    def to_image(self, format: str, scale: float = 1.0) -> bytes:
        """The drawing itself, or a picture that plotly takes of the drawing in a browser."""
        if format == "svg":
            return self.svg.encode("utf-8")
        go = require("plotly.graph_objects", "report")
        source = "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode("utf-8")).decode("ascii")
        whole = {"x": 0, "y": 1, "sizex": 1, "sizey": 1, "xref": "paper", "yref": "paper", "sizing": "stretch"}
        layout = {"width": self.width, "height": self.height, "margin": dict.fromkeys("lrtb", 0), "template": "none"}
        hidden = {"visible": False}
        figure = go.Figure(layout={**layout, "images": [{"source": source, **whole}], "xaxis": hidden, "yaxis": hidden})
        content: bytes = figure.to_image(format=format, scale=scale)
        return content

    def _repr_html_(self) -> str:
        return self.svg


def check_figure_path(path: str | os.PathLike[str]) -> None:
    """Refuse a name whose ending says no format, before any work is done."""
    if Path(path).suffix.lower() not in (PAGE, *PICTURES):
        raise InputError(f"{path}: received a figure name with the ending '{Path(path).suffix}'; allowed: {_ENDINGS}.")


_ENDINGS = f"{PAGE} (needs nothing else), {', '.join(PICTURES)} (pictures)"


def save_figure(figure: Any, path: str | os.PathLike[str], *, scale: float = 2.0) -> None:
    """Write a figure, atomically: `.html` is one page that works without a network, the others are pictures.

    Pictures are drawn by kaleido in a Chrome or Chromium on this machine: the one that BROWSER_PATH names, or the first
    that is found.

    Parameters
    ----------
    figure
        What `result.figure()` gives.
    path : path
        Where to; the ending says what is written: `.html`, `.png`, `.svg` or `.pdf`.
    scale : float
        Multiplies the pixels of a PNG.

    Returns
    -------
    None

    Examples
    --------
    >>> import os, tempfile
    >>> from poolscope import hubs
    >>> path = os.path.join(tempfile.mkdtemp(), "hubs.html")
    >>> save_figure(hubs([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.9]], k=1).figure(), path)
    >>> os.path.exists(path)
    True

    """
    content = figure_bytes(figure, path, scale=scale)
    with atomic_file(path) as stream:
        stream.write(content)


def figure_bytes(figure: Any, path: str | os.PathLike[str], *, scale: float = 2.0) -> bytes:
    """What `save_figure` writes under that name."""
    check_figure_path(path)
    ending = Path(path).suffix.lower()
    if not hasattr(figure, "to_html" if ending == PAGE else "to_image"):
        raise InputError(
            f"figure: received {shorten(figure)}; allowed: a figure of plotly, as results draw. Pass result.figure()."
        )
    figure = without_markup(figure)
    if ending == PAGE:
        page: str = figure.to_html(include_plotlyjs=True, full_html=True)
        return page.encode("utf-8")
    return _picture(figure, path, ending.removeprefix("."), scale)


# What our own words are set with; plotly would make links and looks of other tags.
_NO_TAG = re.compile(r"<(?!/?(?:br|b|i|sub|sup|extra)>)")


def without_markup(figure: Any) -> Any:
    """A figure of plotly whose words are clean and can be no link: names in it come from files of others."""
    if not hasattr(figure, "to_plotly_json"):
        return figure
    return type(figure)(with_texts(figure.to_plotly_json(), lambda text: _NO_TAG.sub("&lt;", clean(text))))


def _picture(figure: Any, path: str | os.PathLike[str], kind: str, scale: float) -> bytes:
    require("kaleido", "report")
    try:
        content: bytes = figure.to_image(format=kind, scale=scale)
    except RuntimeError as error:  # kaleido raises it, and a child of it, where it finds or starts no browser
        raise MissingExtraError(
            f"{path}: the picture could not be drawn, because no Chrome or Chromium could be started. Install one (on "
            f"Debian: apt install chromium), name it in the environment variable BROWSER_PATH, or write "
            f"{Path(path).with_suffix(PAGE).name}, which needs none."
        ) from error
    return content


def style(figure: Any, *, title: str, width: int, height: int) -> Any:
    """One look for all figures: white ground, quiet grid, the legend between title and panels."""
    figure.update_layout(
        template="plotly_white",
        title={"text": title, "x": 0.01, "y": 1 - 14 / height, "yanchor": "top", "font": {"size": 18}},
        font={"family": _FONT, "size": 13, "color": "#222222"},
        width=width,
        height=height,
        margin={"l": 80, "r": 30, "t": 110, "b": 60},
        legend={"orientation": "h", "x": 0, "y": 1 - 44 / height, "yref": "container", "yanchor": "top"},
    )
    figure.update_xaxes(showline=True, linecolor="#999999", ticks="outside", zeroline=False, gridcolor="#eeeeee")
    figure.update_yaxes(showline=True, linecolor="#999999", ticks="outside", zeroline=False, gridcolor="#eeeeee")
    return figure


def translucent(colour: str, opacity: float) -> str:
    """A colour of six digits that lets what is below it be seen.

    >>> translucent("#0072B2", 0.2)
    'rgba(0, 114, 178, 0.2)'
    """
    return f"rgba{(*bytes.fromhex(colour[1:]), opacity)}"


def error_bars(estimates: Sequence[Estimate], colour: str | None = None) -> dict[str, Any]:
    """Bars from each value to the ends of its interval, for plotly; no bar where one of the two is missing."""
    known = [(estimate.value, estimate.interval) for estimate in estimates]
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if at is None or around is None else around.high - at for at, around in known],
        "arrayminus": [0.0 if at is None or around is None else at - around.low for at, around in known],
        "color": colour,
        "thickness": 1.3,
    }


def short_name(model: str) -> str:
    """The last part of a model's name, without its owner or folder.

    >>> short_name("sentence-transformers/all-MiniLM-L6-v2"), short_name("models/mine/")
    ('all-MiniLM-L6-v2', 'mine')
    """
    return model.rstrip("/").rpartition("/")[2]


def dots_figure(rows: Mapping[str, Estimate], *, title: str, across: str = "", reference: float | None = None) -> Any:
    """One row a name: its value as a dot, its interval as a bar, and a dashed line at what they are held against."""
    go = require("plotly.graph_objects", "report")
    known = {name: estimate for name, estimate in rows.items() if estimate.value is not None}
    if not known:
        raise InputError("received nothing that has a value; there is nothing to draw.")
    figure = go.Figure(
        go.Scatter(
            x=[estimate.value for estimate in known.values()],
            y=list(known),
            mode="markers",
            marker={"color": COLOURS[0], "size": 9},
            error_x=error_bars(list(known.values()), COLOURS[0]),
            hovertemplate="%{y}: %{x:.4g}<extra></extra>",
            showlegend=False,
        )
    )
    if reference is not None:
        figure.add_vline(reference, line={"color": GREY, "dash": "dash"})
    figure = style(figure, title=title, width=860, height=190 + 30 * len(known))
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(title_text=across)
    return figure


def curves_figure(curves: Mapping[str, Mapping[Any, Estimate]], *, title: str, along: str) -> Any:
    """One line a name over the layers, with the intervals of its points."""
    lines = []
    for number, (name, points) in enumerate(curves.items()):
        colour, estimates = COLOURS[number % len(COLOURS)], list(points.values())
        hover = f"%{{x}}: %{{y:.4g}}<extra>{name}</extra>"
        look: dict[str, Any] = {"mode": "lines+markers", "width": 2.5, "hovertemplate": hover}
        values, bars = [estimate.value for estimate in estimates], error_bars(estimates, colour)
        lines.append(curve(list(points), values, name, colour, error_y=bars, **look))
    return panel(*lines, title=title, across="layer", along=along)


def histogram_figure(
    values: ArrayLike, *, title: str, across: str, along: str, bins: int = 30, hover: str | None = None
) -> Any:
    """How often values occur, in bars of equal width."""
    go = require("plotly.graph_objects", "report")
    counts, edges = equal_bins(values, bins)
    bars = go.Bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=counts,
        width=np.diff(edges),
        marker={"color": COLOURS[0]},
        hovertemplate=hover,
        showlegend=False,
    )
    return panel(bars, title=title, across=across, along=along, height=380)


def panel(*traces: Any, title: str, across: str, along: str, height: int = 420, x: Any = None, y: Any = None) -> Any:
    """A figure of one panel with its axes named; `x` and `y` are further settings of these axes."""
    go = require("plotly.graph_objects", "report")
    figure = style(go.Figure(list(traces)), title=title, width=860, height=height)
    figure.update_xaxes(title_text=across, **(x or {}))
    figure.update_yaxes(title_text=along, **(y or {}))
    return figure


def grid(titles: Sequence[str], columns: int, **looks: Any) -> tuple[Any, list[dict[str, int]], tuple[int, int]]:
    """A figure of empty panels in reading order, the place of each, and how many stand side by side and below.

    `looks` are further settings of plotly's `make_subplots`.
    """
    across = min(columns, len(titles))
    down = -(-len(titles) // across)
    figure = require("plotly.subplots", "report").make_subplots(
        rows=down,
        cols=across,
        subplot_titles=list(titles),
        **{"horizontal_spacing": 0.24 / across, "vertical_spacing": 0.36 / (down + 1), **looks},
    )
    places = [{"row": number // across + 1, "col": number % across + 1} for number in range(across * down)]
    return figure, places, (across, down)


def sheet(*figures: Any, title: str, columns: int = 2) -> Any:
    """Several figures of one panel each on one sheet, each with its title and its axes; legends are left out."""
    joined, places, (across, down) = grid([figure.layout.title.text for figure in figures], columns)
    for figure, place in zip(figures, places, strict=False):
        for trace in figure.data:
            joined.add_trace(trace.update(showlegend=False), **place)
        for shape in figure.layout.shapes:  # lines across the panel
            joined.add_hline(shape.y0, line=shape.line, **place)
        for update, axis in ((joined.update_xaxes, figure.layout.xaxis), (joined.update_yaxes, figure.layout.yaxis)):
            named = {"title_text": axis.title.text, "type": axis.type, "range": axis.range}
            update(**named, tickformat=axis.tickformat, **place)
    return style(joined, title=title, width=520 * across, height=400 * down + 90)


def curve(
    x: Any, y: Any, name: str, colour: str, *, dash: str = "solid", shape: str = "linear", width: float = 2, **more: Any
) -> Any:
    """One line of a figure; "hv" is the shape of steps, and `more` is plotly's own."""
    go = require("plotly.graph_objects", "report")
    return go.Scatter(x=x, y=y, name=name, line={"color": colour, "dash": dash, "shape": shape, "width": width}, **more)


def dots(x: Any, y: Any, name: str, colour: str, hover: str, **more: Any) -> Any:
    """Many small points of a figure."""
    go = require("plotly.graph_objects", "report")
    look = {"color": colour, "size": 5, "opacity": 0.5}
    return go.Scatter(x=x, y=y, mode="markers", name=name, marker=look, hovertemplate=hover, **more)


def ratios_figure(
    ratios: Sequence[int], curves: Mapping[str, Sequence[Estimate]], *, title: str, across: str, along: str
) -> Any:
    """Shares by a ratio that doubles from tick to tick, one line a name, with the intervals of its points."""
    lines = [
        curve(ratios, [one.value for one in estimates], name, colour, width=2.5, error_y=error_bars(estimates, colour))
        for (name, estimates), colour in zip(curves.items(), COLOURS, strict=False)
    ]
    axis = {"type": "log", "tickvals": ratios, "ticktext": [str(ratio) for ratio in ratios]}
    shares = {"tickformat": ".0%"}
    return panel(*lines, title=title, across=across, along=along, height=440, x=axis, y=shares)
