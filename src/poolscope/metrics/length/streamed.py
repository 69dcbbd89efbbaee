"""The profile by length from sums that merge: any number of texts in one pass, in any number of parts.

The mean cosine of a bin comes from the sum of its unit vectors, (‖Σ e‖² − m)/(m(m − 1)), and its interval from the same
sums without one of 50 groups of texts in turn. What no sum gives (distance from the centre, effective rank, neighbours)
is measured on a draw of the texts, which is the same however they were cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.clouds.vectors import Vectors
from poolscope.encoders.pooling import pooling_of
from poolscope.errors import InputError
from poolscope.metrics.length.bins import MIN_TEXTS, LengthBins, histogram_bins
from poolscope.metrics.length.profile import (
    MOST_TEXTS,
    NEIGHBOURS,
    SHUFFLES,
    BinMeasures,
    BinProfile,
    LengthProfile,
    line_slopes,
    normalised_note,
    profile_in_order,
    profile_origin,
)
from poolscope.numbers import Array, Index
from poolscope.numbers.cosines import mean_cosines
from poolscope.numbers.intervals import Estimate, chosen_units, left_out_estimate, with_floor
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import VectorDraw, added, document_marks, row_marks

_WIDTH = 50.0  # all bins of the default are unions of bins of this width
_GROUPS = 50  # of texts, by their marks: left out in turn
_ROWS = 8192  # vectors that are held in float64 at a time


@dataclass(frozen=True, eq=False)
class ProfileSums:
    """What is kept of some texts: by bin and group the number, and the sums of log₂ length, norm and unit vector.

    `edges` are those of the caller, or None for bins of width 50 from 0 on. `lengths` counts the texts of every length.
    """

    edges: tuple[float, ...] | None
    lengths: Index
    counts: Array  # bins × groups, as are the next two
    logs: Array
    norms: Array
    vectors: Array  # bins × groups × d
    smallest_norm: float
    largest_norm: float
    draw: VectorDraw
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> int:
        return int(self.lengths.sum())

    def merge(self, other: ProfileSums) -> ProfileSums:
        """The sums of the texts of both."""
        if self.edges != other.edges:
            raise InputError("received parts with different edges of their bins; cut all texts into the same bins.")
        names = ("lengths", "counts", "logs", "norms", "vectors")
        sums = {name: added(getattr(self, name), getattr(other, name)) for name in names}
        ends = min(self.smallest_norm, other.smallest_norm), max(self.largest_norm, other.largest_norm)
        return ProfileSums(
            self.edges,
            **sums,
            smallest_norm=ends[0],
            largest_norm=ends[1],
            draw=self.draw.merge(other.draw),
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
        )


def profile_part(
    shard: TokenClouds | Vectors, *, bins: Sequence[float] | None = None, start: int = 0, most: int = MOST_TEXTS
) -> ProfileSums:
    """The sums of some texts: clouds (pooled as their model declares) or vectors with lengths and ids.

    `bins`: edges, the same for all parts, or None. `start`: the position of the first text in the corpus. `most`: how
    many texts the draw holds.
    """
    if shard.lengths is None:
        raise InputError(f"{shard.source}: holds no lengths; a profile by length needs one a text.")
    notes: tuple[str, ...] = ()
    if isinstance(shard, TokenClouds):
        pooling = pooling_of(shard)
        vectors, notes = pooling.pool(shard), pooling.notes
    else:
        vectors = shard.vectors
    marks, documents = row_marks(vectors, shard.texts), document_marks(shard.ids)
    return replace(
        sums_of(vectors, shard.lengths, marks, documents=documents, bins=bins, start=start, most=most), notes=notes
    )


def profile_of_clouds(
    shard: TokenClouds | Vectors, *, bins: Sequence[float] | None = None, **options: Any
) -> LengthProfile:
    """The profile of clouds, or of vectors with lengths, in one pass.

    >>> random = np.random.default_rng(0)
    >>> clouds = TokenClouds.from_arrays([random.standard_normal((n, 4)) for n in random.integers(1, 90, size=60)])
    >>> profile_of_clouds(clouds).texts
    60
    """
    return profile_finish(profile_part(shard, bins=bins), **options)


def sums_of(
    vectors: NDArray[Any],
    lengths: Index,
    marks: Index,
    *,
    documents: Index | None = None,
    bins: Sequence[float] | None = None,
    start: int = 0,
    most: int = MOST_TEXTS,
) -> ProfileSums:
    """The sums of vectors (N × d) with their lengths and marks, and the marks of their documents, −1 for none."""
    edges = None if bins is None else tuple(float(edge) for edge in bins)
    places = _places(lengths, edges)
    shape = (int(places.max()) + 1 if edges is None else len(edges) - 1, _GROUPS)
    units = marks if documents is None else np.where(documents < 0, marks, documents)
    cells = places * _GROUPS + units % _GROUPS
    counts = np.bincount(cells, minlength=shape[0] * _GROUPS).astype(np.float64)
    logs = np.bincount(cells, np.log2(np.maximum(lengths, 1)), len(counts)).astype(np.float64)
    sums, norms = np.zeros((len(counts), vectors.shape[1])), np.zeros(len(lengths))
    for block in range(0, len(lengths), _ROWS):
        rows = np.s_[block : block + _ROWS]
        order = np.argsort(cells[rows], kind="stable")
        here = cells[rows][order]
        unit = unit_rows(vectors[rows], f"vectors from position {start + rows.start}")
        first = np.flatnonzero(np.diff(here, prepend=-1))
        sums[here[first]] += np.add.reduceat(unit[order], first, dtype=np.float64)
        norms[rows] = np.linalg.norm(np.asarray(vectors[rows], dtype=np.float64), axis=1)
    return ProfileSums(
        edges,
        np.bincount(lengths),
        counts.reshape(shape),
        logs.reshape(shape),
        np.bincount(cells, norms, len(counts)).astype(np.float64).reshape(shape),
        sums.reshape(*shape, -1),
        float(norms.min()),
        float(norms.max()),
        VectorDraw.of(vectors, marks, size=most, lengths=lengths, documents=documents, start=start),
    )


def profile_finish(
    sums: ProfileSums,
    *,
    min_texts: int = MIN_TEXTS,
    shuffles: int = SHUFFLES,
    neighbours: int = NEIGHBOURS,
    seed: int = 0,
    unit: str = "tokens",
) -> LengthProfile:
    """The profile from the sums of all parts; where the draw holds every text, that of `length_profile`."""
    settings: dict[str, Any] = {"bins": None if sums.edges is None else list(sums.edges), "min_texts": min_texts}
    settings |= {"shuffles": shuffles, "neighbours": neighbours, "seed": seed}
    if sums.texts == len(sums.draw):
        draw = sums.draw
        profile = profile_in_order(draw.vectors, draw.lengths, draw.documents, unit=unit, settings=settings)
        return replace(profile, notes=(*sums.notes, *profile.notes), assignment=None)
    bins = histogram_bins(sums.lengths, sums.edges, min_texts=min_texts)
    table = _Table(sums, bins)
    random = np.random.default_rng(seed)
    of = np.minimum(np.searchsorted(bins.edges, sums.draw.lengths, side="right") - 1, len(bins) - 1)
    filled = replace(bins, of=of, counts=np.bincount(of, minlength=len(bins)))
    units = chosen_units(len(sums.draw), sums.draw.documents)
    drawn = BinMeasures(sums.draw.vectors, filled, units, shuffles=shuffles, random=random)
    measured = drawn.rows(table.places, neighbours=min(neighbours, len(sums.draw) - 2), random=random)
    cosines, norms = table.chance(drawn, shuffles, random)
    rows = tuple(_row(row, table, number, cosines, norms) for number, row in enumerate(measured))
    return LengthProfile(
        bins=rows,
        texts=sums.texts,
        dimension=sums.vectors.shape[2],
        unit=unit,
        notes=(*sums.notes, *bins.notes(), *_notes(sums)),
        mean_cosine=table.mean_cosine,
        slope=with_floor(table.slope(), line_slopes(cosines, table.places, table.sizes)),
        provenance=profile_origin({**settings, "drawn": len(sums.draw)}),
    )


def _row(drawn: BinProfile, table: _Table, number: int, cosines: Array, norms: Array) -> BinProfile:
    """One bin: numbers from the sums of all texts, and numbers that need the drawn texts."""
    return replace(
        drawn,
        texts=int(table.sizes[number]),
        cosine=with_floor(table.cosine(number), cosines[:, number]),
        norm=with_floor(table.norm(number), norms[:, number]),
    )


def _notes(sums: ProfileSums) -> tuple[str, ...]:
    return (
        f"Cosines, norms and the slope are of all {sums.texts:,} texts. Distances, effective ranks and the deviation "
        f"of the cosine are of {len(sums.draw):,} drawn ones, and neighbours are looked for among these.",
        *normalised_note(sums.largest_norm - sums.smallest_norm, sums.largest_norm),
    )


class _Table:
    """The sums by the bins of the result and by group."""

    def __init__(self, sums: ProfileSums, bins: LengthBins) -> None:
        lower = _WIDTH * np.arange(len(sums.counts)) if sums.edges is None else np.array(sums.edges[:-1])
        target = np.minimum(np.searchsorted(bins.edges, lower, side="right") - 1, len(bins) - 1)
        self.counts, logs, self._norms, self._vectors = (
            _gathered(part, target, len(bins)) for part in (sums.counts, sums.logs, sums.norms, sums.vectors)
        )
        self.sizes = self.counts.sum(axis=1)
        self._logs = logs
        self.places = logs.sum(axis=1) / np.maximum(self.sizes, 1)
        self._totals = self._vectors.sum(axis=1)
        self._heights = mean_cosines(self._totals, self.sizes)

    @property
    def mean_cosine(self) -> float:
        return float(mean_cosines(self._totals.sum(axis=0)[None], self.sizes.sum(keepdims=True))[0])

    def cosine(self, number: int) -> Estimate:
        value = float(self._heights[number])
        if not np.isfinite(value):
            return Estimate(None)
        rest = self._totals[number] - self._vectors[number]
        without = mean_cosines(rest, self.sizes[number] - self.counts[number])
        return _left_out(value, without, self.counts[number])

    def norm(self, number: int) -> Estimate:
        total, size = self._norms[number].sum(), self.sizes[number]
        without = (total - self._norms[number]) / np.maximum(size - self.counts[number], 1)
        return _left_out(float(total / size), without, self.counts[number])

    def slope(self) -> Estimate:
        """The slope of the mean cosine per doubling of the length, and without each group of texts in turn."""
        value = float(line_slopes(self._heights[None], self.places, self.sizes)[0])
        if not np.isfinite(value):
            return Estimate(None)
        without = np.empty(_GROUPS)
        for group in range(_GROUPS):
            sizes = self.sizes - self.counts[:, group]
            places = (self._logs.sum(axis=1) - self._logs[:, group]) / np.maximum(sizes, 1)
            heights = mean_cosines(self._totals - self._vectors[:, group], sizes)
            without[group] = line_slopes(heights[None], places, sizes)[0]
        return _left_out(value, without, self.counts.sum(axis=0))

    def chance(self, drawn: BinMeasures, shuffles: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Mean cosine and norm by bin after every shuffle of the lengths (both shuffles × bins).

        Of so many texts the sum over a bin that is dealt anew is normal: its mean is that of all texts, and over the
        bins the covariances are those of drawing without replacement. The covariance of a text is that of the draw.
        """
        centred = drawn.unit - drawn.unit.mean(axis=0, dtype=np.float64)
        values, axes = np.linalg.eigh(centred.T @ centred / (len(centred) - 1))
        root = axes * np.sqrt(np.maximum(values, 0))
        noise = random.standard_normal((shuffles, len(self.sizes), root.shape[1])) @ root.T
        sums = self._dealt(self._totals.sum(axis=0), noise)
        norm_noise = float(drawn.norms.std(ddof=1)) * random.standard_normal((shuffles, len(self.sizes), 1))
        norms = self._dealt(np.array([self._norms.sum()]), norm_noise)[:, :, 0] / np.maximum(self.sizes, 1)
        return mean_cosines(sums, self.sizes), norms

    def _dealt(self, total: Array, noise: Array) -> Array:
        """Sums by bin of values that are dealt at random, from their total and noise of the covariance of one value."""
        scaled = np.sqrt(self.sizes)[:, None] * noise
        share = (self.sizes / self.sizes.sum())[:, None]
        return np.asarray(share * total + scaled - share * scaled.sum(axis=1, keepdims=True))


def _left_out(value: float, without: Array, sizes: Array) -> Estimate:
    """By leaving out groups of texts; the texts of a document are in one group."""
    return left_out_estimate(value, without, sizes, unit="groups of texts")


def _places(lengths: Index, edges: tuple[float, ...] | None) -> Index:
    if edges is None:
        return lengths // int(_WIDTH)
    if lengths.min() < edges[0] or lengths.max() > edges[-1]:
        raise InputError(
            f"bins: received the edges {list(edges)}; they must hold all lengths, here {lengths.min()} to "
            f"{lengths.max()}. Widen the first or the last."
        )
    return np.minimum(np.searchsorted(edges, lengths, side="right") - 1, len(edges) - 2)


def _gathered(values: Array, target: Index, count: int) -> Array:
    """Rows of `values` added up where their target is."""
    gathered = np.zeros((count, *values.shape[1:]))
    np.add.at(gathered, target, values)
    return gathered
