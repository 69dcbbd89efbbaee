"""Length collapse: do long texts look alike? Vectors and lengths in, a profile by length bin out.

The symptoms are those of Zhou et al. (ACL 2025); intervals are over texts, and every number carries a floor, the same
statistic with the lengths shuffled among the texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, whole_number
from poolscope.metrics.length.bins import (
    MIN_TEXTS,
    LengthBins,
    LengthPart,
    Panel,
    length_bins,
    narrow_edges,
    row_panels,
)
from poolscope.numbers import Array, Index
from poolscope.numbers.cosines import (
    PairCosine,
    cosine_deviation,
    effective_rank,
    group_sums,
    grouped_cosines,
    mean_cosines,
    pair_cosine,
    rank_estimate,
)
from poolscope.numbers.intervals import Estimate, leave_one_out_interval, mean_estimate, with_floor
from poolscope.numbers.ranking import nearest_neighbours, unit_rows
from poolscope.results import bulk, origin, plain, provenance
from poolscope.surface import as_array, as_lengths

SHUFFLES = 200
NEIGHBOURS = 10
# More texts are summed up in one pass, and what no sum gives is measured on a draw of so many (`streamed.py`).
MOST_TEXTS = 10_000
# Texts behind an effective rank: the same number in every bin, since it grows with the number of texts.
_RANK_TEXTS = 128
_RANK_DRAWS = 20


@dataclass(frozen=True)
class BinProfile:
    """One bin: which lengths, how many texts, their geometric mean length, and its statistics with their floors.

    cosine: mean over pairs of texts; distance: mean ‖e − c‖ from the centre c of all unit vectors; norm: mean length of
    the vectors as they were given; effective_rank: of as many texts in every bin; same_bin_neighbours: share of the
    nearest neighbours that are in the same bin.
    """

    label: str
    low: float
    high: float
    texts: int
    mean_length: float
    cosine: Estimate
    distance: Estimate
    norm: Estimate
    effective_rank: Estimate
    same_bin_neighbours: Estimate


@dataclass(frozen=True, repr=False)
class LengthProfile(LengthPart):
    """Do long texts look alike? Statistics by length bin, and the slope per doubling.

    `slope`: change of the mean pairwise cosine per doubling of the length, the least-squares line through the bins
    weighted by their texts, with its interval over texts and as floor the slopes of shuffled lengths (no value where
    there is a single bin, or all lengths are the same). `doublings` is log₂ of the length of the longest tenth over
    that of the shortest (quantiles 0.9 and 0.1); `cosine_deviation` the standard deviation of the cosine over all
    pairs; `assignment` the bin of every text.
    """

    bins: tuple[BinProfile, ...]
    texts: int
    dimension: int
    unit: str
    notes: tuple[str, ...]
    mean_cosine: float
    cosine_deviation: float
    doublings: float
    slope: Estimate
    assignment: Index | None = bulk()
    provenance: Mapping[str, Any] = origin()

    field_words: ClassVar[Mapping[str, str]] = {
        "cosine_deviation": "standard deviation of the cosine",
        "doublings": "doublings from short to long texts",
        "slope": "change of the cosine per doubling",
    }

    def figure_title(self) -> str:
        return f"Length profile · {self.texts:,} texts · bars: 95 % intervals · grey: lengths shuffled"

    def panels(self) -> list[Panel]:
        shown = {
            "cosine": ("Do texts look alike?", "mean pairwise cosine"),
            "distance": ("How far from the centre?", "mean distance from the centre"),
            "norm": ("How long are the vectors?", "norm before normalisation"),
            "effective_rank": ("How many directions?", "effective rank (equal numbers of texts)"),
            "same_bin_neighbours": ("Neighbours of the same length", "share of nearest neighbours in the bin"),
        }
        return row_panels(self.bins, [row.label for row in self.bins], self.unit, shown)

    def seen(self) -> tuple[str, ...]:
        """Whether the cosine goes with the length."""
        if self.slope.value is None:
            return ("All texts fall into one bin of lengths, so that nothing can be said of length.",)
        reach = self.slope.interval
        if reach is None or reach.low <= 0 <= reach.high:
            return (
                f"That the mean cosine goes with the length cannot be told from chance ({self.slope} per doubling).",
            )
        more = "more" if self.slope.value > 0 else "less"
        return (
            f"Texts look {more} alike the longer they are: the mean cosine of two changes by "
            f"{self.slope.value:+z.3f} per doubling.",
        )

    def __repr__(self) -> str:
        slope = "no slope" if self.slope.value is None else f"slope {self.slope.value:+z.4f} per doubling"
        return f"LengthProfile({self.texts:,} texts in {len(self.bins)} bins, {slope})"

    def rise(self, slope: float) -> float:
        """What a slope adds up to from the shortest to the longest tenth of the texts, in standard deviations of the
        cosine over all pairs; 0 where all pairs have one cosine.
        """
        return slope * self.doublings / self.cosine_deviation if self.cosine_deviation > 0 else 0.0


def length_profile(
    vectors: ArrayLike,
    lengths: ArrayLike,
    *,
    bins: int | Sequence[float] | None = None,
    min_texts: int = MIN_TEXTS,
    shuffles: int = SHUFFLES,
    neighbours: int = NEIGHBOURS,
    seed: int = 0,
    unit: str = "tokens",
) -> LengthProfile:
    """Mean pairwise cosine, distance from the centre, norm, effective rank and neighbours by length bin; the slope.

    No N × N matrix is kept. Of more than 10,000 texts, cosines, norms and the slope come from sums over all of them, in
    one pass; distances, effective ranks and neighbours are those of 10,000 drawn ones, and a note says so. What the
    numbers mean says `poolscope.length_verdicts`.

    Parameters
    ----------
    vectors
        The vectors of the texts (N × d), of any embedding model.
    lengths
        The length of each text (N), in `unit`.
    bins
        None for as many bins of equal numbers of texts as can have `min_texts`, up to 20: a wide bin, such as 0–50,
        has a lower cosine for that alone. A number of quantile bins, or edges.
    min_texts
        Bins with fewer texts are merged with a neighbour, and named in the notes.
    shuffles
        How often the lengths are shuffled among the texts for the floors.
    neighbours
        Nearest neighbours of each text that are looked at.
    seed
        Of the shuffles and of the texts behind an effective rank.
    unit
        What the lengths count, for titles and sentences.

    Returns
    -------
    LengthProfile
        Every statistic of every bin with interval and floor; `slope` is the change of the mean pairwise cosine per
        doubling of the length.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> lengths = random.integers(10, 200, size=400)
    >>> noise = random.standard_normal((400, 8))
    >>> alike = length_profile(noise + np.log2(lengths)[:, None] - 3, lengths)
    >>> alike.slope.interval.low > alike.slope.floor_high
    True

    """
    table = as_array(vectors, "vectors")
    if table.dtype.kind not in "fiu":
        raise InputError(
            f"vectors: received {type(vectors).__name__}; allowed is a table of numbers, one row a text. For a model "
            f"and its texts use length_report(model, texts), for a file read_vectors(path)."
        )
    if table.ndim != 2:
        unit_rows(table, "vectors")  # which says what is wrong with it
    counts = as_lengths(lengths, len(table), "lengths")
    if len(table) < 3:
        raise InputError(f"vectors: received {len(table)}; a profile by length needs at least 3 texts.")
    shuffles = whole_number(shuffles, "shuffles", least=20, most=10**6)
    neighbours, seed = whole_number(neighbours, "neighbours"), whole_number(seed, "seed", least=0)
    settings = {"bins": bins, "min_texts": min_texts, "shuffles": shuffles, "neighbours": neighbours, "seed": seed}
    narrow = narrow_edges(*np.unique(counts, return_counts=True), min_texts=min_texts) if bins is None else bins
    by_bin = length_bins(counts, narrow, min_texts=min_texts)
    if len(table) > MOST_TEXTS:
        return _of_many(table, counts, by_bin, unit=unit, settings=settings)
    random = np.random.default_rng(seed)
    logs = np.log2(np.maximum(counts, 1))
    measured = BinMeasures(table, by_bin, shuffles=shuffles, random=random)
    units, norms = measured.units, measured.norms
    sizes = by_bin.counts.astype(np.float64)
    places = np.bincount(by_bin.of, logs, len(by_bin)) / np.maximum(sizes, 1)
    slope = bin_slope(measured.cosines, logs, by_bin.of)
    chance = line_slopes(measured.shuffled_cosines, places, sizes)
    low, high = np.quantile(logs, [0.1, 0.9])
    return LengthProfile(
        bins=measured.rows(places, neighbours=min(neighbours, len(units) - 2), random=random),
        texts=len(units),
        dimension=units.shape[1],
        unit=unit,
        notes=(*by_bin.notes(), *normalised_note(float(np.ptp(norms)), float(norms.mean()))),
        mean_cosine=pair_cosine(units).value,
        cosine_deviation=cosine_deviation(units),
        doublings=float(high - low),
        slope=with_floor(slope, chance),
        assignment=by_bin.of,
        provenance=profile_origin(settings),
    )


def _of_many(
    vectors: NDArray[Any], lengths: Index, bins: LengthBins, *, unit: str, settings: dict[str, Any]
) -> LengthProfile:
    """The profile from sums over all texts and a draw of them; the bins are those of `length_bins`."""
    from poolscope.metrics.length.streamed import profile_finish, sums_of
    from poolscope.numbers.streaming import marks_of

    marks = marks_of(map(str, range(len(lengths))))
    sums = sums_of(vectors, lengths, marks, bins=bins.edges, most=MOST_TEXTS)
    chosen = {name: settings[name] for name in ("shuffles", "neighbours", "seed")}
    profile = profile_finish(sums, min_texts=1, unit=unit, **chosen)
    origin = {**profile.provenance, "settings": plain({**settings, "drawn": len(sums.draw)})}
    return replace(profile, notes=(*bins.notes(), *profile.notes), assignment=bins.of, provenance=origin)


def profile_origin(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a profile."""
    content = provenance(settings=plain(settings))
    del content["clouds"]  # there are none: vectors may come from anywhere
    return content


