"""What an approximate search misses of the exact one, setting by setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.charts import COLOURS, GREY, style
from poolscope.errors import InputError, require
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.results import Result, cells, origin, provenance

Array = NDArray[np.float64]
Find = Callable[[NDArray[Any], int, int | None], Sequence[Sequence[str]]]

QUERIES = 200
TARGET = 0.99
_BLOCK = 2**24
# Scores that differ by less are one: of copies a search may return any.
_TIE = 1e-5


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
        go = require("plotly.graph_objects", "report")
        rows = [row for row in self.settings if row.value is not None] or list(self.settings)
        figure = go.Figure(
            go.Scatter(
                x=[row.value or 0 for row in rows],
                y=[row.recall.value for row in rows],
                mode="lines+markers",
                name=self.kind,
                line={"color": COLOURS[0], "width": 2},
                hovertemplate=f"{self.setting or 'as set'} %{{x}}: %{{y:.3f}}<extra></extra>",
            )
        )
        figure.add_hline(TARGET, line={"color": GREY, "dash": "dash"})
        title = f"What the search finds of the {self.k} nearest"
        figure = style(figure, title=title, width=860, height=380)
        figure.update_xaxes(title_text=self.setting or "as set", type="log" if len(rows) > 1 else "linear")
        figure.update_yaxes(title_text="recall")
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
