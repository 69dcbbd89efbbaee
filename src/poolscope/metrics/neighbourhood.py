"""Can the nearest be told from the rest, and is anything out of reach: contrast, outliers and islands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.charts import COLOURS, style
from poolscope.errors import InputError, require, whole_number
from poolscope.numbers.intervals import Estimate, leave_one_out_interval, share_estimate
from poolscope.numbers.ranking import gaussian_like, nearest_neighbours, unit_rows
from poolscope.results import Result, bulk, origin, provenance

Array = NDArray[np.float64]
Index = NDArray[np.int64]

MOST_VECTORS = 5000
# Beyond the upper quartile by so many times the distance of the quartiles: of a bell curve two in a million lie there.
_FAR = 3.0
_DIGITS = 5  # vectors that agree in so many are copies
_FLOOR_DRAWS = 1  # each is of as many vectors as there are, so that one says enough


@dataclass(frozen=True, repr=False, kw_only=True)
class Neighbourhood(Result):
    """How near the nearest are, and which vectors nobody leads to; of vectors that are copies the first counts.

    `contrast` is the distance of two vectors (root mean square, at length 1) over that of a vector to its nearest
    other: 1 where the nearest is as far as any. `outliers` is the share of vectors whose nearest lies beyond the upper
    quartile of all nearest by more than three times the distance of the quartiles. `islands` is the share of vectors
    outside the largest part of the graph that joins every vector with its k nearest, and `parts` counts the parts. The
    floors are those of Gaussian vectors of the same mean and covariance.
    """

    vectors: int
    k: int
    contrast: Estimate
    outliers: Estimate
    islands: Estimate
    parts: int
    positions: Index = bulk(required=True)
    nearest_distance: Array = bulk(required=True)
    floor_distance: Array = bulk(required=True)
    part: Index = bulk(required=True)
    outlying: NDArray[np.bool_] = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    field_words: ClassVar[Mapping[str, str]] = {
        "k": "nearest that are joined",
        "contrast": "distance of two over that of the nearest",
        "outliers": "share of outliers",
        "islands": "share outside the largest part",
        "parts": "parts of the graph of neighbours",
    }

    def seen(self) -> tuple[str, ...]:
        """How well the nearest stands out, and what lies apart."""
        if self.contrast.value is None:
            return ()
        apart = sum(value or 0.0 for value in (self.outliers.value, self.islands.value))
        return (
            f"Two vectors are {self.contrast.value:.2f} times as far apart as a vector and its nearest; in Gaussian "
            f"vectors of the same mean and covariance it would be {self.contrast.floor or 0:.2f} times.",
            f"{self.outliers.value or 0:.1%} of the vectors are far from everything, and {self.islands.value or 0:.1%} "
            f"lie outside the largest group that neighbours lead through."
            if apart > 0
            else "No vector is far from everything, and neighbours lead from each to every other.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a vector, the farthest from its nearest first: that distance, its part of the graph, its size."""
        sizes = np.bincount(self.part)
        order = np.argsort(-self.nearest_distance, kind="stable")
        columns = (self.positions, self.nearest_distance, self.outlying, self.part, sizes[self.part])
        names = ("position", "nearest_distance", "outlier", "part", "part_size")
        return [
            dict(zip(names, row, strict=True))
            for row in zip(*(column[order].tolist() for column in columns), strict=True)
        ]

    def figure(self) -> Any:
        """How far the nearest other vector is, beside Gaussian vectors of the same shape."""
        go = require("plotly.graph_objects", "report")
        figure = go.Figure()
        top = max(float(self.nearest_distance.max()), float(self.floor_distance.max()), 1e-6)
        named = (("these vectors", self.nearest_distance), ("Gaussian vectors of the same shape", self.floor_distance))
        for number, (name, values) in enumerate(named):
            counts, edges = np.histogram(values, 60, range=(0.0, top))
            figure.add_trace(
                go.Scatter(
                    x=edges[:-1],
                    y=counts / len(values),
                    name=name,
                    line={"shape": "hv", "color": COLOURS[number], "dash": "dash" if number else "solid", "width": 2},
                    hovertemplate="distance %{x:.3f}: %{y:.2%}<extra></extra>",
                )
            )
        figure = style(figure, title="How far the nearest other vector is", width=860, height=400)
        figure.update_xaxes(title_text="distance at length 1 (0: equal, 1.41: at right angles)")
        figure.update_yaxes(title_text="share of vectors", tickformat=".3~%")
        return figure