def normalised_note(spread: float, size: float) -> tuple[str, ...]:
    """What a reader must know of vectors whose lengths hardly spread around one size."""
    if spread > 1e-3 * size:
        return ()
    return (f"All vectors have the length {size:.4g}: they were normalised, so norms say nothing.",)


class BinMeasures:
    """All vectors with their bins, and the bins after every shuffle (shuffles × N)."""

    def __init__(self, vectors: NDArray[Any], bins: LengthBins, *, shuffles: int, random: np.random.Generator) -> None:
        self.bins = bins
        self.units = units = unit_rows(vectors, "vectors")
        self.norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        self.shuffled = shuffled = np.stack([bins.of[random.permutation(len(units))] for _ in range(shuffles)])
        self.cosines = grouped_cosines(units, bins.of, len(bins))
        # Sums of what differs from the mean keep their digits where all vectors point much the same way.
        centre = units.mean(axis=0)
        sums = group_sums(units - centre, shuffled, len(bins)) + bins.counts[:, None] * centre.astype(np.float64)
        self.shuffled_cosines = mean_cosines(sums, bins.counts.astype(np.float64))

    def rows(self, places: Array, *, neighbours: int, random: np.random.Generator) -> tuple[BinProfile, ...]:
        """Every statistic of every bin."""
        centre = self.units.mean(axis=0, dtype=np.float64)
        distances = np.linalg.norm(self.units - centre, axis=1)
        nearest, _ = nearest_neighbours(self.units, neighbours + 1)
        together = neighbour_shares(nearest, self.bins.of, len(self.bins))
        ranks = self._ranks(random)
        floors = [self._chance(values) for values in (distances, self.norms)]
        neighbour_floor = self._neighbour_chance(nearest[:, :-1])
        rows = []
        for number, label in enumerate(self.bins.labels):
            member = self.bins.of == number
            rows.append(
                BinProfile(
                    label=label,
                    low=self.bins.edges[number],
                    high=self.bins.edges[number + 1],
                    texts=int(member.sum()),
                    mean_length=float(2 ** places[number]),
                    cosine=with_floor(self.cosines[number].estimate, self.shuffled_cosines[:, number]),
                    distance=with_floor(mean_estimate(distances[member]), floors[0][:, number]),
                    norm=with_floor(mean_estimate(self.norms[member]), floors[1][:, number]),
                    effective_rank=ranks[number],
                    same_bin_neighbours=with_floor(together[number], neighbour_floor[:, number]),
                )
            )
        return tuple(rows)

    def _chance(self, values: Array) -> Array:
        """Mean of some values by bin after every shuffle (shuffles × bins)."""
        sums = group_sums(values[:, None], self.shuffled, len(self.bins), dtype=np.float64)[:, :, 0]
        return np.asarray(sums / np.maximum(self.bins.counts, 1))

    def _neighbour_chance(self, nearest: Index) -> Array:
        """Share of neighbours in the same bin after every shuffle: who is near whom stays, the bins are dealt anew."""
        shares = np.empty((len(self.shuffled), len(self.bins)))
        for row, of in enumerate(self.shuffled):
            own = (of[nearest] == of[:, None]).mean(axis=1)
            shares[row] = np.bincount(of, own, len(self.bins)) / np.maximum(self.bins.counts, 1)
        return shares

    def _ranks(self, random: np.random.Generator) -> list[Estimate]:
        """Effective rank of as many texts in every bin, and of as many texts of any length."""
        enough = self.bins.counts[self.bins.counts >= min(MIN_TEXTS, int(self.bins.counts.max()))]
        size = min(_RANK_TEXTS, int(enough.min()))
        draws = [random.choice(len(self.units), size, replace=False) for _ in range(_RANK_DRAWS)]
        chance = np.array([effective_rank(self.units[drawn]) for drawn in draws])
        ranks = []
        for number, count in enumerate(self.bins.counts):
            if count < size or size < 3:
                ranks.append(Estimate(None))
                continue
            drawn = random.choice(np.flatnonzero(self.bins.of == number), size, replace=False)
            ranks.append(with_floor(rank_estimate(self.units[drawn]), chance))
        return ranks


