"""Who is near whom: texts that come back for everything and texts that never do, near-duplicates, and whether the
nearest can be told from the rest.

Every number stands beside that of Gaussian vectors of the same mean and covariance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, whole_number
from poolscope.numbers import Array, Index
from poolscope.numbers.cosines import mean_cosine
from poolscope.numbers.intervals import (
    Estimate,
    chosen_units,
    leave_one_out_interval,
    not_by_documents,
    share_estimate,
    too_few,
)
from poolscope.numbers.ranking import GaussianLike, drawn_units, find_neighbours, nearest_neighbours, unit_rows
from poolscope.numbers.streaming import row_marks, smallest
from poolscope.results import Result, bulk, column_rows, origin, provenance
from poolscope.show.charts import COLOURS, curve, panel
from poolscope.texts.groups import checked_groups, plain_text

# Beyond this many vectors a draw of them is looked at.
MOST_VECTORS = 5000
# Queries that an interval of the skewness needs: of 20, which find few texts twice, it held the truth in 90 %.
FEWEST_QUERIES = 30
_BOOTSTRAP_DRAWS = 1000
# Draws of the floor. Of few texts the first hub differs much from draw to draw, and a draw costs little.
_FLOOR_DRAWS, _FEW_TEXTS, _DRAWS_OF_FEW = 3, 500, 20
_SURE = 0.995
# Up to this many texts the floor is put right for what their covariance lacks; of more it lacks little.
_PUT_RIGHT = 2000
# Beyond the upper quartile by so many times the distance of the quartiles: of a bell curve two in a million lie there.
_FAR = 3.0
_DIGITS = 5  # vectors that agree in so many are copies
# The nearest of many is nearer than the nearest of few, so that contrasts are those of a draw of so many vectors.
EQUAL_NUMBER = 200
_TAIL = 1e-6  # of the chance that the nearest of a draw is none of the neighbours that are looked at


@dataclass(frozen=True, repr=False, kw_only=True)
class HubResult(Result):
    """How often each text is among the k nearest of the others.

    `occurrences` (one a text of `positions`) has mean k; its `skewness` is 0 when all texts come back equally often and
    large when few come back for everything. `largest` is the share of texts that the first hub is a neighbour of, and
    `antihubs` the share of texts that are nobody's neighbour. The floors of these estimates, and `floor_occurrences`,
    are those of Gaussian vectors of the same mean and covariance: what dimension and number of texts alone make of it.
    `duplicates` are groups of texts joined by cosines of at least `duplicate_cosine`; `twins` groups of texts equal but
    for letter case and blanks. Positions count within the corpus. Where `queries` is a number, the neighbours of so
    many queries were counted, not those of the texts: `occurrences` counts the queries that a text is among the k
    nearest of. Where `recall` is a number, neighbours came from an index, which found that share of the true ones.
    `skewness_without` is the skewness without each text in turn, where everyone that it was near takes the next
    nearest.
    """

    k: int
    skewness: Estimate
    largest: Estimate
    antihubs: Estimate
    duplicate_cosine: float
    duplicates: tuple[tuple[int, ...], ...] = field(repr=False)
    twins: tuple[tuple[int, ...], ...] = field(repr=False)
    positions: Index = bulk(required=True)
    occurrences: Index = bulk(required=True)
    floor_occurrences: Index = bulk(required=True)
    nearest: Index = bulk(required=True)
    nearest_cosine: Array = bulk(required=True)
    queries: int | None = None
    recall: Estimate | None = None
    skewness_without: Array | None = bulk()
    provenance: Mapping[str, Any] = origin()

    @property
    def texts(self) -> int:
        """How many texts were looked at."""
        return len(self.positions)

    @property
    def duplicate_share(self) -> float:
        """Share of the texts that have a near-duplicate."""
        return sum(len(group) for group in self.duplicates) / self.texts

    def first(self, count: int = 10) -> list[int]:
        """Positions of the texts that come back most often, the first hub first; ties by position."""
        order = np.argsort(-self.occurrences, kind="stable")[:count]
        return [int(position) for position in self.positions[order]]

    def never(self) -> list[int]:
        """Positions of the texts that are nobody's neighbour."""
        return [int(position) for position in self.positions[self.occurrences == 0]]

    def derived(self) -> dict[str, Any]:
        """How many texts there are, and the share of them that have a near-duplicate."""
        return {"texts": self.texts, "duplicate_share": self.duplicate_share}

    field_words: ClassVar[Mapping[str, str]] = {
        "k": "nearest that count (k)",
        "skewness": "hub skewness",
        "largest": "share that finds the top hub",
        "antihubs": "share of texts never found",
        "duplicate_cosine": "least cosine of duplicates",
    }

    def in_words(self) -> tuple[str, ...]:
        """How often the first hub is found, how many texts never are, and what stands twice."""
        if self.largest.value is None or self.antihubs.value is None:
            return ()
        who = "queries" if self.queries else "other texts"
        return (
            f"The most frequent text is in the top {self.k} of {self.largest.value:.0%} of the {who} "
            f"({self.largest.floor or 0:.0%} in Gaussian vectors of the same mean and covariance).",
            f"{self.antihubs.value:.0%} of the texts are in no top {self.k} "
            f"({self.antihubs.floor or 0:.0%} in the Gaussian vectors).",
            f"Near duplicates (cosine {self.duplicate_cosine:.2g} or more): {len(self.duplicates):,} groups.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a text, the first hub first: how often it is found, and its nearest other text."""
        order = np.argsort(-self.occurrences, kind="stable")
        return column_rows(
            position=self.positions[order],
            times_found=self.occurrences[order],
            nearest=self.nearest[order],
            nearest_cosine=self.nearest_cosine[order],
        )

    def figure(self) -> Any:
        """How often texts come back, beside Gaussian vectors of the same shape."""
        floor = "Gaussian vectors of the same shape"
        counts = {"these texts": self.occurrences, floor: self.floor_occurrences}
        return hubs_figure(counts, k=self.k, floor=floor, of="a query" if self.queries else "another")


def hubs(
    vectors: ArrayLike,
    *,
    k: int = 10,
    queries: ArrayLike | None = None,
    groups: Sequence[Any] | None = None,
    texts: Sequence[str] | None = None,
    duplicate_cosine: float = 0.99,
    seed: int = 0,
    most: int = MOST_VECTORS,
) -> HubResult:
    """How often each text is among the k nearest of the others, beside Gaussian vectors of the same shape.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d); their lengths do not count. `Vectors.vectors`, or `pool(clouds)`.
    k : int
        Neighbours of a text. With fewer than k + 2 texts every text is everyone's neighbour, so k is lowered to N − 2,
        at least 1; the result names the k that was used.
    queries : matrix, optional
        Count the queries (m × d) that a text is near, not the other texts. Fewer than 30 give no interval.
    groups : list, optional
        The document of each text; the skewness then has no interval, since it leaves out single texts.
    texts : list of str, optional
        The texts, to find those that are equal but for letter case and blanks.
    duplicate_cosine : float
        From this cosine on two texts are near-duplicates.
    seed : int
        Of the Gaussian vectors and of the draw of texts.
    most : int
        Of more texts that many are drawn. More than 50,000 are searched by an index where the extra 'index' is
        installed; the result then says which share of the true neighbours it found.

    Returns
    -------
    HubResult
        The k-occurrences, their skewness with interval and floor, hubs, antihubs, duplicates.

    Examples
    --------
    >>> result = hubs([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.9]], k=1)
    >>> result.occurrences.tolist(), result.never()
    ([1, 2, 1, 1, 0], [4])

    """
    k, most, seed = whole_number(k, "k"), whole_number(most, "most", least=2), whole_number(seed, "seed", least=0)
    random = np.random.default_rng(seed)
    if texts is not None and len(texts) != np.shape(vectors)[0]:
        raise InputError(f"texts: received {len(texts)} for {np.shape(vectors)[0]} vectors; needed: one a vector.")
    unit, positions = drawn_units(vectors, most, seed=seed, texts=texts)
    if len(unit) < 2:
        raise InputError(f"received {len(unit)} vectors; needed: two vectors or more. Give more.")
    k = max(1, min(k, len(unit) - 2))
    searched = find_neighbours(unit, min(k + 1, len(unit) - 1))  # one more, for those that lose a neighbour
    top, cosines = searched.top[:, :k], searched.cosines[:, :k]
    of_queries = None if queries is None else unit_rows(queries, "queries")
    near = searched.top if of_queries is None else find_neighbours(of_queries, k + 1, among=unit).top
    occurrences = np.bincount(near[:, :k].ravel(), minlength=len(unit))
    floors = _Floors(unit, of_queries, k, random)
    without = (
        skewness_without(near, None if of_queries is None else len(unit)) if len(unit) > 3 else None
    )  # two have no skewness
    skewed = Estimate(skewness(occurrences), no_interval=too_few(len(unit), "texts", 4))
    if of_queries is not None and len(of_queries) < FEWEST_QUERIES:
        skewed = replace(skewed, no_interval=too_few(len(of_queries), "queries", FEWEST_QUERIES))
    elif without is not None:
        skewed = replace(skewed, interval=leave_one_out_interval(skewed.value_or_raise, without))
    documents = None if groups is None else np.array(checked_groups(groups, np.shape(vectors)[0]))[positions]
    skewed = not_by_documents(skewed, chosen_units(len(unit), documents))
    most_times = len(unit) - 1 if of_queries is None else len(of_queries)
    highest = floors.of(lambda counts: float(counts.max() / most_times), most=1.0)
    return HubResult(
        k=k,
        positions=positions,
        occurrences=occurrences,
        skewness=replace(skewed, floor=float(np.mean(floors.of(skewness, ratio=False)))),
        largest=Estimate(
            float(occurrences.max() / most_times),
            floor=float(np.mean(highest)),
            floor_low=float(highest.min()),
            floor_high=_chance_high(highest),
        ),
        antihubs=Estimate(
            float((occurrences == 0).mean()),
            floor=float(np.mean(floors.of(lambda counts: float((counts == 0).mean()), ratio=False, most=1.0))),
        ),
        floor_occurrences=floors.first[0],
        nearest=positions[top[:, 0]],
        nearest_cosine=cosines[:, 0],
        duplicate_cosine=duplicate_cosine,
        duplicates=_duplicates(positions, top, cosines, duplicate_cosine),
        twins=() if texts is None else _groups(list(map(plain_text, texts)), np.arange(len(texts))),
        queries=None if of_queries is None else len(of_queries),
        recall=searched.recall,
        skewness_without=without,
        provenance=provenance(settings={"k": k, "duplicate_cosine": duplicate_cosine, "seed": seed, "most": most}),
    )


class _Floors:
    """Hub counts of Gaussian vectors with the mean and covariance of the texts (`first`), and of copies of them.

    The covariance of few texts is not that of the many that they stand for, and vectors drawn from it have smaller hubs
    than texts drawn from the true one (240 texts of 256 dimensions: a first hub of 56 texts, and in truth 70). Vectors
    drawn anew from the drawn ones fall short of them by about as much again, which is put right: then it is 70. Both
    are drawn by the same numbers, another draw's than those that made the covariance: so what they differ by is hardly
    chance, and of many texts one draw anew says as much as three of other numbers.
    """

    def __init__(
        self, unit: NDArray[np.float32], queries: NDArray[np.float32] | None, k: int, random: np.random.Generator
    ) -> None:
        few = len(unit) <= _FEW_TEXTS
        draws = _DRAWS_OF_FEW if few else _FLOOR_DRAWS
        seeds = random.integers(2**63, size=draws)
        sides = [unit] if queries is None else [unit, queries]
        shapes = [GaussianLike(side) for side in sides]
        drawn = [_drawn(shapes, seed) for seed in seeds]
        self.first = [_counted(each, k) for each in drawn]
        again = draws if few else int(len(unit) <= _PUT_RIGHT)
        self.beside = [(each + 1) % draws for each in range(again)]
        self.second = [
            _counted(_drawn([GaussianLike(side) for side in each], seeds[other]), k)
            for each, other in zip(drawn, self.beside, strict=False)
        ]

    def of(self, statistic: Callable[[Index], float], *, ratio: bool = True, most: float = np.inf) -> Array:
        """A statistic of the first draws, moved by what the second ones lack: by its ratio, or by its difference."""
        first = np.array([statistic(counts) for counts in self.first])
        if not self.second:
            return first
        whole, lacking = first[self.beside].mean(), float(np.mean([statistic(counts) for counts in self.second]))
        moved = first * whole / lacking if ratio else first + whole - lacking
        return np.asarray(np.clip(moved, 0.0 if np.isfinite(most) else -np.inf, most), dtype=np.float64)


def _drawn(shapes: Sequence[GaussianLike], seed: int) -> list[NDArray[np.float32]]:
    """Vectors of each shape, of the numbers of that seed."""
    random = np.random.default_rng(seed)
    return [shape.draw(random) for shape in shapes]


def _chance_high(draws: Array) -> float:
    """What one draw more stays below in 199 of 200 cases: by Student's t of logarithms; of few draws the highest."""
    if len(draws) < _DRAWS_OF_FEW:
        return float(draws.max())
    from scipy import stats

    logs = np.log(draws)
    reach = stats.t.ppf(_SURE, len(logs) - 1) * logs.std(ddof=1) * np.sqrt(1 + 1 / len(logs))
    return min(float(np.exp(logs.mean() + reach)), 1.0)


def skewness(values: ArrayLike) -> float:
    """Third central moment over the cubed standard deviation; 0 where all values are equal.

    >>> round(skewness([0, 0, 0, 4]), 4)
    1.1547
    """
    deviations = np.asarray(values, dtype=np.float64)
    deviations = deviations - deviations.mean()
    spread = float(np.sqrt((deviations**2).mean()))
    return float((deviations**3).mean()) / spread**3 if spread > 0 else 0.0


def _counted(sides: Sequence[NDArray[np.float32]], k: int) -> Index:
    """How often each vector is among the k nearest of the others, or of queries where there is a second side."""
    texts, *queries = sides
    searched = find_neighbours(queries[0], k, among=texts) if queries else find_neighbours(texts, k)
    return np.bincount(searched.top.ravel(), minlength=len(texts))


def skewness_without(nearest: Index, texts: int | None = None) -> Array:
    """Skewness of the times found without each text in turn; `nearest` (N × k + 1): the others, the nearest first.

    A text that is left out takes its k votes with it, and everyone that it was near votes for the next nearest instead,
    so that what remains is what would be counted if the text had never been there. `texts`: how many there are, where
    it is queries that vote (one row a query); then no votes go with a text.

    >>> skewness_without(np.array([[1, 2], [0, 2], [1, 0], [1, 2], [1, 0]]))[[1, 4]].round(4).tolist()
    [0.0, 0.8165]
    >>> skewness_without(np.array([[1, 2], [1, 0], [1, 2], [0, 3]]), texts=4)[[0, 1]].round(4).tolist()
    [0.3818, -0.7071]
    """
    count, k = len(nearest) if texts is None else texts, nearest.shape[1] - 1
    close, following = nearest[:, :k], nearest[:, k:]
    found = np.bincount(close.ravel(), minlength=count).astype(np.float64)
    # Cell (i, j) is what text j wins or loses when text i is left out.
    won = (close * count + following).ravel()
    lost = (np.arange(count)[:, None] * count + close).ravel() if texts is None else won[:0]
    cells, places = np.unique(np.concatenate([lost, won]), return_inverse=True)
    changes = np.bincount(places, np.repeat([-1.0, 1.0], [len(lost), len(won)]))
    left_out, changed = np.divmod(cells, count)
    before = found[changed]
    first, second, third = (
        (
            (found**power).sum()
            - found**power
            + np.bincount(left_out, (before + changes) ** power - before**power, count)
        )
        / (count - 1)
        for power in (1, 2, 3)
    )
    return _skewness_of_moments(first, second, third)


def _skewness_of_moments(first: Array, second: Array, third: Array) -> Array:
    """From the means of the first three powers."""
    variance = second - first**2
    central = third - 3 * first * second + 2 * first**3
    return np.asarray(np.divide(central, variance**1.5, out=np.zeros(len(central)), where=variance > 1e-12))


def _duplicates(positions: Index, top: Index, cosines: Array, least: float) -> tuple[tuple[int, ...], ...]:
    """Groups of texts joined by neighbours of at least that cosine, the largest group first."""
    rows, columns = np.nonzero(cosines >= least)
    return _groups(_parts(rows, top[rows, columns], len(top)).tolist(), positions) if len(rows) else ()


def _parts(rows: Index, columns: Index, count: int) -> Index:
    """The part of the graph of these links that each of `count` vectors lies in."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(count, count))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def _groups(keys: Sequence[object], positions: Index) -> tuple[tuple[int, ...], ...]:
    members: dict[object, list[int]] = defaultdict(list)
    for key, position in zip(keys, positions.tolist(), strict=True):
        members[key].append(position)
    return tuple(sorted((tuple(group) for group in members.values() if len(group) > 1), key=lambda g: (-len(g), g)))


# -- the figure ---------------------------------------------------------------------------------------------------


def hubs_figure(occurrences: Mapping[str, Any], *, k: int, floor: str | None = None, of: str = "another") -> Any:
    """Share of texts that come back at least x times (log scales), one curve a name; that of `floor` is dashed."""
    lines = []
    hover = "found %{customdata} times or more: %{y:.2%} of the texts<extra></extra>"
    for number, (name, found) in enumerate(occurrences.items()):
        times, counts = np.unique(found, return_counts=True)
        share = counts[::-1].cumsum()[::-1] / len(found)
        look: dict[str, Any] = {"dash": "dash" if name == floor else "solid", "shape": "hv", "width": 2.5}
        look |= {"mode": "lines", "customdata": times, "hovertemplate": hover}
        lines.append(curve(times + 1, share, name, COLOURS[number % len(COLOURS)], **look))
    return panel(
        *lines,
        title=f"How often a text is among the {k} nearest of {of}",
        across="times found (+ 1)",
        along="share of texts found so often or more",
        x={"type": "log"},
        y={"type": "log", "tickformat": ".3~%", "dtick": "D2"},
    )


# -- contrast, outliers and islands ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, kw_only=True)
class Neighbourhood(Result):
    """How near the nearest are, and which vectors nobody leads to; of vectors that are copies the first counts.

    `contrast` is the distance of two vectors (root mean square, at length 1) over that of a vector to its nearest
    other: 1 where the nearest is as far as any. More vectors bring the nearest nearer, so it is that of `at` vectors:
    the mean over all draws of 200, and of all where there are fewer; only contrasts of as many compare. `outliers` is
    the share of vectors whose nearest lies beyond the upper quartile of all nearest by more than three times the
    distance of the quartiles. `islands` is the share of vectors outside the largest part of the graph that joins every
    vector with its k nearest, and `parts` counts the parts. The floors are those of Gaussian vectors of the same mean
    and covariance.
    """

    vectors: int
    k: int
    at: int
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
        "k": "nearest that are linked",
        "at": "vectors behind the contrast",
        "contrast": "contrast of random and nearest",
        "outliers": "share of outliers",
        "islands": "share outside the largest group",
        "parts": "groups of linked neighbours",
    }

    def in_words(self) -> tuple[str, ...]:
        """How well the nearest stands out, and what lies apart."""
        if self.contrast.value is None:
            return ()
        apart = sum(value or 0.0 for value in (self.outliers.value, self.islands.value))
        return (
            f"Among {self.at:,} vectors, two random ones are {self.contrast.value:.2f} times as far apart as nearest "
            f"neighbours ({self.contrast.floor or 0:.2f} times in Gaussian vectors of the same mean and covariance).",
            f"{self.outliers.value or 0:.1%} of the vectors are far from all others, and {self.islands.value or 0:.1%} "
            f"lie outside the largest group of linked neighbours."
            if apart > 0
            else "No vector is far from all others, and links between neighbours connect them all.",
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


def neighbourhood(
    vectors: ArrayLike,
    *,
    k: int = 10,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    most: int = MOST_VECTORS,
) -> Neighbourhood:
    """Measure the nearest neighbours: their cosines, outlying vectors, and separate parts of the neighbour graph.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), at least three; their lengths do not count.
    k : int
        Neighbours that join a vector to others; lowered where there are fewer.
    groups : list, optional
        The document of each text, which is then the unit of intervals.
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
        positions = positions[smallest(row_marks(unit[positions], seed=seed), most)]
    unit = unit[positions]
    documents = None if groups is None else np.array(checked_groups(groups, np.shape(vectors)[0]))[positions]
    units = chosen_units(len(unit), documents)
    k = max(1, min(k, len(unit) - 2))
    nearest, part = _neighbours(unit, k)
    near = nearest.distances[:, 0]
    contrast, outlying, apart = _contrast(unit, nearest), _far(near), part != np.bincount(part).argmax()
    # The floors are of as many vectors as there are, so that one draw says enough.
    floor_distance, floor_contrast, floor_outliers, floor_apart = _floor(GaussianLike(unit).draw(random), k)
    return Neighbourhood(
        vectors=len(unit),
        k=k,
        at=min(len(unit), EQUAL_NUMBER),
        contrast=not_by_documents(replace(contrast, floor=floor_contrast), units),
        outliers=replace(share_estimate(outlying.astype(np.float64), units=units), floor=floor_outliers),
        islands=replace(share_estimate(apart.astype(np.float64), units=units), floor=floor_apart),
        parts=int(part.max()) + 1,
        positions=positions,
        nearest_distance=near,
        floor_distance=floor_distance,
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
    nearest, part = _neighbours(unit, k)
    near, apart = nearest.distances[:, 0], float((part != np.bincount(part).argmax()).mean())
    return near, _contrast(unit, nearest).value_or_raise, float(_far(near).mean()), apart


def _far(near: Array) -> NDArray[np.bool_]:
    """Which lie far beyond the quartiles."""
    low, high = np.quantile(near, [0.25, 0.75])
    return np.asarray(near > high + _FAR * (high - low))


class _Nearest(NamedTuple):
    """The nearest of each vector in their order (N × m), and how far they are."""

    top: Index
    distances: Array


def _neighbours(unit: NDArray[np.float32], k: int) -> tuple[_Nearest, Index]:
    """The nearest of each vector, and the part of the graph of k nearest that it lies in."""
    ranks = len(_nearest_of_draw(len(unit) - 1)) + 1  # one more, for those that lose a neighbour
    top, cosines = nearest_neighbours(unit, min(max(k, ranks), len(unit) - 1))
    part = _parts(np.repeat(np.arange(len(unit)), k), top[:, :k].ravel(), len(unit))
    return _Nearest(top[:, :ranks], np.sqrt(np.maximum(2 - 2 * cosines[:, :ranks], 0.0))), part


def _nearest_of_draw(others: int) -> Array:
    """The chance that the first, second, … nearest of `others` is the nearest of a draw of `EQUAL_NUMBER` − 1 of them.

    Without replacement: C(others − r, drawn − 1)/C(others, drawn) for rank r.
    """
    drawn = min(EQUAL_NUMBER - 1, others)
    absent = np.cumprod((others - drawn - np.arange(others - drawn)) / (others - np.arange(others - drawn)))
    ranks = int((absent > _TAIL).sum()) + 1
    return -np.diff(absent[: ranks - 1], prepend=1.0, append=0.0)


def _contrast(unit: NDArray[np.float32], nearest: _Nearest) -> Estimate:
    """The distance of pairs over the mean distance to the nearest of a draw, leaving out one vector at a time.

    Those that had it for a neighbour then have the next in its place: without that the intervals covered 83 to 88 %.
    """
    count, (top, distances) = len(unit), nearest
    chances, without_one = _nearest_of_draw(count - 1), _nearest_of_draw(max(count - 2, 1))
    whole = unit.sum(axis=0, dtype=np.float64)
    squares = float(whole @ whole)
    total = float((distances[:, : len(chances)] @ chances).sum())
    if total <= 0:
        return Estimate(None)
    value = _distance(squares, count) * count / total
    ranks = min(len(without_one), distances.shape[1] - 1)
    before = distances[:, :ranks] * without_one[:ranks]
    after = distances[:, 1 : ranks + 1] * without_one[:ranks]  # where a nearer one is gone
    near = before.sum(axis=1)
    change = np.cumsum((after - before)[:, ::-1], axis=1)[:, ::-1]  # when the neighbour of this rank is gone
    left = near.sum() - near + np.bincount(top[:, :ranks].ravel(), change.ravel(), count)
    of_others = _distance(squares - 2 * (unit @ whole) + 1, count - 1)
    without = of_others * (count - 1) / np.where(left > 0, left, np.nan)
    return Estimate(float(value), leave_one_out_interval(float(value), without))


def _distance(squares: Array | float, count: int) -> Array:
    """The distance of two of `count` unit vectors, root mean square, from the squared length of their sum."""
    return np.sqrt(np.maximum(2 - 2 * mean_cosine(squares, count), 0.0))
