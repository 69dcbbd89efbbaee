"""Length collapse: do long texts look alike? Vectors and lengths in, a profile by length bin out.

The symptoms are those of Zhou et al. (ACL 2025); intervals are over texts, and every number carries a floor, the same
statistic with the lengths shuffled among the texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds.vectors import as_lengths
from poolscope.errors import InputError
from poolscope.metrics.length.bins import MIN_TEXTS, LengthBins, length_bins
from poolscope.metrics.length.result import BinProfile, LengthProfile
from poolscope.metrics.length.statistics import (
    Array,
    Units,
    bin_line,
    cosine_deviation,
    effective_rank,
    group_sums,
    grouped_cosines,
    leave_one_out_interval,
    line_slopes,
    mean_cosines,
    mean_estimate,
    pair_cosine,
    rank_estimate,
)
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.ranking import nearest_neighbours, unit_rows
from poolscope.results import plain, provenance

SHUFFLES = 200
NEIGHBOURS = 10
# Texts behind an effective rank: the same number in every bin, since it grows with the number of texts.
_RANK_TEXTS = 128
_RANK_DRAWS = 20

# A rise of the mean cosine, from the shortest to the longest tenth of the texts, in standard deviations of the cosine
# over all pairs. A quarter of one moves a fixed cut-off visibly; a whole one makes an unrelated pair of long texts look
# like the better sixth of all pairs.
WATCH_RISE = 0.25
REPAIR_RISE = 1.0


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
    watch: float = WATCH_RISE,
    repair: float = REPAIR_RISE,
) -> LengthProfile:
    """Mean pairwise cosine, distance from the centre, norm, effective rank and neighbours by length bin; the slope.

    vectors (N × d) of any embedding model, lengths (N) in `unit`. `bins`: None for widths of 50, a number of quantile
    bins, or edges; bins with fewer than `min_texts` are merged and named. The slope is the change of the mean pairwise
    cosine per doubling of the length. `watch` and `repair` are rises in standard deviations of the pair cosine (see
    `LengthProfile.rise`). No N × N matrix is kept.

    >>> random = np.random.default_rng(0)
    >>> lengths = random.integers(10, 200, size=400)
    >>> noise = random.standard_normal((400, 8))
    >>> length_profile(noise, lengths).verdict.level
    'ok'
    >>> length_profile(noise + np.log2(lengths)[:, None] - 3, lengths).verdict.level
    'repair'
    """
    given = np.asarray(vectors)
    if given.dtype.kind not in "fiu":
        raise InputError(
            f"vectors: received {type(vectors).__name__}; allowed is a table of numbers, one row a text. For a model "
            f"and its texts use length_report(model, texts), for a file read_vectors(path)."
        )
    units = unit_rows(given, "vectors")
    counts = as_lengths(lengths, len(units), "lengths")
    if len(units) < 3:
        raise InputError(f"vectors: received {len(units)}; a profile by length needs at least 3 texts.")
    if shuffles < 20:
        raise InputError(f"shuffles: received {shuffles}; at least 20 are needed to tell an effect from chance.")
    if neighbours < 1:
        raise InputError(f"neighbours: received {neighbours}; allowed: 1 and more neighbours of every text.")
    found = length_bins(counts, bins, min_texts=min_texts)
    random = np.random.default_rng(seed)
    logs = np.log2(np.maximum(counts, 1))
    shuffled = np.stack([found.of[random.permutation(len(units))] for _ in range(shuffles)])
    measured = _Measured(units, np.linalg.norm(given.astype(np.float64), axis=1), found, shuffled)
    line = bin_line(measured.cosines, logs, found.of)
    sizes = found.counts.astype(np.float64)
    places = np.bincount(found.of, logs, len(found)) / np.maximum(sizes, 1)
    chance = line_slopes(measured.shuffled_cosines, places, sizes)
    rows = measured.rows(places, neighbours=min(neighbours, len(units) - 2), random=random)
    low, high = np.quantile(logs, [0.1, 0.9])
    sloped = not np.isnan(line.slope)
    settings = {"bins": bins, "min_texts": min_texts, "shuffles": shuffles, "neighbours": neighbours, "seed": seed}
    return LengthProfile(
        bins=rows,
        texts=len(units),
        dimension=units.shape[1],
        unit=unit,
        notes=(*found.notes(), *measured.notes()),
        mean_cosine=pair_cosine(units).value,
        cosine_deviation=cosine_deviation(units),
        doublings=float(high - low),
        slope=line.slope if sloped else None,
        slope_interval=line.interval if sloped else None,
        slope_floor=float(np.quantile(chance, 0.975)) if sloped else None,
        thresholds=(watch, repair),
        assignment=found.of,
        provenance=_origin(settings),
    )


def _origin(settings: Mapping[str, Any]) -> dict[str, Any]:
    found = provenance(settings=plain(settings))
    del found["clouds"]  # there are none: vectors may come from anywhere
    return found


class _Measured:
    """All vectors with their bins, and the bins after every shuffle (shuffles × N)."""

    def __init__(self, units: Units, norms: Array, bins: LengthBins, shuffled: NDArray[np.int64]) -> None:
        self.units = units
        self.norms = norms
        self.bins = bins
        self.shuffled = shuffled
        self.cosines = grouped_cosines(units, bins.of, len(bins))
        # Sums of what differs from the mean keep their digits where all vectors point much the same way.
        centre = units.mean(axis=0)
        sums = group_sums(units - centre, shuffled, len(bins)) + bins.counts[:, None] * centre.astype(np.float64)
        self.shuffled_cosines = mean_cosines(sums, bins.counts.astype(np.float64))

    def notes(self) -> tuple[str, ...]:
        """What a reader must know of these vectors."""
        if np.ptp(self.norms) <= 1e-3 * self.norms.mean():
            return (
                f"All vectors have the length {self.norms.mean():.4g}: they were normalised, so norms say nothing.",
            )
        return ()

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

    def _neighbour_chance(self, nearest: NDArray[np.int64]) -> Array:
        """Share of neighbours in the same bin after every shuffle: who is near whom stays, the bins are dealt anew."""
        found = np.empty((len(self.shuffled), len(self.bins)))
        for row, of in enumerate(self.shuffled):
            share = (of[nearest] == of[:, None]).mean(axis=1)
            found[row] = np.bincount(of, share, len(self.bins)) / np.maximum(self.bins.counts, 1)
        return found

    def _ranks(self, random: np.random.Generator) -> list[Estimate]:
        """Effective rank of as many texts in every bin, and of as many texts of any length."""
        enough = self.bins.counts[self.bins.counts >= min(MIN_TEXTS, int(self.bins.counts.max()))]
        size = min(_RANK_TEXTS, int(enough.min()))
        draws = [random.choice(len(self.units), size, replace=False) for _ in range(_RANK_DRAWS)]
        chance = np.array([effective_rank(self.units[drawn]) for drawn in draws])
        found = []
        for number, count in enumerate(self.bins.counts):
            if count < size or size < 3:
                found.append(Estimate(None))
                continue
            drawn = random.choice(np.flatnonzero(self.bins.of == number), size, replace=False)
            found.append(with_floor(rank_estimate(self.units[drawn]), chance))
        return found


def neighbour_shares(nearest: NDArray[np.int64], of: NDArray[np.int64], bins: int) -> list[Estimate]:
    """Share of the k nearest neighbours of a bin's texts that are in that bin; `nearest` (N × k + 1), best first.

    The interval leaves out one text at a time: itself, and from the neighbours of the others, whose next nearest takes
    its place. A text is a neighbour of many, so that the shares of single texts are no independent draws.

    >>> found = neighbour_shares(np.array([[1, 2], [0, 2], [3, 1], [2, 1]]), np.array([0, 0, 1, 1]), 2)
    >>> [share.value for share in found]
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
    found = []
    for number, size in enumerate(sizes):
        if size == 0:
            found.append(Estimate(None))
            continue
        value = float(sums[number] / (size * k))
        spared = without[:, number] / (np.maximum(left[:, number], 1) * k)
        found.append(Estimate(value, leave_one_out_interval(value, spared) if size > 1 else None))
    return found


def with_floor(estimate: Estimate, chance: Array) -> Estimate:
    """The estimate beside what chance gives: mean and central 95 % over the shuffles."""
    if estimate.value is None or not np.isfinite(chance).all():
        return estimate
    low, high = np.quantile(chance, [0.025, 0.975])
    return Estimate(estimate.value, estimate.interval, float(chance.mean()), float(low), float(high))
