"""Length collapse: do long texts look alike? Vectors and lengths in, a profile by length bin out.

The symptoms are those of Zhou et al. (ACL 2025). Intervals are over documents where they are known, else over texts.
Every number carries a floor, the same statistic with the lengths shuffled among the texts, whole documents at a time.
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
    effective_rank,
    group_sums,
    grouped_cosines,
    mean_cosines,
    pair_cosine,
    rank_estimate,
)
from poolscope.numbers.intervals import (
    Estimate,
    Units,
    chosen_units,
    left_out_estimate,
    mean_estimate,
    signed,
    with_floor,
)
from poolscope.numbers.ranking import nearest_neighbours, unit_rows
from poolscope.numbers.streaming import marks_of, row_marks
from poolscope.results import bulk, origin, plain, provenance
from poolscope.surface import as_array, as_lengths
from poolscope.texts.groups import checked_groups

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
    weighted by their texts, with its interval and as floor the slopes of shuffled lengths (no value where
    there is a single bin, or all lengths are the same). `assignment` is the bin of every text.
    """

    bins: tuple[BinProfile, ...]
    texts: int
    dimension: int
    unit: str
    notes: tuple[str, ...]
    mean_cosine: float
    slope: Estimate
    assignment: Index | None = bulk()
    provenance: Mapping[str, Any] = origin()

    field_words: ClassVar[Mapping[str, str]] = {
        "slope": "cosine change per doubling",
    }

    def figure_title(self) -> str:
        return f"Length profile · {self.texts:,} texts · bars: 95% intervals · grey: lengths shuffled"

    def panels(self) -> list[Panel]:
        shown = {
            "cosine": ("Do texts look alike?", "mean pairwise cosine"),
            "distance": ("How far from the centre?", "mean distance from the centre"),
            "norm": ("How long are the vectors?", "norm before normalisation"),
            "effective_rank": ("How many directions?", "effective rank (equal numbers of texts)"),
            "same_bin_neighbours": ("Neighbours of the same length", "share of nearest neighbours in the bin"),
        }
        return row_panels(self.bins, [row.label for row in self.bins], self.unit, shown)

    def in_words(self) -> tuple[str, ...]:
        """Whether the cosine goes with the length."""
        if self.slope.value is None:
            return ("All texts fall into one bin of lengths, so length cannot be compared.",)
        reach = self.slope.interval
        if reach is None or reach.low <= 0 <= reach.high:
            return (f"Length makes no measurable difference: the mean cosine changes by {self.slope} per doubling.",)
        more = "more" if self.slope.value > 0 else "less"
        return (
            f"Longer texts look {more} alike: their mean cosine changes by {signed(self.slope.value)} "
            f"with each doubling of length.",
        )

    def __repr__(self) -> str:
        slope = "no slope" if self.slope.value is None else f"slope {self.slope.value:+z.4f} per doubling"
        return f"LengthProfile({self.texts:,} texts in {len(self.bins)} bins, {slope})"


