"""The map: texts in the plane in which their vectors differ most, and where the missed queries and their texts lie."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds

from poolscope.auditing.ledger import Ledger
from poolscope.auditing.misses import Miss
from poolscope.auditing.search import Search
from poolscope.auditing.words import fill
from poolscope.numbers import Array, Index
from poolscope.results import Result, column_rows
from poolscope.show.charts import COLOURS, GREY, panel

MOST_TEXTS = 1500
"""Texts that are drawn behind those that are missed; a page of more takes long to open."""
_FEWEST = 10
_SHOWN = "These two directions hold {share:percent} of the differences between the vectors of texts."
MAP_WORDS = (_SHOWN,)


@dataclass(frozen=True, repr=False, kw_only=True)
class TextMap(Result):
    """Places of texts and missed queries along the two main directions of the texts' vectors.

    `texts` are the positions of those that are drawn, all of them or a draw of many, with the best relevant text of
    every missed query among them. `places` (texts × 2) and `query_places` (missed queries × 2) are their coordinates;
    `missed` gives for each missed query its row in `texts`. `share` is the part of the variance that lies in the plane.
    """

    share: float
    texts: Index = field(metadata={"bulk": True, "required": True}, repr=False)
    places: Array = field(metadata={"bulk": True, "required": True}, repr=False)
    missed: Index = field(metadata={"bulk": True, "required": True}, repr=False)
    query_places: Array = field(metadata={"bulk": True, "required": True}, repr=False)

    def in_words(self) -> tuple[str, ...]:
        """The share of the differences that the plane shows."""
        return (fill(_SHOWN, {"share": self.share}),)

    def headline(self) -> dict[str, Any]:
        """The share of the variance, and how much is drawn."""
        return {"share": self.share, "texts": len(self.texts), "missed": len(self.missed)}

    def rows(self) -> list[dict[str, Any]]:
        """One row a text."""
        missed = np.isin(np.arange(len(self.texts)), self.missed)
        return column_rows(position=self.texts, x=self.places[:, 0], y=self.places[:, 1], missed=missed)

    def figure(self) -> Any:
        """The texts, those that are missed, and a line to each from its query (plotly)."""
        ends, gap = self.places[self.missed], np.full(len(self.missed), np.nan)
        lines = [np.stack([self.query_places[:, k], ends[:, k], gap], axis=1).ravel() for k in (0, 1)]
        dots: dict[str, Any] = {"type": "scatter", "mode": "markers"}
        return panel(
            {**dots, "x": self.places[:, 0], "y": self.places[:, 1], "name": "texts", "marker": {"color": GREY}},
            {"type": "scatter", "mode": "lines", "x": lines[0], "y": lines[1], "name": "from the query"},
            {**dots, "x": ends[:, 0], "y": ends[:, 1], "name": "missed texts", "marker": {"color": COLOURS[1]}},
            title="Where the missed texts lie",
            across="main direction of the vectors",
            along="second direction",
        )


def text_map(search: Search, ledger: Ledger) -> TextMap | None:
    """The map of a search with its missed queries; None where none is missed, or texts are too few for a plane."""
    missed = ledger.misses()
    if not len(missed) or len(search.vectors) < _FEWEST or search.vectors.shape[1] < 3:
        return None
    answers = ledger.text[ledger.missed_rows()]
    texts = np.union1d(search.drawn(MOST_TEXTS), answers)
    rows = search.vectors[texts].astype(np.float64)
    centre = rows.mean(axis=0)
    rows -= centre
    total = float((rows**2).sum())
    if total < 1e-9:
        return None
    _, lengths, directions = svds(rows, k=2, v0=np.ones(min(rows.shape)))
    order = np.argsort(-lengths)
    axes = directions[order]
    axes *= np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])[:, None]  # which way round is a convention
    asked = search.query_vectors[missed].astype(np.float64) - centre
    return TextMap(
        share=float((lengths**2).sum() / total),
        texts=texts,
        places=rows @ axes.T,
        missed=np.searchsorted(texts, answers),
        query_places=asked @ axes.T,
    )


# -- the drawing ------------------------------------------------------------------------------------------------------

_WIDTH, _HIGHEST, _ROOM = 720, 520, 12


def drawing(shown: TextMap, misses: Sequence[Miss], colours: Mapping[int, int]) -> dict[str, Any]:
    """The map in the units of an SVG: a path of dots for all texts, and a line and a dot for each of the misses.

    `colours` gives the number of the part of the bar that each missed query is in. Both directions have one scale.
    """
    ends = np.concatenate([shown.places, shown.query_places])
    low, size = ends.min(axis=0), np.maximum(np.ptp(ends, axis=0), 1e-12)
    scale = float(((np.array([_WIDTH, _HIGHEST]) - 2 * _ROOM) / size).min())
    width, height = (math.ceil(side * scale) + 2 * _ROOM for side in size.tolist())

    def at(places: Array) -> list[tuple[float, float]]:
        placed = _ROOM + (places - low) * scale
        return [(round(x, 1), round(height - y, 1)) for x, y in placed.tolist()]

    others = np.setdiff1d(np.arange(len(shown.texts)), shown.missed)
    places = zip(misses, at(shown.query_places), at(shown.places[shown.missed]), strict=False)
    return {
        "width": width,
        "height": height,
        "dots": "".join(f"M{x:g} {y:g}h0" for x, y in at(shown.places[others])),
        "texts": len(shown.texts),
        "misses": [
            {"query": miss.query, "id": miss.text_id, "from": start, "to": end, "colour": colours[miss.number]}
            for miss, start, end in places
        ],
        "words": shown.in_words(),
    }
