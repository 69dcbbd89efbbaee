"""How long vectors are, and whether it matters: who is nearest by cosine, by inner product and by distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.charts import COLOURS, equal_bins, style
from poolscope.errors import InputError, require, whole_number
from poolscope.numbers.intervals import Estimate, mean_estimate
from poolscope.numbers.ranking import best_of_rows, unit_rows
from poolscope.results import Result, bulk, origin, provenance

Array = NDArray[np.float64]

# Vectors that are asked for their neighbours, and vectors among which these are looked for.
MOST_VECTORS, _QUERIES = 5000, 400
NORMALISED = 1e-3
"""Lengths that differ from their mean by less than this share are one length: float16 and int8 round so."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Norms(Result):
    """The lengths of vectors, and what follows for a search by each distance.

    `median`, `low` and `high` (5 % and 95 %) are those of the lengths, `variation` their standard deviation over their
    mean. `by_dot` is the share of the k nearest by cosine that an inner product replaces by others, and `by_l2` that of
    the Euclidean distance; both have the floor 0, which is what vectors of one length give. `long_among` is how often
    the longest tenth stands among the nearest by inner product, over its share by cosine: 1 where length is no help.
    """

    vectors: int
    k: int
    median: float
    low: float
    high: float
    variation: float
    by_dot: Estimate
    by_l2: Estimate
    long_among: float
    lengths: Array = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    @property
    def normalised(self) -> bool:
        """Have all vectors one length?"""
        return self.variation < NORMALISED

    @property
    def unit(self) -> bool:
        """Have all vectors the length 1?"""
        return self.normalised and abs(self.median - 1) < 1e-2

    def derived(self) -> dict[str, Any]:
        """Are they of one length, and is it 1?"""
        return {"normalised": self.normalised, "unit": self.unit}

    shown_rows = 0
    field_words: ClassVar[Mapping[str, str]] = {
        "k": "nearest that are compared",
        "median": "median length",
        "low": "length that 5 % stay below",
        "high": "length that 5 % exceed",
        "variation": "standard deviation over mean",
        "by_dot": "neighbours replaced by inner product",
        "by_l2": "neighbours replaced by Euclidean distance",
        "long_among": "longest tenth among them, over cosine",
    }

    def seen(self) -> tuple[str, ...]:
        """Whether the distance matters."""
        if self.normalised:
            return ("All vectors have one length, so that every distance finds the same neighbours.",)
        if self.by_dot.value is None or self.by_l2.value is None:
            return ()
        return (
            f"Nine of ten vectors have lengths from {self.low:.3g} to {self.high:.3g}.",
            f"Of the {self.k} nearest by cosine, an inner product replaces {self.by_dot.value:.0%} by others, and the "
            f"Euclidean distance {self.by_l2.value:.0%}.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a vector: its length."""
        return [{"position": k, "length": length} for k, length in enumerate(self.lengths.tolist())]

    def figure(self) -> Any:
        """Histogram of the lengths."""
        go = require("plotly.graph_objects", "report")
        counts, edges = equal_bins(self.lengths, 60)
        figure = go.Figure(
            go.Bar(
                x=(edges[:-1] + edges[1:]) / 2,
                y=counts,
                width=np.diff(edges),
                marker={"color": COLOURS[0]},
                hovertemplate="length %{x:.4g}: %{y} vectors<extra></extra>",
            )
        )
        figure = style(figure, title="How long the vectors are", width=860, height=380)
        figure.update_xaxes(title_text="length of a vector")
        figure.update_yaxes(title_text="vectors")
        return figure


def norms(vectors: ArrayLike, *, k: int = 10, seed: int = 0, most: int = MOST_VECTORS) -> Norms:
    """The lengths of vectors, and how many of the k nearest change with the distance that a search goes by.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), as they are stored: at least two, none of length 0.
    k : int
        Neighbours that are compared; lowered where there are not so many other vectors.
    seed : int
        Of the draw of vectors.
    most : int
        Of more vectors that many are drawn.

    Returns
    -------
    Norms
        Lengths, and the share of neighbours that inner product and Euclidean distance replace.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> directions = random.standard_normal((100, 8))
    >>> norms(directions / np.linalg.norm(directions, axis=1, keepdims=True)).by_dot.value
    0.0
    >>> norms(directions * random.uniform(1, 3, (100, 1))).by_dot.value > 0.2
    True

    """
    unit = unit_rows(vectors, "vectors")
    if len(unit) < 2 or k < 1:
        raise InputError(f"received {len(unit)} vectors and k = {k}; needed: two vectors or more, and k of at least 1.")
    table = np.asarray(vectors)
    every = np.sqrt(np.einsum("ij,ij->i", table, table, dtype=np.float64))
    random, most = np.random.default_rng(seed), whole_number(most, "most", least=2)
    chosen = np.arange(len(unit))
    if len(unit) > most:
        chosen = np.sort(random.choice(len(unit), most, replace=False))
    unit, lengths = unit[chosen], every[chosen]
    k = min(k, len(unit) - 1)
    variation = float(every.std() / every.mean())
    dot = l2 = np.zeros(len(unit))
    long_among = 1.0
    if variation >= NORMALISED and len(unit) > 2:
        dot, l2, long_among = _replaced(unit, lengths, k, random)
    low, median, high = (float(value) for value in np.quantile(every, [0.05, 0.5, 0.95]))
    return Norms(
        vectors=len(every),
        k=k,
        median=median,
        low=low,
        high=high,
        variation=variation,
        by_dot=replace(mean_estimate(dot), floor=0.0),
        by_l2=replace(mean_estimate(l2), floor=0.0),
        long_among=long_among,
        lengths=every,
        provenance=provenance(settings={"k": k, "seed": seed, "most": most}),
    )


def _replaced(
    unit: NDArray[np.float32], lengths: Array, k: int, random: np.random.Generator
) -> tuple[Array, Array, float]:
    """Of some vectors the share of their k nearest that change with the distance, and the crowding of the longest."""
    drawn = np.sort(random.permutation(len(unit))[:_QUERIES])
    cosines = unit[drawn] @ unit.T
    rows = np.arange(len(drawn))
    cosines[rows, drawn] = -np.inf
    sizes = lengths.astype(np.float32)
    dots = cosines * sizes
    # ‖q − x‖² = ‖q‖² + ‖x‖² − 2 q·x; the first is the same for all.
    distances = 2 * sizes[drawn][:, None] * dots - sizes**2
    near, by_dot, by_l2 = (best_of_rows(scores, k)[0] for scores in (cosines, dots, distances))

    def changed(others: NDArray[np.int64]) -> Array:
        same = (near[:, :, None] == others[:, None, :]).any(axis=2)
        return np.asarray(1 - same.mean(axis=1), dtype=np.float64)

    longest = lengths >= np.quantile(lengths, 0.9)
    often = float(longest[near].mean())
    return changed(by_dot), changed(by_l2), float(longest[by_dot].mean()) / often if often > 0 else float("inf")