def neighbourhood(vectors: ArrayLike, *, k: int = 10, seed: int = 0, most: int = MOST_VECTORS) -> Neighbourhood:
    """How near the nearest vectors are, which are far from all, and which parts of the graph of neighbours stand apart.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), at least three; their lengths do not count.
    k : int
        Neighbours that join a vector to others; lowered where there are fewer.
    seed : int
        Of the draw of vectors and of the Gaussian vectors.
    most : int
        Of more vectors that many are drawn.

    Returns
    -------
    Neighbourhood
        Contrast, outliers and islands, each with its interval and floor, and the place of each vector.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> crowd = random.standard_normal((80, 6)) * 0.1 + [3, 0, 0, 0, 0, 0]
    >>> result = neighbourhood(np.vstack([crowd, crowd - [6, 0, 0, 0, 0, 0]]))
    >>> result.parts, result.islands.value
    (2, 0.5)

    """
    unit = unit_rows(vectors, "vectors")
    if len(unit) < 3 or k < 1:
        raise InputError(f"received {len(unit)} vectors and k = {k}; needed: three or more, and k of at least 1.")
    random, most = np.random.default_rng(seed), whole_number(most, "most", least=3)
    positions = different_rows(unit)
    if len(positions) < 3:
        raise InputError(f"received {len(positions)} different vectors; needed: three or more.")
    if len(positions) > most:
        positions = np.sort(random.choice(positions, most, replace=False))
    unit = unit[positions]
    k = max(1, min(k, len(unit) - 2))
    near, part = _neighbours(unit, k)
    contrast, outlying, apart = _contrast(unit, near), _far(near), part != np.bincount(part).argmax()
    floors = [_floor(gaussian_like(unit, random), k) for _ in range(_FLOOR_DRAWS)]
    floor_contrast, floor_outliers, floor_apart = np.mean([floor[1:] for floor in floors], axis=0).tolist()
    return Neighbourhood(
        vectors=len(unit),
        k=k,
        contrast=Estimate(contrast.value, contrast.interval, floor=floor_contrast),
        outliers=Estimate(*_share(outlying), floor=floor_outliers),
        islands=Estimate(*_share(apart), floor=floor_apart),
        parts=int(part.max()) + 1,
        positions=positions,
        nearest_distance=near,
        floor_distance=floors[0][0],
        part=part,
        outlying=outlying,
        provenance=provenance(settings={"k": k, "seed": seed, "most": most}),
    )


def different_rows(unit: NDArray[np.float32]) -> Index:
    """Positions of the vectors that equal no earlier one."""
    seen: dict[bytes, int] = {}
    for position, row in enumerate(np.round(unit, _DIGITS) + 0.0):  # + 0.0: no -0.0
        seen.setdefault(row.tobytes(), position)
    return np.array(list(seen.values()), dtype=np.int64)


def _floor(unit: NDArray[np.float32], k: int) -> tuple[Array, float, float, float]:
    """Distances to the nearest, contrast, share of outliers and share apart, of vectors with nothing to find."""
    near, part = _neighbours(unit, k)
    apart = float((part != np.bincount(part).argmax()).mean())
    return near, _contrast(unit, near).known, float(_far(near).mean()), apart


def _far(near: Array) -> NDArray[np.bool_]:
    """Which lie far beyond the quartiles."""
    low, high = np.quantile(near, [0.25, 0.75])
    return np.asarray(near > high + _FAR * (high - low))


def _neighbours(unit: NDArray[np.float32], k: int) -> tuple[Array, Index]:
    """The distance of each vector to its nearest, and the part of the graph of k nearest that it lies in."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    top, cosines = nearest_neighbours(unit, k)
    rows = np.repeat(np.arange(len(unit)), k)
    links = coo_array((np.ones(len(rows), np.int8), (rows, top.ravel())), shape=(len(unit), len(unit)))
    _, part = connected_components(links, directed=False)
    return np.sqrt(np.maximum(2 - 2 * cosines[:, 0], 0.0)), np.asarray(part, dtype=np.int64)


def _contrast(unit: NDArray[np.float32], near: Array) -> Estimate:
    """The distance of pairs over the mean distance to the nearest, leaving out one vector at a time."""
    mean = float(np.sqrt(max(2 - 2 * _mean_cosine(unit), 0.0)))
    total = float(near.sum())
    if total <= 0:
        return Estimate(None)
    value = mean * len(near) / total
    left = total - near
    without = mean * (len(near) - 1) / np.where(left > 0, left, np.nan)
    return Estimate(value, leave_one_out_interval(value, without))


def _mean_cosine(unit: NDArray[np.float32]) -> float:
    count, total = len(unit), unit.sum(axis=0, dtype=np.float64)
    return float((total @ total - count) / (count * (count - 1)))


def _share(flags: NDArray[np.bool_]) -> tuple[float | None, Any]:
    estimate = share_estimate(flags.astype(np.float64), unit="vectors")
    return estimate.value, estimate.interval
