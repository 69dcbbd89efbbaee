"""Can the nearest be told from the rest, is anything out of reach, and what does an approximate search miss?

Contrast, outliers and islands of vectors; and the recall of a search beside the exact one, setting by setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.charts import COLOURS, GREY, curve, panel
from poolscope.errors import InputError, require, whole_number
from poolscope.numbers import Array, Index
from poolscope.numbers.cosines import mean_cosine
from poolscope.numbers.intervals import Estimate, leave_one_out_interval, share_estimate
from poolscope.numbers.ranking import GaussianLike, nearest_neighbours, unit_rows
from poolscope.results import Result, bulk, cells, column_rows, origin, provenance

MOST_VECTORS = 5000
# Beyond the upper quartile by so many times the distance of the quartiles: of a bell curve two in a million lie there.
_FAR = 3.0
_DIGITS = 5  # vectors that agree in so many are copies
_FLOOR_DRAWS = 1  # each is of as many vectors as there are, so that one says enough
Find = Callable[[NDArray[Any], int, int | None], Sequence[Sequence[str]]]

QUERIES = 200
TARGET = 0.99
_BLOCK = 2**24
# Scores that differ by less are one: of copies a search may return any.
_TIE = 1e-5


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
        return column_rows(
            position=self.positions[order],
            nearest_distance=self.nearest_distance[order],
            outlier=self.outlying[order],
            part=self.part[order],
            part_size=sizes[self.part][order],
        )

    def figure(self) -> Any:
        """How far the nearest other vector is, beside Gaussian vectors of the same shape."""
        lines, hover = [], "distance %{x:.3f}: %{y:.2%}<extra></extra>"
        top = max(float(self.nearest_distance.max()), float(self.floor_distance.max()), 1e-6)
        named = (("these vectors", self.nearest_distance), ("Gaussian vectors of the same shape", self.floor_distance))
        for (name, values), colour, dash in zip(named, COLOURS, ("solid", "dash"), strict=False):
            counts, edges = np.histogram(values, 60, range=(0.0, top))
            shares = counts / len(values)
            lines.append(curve(edges[:-1], shares, name, colour, dash=dash, shape="hv", hovertemplate=hover))
        return panel(
            *lines,
            title="How far the nearest other vector is",
            across="distance at length 1 (0: equal, 1.41: at right angles)",
            along="share of vectors",
            height=400,
            y={"tickformat": ".3~%"},
        )


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
    like = GaussianLike(unit)
    floors = [_floor(like.draw(random), k) for _ in range(_FLOOR_DRAWS)]
    floor_contrast, floor_outliers, floor_apart = np.mean([floor[1:] for floor in floors], axis=0).tolist()
    return Neighbourhood(
        vectors=len(unit),
        k=k,
        contrast=replace(contrast, floor=floor_contrast),
        outliers=replace(share_estimate(outlying.astype(np.float64), unit="vectors"), floor=floor_outliers),
        islands=replace(share_estimate(apart.astype(np.float64), unit="vectors"), floor=floor_apart),
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
    whole = unit.sum(axis=0, dtype=np.float64)
    mean = float(np.sqrt(max(2 - 2 * float(mean_cosine(float(whole @ whole), len(unit))), 0.0)))
    total = float(near.sum())
    if total <= 0:
        return Estimate(None)
    value = mean * len(near) / total
    left = total - near
    without = mean * (len(near) - 1) / np.where(left > 0, left, np.nan)
    return Estimate(value, leave_one_out_interval(value, without))


@dataclass(frozen=True)
class SettingRecall:
    """The recall of a search at one value of its setting; None: as the search is set."""

    value: int | None
    recall: Estimate


@dataclass(frozen=True, repr=False, kw_only=True)
class SearchRecall(Result):
    """The share of the k nearest that a search finds, for several values of its setting.

    `kind` and `setting` name the index and what is turned. Each row is the mean over `queries` vectors of the index, of
    which each is asked for its nearest others; its interval is that of Wilson, over queries. `current` is the row of
    the search as it is set.
    """

    kind: str
    setting: str
    k: int
    queries: int
    vectors: int
    settings: tuple[SettingRecall, ...]
    current: int | None = None
    provenance: Mapping[str, Any] = origin()

    @property
    def in_use(self) -> SettingRecall:
        """The search as it is set: at its current value, or the row that was asked without one."""
        return next((row for row in self.settings if row.value in (None, self.current)), self.settings[0])

    def reaching(self, target: float = TARGET) -> SettingRecall | None:
        """The cheapest value that reaches a recall; None where none does."""
        ladder = sorted((row for row in self.settings if row.value is not None), key=lambda row: row.value or 0)
        return next((row for row in ladder if row.recall.known >= target), None)

    def seen(self) -> tuple[str, ...]:
        """What the search finds, and from which setting on it finds enough."""
        told = [f"The search ({self.kind}) finds {self.in_use.recall.known:.1%} of the {self.k} nearest."]
        if self.in_use.recall.known < TARGET and (enough := self.reaching()) is not None:
            told.append(f"From {self.setting} {enough.value:,} on it finds {TARGET:.0%} or more.")
        return tuple(told)

    def rows(self) -> list[dict[str, Any]]:
        """One row a value."""
        return [cells({"value": row.value, "recall": row.recall}) for row in self.settings]

    def figure(self) -> Any:
        """Recall by the value of the setting."""
        rows = [row for row in self.settings if row.value is not None] or list(self.settings)
        values, recalls, setting = [row.value or 0 for row in rows], [row.recall.value for row in rows], self.setting
        hover = f"{setting or 'as set'} %{{x}}: %{{y:.3f}}<extra></extra>"
        figure = panel(
            curve(values, recalls, self.kind, COLOURS[0], mode="lines+markers", hovertemplate=hover),
            title=f"What the search finds of the {self.k} nearest",
            across=setting or "as set",
            along="recall",
            height=380,
            x={"type": "log" if len(rows) > 1 else "linear"},
        )
        figure.add_hline(TARGET, line={"color": GREY, "dash": "dash"})
        return figure


def search_recall(
    vectors: ArrayLike,
    ids: Sequence[str],
    find: Find,
    *,
    distance: Literal["cosine", "dot", "l2"] = "cosine",
    values: Sequence[int | None] = (None,),
    current: int | None = None,
    kind: str = "",
    setting: str = "",
    k: int = 10,
    queries: int = QUERIES,
    until: float = 1.1,
    seed: int = 0,
) -> SearchRecall:
    """The recall of a search against looking at every vector, on some of the vectors as queries.

    A vector that is returned counts as found where it is as near as the k-th nearest or nearer, so that copies, of
    which a search may return any, do not count against it. The query itself is left out on both sides.

    Parameters
    ----------
    vectors : matrix
        All vectors of the index (N × d), at least two.
    ids : list of str
        Their names, as `find` gives them.
    find : function
        `find(queries, k, value)`: the ids of the nearest of each query, with the setting at `value`.
    distance
        What the search goes by.
    values : list of int
        Values of the setting; None asks without one.
    current : int, optional
        The value in use.
    kind, setting : str
        Names of the index and of its setting.
    k, queries, seed : int
        Neighbours, how many vectors are asked, and the seed of their draw.
    until : float
        No further values are asked once one reaches this recall.

    Returns
    -------
    SearchRecall
        One row a value, with its interval.

    Examples
    --------
    >>> points = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> def find(queries, k, value):
    ...     return [["a", "b"]] * len(queries)
    >>> search_recall(points, list("abcd"), find, k=1).in_use.recall.value
    0.5

    """
    table = np.asarray(vectors)
    if table.ndim != 2 or len(table) < 2 or len(ids) != len(table) or k < 1 or not len(values):
        raise InputError(
            f"received vectors of shape {table.shape}, {len(ids)} ids and k = {k}; needed: two vectors or more, an id "
            f"for each, and k of at least 1."
        )
    k = min(k, len(table) - 1)
    drawn = np.sort(np.random.default_rng(seed).permutation(len(table))[:queries])
    place = {name: position for position, name in enumerate(ids)}
    shares = _shares(table, drawn, distance, k)
    rows = []
    for value in values:
        returned = find(table[drawn], k + 1, value)
        reached = np.array(
            [shares(number, [place.get(name) for name in names]) for number, names in enumerate(returned)]
        )
        rows.append(SettingRecall(value, share_estimate(reached)))
        if rows[-1].recall.known >= until:
            break
    return SearchRecall(
        kind=kind,
        setting=setting,
        k=k,
        queries=len(drawn),
        vectors=len(table),
        settings=tuple(rows),
        current=current,
        provenance=provenance(settings={"k": k, "queries": len(drawn), "seed": seed, "distance": distance}),
    )


def _shares(
    table: NDArray[Any], drawn: NDArray[np.int64], distance: str, k: int
) -> Callable[[int, Sequence[int | None]], float]:
    """A function of a query and what was returned for it: the share of its k nearest that was found."""
    scores = _scores(table, drawn, distance)
    scores[np.arange(len(drawn)), drawn] = -np.inf
    least = -np.partition(-scores, k - 1, axis=1)[:, k - 1]
    spread = np.maximum(np.abs(least), 1e-12)

    def share(number: int, places: Sequence[int | None]) -> float:
        others = [place for place in places if place is not None and place != drawn[number]][:k]
        near = scores[number, others] >= least[number] - _TIE * spread[number]
        return float(near.sum()) / k

    return share


def _scores(table: NDArray[Any], drawn: NDArray[np.int64], distance: str) -> Array:
    """Higher is nearer (queries × vectors)."""
    whole = table.astype(np.float64)
    if distance == "cosine":
        whole = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    products = whole[drawn] @ whole.T
    if distance != "l2":
        return np.asarray(products)
    squares = np.einsum("ij,ij->i", whole, whole)
    return np.asarray(2 * products - squares - squares[drawn][:, None])


# -- indexes that are built to see what they would need ----------------------------------------------------------------


def trial_indexes(vectors: ArrayLike, *, distance: str = "cosine", seed: int = 0) -> list[SearchRecall]:
    """Recall of an HNSW and an IVF index of FAISS on vectors that have no index yet (needs the extra 'faiss')."""
    faiss = require("faiss", "faiss")
    table = np.ascontiguousarray(vectors, dtype=np.float32)
    if distance == "cosine":
        table = table / np.linalg.norm(table, axis=1, keepdims=True)
    metric = faiss.METRIC_L2 if distance == "l2" else faiss.METRIC_INNER_PRODUCT
    cells_ = max(4, round(np.sqrt(len(table))))
    ladders = {"HNSW32": ("efSearch", (16, 32, 64, 128, 256, 512)), f"IVF{cells_}": ("nprobe", (1, 2, 4, 8, 16, 32))}
    results = []
    names = [str(k) for k in range(len(table))]
    for kind, (setting, values) in ladders.items():
        index = faiss.index_factory(table.shape[1], f"{kind},Flat", metric)
        if hasattr(index, "cp"):
            index.cp.seed, index.cp.min_points_per_centroid = seed + 1, 1
        index.train(table)
        index.add(table)
        hnsw = hasattr(index, "hnsw")

        def find(queries: Any, k: int, value: int | None, index: Any = index, hnsw: bool = hnsw) -> list[list[str]]:
            make = faiss.SearchParametersHNSW if hnsw else faiss.SearchParametersIVF
            params = make(**{"efSearch" if hnsw else "nprobe": value})
            _, places = index.search(np.ascontiguousarray(queries, dtype=np.float32), k, params=params)
            return [[str(place) for place in row] for row in places.tolist()]

        kept = [value for value in values if hnsw or value <= cells_]
        options: dict[str, Any] = {"kind": kind, "setting": setting, "values": kept, "until": TARGET, "seed": seed}
        results.append(search_recall(table, names, find, distance="l2" if distance == "l2" else "dot", **options))
    return results
