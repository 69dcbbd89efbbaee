"""What queries find: their scores with the texts that answer them and with all others, the threshold between the two,
and how many of the true nearest an approximate search returns, setting by setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError
from poolscope.metrics.scores import FEWEST_ABOVE, isotropic_quantile
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import (
    Estimate,
    Units,
    jackknife_interval,
    left_out_share,
    mean_estimate,
    query_units,
    share_estimate,
    too_few,
)
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import row_marks, smallest
from poolscope.results import Result, cells, column_rows, origin, provenance
from poolscope.show.charts import COLOURS, GREY, curve, panel

Counts = NDArray[Any]
Find = Callable[[NDArray[Any], int, int | None], Sequence[Sequence[str]]]

WORKS = 0.8
"""The share of the relevant texts that a threshold keeps that works."""
# Beyond this many queries a draw of them is looked at.
MOST_QUERIES = 2000
_BINS, _SHOWN, _BLOCK = 2048, 128, 2**24
# Vectors that are asked for their nearest, and the recall that is asked for.
QUERIES, TARGET = 200, 0.99
# Scores that differ by less are one: of copies a search may return any.
_TIE = 1e-5


@dataclass(frozen=True, repr=False, kw_only=True)
class QueryScores(Result):
    """The cosines of queries with the texts that answer them (relevant) and with all other texts (wrong).

    `threshold` is the lowest score that at most a share `false_hits` of the wrong pairs reaches: of all such thresholds
    it keeps the most relevant ones. `recall` is the share of a query's relevant texts that reach it, the mean over
    queries; `precision` the share of relevant ones among all pairs that do; `passing` how many texts a query then
    gets. Intervals are for other queries about these texts: over queries, or over the documents of their first relevant
    texts where `groups` tells them. What nobody named relevant counts as wrong, except texts of
    the document of a relevant one (`left_out` pairs), which are neither.
    """

    queries: int
    texts: int
    relevant_pairs: int
    wrong_pairs: int
    left_out: int
    false_hits: float
    relevant: Estimate
    wrong: Estimate
    threshold: Estimate
    recall: Estimate
    precision: Estimate
    passing: float
    edges: Array = field(repr=False)
    relevant_counts: Counts = field(repr=False)
    wrong_counts: Counts = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    @property
    def placed(self) -> bool:
        """Are there wrong pairs enough for the share? If not, the threshold lies above all of them, and no more."""
        return self.wrong_pairs * self.false_hits >= 1

    @property
    def share(self) -> str:
        """The share of false hits in words, such as `1 %`."""
        return f"{self.false_hits * 100:g}%"

    shown_rows = 0

    @property
    def works(self) -> bool:
        """Does the threshold keep most of the relevant texts?"""
        return self.recall.value_or_raise >= WORKS

    def in_words(self) -> tuple[str, ...]:
        """The threshold and what it keeps, and the mean scores of relevant and of other texts."""
        means = f"{self.relevant.value_or_raise:.2f} on average with relevant texts"
        scores = f"Queries score {means} and {self.wrong.value_or_raise:.2f} with irrelevant ones."
        if not self.placed:
            return (scores, "There are too few irrelevant pairs to set a threshold.")
        kept = f"keeps {self.recall.value_or_raise:.0%} of the relevant texts"
        return (
            f"A score threshold of {self.threshold.value_or_raise:.3f} {kept} and lets through {self.share} of the "
            f"irrelevant ones.",
            f"Of what passes, {self.precision.value_or_raise:.0%} is relevant."
            if self.works
            else f"No threshold that strict keeps {WORKS:.0%}: do not filter by score.",
            scores,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a bin of the histogram: its edges, and how many pairs of both kinds score so."""
        low, high = self.edges[:-1], self.edges[1:]
        return column_rows(low=low, high=high, relevant=self.relevant_counts, wrong=self.wrong_counts)

    def figure(self) -> Any:
        """Both distributions, with the threshold."""
        lines = []
        kinds = (("others", self.wrong_counts, GREY), ("relevant", self.relevant_counts, COLOURS[0]))
        for name, counts, colour in kinds:
            density = counts / max(counts.sum(), 1) / np.diff(self.edges)
            lines.append(curve(self.edges[:-1], density, name, colour, shape="hv", fill="tozeroy"))
        title = "What queries score with the texts that answer them, and with others"
        figure = panel(*lines, title=title, across="cosine", along="density of pairs", y={"rangemode": "tozero"})
        threshold = self.threshold.value_or_raise
        figure.add_vline(threshold, line={"color": COLOURS[1]}, annotation_text=f"threshold {threshold:.3f}")
        return figure