def neighbour_shares(nearest: Index, of: Index, bins: int) -> list[Estimate]:
    """Share of the k nearest neighbours of a bin's texts that are in that bin; `nearest` (N × k + 1), best first.

    The interval leaves out one text at a time: itself, and from the neighbours of the others, whose next nearest takes
    its place. A text is a neighbour of many, so that the shares of single texts are no independent draws.

    >>> shares = neighbour_shares(np.array([[1, 2], [0, 2], [3, 1], [2, 1]]), np.array([0, 0, 1, 1]), 2)
    >>> [share.value for share in shares]
    [1.0, 1.0]
    """
    own = of[nearest] == of[:, None]
    close, k = nearest[:, :-1], nearest.shape[1] - 1
    counts = own[:, :-1].sum(axis=1)
    sizes, sums = np.bincount(of, minlength=bins), np.bincount(of, counts, bins)
    changes = own[:, -1:].astype(np.float64) - own[:, :-1]  # in the count of a text that loses a neighbour
    cells = close * bins + of[:, None]
    without = np.bincount(cells.ravel(), changes.ravel(), len(of) * bins).reshape(len(of), bins) + sums
    left = np.tile(sizes, (len(of), 1))
    here = np.arange(len(of))
    without[here, of] -= counts
    left[here, of] -= 1
    shares = []
    for number, size in enumerate(sizes):
        if size == 0:
            shares.append(Estimate(None))
            continue
        value = float(sums[number] / (size * k))
        spared = without[:, number] / (np.maximum(left[:, number], 1) * k)
        shares.append(Estimate(value, leave_one_out_interval(value, spared) if size > 1 else None))
    return shares


