"""What an unrelated pair scores: the cosines of pairs of different documents, and the cut-off that few of them pass.

Where documents are not known, the pairs are random. And what lies behind it, the cone: how much of every vector is the
same direction?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, whole_number
from poolscope.numbers import Array, Index
from poolscope.numbers.cosines import equal_bins, grouped_cosines
from poolscope.numbers.intervals import (
    POPULATION,
    Estimate,
    Interval,
    chosen_units,
    jackknife_interval,
    left_out_estimate,
    score_text,
)
from poolscope.numbers.ranking import drawn_units, unit_rows
from poolscope.numbers.streaming import VectorDraw, row_marks
from poolscope.results import Result, bulk, column_rows, origin, provenance
from poolscope.show.charts import COLOURS, GREY, curve, histogram_figure, panel, short_name
from poolscope.surface import as_array
from poolscope.texts.groups import checked_groups
from poolscope.texts.records import is_missing

# -- the cone ---------------------------------------------------------------------------------------------------------

_ROWS = 8192  # vectors that are held in float64 at a time


@dataclass(frozen=True, repr=False, kw_only=True)
class Cone(Result):
    """The cone that the vectors of a corpus lie in.

    `mean_cosine` is the mean over all pairs of different texts, with its interval for the population of texts; its
    floor is 0, what vectors without a preferred direction give. `mean_norm` is the norm of the mean of the vectors at
    length 1, in [0, 1]: 1 when all point the same way. `per_text` is the mean cosine of each text with all others.
    """

    texts: int
    dimension: int
    mean_cosine: Estimate
    mean_norm: float
    per_text: Array = bulk(required=True)
    direction: Array = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    shown_rows = 0
    field_words: ClassVar[Mapping[str, str]] = {"mean_norm": "length of the mean"}

    def in_words(self) -> tuple[str, ...]:
        """What two texts have in common."""
        if self.mean_cosine.value is None:
            return ()
        return (
            f"Two different texts have a cosine of {self.mean_cosine.value:.2f} on average; without a direction that "
            f"all vectors share it would be 0.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a text: its mean cosine with all others."""
        return column_rows(position=np.arange(self.texts), mean_cosine=self.per_text)

    def figure(self) -> Any:
        """Histogram of the mean cosines of the texts with all others."""
        return cone_figure(self)


def cone(vectors: ArrayLike, *, groups: Sequence[Any] | None = None) -> Cone:
    """Mean cosine and norm of the mean of vectors (N × d), exact, without going through the pairs.

    With u_i at length 1 and s = Σ u_i, the mean cosine over pairs is (‖s‖² − N)/(N(N − 1)), and that of text i with all
    others (u_i·s − 1)/(N − 1). The interval leaves out one text, or one document, at a time; fewer than ten have none.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), at least two; their lengths do not count.
    groups : list, optional
        The document of each text.

    Returns
    -------
    Cone
        The mean cosine with its interval, the norm of the mean, the mean cosine of each text.

    Examples
    --------
    >>> result = cone([[1, 0], [0, 1], [1, 1]])
    >>> round(result.mean_cosine.value, 4), round(result.mean_norm, 4)      # (0 + √½ + √½)/3
    (0.4714, 0.8047)

    """
    unit = unit_rows(vectors, "vectors")
    count = len(unit)
    if count < 2:
        raise InputError("received one vector; a cosine is between two. Pass at least two texts.")
    blocks = [unit[start : start + _ROWS] for start in range(0, count, _ROWS)]
    total = np.sum([block.sum(axis=0, dtype=np.float64) for block in blocks], axis=0)
    per_text = np.concatenate([block.astype(np.float64) @ total for block in blocks]) - 1
    mean, others = float(per_text.sum() / (count * (count - 1))), max((count - 1) * (count - 2), 1)
    found = left_out_estimate(mean, (per_text.sum() - 2 * per_text) / others)
    if groups is not None:
        units = chosen_units(count, checked_groups(groups, count))
        found = grouped_cosines(unit, np.zeros(count, dtype=np.int64), 1, units)[0].estimate
    return Cone(
        texts=count,
        dimension=unit.shape[1],
        mean_cosine=replace(found, value=mean, floor=0.0),
        mean_norm=float(np.linalg.norm(total) / count),
        per_text=per_text / (count - 1),
        direction=total / count,
        provenance=provenance(settings={}),
    )