def length_profile(
    vectors: ArrayLike,
    lengths: ArrayLike,
    *,
    groups: Sequence[Any] | None = None,
    texts: Sequence[str] | None = None,
    bins: int | Sequence[float] | None = None,
    min_texts: int = MIN_TEXTS,
    shuffles: int = SHUFFLES,
    neighbours: int = NEIGHBOURS,
    seed: int = 0,
    unit: str = "tokens",
) -> LengthProfile:
    """Mean pairwise cosine, distance from the centre, norm, effective rank and neighbours by length bin; the slope.

    No N × N matrix is kept. Of more than 10,000 texts, cosines, norms and the slope come from sums over all of them, in
    one pass; distances, effective ranks and neighbours are those of 10,000 drawn ones, and a note says so.

    Parameters
    ----------
    vectors
        The vectors of the texts (N × d), of any embedding model.
    lengths
        The length of each text (N), in `unit`.
    groups
        The document of each text, where it is known: intervals are then over documents, and lengths are shuffled
        whole documents at a time.
    texts
        The texts, if at hand: what is drawn then goes by their words, without them by the vectors.
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
    if texts is not None and len(texts) != len(table):
        raise InputError(f"texts: received {len(texts)} for {len(table)} vectors; needed: one a vector.")
    documents = None if groups is None else checked_groups(groups, len(table))
    shuffles = whole_number(shuffles, "shuffles", least=20, most=10**6)
    neighbours, seed = whole_number(neighbours, "neighbours"), whole_number(seed, "seed", least=0)
    settings = {"bins": bins, "min_texts": min_texts, "shuffles": shuffles, "neighbours": neighbours, "seed": seed}
    marks = row_marks(table, texts)
    known = None if documents is None else marks_of(documents)
    if len(table) > MOST_TEXTS:
        return _of_many(table, counts, marks, known, unit=unit, settings=settings)
    unit_rows(table, "vectors")  # which names a row without a direction by its place in the file
    # Everything is drawn in an order that hangs on the words, so that the order of the file changes nothing.
    order = np.argsort(marks, kind="stable")
    known = None if known is None else known[order]
    profile = profile_in_order(table[order], counts[order], known, unit=unit, settings=settings)
    return replace(profile, assignment=_bins(counts, settings).of)


def profile_in_order(
    vectors: NDArray[Any], lengths: Index, documents: Index | None, *, unit: str, settings: Mapping[str, Any]
) -> LengthProfile:
    """The profile of texts that stand in the order in which they are drawn."""
    by_bin = _bins(lengths, settings)
    units = chosen_units(len(vectors), documents)
    random = np.random.default_rng(settings["seed"])
    logs = np.log2(np.maximum(lengths, 1))
    measured = BinMeasures(vectors, by_bin, units, shuffles=settings["shuffles"], random=random)
    sizes = by_bin.counts.astype(np.float64)
    places = np.bincount(by_bin.of, logs, len(by_bin)) / np.maximum(sizes, 1)
    slope = bin_slope(measured.cosines, logs, by_bin.of, units)
    chance = line_slopes(measured.shuffled_cosines, places, sizes)
    return LengthProfile(
        bins=measured.rows(places, neighbours=min(settings["neighbours"], len(vectors) - 2), random=random),
        texts=len(vectors),
        dimension=vectors.shape[1],
        unit=unit,
        notes=(*by_bin.notes(), *normalised_note(float(np.ptp(measured.norms)), float(measured.norms.mean()))),
        mean_cosine=pair_cosine(measured.unit).value,
        slope=with_floor(slope, chance),
        assignment=by_bin.of,
        provenance=profile_origin(settings),
    )


def _bins(lengths: Index, settings: Mapping[str, Any]) -> LengthBins:
    bins, min_texts = settings["bins"], settings["min_texts"]
    narrow = narrow_edges(*np.unique(lengths, return_counts=True), min_texts=min_texts) if bins is None else bins
    return length_bins(lengths, narrow, min_texts=min_texts)


def _of_many(
    vectors: NDArray[Any],
    lengths: Index,
    marks: Index,
    documents: Index | None,
    *,
    unit: str,
    settings: dict[str, Any],
) -> LengthProfile:
    """The profile from sums over all texts and a draw of them; the bins are those of `length_bins`."""
    from poolscope.metrics.length.streamed import profile_finish, sums_of

    bins = _bins(lengths, settings)
    sums = sums_of(vectors, lengths, marks, documents=documents, bins=bins.edges, most=MOST_TEXTS)
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
    """All vectors with their bins and units, and the bins after every shuffle (shuffles × N)."""

    def __init__(
        self, vectors: NDArray[Any], bins: LengthBins, units: Units, *, shuffles: int, random: np.random.Generator
    ) -> None:
        self.bins, self.units = bins, units
        self.unit = unit = unit_rows(vectors, "vectors")
        self.norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        self.shuffled = shuffled = np.stack([bins.of[units.shuffled(random)] for _ in range(shuffles)])
        self.cosines = grouped_cosines(unit, bins.of, len(bins), units)
        # Sums of what differs from the mean keep their digits where all vectors point much the same way.
        centre = unit.mean(axis=0)
        sums = group_sums(unit - centre, shuffled, len(bins)) + bins.counts[:, None] * centre.astype(np.float64)
        self.shuffled_cosines = mean_cosines(sums, bins.counts.astype(np.float64))

    def rows(self, places: Array, *, neighbours: int, random: np.random.Generator) -> tuple[BinProfile, ...]:
        """Every statistic of every bin."""
        centre = self.unit.mean(axis=0, dtype=np.float64)
        distances = np.linalg.norm(self.unit - centre, axis=1)
        nearest, _ = nearest_neighbours(self.unit, neighbours + 1)
        together = neighbour_shares(nearest, self.bins.of, len(self.bins))
        ranks = self._ranks(random)
        floors = [self._chance(values) for values in (distances, self.norms)]
        neighbour_floor = self._neighbour_chance(nearest[:, :-1])
        rows = []
        for number, label in enumerate(self.bins.labels):
            member = self.bins.of == number
            own = self.units.of[member]
            rows.append(
                BinProfile(
                    label=label,
                    low=self.bins.edges[number],
                    high=self.bins.edges[number + 1],
                    texts=int(member.sum()),
                    mean_length=float(2 ** places[number]),
                    cosine=with_floor(self.cosines[number].estimate, self.shuffled_cosines[:, number]),
                    distance=with_floor(mean_estimate(distances[member], own), floors[0][:, number]),
                    norm=with_floor(mean_estimate(self.norms[member], own), floors[1][:, number]),
                    effective_rank=self._of_texts(ranks[number]),
                    same_bin_neighbours=with_floor(self._of_texts(together[number]), neighbour_floor[:, number]),
                )
            )
        return tuple(rows)

    def _of_texts(self, estimate: Estimate) -> Estimate:
        """An estimate whose interval leaves out texts: where these are of documents, it has none."""
        if estimate.value is None or self.units.name == "texts":
            return estimate
        why = "no interval: it would be over texts, and documents are the units"
        return replace(estimate, interval=None, no_interval=why)

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
        draws = [random.choice(len(self.unit), size, replace=False) for _ in range(_RANK_DRAWS)]
        chance = np.array([effective_rank(self.unit[drawn]) for drawn in draws])
        ranks = []
        for number, count in enumerate(self.bins.counts):
            if count < size or size < 3:
                ranks.append(Estimate(None))
                continue
            drawn = random.choice(np.flatnonzero(self.bins.of == number), size, replace=False)
            ranks.append(with_floor(rank_estimate(self.unit[drawn]), chance))
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
        shares.append(left_out_estimate(value, spared))
    return shares


# -- the slope ----------------------------------------------------------------------------------------------------


def bin_slope(cosines: Sequence[PairCosine], log_lengths: Array, groups: Index, units: Units | None = None) -> Estimate:
    """Slope of the line through the mean cosine of every bin over its mean log₂ length, bins weighted by their texts.

    Without a unit only its bins change (their weight, mean length and mean cosine), so that the slopes without each
    unit in turn cost one step for every bin it is in. Bins with fewer than three texts are left out, and so is what a
    unit leaves of a bin where that is no pair. No value where all lengths are the same.
    """
    units = units or chosen_units(len(groups))
    sizes = np.bincount(groups, minlength=len(cosines)).astype(np.float64)
    used = np.flatnonzero(sizes >= 3)
    if len(used) < 2:
        return Estimate(None)
    totals = np.bincount(groups, log_lengths, len(cosines))
    moments, changes, left_out = np.zeros(5), np.zeros((5, len(units))), np.zeros(len(units))
    for number in used:
        cosine, size, total = cosines[int(number)], sizes[number], totals[number]
        whole = _line_moments(size, total / size, cosine.value)
        inside = groups == number
        own = np.bincount(units.of[inside], log_lengths[inside], len(units))[cosine.units]
        left = size - cosine.sizes
        pairs = left >= 2
        rest = np.zeros((5, len(left)))
        rest[:, pairs] = _line_moments(left[pairs], (total - own[pairs]) / left[pairs], cosine.without[pairs])
        moments += whole
        changes[:, cosine.units] += rest - whole[:, None]
        left_out[cosine.units] += cosine.sizes
    slope = float(_slope(moments))
    return left_out_estimate(slope, _slope(moments[:, None] + changes), left_out, unit=units.name)


def line_slopes(cosines: Array, log_lengths: Array, sizes: Array) -> Array:
    """Slopes of the same line for several sets of mean cosines (a × bins) at the same mean log₂ lengths (bins)."""
    used = sizes >= 3
    if used.sum() < 2:
        return np.full(len(cosines), np.nan)
    heights = cosines[:, used]
    weights, places = (np.broadcast_to(values[used], heights.shape) for values in (sizes, log_lengths))
    return _slope(_line_moments(weights, places, heights).sum(axis=2))


def _line_moments(weight: Array, x: Array, y: Array | float) -> Array:
    return np.stack([weight, weight * x, weight * y, weight * x * x, weight * x * y])


def _slope(moments: Array) -> Array:
    weight, wx, wy, wxx, wxy = moments
    spread = weight * wxx - wx * wx
    flat = spread <= 1e-12 * np.maximum(weight * wxx, 1e-300)
    return np.asarray(np.where(flat, np.nan, (weight * wxy - wx * wy) / np.where(flat, 1.0, spread)))