def query_scores(
    queries: ArrayLike,
    texts: ArrayLike,
    relevant: ArrayLike,
    *,
    counted: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    false_hits: float = 0.01,
    seed: int = 0,
) -> QueryScores:
    """Where the relevant and the wrong texts of queries lie on the scale, and the threshold between them.

    Parameters
    ----------
    queries, texts : matrix
        One row a query (m × d) and a text (N × d); their lengths do not count.
    relevant : list of pairs
        (query, text), positions from 0.
    counted : list of int, optional
        Rows of `relevant` that count; the others are neither relevant nor wrong. All, if left out.
    groups : list
        The document of each text: other texts of the document of a relevant one count as neither.
    false_hits : float
        The share of wrong pairs that the threshold may let pass.
    seed : int
        Of the draw of queries where there are more than 2,000.

    Returns
    -------
    QueryScores
        Means, threshold, recall and precision at it with intervals over queries, histograms.

    Examples
    --------
    >>> result = query_scores([[1, 0], [0, 1]], [[1, 0.1], [0.1, 1], [1, 1]], [(0, 0), (1, 1)], false_hits=0.5)
    >>> result.recall.value, round(result.precision.value, 2), result.wrong_pairs
    (1.0, 0.5, 4)

    """
    if not 0 < false_hits < 1:
        raise InputError(f"false_hits: received {false_hits}; allowed is a share between 0 and 1, such as 0.01.")
    rows, documents = unit_rows(queries, "queries"), unit_rows(texts, "texts")
    named = np.asarray(relevant, dtype=np.int64)
    judged = np.unique(named if counted is None else named[np.asarray(counted)], axis=0)
    chosen = np.unique(judged[:, 0])
    if len(chosen) > MOST_QUERIES:
        chosen = chosen[smallest(row_marks(rows[chosen], seed=seed), MOST_QUERIES)]
    judged, named = (part[np.isin(part[:, 0], chosen)] for part in (judged, named))
    pairs = _Pairs(rows[chosen], documents, judged, named, chosen, groups)
    (right, wrong), sums = pairs.tallied()
    units = query_units(judged, groups)
    cut, recall, precision, passing = _at_threshold(right, wrong, units, false_hits)
    return QueryScores(
        queries=len(chosen),
        texts=len(documents),
        relevant_pairs=int(right.sum()),
        wrong_pairs=int(wrong.sum()),
        left_out=len(chosen) * len(documents) - int(right.sum() + wrong.sum()),
        false_hits=false_hits,
        relevant=_mean_over_queries(sums[0], right.sum(axis=1), units),
        wrong=_mean_over_queries(sums[1], wrong.sum(axis=1), units),
        threshold=replace(
            _threshold(wrong, cut, pairs.edges, units), floor=isotropic_quantile(1 - false_hits, documents.shape[1])
        ),
        recall=recall,
        precision=precision,
        passing=passing / len(chosen),
        edges=pairs.edges[:: _BINS // _SHOWN],
        relevant_counts=right.sum(axis=0).reshape(_SHOWN, -1).sum(axis=1),
        wrong_counts=wrong.sum(axis=0).reshape(_SHOWN, -1).sum(axis=1),
        provenance=provenance(settings={"false_hits": false_hits, "seed": seed}),
    )


class _Pairs:
    """The cosines of queries and texts, gone through in blocks: those of relevant pairs, and of wrong ones."""

    def __init__(
        self,
        queries: NDArray[Any],
        texts: NDArray[Any],
        judged: NDArray[Any],
        named: NDArray[Any],
        chosen: NDArray[Any],
        groups: Any,
    ) -> None:
        self.queries, self.texts = queries, texts
        self.judged, self.named = (
            (np.searchsorted(chosen, part[:, 0]), part[:, 1]) for part in (judged, named)
        )  # rows and texts of what is relevant, and of all that was named
        self.groups = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        ends = [(float(block.min()), float(block.max())) for _, block, _, _ in self._blocks()]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        self.edges = np.linspace(low - 1e-6, high + 1e-6, _BINS + 1)

    def _blocks(self) -> Iterator[tuple[int, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]]:
        """Yield blocks: the first query, the cosines, and masks of relevant and of irrelevant pairs."""
        step = max(1, _BLOCK // len(self.texts))
        for start in range(0, len(self.queries), step):
            cosines = self.queries[start : start + step] @ self.texts.T
            relevant, near = (np.zeros(cosines.shape, bool) for _ in range(2))
            for marked, (row, text) in ((relevant, self.judged), (near, self.named)):
                here = (row >= start) & (row < start + step)
                rows, texts = row[here] - start, text[here]
                marked[rows, texts] = True
            if self.groups is not None:
                owned = np.zeros((len(cosines), int(self.groups.max()) + 1), bool)
                owned[rows, self.groups[texts]] = True
                near = owned[:, self.groups]
            yield start, cosines, relevant, ~near

    def tallied(self) -> tuple[Counts, Array]:
        """How many pairs of each query score in each bin, and the sums of their cosines; of relevant and wrong ones.

        2 × queries × bins, and 2 × queries.
        """
        tables, sums = np.zeros((2, len(self.queries), _BINS)), np.zeros((2, len(self.queries)))
        for start, cosines, *kinds in self._blocks():
            bins = np.clip(np.searchsorted(self.edges, cosines, side="right") - 1, 0, _BINS - 1)
            cells = np.arange(len(cosines))[:, None] * _BINS + bins
            here = np.s_[start : start + len(cosines)]
            for number, kind in enumerate(kinds):
                counted = np.bincount(cells[kind], minlength=len(cosines) * _BINS)
                tables[number, here] = counted.reshape(-1, _BINS)
                sums[number, here] = np.where(kind, cosines, 0).sum(axis=1, dtype=np.float64)
        return tables, sums


def _mean_over_queries(sums: Array, counts: Array, units: Units) -> Estimate:
    """The mean of the means of the queries."""
    known = counts > 0
    return mean_estimate(sums[known] / counts[known], units.among(known))


def _above(counts: Counts) -> Counts:
    """How many score at each edge or above, the last edge included (bins + 1 numbers in the last axis)."""
    upward = np.flip(np.cumsum(np.flip(counts, -1), axis=-1), -1)
    return np.concatenate([upward, np.zeros((*counts.shape[:-1], 1))], axis=-1)


def _share_above(counts: Counts) -> Counts:
    """The share of each row's pairs that score at each edge or above."""
    return np.asarray(_above(counts) / np.maximum(counts.sum(axis=-1, keepdims=True), 1))


def _lowest(wrong: Counts, false_hits: float) -> Index:
    """The lowest edge that at most the share of wrong pairs reaches, for each row of counts."""
    return np.asarray(np.argmax(_share_above(wrong) <= false_hits, axis=-1))


def _at_threshold(
    right: Counts, wrong: Counts, units: Units, false_hits: float
) -> tuple[int, Estimate, Estimate, float]:
    """The edge of the threshold; recall and precision, with the threshold placed anew without each unit; what passes.

    right, wrong (queries × bins): how many pairs of each query score in each bin.
    """
    cut = int(_lowest(wrong.sum(axis=0)[None], false_hits)[0])
    reached, above = _share_above(right), _above(right)
    tables = [np.zeros((len(units), table.shape[1])) for table in (wrong, reached, above)]
    for table, rows in zip(tables, (wrong, reached, above), strict=True):
        np.add.at(table, units.of, rows)
    others, answered, passed = (table.sum(axis=0) - table for table in tables)
    cuts, each = _lowest(others, false_hits), np.arange(len(units))
    without_recall = answered[each, cuts] / np.maximum(len(right) - units.sizes, 1)
    found = passed[each, cuts]
    passing = found + _above(others)[each, cuts]
    with np.errstate(invalid="ignore", divide="ignore"):  # nothing may pass
        without_precision = found / passing
    hits = float(above[:, cut].sum())
    whole = hits + float(_above(wrong.sum(axis=0))[cut])
    recall = left_out_share(float(reached[:, cut].mean()), without_recall, unit=units.name)
    precision = left_out_share(hits / whole, without_precision, unit=units.name) if whole else Estimate(None)
    return cut, recall, _as_recall(precision, recall), whole


def _as_recall(precision: Estimate, recall: Estimate) -> Estimate:
    """At each end the wider of the interval and of what that of the recall makes of it.

    The share of wrong pairs that pass is fixed, so that precision goes with the recall: where nearly all relevant texts
    pass, the jackknife alone, which knows no other queries, held the truth in 84 %.
    """
    own, other = precision.interval, recall.interval
    if own is None or other is None or not precision.value_or_raise or not recall.value_or_raise:
        return precision
    scaled = precision.value_or_raise * np.array([other.low, other.high]) / recall.value_or_raise
    low, high = (scaled / (scaled + 1 - precision.value_or_raise)).tolist()
    method = f"{own.method}, no narrower than by the recall"
    return replace(precision, interval=replace(own, low=min(own.low, low), high=max(own.high, high), method=method))


def _threshold(wrong: Counts, cut: int, edges: Array, units: Units) -> Estimate:
    """The threshold, from the interval of the share of wrong pairs above it to scores that such shares lie above.

    A few queries have most of these pairs, so that the share is skewed, which its interval removes.
    """
    value = float(edges[cut])
    above, pairs, whole = _above(wrong)[:, cut], wrong.sum(axis=1), wrong.sum(axis=0)[None]
    if why := too_few(len(units), units.name) or too_few(int(above.sum()), "wrong pairs above it", FEWEST_ABOVE):
        return Estimate(value, no_interval=why)
    by_unit = [units.sums(above)], [units.sums(pairs)]
    share = jackknife_interval(*by_unit, float(above.sum()), int(pairs.sum()), unit=units.name, positive=True)
    if share is None:
        return Estimate(value, no_interval=f"no interval: one of the {units.name} has all wrong pairs")
    low, high = (float(edges[_lowest(whole, end)[0]]) for end in (min(share.high, 1.0), share.low))
    answers, method = f"the population of {units.name}", f"{share.method}, of the share above"
    return Estimate(value, replace(share, low=low, high=high, answers=answers, method=method))


# -- the recall of a search beside the exact one --------------------------------------------------------------------


@dataclass(frozen=True)
class SettingRecall:
    """The recall of a search at one value of its setting; None: as the search is set."""

    value: int | None
    recall: Estimate


@dataclass(frozen=True, repr=False, kw_only=True)
class SearchRecall(Result):
    """The share of the k nearest that a search finds, for several values of its setting.

    `kind` and `setting` name the index and what is turned. Each row is the mean over `queries` vectors of the index, of
    which each is asked for its nearest others; its interval is over queries. `current` is the row of
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
        return next((row for row in ladder if row.recall.value_or_raise >= target), None)

    def in_words(self) -> tuple[str, ...]:
        """Sentences on the recall of the search, and on the setting that reaches enough."""
        sentences = [f"The search ({self.kind}) finds {self.in_use.recall.value_or_raise:.1%} of the {self.k} nearest."]
        if self.in_use.recall.value_or_raise < TARGET and (enough := self.reaching()) is not None:
            sentences.append(f"From {self.setting} {enough.value:,} on it finds {TARGET:.0%} or more.")
        return tuple(sentences)

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
    k, seed : int
        Neighbours, and the seed of the draw of 200 vectors that are asked.

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
    drawn = smallest(row_marks(table, seed=seed), QUERIES)
    place = {name: position for position, name in enumerate(ids)}
    shares = _shares(table, drawn, distance, k)
    rows = []
    for value in values:
        returned = find(table[drawn], k + 1, value)
        reached = np.array(
            [shares(number, [place.get(name) for name in names]) for number, names in enumerate(returned)]
        )
        rows.append(SettingRecall(value, share_estimate(reached)))
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


def _shares(table: NDArray[Any], drawn: Index, distance: str, k: int) -> Callable[[int, Sequence[int | None]], float]:
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


def _scores(table: NDArray[Any], drawn: Index, distance: str) -> Array:
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