def cone_figure(shared: Cone) -> Any:
    """Mean cosine of each text with all others, as a histogram."""
    figure = histogram_figure(
        shared.per_text,
        title="How much a text shares with all others",
        across="mean cosine with all other texts (0: no preferred direction)",
        along="texts",
        bins=60,
        hover="mean cosine %{x:.3f}: %{y} texts<extra></extra>",
    )
    figure.add_vline(0, line={"color": GREY, "dash": "dash"})
    return figure


# -- scores of unrelated pairs ----------------------------------------------------------------------------------------

# Beyond this many texts the pairs are those of a draw of them: two million pairs say enough of a distribution.
MOST_TEXTS = 2000
_BINS = 120
# Pairs above the cut-off that an interval of it needs; with fewer it covered far too seldom (28 % at 28 pairs).
FEWEST_ABOVE = 4


@dataclass(frozen=True, repr=False, kw_only=True)
class ScoreDistribution(Result):
    """The cosines of all pairs of `texts` texts (a draw of the corpus where it is larger).

    `documents` counts the documents that they come from: then only pairs of different ones count. None: not known, and
    the pairs are random, a few of them perhaps related. `mean` is their mean, and `deviation` their standard deviation;
    `cut_off` is passed by a share `false_hits` of the pairs (the highest score where that is less than one pair). The
    floors of both estimates are those of vectors without a preferred direction, the intervals are for the population of
    texts (of documents).
    `related`, of random pairs: the share of them that score at a cut-off for the others beyond what the rest of the
    pairs predicts, as related ones do; it counts too few rather than too many, and None is for too few texts. Where its
    interval lies above 0, `others_below` is a score that the cut-off for the other pairs lies at or below.
    `nearest` is the median score of a text's nearest other text. `counts` and `edges` are a histogram, `positions` the
    texts that were drawn.
    """

    texts: int
    pairs: int
    mean: Estimate
    deviation: float
    false_hits: float
    cut_off: Estimate
    nearest: float
    counts: Index = field(repr=False)
    edges: Array = field(repr=False)
    positions: Index = bulk(required=True)
    documents: int | None = None
    related: Estimate | None = None
    others_below: float | None = None
    provenance: Mapping[str, Any] = origin()

    @property
    def placed(self) -> bool:
        """Are there pairs enough for the share? If not, the cut-off is the highest score seen, and no more."""
        return _enough(self.pairs, self.false_hits)

    @property
    def share(self) -> str:
        """The share of false hits in words, such as `0.1%`."""
        return f"{self.false_hits * 100:g}%"

    @property
    def cut_off_name(self) -> str:
        """What the cut-off is, in words."""
        return f"threshold for {self.share} false hits" if self.placed else "highest score seen"

    shown_rows = 0
    field_words: ClassVar[Mapping[str, str]] = {
        "mean": "mean cosine",
        "deviation": "standard deviation",
        "false_hits": "share above the threshold",
        "cut_off": "score threshold",
        "nearest": "nearest text (median)",
        "others_below": "threshold of unrelated pairs",
    }

    def in_words(self) -> tuple[str, ...]:
        """Sentences on the score of an unrelated pair, and on the score that few of them reach."""
        pairs = "random texts" if self.documents is None else "texts of different documents"
        if self.mean.value is None or self.cut_off.value is None:
            return ()
        return (
            f"Two {pairs} score {self.mean.value:.2f} on average.",
            f"A score threshold of {score_text(self.cut_off.value)} lets through {self.share} of such pairs.",
            f"A text and its nearest neighbour score {score_text(self.nearest)} (median).",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a bin of the histogram: its edges, and how many pairs score so."""
        return column_rows(low=self.edges[:-1], high=self.edges[1:], pairs=self.counts)

    def figure(self) -> Any:
        """Histogram of the cosines of unrelated pairs, with mean and cut-off."""
        return scores_figure(self)


def score_distribution(
    vectors: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    texts: Sequence[str] | None = None,
    false_hits: float = 0.01,
    seed: int = 0,
    most: int = MOST_TEXTS,
) -> ScoreDistribution:
    """The scores of unrelated pairs among vectors (N × d): mean, spread, and the cut-off for `false_hits`.

    Pairs of different groups (documents) are taken as unrelated. Without groups the pairs are random: those of one
    document are among them and, as they score higher, make the cut-off cautious. Its interval is that of the share of
    pairs above it, leaving out one text (one group) at a time, read off the distribution (Woodruff 1952).

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), at least two; their lengths do not count.
    groups : list
        The document of each text, by any name or number; pairs of one document are left out.
    texts : list of str, optional
        The texts, if at hand: which are drawn then goes by their words, without them by the vectors.
    false_hits : float
        The share of unrelated pairs that the cut-off lets pass.
    seed : int
        Of the draw of texts.
    most : int
        Of more texts that many are drawn.

    Returns
    -------
    ScoreDistribution
        Mean, spread, cut-off and histogram of the cosines.

    Examples
    --------
    >>> result = score_distribution([[1, 0], [0, 1], [1, 1]], false_hits=0.5)
    >>> result.pairs, round(result.cut_off.value, 4)
    (3, 0.7071)

    """
    if not isinstance(false_hits, Real) or not 0 < false_hits < 1:
        raise InputError(f"false_hits: received {false_hits!r}; allowed is a share between 0 and 1, such as 0.01.")
    most, seed = whole_number(most, "most", least=2), whole_number(seed, "seed", least=0)
    unit, positions = drawn_units(vectors, most, seed=seed, texts=texts)
    members = np.arange(len(unit))
    if groups is not None:
        members = np.unique(_numbered(groups, np.shape(vectors)[0])[positions], return_inverse=True)[1]
    cosines = unit @ unit.T
    apart = np.triu(members[:, None] != members, 1)
    scores = cosines[apart]
    cut_off = float(np.quantile(scores, 1 - false_hits) if _enough(len(scores), false_hits) else scores.max())
    np.fill_diagonal(cosines, -np.inf)
    counts, edges = equal_bins(scores, _BINS)
    related, bound = (None, None) if groups is not None else _related(cosines, scores, false_hits)
    return ScoreDistribution(
        texts=len(unit),
        pairs=len(scores),
        mean=cone(unit).mean_cosine if groups is None else _mean_apart(cosines, apart, members),
        deviation=float(scores.std(dtype=np.float64)),
        false_hits=false_hits,
        cut_off=Estimate(
            cut_off,
            _quantile_interval(scores, apart, cosines, members, cut_off, false_hits),
            floor=isotropic_quantile(1 - false_hits, unit.shape[1]),
        ),
        nearest=float(np.median(cosines.max(axis=1))),
        counts=counts,
        edges=edges.astype(np.float64),
        positions=positions,
        documents=None if groups is None else int(members.max()) + 1,
        related=related,
        others_below=None if bound is None else min(bound, cut_off),
        provenance=provenance(settings={"false_hits": false_hits, "seed": seed, "most": most}),
    )


def scores_part(shard: Any, *, start: int = 0) -> VectorDraw:
    """A draw of some vectors (N × d, or `Vectors` with texts) that merges."""
    vectors = as_array(getattr(shard, "vectors", shard), "vectors")
    unit_rows(vectors[:1], "vectors")  # which says what is wrong with the table
    return VectorDraw.of(vectors, row_marks(vectors, getattr(shard, "texts", None)), size=MOST_TEXTS, start=start)


def scores_finish(draw: VectorDraw, *, false_hits: float = 0.01) -> ScoreDistribution:
    """The scores of the texts that were drawn, by their marks and not by a seed."""
    result = score_distribution(draw.vectors, false_hits=false_hits)
    return replace(result, positions=draw.positions[result.positions])


def _numbered(groups: ArrayLike, texts: int) -> Index:
    names = as_array(groups, "groups")
    if names.shape != (texts,):
        raise InputError(f"groups: received shape {names.shape}; needed: one for each of the {texts} vectors.")
    if any(is_missing(name) for name in names.tolist()):
        raise InputError("groups: received none for a text; needed: one for each. Name the document of every text.")
    numbers: Index = np.unique(names, return_inverse=True)[1]
    if numbers.max() == 0:
        raise InputError(f"groups: received one group for all {texts} texts; pairs of different ones need two or more.")
    return numbers


def _by_group(values: NDArray[Any], apart: NDArray[np.bool_], members: Index) -> Array:
    """The sum over the pairs of each group of `values` (texts × texts); a pair counts for both of its groups."""
    counted = values & apart if values.dtype == bool else np.where(apart, values, 0.0)
    return np.bincount(members, counted.sum(axis=0) + counted.sum(axis=1)).astype(np.float64)


def _mean_apart(cosines: NDArray[np.float32], apart: NDArray[np.bool_], members: Index) -> Estimate:
    """The mean over pairs of different groups, leaving out one group at a time."""
    sums, pairs = _by_group(cosines.astype(np.float64), apart, members), _by_group(apart, apart, members)
    total, count = float(sums.sum()) / 2, int(apart.sum())
    unit = chosen_units(len(members), members).name
    return Estimate(total / count, jackknife_interval([sums], [pairs], total, count, unit=unit), floor=0.0)


def _enough(pairs: int, false_hits: float) -> bool:
    """Does the share come to one pair or more?"""
    return pairs * false_hits >= 1


def isotropic_quantile(share: float, dimension: int) -> float:
    """The cosine that a share of pairs of random directions in `dimension` dimensions stays below.

    For such a pair cos·√((d − 1)/(1 − cos²)) has Student's t distribution with d − 1 degrees of freedom.

    >>> round(isotropic_quantile(0.99, 384), 3)
    0.119
    """
    from scipy import special

    if dimension == 1:
        return 1.0 if share > 0.5 else -1.0
    t = float(special.stdtrit(dimension - 1, share))
    return float(t / np.sqrt(dimension - 1 + t * t))


def _quantile_interval(
    scores: NDArray[np.float32],
    apart: NDArray[np.bool_],
    cosines: NDArray[np.float32],
    members: Index,
    cut_off: float,
    false_hits: float,
) -> Interval | None:
    """From the interval of the share of pairs above the cut-off to scores that such shares lie above.

    None where too few pairs lie above: a share of 1 % cannot be placed among 66 pairs.
    """
    if len(scores) * false_hits < FEWEST_ABOVE:
        return None
    above = _by_group(cosines >= cut_off, apart, members)
    pairs = _by_group(apart, apart, members)
    unit = chosen_units(len(members), members).name
    share = jackknife_interval([above], [pairs], float(above.sum()) / 2, len(scores), unit=unit)
    if share is None:
        return None
    low, high = np.quantile(scores, [1 - min(share.high, 1.0), 1 - max(share.low, 0.0)])
    return replace(share, low=float(low), high=float(high), method=f"{share.method}, of the share above")


# -- related pairs among random ones ------------------------------------------------------------------------------

# Shares of the pairs between whose scores the tail of a normal distribution is laid: how the rest predicts the tail.
_WINDOWS = ((0.5, 0.2), (0.4, 0.1), (0.25, 0.1))
_BLOCKS, _LEVELS = 20, 2**13
# Texts and share of false hits for which that is known to hold (tests/metrics/test_scores.py).
_FEWEST_TEXTS, _RAREST = 100, 0.02


def _related(
    cosines: NDArray[np.float32], scores: NDArray[np.float32], false_hits: float
) -> tuple[Estimate | None, float | None]:
    """The share of random pairs beyond what the rest predicts, and a bound of the cut-off for the others.

    The rest is laid out in three ways; the interval holds them all, with their errors from leaving out blocks of texts.
    """
    count = len(cosines)
    if count < _FEWEST_TEXTS or false_hits > _RAREST:
        return None, None
    steps, below = _counts_below(cosines, float(scores.min()), float(scores.max()))
    fits = np.array([_beyond(steps, below, false_hits, window) for window in _WINDOWS])
    whole, parts = fits[:, :, 0], fits[:, :, 1:]
    error = np.sqrt((_BLOCKS - 1) / _BLOCKS * ((parts - parts.mean(axis=2, keepdims=True)) ** 2).sum(axis=2))
    reach = 2.093 * error  # Student's t of 19 degrees of freedom
    low, high = (whole - reach).min(axis=0), (whole + reach).max(axis=0)
    shares = np.maximum([np.median(whole[:, 1]), low[1], high[1]], 0.0).tolist()  # fits may fall short of the tail
    interval = Interval(shares[1], shares[2], 0.95, POPULATION, "jackknife over blocks of texts, three fits", "texts")
    share = Estimate(shares[0], interval, floor=0.0)
    return share, float(high[0]) if low[1] > 0 else None


def _counts_below(cosines: NDArray[np.float32], low: float, high: float) -> tuple[Array, Array]:
    """Equal steps from low to high, and how many pairs score below each: of all texts, and without each block of them.

    So no scores are sorted, and leaving out a block is a subtraction. Neighbours go together, because chunks of a
    document mostly stand side by side.
    """
    count = len(cosines)
    pairs = np.zeros((2, _BLOCKS, _LEVELS + 1))  # of a text of each block with any, and with one of its block
    for block in range(_BLOCKS):
        rows = slice(block * count // _BLOCKS, (block + 1) * count // _BLOCKS)
        levels = np.clip((cosines[rows] - low) * (_LEVELS / max(high - low, 1e-12)), -1, _LEVELS - 1).astype(np.int64)
        for number, part in enumerate((levels, levels[:, rows])):
            pairs[number, block] = np.bincount(part.ravel() + 1, minlength=_LEVELS + 1)
    touching, within = pairs
    whole = touching.sum(axis=0) / 2
    counts = np.vstack([whole, whole - touching + within / 2])
    counts[:, 0] = 0.0  # a text with itself, whose score is -inf
    return np.linspace(low, high, _LEVELS + 1), np.cumsum(counts, axis=1)


def _beyond(steps: Array, below: Array, false_hits: float, window: tuple[float, float]) -> Array:
    """Cut-off for pairs like the rest, by a normal tail through two quantiles, and share of pairs beyond it (2 × sets).

    Each row of counts is a set of pairs. Related pairs push the quantiles up too, so that the fit is made again without
    as many as were seen.
    """
    from scipy import special

    places = -special.ndtri([*window, false_hits])
    shares = below / below[:, -1:]
    beyond = np.zeros(len(below))
    for _ in range(30):
        wanted = np.outer(1 - np.maximum(beyond, 0.0), 1 - np.array(window))
        first, second = np.array([np.interp(*at, steps) for at in zip(wanted, shares, strict=True)]).T
        cut = second + (second - first) * (places[2] - places[1]) / (places[1] - places[0])
        above = np.array([1 - np.interp(at, steps, share) for at, share in zip(cut, shares, strict=True)])
        previous, beyond = beyond, (above - false_hits) / (1 - false_hits)
        if np.abs(beyond - previous).max() < 1e-6:
            break
    return np.array([cut, beyond])


# -- the figure ---------------------------------------------------------------------------------------------------


def scores_figure(*results: ScoreDistribution, names: Sequence[str] = ("unrelated pairs",)) -> Any:
    """Histogram of the cosines of unrelated pairs, one outline a model, with mean (dots) and cut-off (line)."""
    lines = []
    for result, name, colour in zip(results, names, COLOURS, strict=False):
        density = result.counts / result.pairs / np.diff(result.edges)
        look: dict[str, Any] = {"shape": "hv", "fill": "tozeroy", "hovertemplate": "cosine %{x:.3f}<extra></extra>"}
        lines.append(curve(result.edges[:-1], density, short_name(name), colour, **look))
        top, mean, cut_off = float(density.max()), result.mean.value_or_raise, result.cut_off.value_or_raise
        lines.append(_upright(mean, top, colour, "dot", f"mean {mean:.3f}"))
        lines.append(_upright(cut_off, top, colour, "solid", f"threshold {cut_off:.3f}"))
    isotropic = results[0].cut_off.floor if len(results) == 1 else None
    if isotropic is not None:
        lines.append(_upright(isotropic, top, GREY, "dash", f"threshold without a cone {isotropic:.3f}"))
    named = {result.cut_off_name for result in results}
    cut_offs = f"and the {named.pop()}" if len(named) == 1 else "and their thresholds"
    title = f"What unrelated pairs score, {cut_offs}"
    return panel(*lines, title=title, across="cosine", along="density of pairs", y={"rangemode": "tozero"})


def _upright(x: float, top: float, colour: str, dash: str, label: str) -> Any:
    """A line from the axis to the top, at one score."""
    return curve([x, x], [0, top], label, colour, dash=dash, mode="lines", hovertemplate=f"{label}<extra></extra>")