# -- the slope ----------------------------------------------------------------------------------------------------


def bin_slope(cosines: Sequence[PairCosine], log_lengths: Array, groups: Index) -> Estimate:
    """Slope of the line through the mean cosine of every bin over its mean log₂ length, bins weighted by their texts.

    Without text i only the bin of i changes (its weight, mean length and mean cosine), so that the slopes without each
    text in turn cost one step a text. Bins with fewer than three texts, which have no cosine without one, are left out.
    No value where all lengths are the same.
    """
    sizes = np.bincount(groups, minlength=len(cosines)).astype(np.float64)
    used = np.flatnonzero(sizes >= 3)
    if len(used) < 2:
        return Estimate(None)
    kept = np.isin(groups, used)
    own, x = groups[kept], log_lengths[kept]
    places = np.bincount(groups, log_lengths, len(cosines)) / np.maximum(sizes, 1)
    heights = np.array([cosine.value for cosine in cosines])
    moments = _line_moments(sizes[used], places[used], heights[used]).sum(axis=1)
    without_cosine = np.empty(len(x))
    for group in used:
        without_cosine[own == group] = cosines[int(group)].without
    before = _line_moments(sizes[own], places[own], heights[own])
    after = _line_moments(sizes[own] - 1, (sizes[own] * places[own] - x) / (sizes[own] - 1), without_cosine)
    slope = float(_slope(moments))
    if np.isnan(slope):
        return Estimate(None)
    return Estimate(slope, leave_one_out_interval(slope, _slope(moments[:, None] - before + after)))


def line_slopes(cosines: Array, log_lengths: Array, sizes: Array) -> Array:
    """Slopes of the same line for several sets of mean cosines (a × bins) at the same mean log₂ lengths (bins)."""
    used = sizes >= 3
    if used.sum() < 2:
        return np.full(len(cosines), np.nan)
    heights = cosines[:, used]
    weights, places = (np.broadcast_to(values[used], heights.shape) for values in (sizes, log_lengths))
    return _slope(_line_moments(weights, places, heights).sum(axis=2))


def _line_moments(weight: Array, x: Array, y: Array) -> Array:
    return np.stack([weight, weight * x, weight * y, weight * x * x, weight * x * y])


def _slope(moments: Array) -> Array:
    weight, wx, wy, wxx, wxy = moments
    spread = weight * wxx - wx * wx
    flat = spread <= 1e-12 * np.maximum(weight * wxx, 1e-300)
    return np.asarray(np.where(flat, np.nan, (weight * wxy - wx * wy) / np.where(flat, 1.0, spread)))
