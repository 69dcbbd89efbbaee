"""How vectors fill their room: the rank of their spectrum, dimensions that rule the cosine, and their lengths.

Whether lengths matter is who is nearest by cosine, by inner product and by distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, whole_number
from poolscope.numbers import Array, Index
from poolscope.numbers.cosines import isotropic_rank, rank_estimate
from poolscope.numbers.intervals import Estimate, Units, chosen_units, mean_estimate, not_by_documents
from poolscope.numbers.lengths import NORMALISED
from poolscope.numbers.ranking import best_of_rows, unit_rows
from poolscope.numbers.streaming import row_marks
from poolscope.results import Result, bulk, column_rows, origin, provenance
from poolscope.show.charts import COLOURS, curve, histogram_figure, panel
from poolscope.texts.groups import checked_groups

# Beyond this many vectors a draw of them is looked at; neighbours of some are compared among fewer.
MOST_VECTORS, _MOST_NEIGHBOURS, _QUERIES = 5000, 1000, 400
_ROTATIONS = 3
_FEW_VECTORS = 400  # the interval of one decomposition covered 86 to 89 % with 150 vectors, and 92 to 99 % with 500
_K = 10
_DRAWN = 1e-7  # smaller shares lie below the figure: a dead dimension is drawn at its lower end
# Unit vectors in single precision that spread less than this point in one direction, but for rounding.
_ROUNDING = 1e-13
_ALL_OF_IT = 1e-3


@dataclass(frozen=True, repr=False, kw_only=True)
class Spectrum(Result):
    """How many directions vectors spread in, and whether single dimensions rule their cosines.

    `effective_rank` is exp of the entropy of the singular values of the centred unit vectors, between 1 and d; its
    floor is that of as many vectors without any preferred direction, so a value far *below* the floor is what there is
    to find. `largest_share` is the share of the squared length that the first of the dimensions holds on average; its
    floor is what the same vectors give in a random basis, where no dimension is special. `kept` is the share of the
    ten nearest that remain without that dimension, and its floor that without a dimension of middling share. `shares`
    are those of all dimensions, `energies` the eigenvalues of the covariance, both the largest first.
    """

    vectors: int
    dimension: int
    effective_rank: Estimate
    dimension_number: int
    largest_share: Estimate
    kept: Estimate
    shares: Array = bulk(required=True)
    order: Index = bulk(required=True)
    energies: Array = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    @property
    def used(self) -> float:
        """The effective rank as a share of that of vectors without a preferred direction."""
        return self.effective_rank.value_or_raise / (self.effective_rank.floor or 1.0)

    def derived(self) -> dict[str, Any]:
        """The share of the room that is used."""
        return {"used": self.used}

    field_words: ClassVar[Mapping[str, str]] = {
        "dimension_number": "the largest dimension",
        "largest_share": "share of the largest dimension",
        "kept": "neighbours kept without that",
    }

    def in_words(self) -> tuple[str, ...]:
        """How many directions are in use, and what the largest dimension does."""
        rank, share, neighbours = self.effective_rank, self.largest_share.value, self.kept.value
        if rank.value is None or share is None or neighbours is None:
            return ()
        if rank.floor is None:
            return ("All vectors point in one direction.",)
        return (
            f"The vectors use about {rank.value:.0f} directions; as many random vectors would use {rank.floor:.0f}.",
            f"The largest dimension, number {self.dimension_number}, holds {share:.1%} of the squared length; without "
            f"it {neighbours:.0%} of the ten nearest remain.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a dimension, that with the largest share first."""
        return column_rows(dimension=self.order, share=self.shares)

    def figure(self) -> Any:
        """Shares of the variance by direction, and of the squared length by dimension."""
        variances = self.energies / max(float(self.energies.sum()), 1e-300)
        named = (("variance, by direction", variances), ("squared length, by dimension", self.shares))
        shares, hover = np.concatenate([variances, self.shares]), "%{x}: %{y:.3%}<extra></extra>"
        least, most = (np.log10(end(shares[shares > _DRAWN])) for end in (np.min, np.max))
        figure = panel(
            *(
                curve(np.arange(1, len(values) + 1), values, name, colour, hovertemplate=hover)
                for (name, values), colour in zip(named, COLOURS, strict=False)
            ),
            title="How much the first directions and dimensions hold",
            across="place, the largest first",
            along="share (dashed: all alike)",
            x={"type": "log"},
            y={"type": "log", "tickformat": ".3~%", "range": [least - 0.1, most + 0.1]},
        )
        figure.add_hline(1 / self.dimension, line={"dash": "dash", "width": 1})
        return figure


def spectrum(
    vectors: ArrayLike,
    *,
    groups: Sequence[Any] | None = None,
    texts: Sequence[str] | None = None,
    seed: int = 0,
    most: int = MOST_VECTORS,
) -> Spectrum:
    """The effective rank of vectors, and the dimension that holds most of their length.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), at least three; their lengths do not count.
    groups : list, optional
        The document of each text, which is then the unit of intervals.
    texts : list of str, optional
        The texts, if at hand: what is drawn then goes by their words, without them by the vectors.
    seed : int
        Of the draw of vectors and of the floors.
    most : int
        Of more vectors that many are drawn.

    Returns
    -------
    Spectrum
        Effective rank, largest share and neighbours kept, each with its interval and its floor.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> flat = random.standard_normal((200, 16)) * np.where(np.arange(16) < 3, 1, 0.01)
    >>> result = spectrum(flat)
    >>> result.effective_rank.value < 5, result.dimension_number < 3
    (True, True)

    """
    random = np.random.default_rng(seed)
    unit, chosen = _in_order(unit_rows(vectors, "vectors"), whole_number(most, "most", least=3), texts)
    units = _units(groups, np.shape(vectors)[0], chosen)
    if len(unit) < 3 or unit.shape[1] < 2:
        raise InputError(f"received {len(unit)} vectors of dimension {unit.shape[1]}; needed: three, of two or more.")
    squares = unit.astype(np.float64) ** 2
    shares = squares.mean(axis=0)
    order = np.argsort(-shares, kind="stable")
    first = int(order[0])
    rank, energies = _rank(unit)
    share = mean_estimate(squares[:, first], units)
    return Spectrum(
        vectors=len(unit),
        dimension=unit.shape[1],
        effective_rank=not_by_documents(rank, units),
        dimension_number=first,
        largest_share=replace(share, floor=_share_in_another_basis(unit, energies, random)),
        kept=_kept_neighbours(unit, units, first, int(order[len(order) // 2]), random),
        shares=shares[order],
        order=order,
        energies=energies,
        provenance=provenance(settings={"seed": seed, "most": most}),
    )


def _in_order(unit: NDArray[np.float32], most: int, texts: Sequence[str] | None) -> tuple[NDArray[np.float32], Index]:
    """At most so many vectors by their marks, in rising order of these, and their positions.

    What is drawn of them later, or left out in groups, is then no matter of place.
    """
    chosen = np.argsort(row_marks(unit, texts), kind="stable")[:most]
    return unit[chosen], chosen


def _units(groups: Sequence[Any] | None, count: int, chosen: Index) -> Units:
    """The units of the texts that were chosen."""
    return chosen_units(len(chosen), None if groups is None else np.array(checked_groups(groups, count))[chosen])


def _rank(unit: NDArray[np.float32]) -> tuple[Estimate, Array]:
    """The effective rank with its interval and floor, and the eigenvalues of the covariance, the largest first.

    How far a vector x moves the rank R = exp H of the singular values s = √λ follows from how it moves the eigenvalues,
    (x·v_k)² − λ_k: the sum of these times −R (log p_k + H)/(2 s_k Σs), with p = s/Σs. So one decomposition gives the
    interval too. Of few vectors each moves more than its eigenvalue, and groups of them are left out instead.
    """
    centred = unit.astype(np.float64)
    centred -= centred.mean(axis=0)
    if len(unit) < unit.shape[1]:
        energies, sides = np.linalg.eigh(centred @ centred.T / len(unit))
        projected = (sides * np.sqrt(np.maximum(energies, 0) * len(unit))) ** 2
    else:
        energies, directions = np.linalg.eigh(centred.T @ centred / len(unit))
        projected = (centred.astype(np.float32) @ directions.astype(np.float32)) ** 2  # for the interval alone
    above_zero = energies > 1e-12 * max(float(energies[-1]), 1e-300)
    singular = np.sqrt(energies[above_zero])
    if not len(singular) or energies.sum() < _ROUNDING:
        return Estimate(0.0), np.zeros_like(energies)
    shares = singular / singular.sum()
    entropy = float(-(shares * np.log(shares)).sum())
    weights = -np.exp(entropy) * (np.log(shares) + entropy) / (2 * singular * singular.sum())
    moved = np.exp(entropy) + (projected[:, above_zero] - energies[above_zero]) @ weights
    interval = rank_estimate(unit).interval if len(unit) <= _FEW_VECTORS else mean_estimate(moved).interval
    floor = isotropic_rank(*unit.shape)
    return Estimate(float(np.exp(entropy)), interval, floor=floor), np.maximum(energies[::-1], 0.0)


def _share_in_another_basis(unit: NDArray[np.float32], energies: Array, random: np.random.Generator) -> float:
    """The largest share of a dimension in a random basis: Σ λ_k q_k² + (q·mean)² of d random directions q."""
    dimension = unit.shape[1]
    spread = np.concatenate([energies, np.zeros(max(dimension - len(energies), 0))])[:dimension]
    length = float((unit.mean(axis=0, dtype=np.float64) ** 2).sum())
    largest = []
    for _ in range(_ROTATIONS):
        squares = random.standard_normal((dimension, dimension), dtype=np.float32) ** 2
        squares /= squares.sum(axis=1, keepdims=True)
        towards_mean = random.standard_normal(dimension) ** 2 / dimension
        largest.append(float((squares @ spread + length * towards_mean).max()))
    return float(np.mean(largest))


def _kept_neighbours(
    unit: NDArray[np.float32], units: Units, first: int, middle: int, random: np.random.Generator
) -> Estimate:
    """Share of the nearest that remain without a dimension; the floor without another one.

    Without dimension j the product of two vectors is smaller by x_j y_j and their squared lengths by x_j² and y_j²: so
    one product of all with some of the vectors, which are asked, serves both.
    """
    unit = unit[:_MOST_NEIGHBOURS]
    drawn = np.sort(random.permutation(len(unit))[:_QUERIES])
    k, rows = min(_K, len(unit) - 1), np.arange(len(drawn))
    products = unit[drawn] @ unit.T

    def nearest(cosines: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which are among the k nearest of each."""
        cosines[rows, drawn] = -np.inf
        return np.asarray(cosines >= best_of_rows(cosines, k)[1][:, -1:])

    near = nearest(products.copy())

    def shares(number: int) -> Array:
        column = unit[:, number]
        lengths = np.sqrt(np.maximum(1 - column**2, 0))
        if lengths.min() < _ALL_OF_IT:  # all of a vector lies in this dimension: nothing is left to compare
            return np.zeros(len(drawn))
        rest = products - np.multiply.outer(column[drawn], column)
        again = nearest(np.asarray(rest / lengths, dtype=np.float32))
        return np.asarray((near & again).sum(axis=1) / near.sum(axis=1))

    return replace(mean_estimate(shares(first), units.among(drawn)), floor=float(shares(middle).mean()))


@dataclass(frozen=True, repr=False, kw_only=True)
class Norms(Result):
    """The lengths of vectors, and what follows for a search by each distance.

    `median`, `low` and `high` (5 % and 95 %) are those of the lengths, `variation` their standard deviation over their
    mean. `by_dot` is the share of the k nearest by cosine that an inner product replaces by others, and `by_l2` that of
    the Euclidean distance; both have the floor 0, which is what vectors of one length give. `long_among` is how often
    the longest tenth stands among the nearest by inner product, over its share by cosine: 1 where length is no help.
    """

    vectors: int
    k: int
    median: float
    low: float
    high: float
    variation: float
    by_dot: Estimate
    by_l2: Estimate
    long_among: float
    lengths: Array = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    @property
    def normalised(self) -> bool:
        """Have all vectors one length?"""
        return self.variation < NORMALISED

    @property
    def unit(self) -> bool:
        """Have all vectors the length 1?"""
        return self.normalised and abs(self.median - 1) < 1e-2

    def derived(self) -> dict[str, Any]:
        """Are they of one length, and is it 1?"""
        return {"normalised": self.normalised, "unit": self.unit}

    shown_rows = 0
    field_words: ClassVar[Mapping[str, str]] = {
        "k": "nearest that are compared",
        "median": "median length",
        "low": "length that 5% stay below",
        "high": "length that 5% exceed",
        "variation": "standard deviation over mean",
        "by_dot": "replaced by inner product",
        "by_l2": "replaced by Euclidean distance",
        "long_among": "long vectors found, over cosine",
    }

    def in_words(self) -> tuple[str, ...]:
        """Whether the distance matters."""
        if self.normalised:
            return ("All vectors have one length, so every distance finds the same neighbours.",)
        if self.by_dot.value is None or self.by_l2.value is None:
            return ()
        return (
            f"Nine of ten vectors have lengths from {self.low:.3g} to {self.high:.3g}.",
            f"Searching by inner product instead of cosine would replace {self.by_dot.value:.0%} of the {self.k} "
            f"nearest; by Euclidean distance, {self.by_l2.value:.0%}.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a vector: its length."""
        return column_rows(position=np.arange(self.vectors), length=self.lengths)

    def figure(self) -> Any:
        """Histogram of the lengths."""
        hover = "length %{x:.4g}: %{y} vectors<extra></extra>"
        words = {"title": "How long the vectors are", "across": "length of a vector", "along": "vectors"}
        return histogram_figure(self.lengths, bins=60, hover=hover, **words)


def norms(
    vectors: ArrayLike,
    *,
    k: int = 10,
    groups: Sequence[Any] | None = None,
    texts: Sequence[str] | None = None,
    seed: int = 0,
    most: int = MOST_VECTORS,
) -> Norms:
    """The lengths of vectors, and how many of the k nearest change with the distance that a search goes by.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), as they are stored: at least two, none of length 0.
    k : int
        Neighbours that are compared; lowered where there are not so many other vectors.
    groups : list, optional
        The document of each text, which is then the unit of intervals.
    texts : list of str, optional
        The texts, if at hand: what is drawn then goes by their words, without them by the vectors.
    seed : int
        Of the draw of vectors.
    most : int
        Of more vectors that many are drawn.

    Returns
    -------
    Norms
        Lengths, and the share of neighbours that inner product and Euclidean distance replace.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> directions = random.standard_normal((100, 8))
    >>> norms(directions / np.linalg.norm(directions, axis=1, keepdims=True)).by_dot.value
    0.0
    >>> norms(directions * random.uniform(1, 3, (100, 1))).by_dot.value > 0.2
    True

    """
    unit = unit_rows(vectors, "vectors")
    if len(unit) < 2 or k < 1:
        raise InputError(f"received {len(unit)} vectors and k = {k}; needed: two vectors or more, and k of at least 1.")
    table = np.asarray(vectors)
    every = np.sqrt(np.einsum("ij,ij->i", table, table, dtype=np.float64))
    random, most = np.random.default_rng(seed), whole_number(most, "most", least=2)
    unit, chosen = _in_order(unit, most, texts)
    lengths, units = every[chosen], _units(groups, len(every), chosen)
    k = min(k, len(unit) - 1)
    variation = float(every.std() / every.mean())
    dot = l2 = np.zeros(len(unit))
    long_among = 1.0
    if variation >= NORMALISED and len(unit) > 2:
        drawn = np.sort(random.permutation(len(unit))[:_QUERIES])
        units = units.among(drawn)
        dot, l2, long_among = _replaced(unit, lengths, k, drawn)
    low, median, high = (float(value) for value in np.quantile(every, [0.05, 0.5, 0.95]))
    return Norms(
        vectors=len(every),
        k=k,
        median=median,
        low=low,
        high=high,
        variation=variation,
        by_dot=replace(mean_estimate(dot, units), floor=0.0),
        by_l2=replace(mean_estimate(l2, units), floor=0.0),
        long_among=long_among,
        lengths=every,
        provenance=provenance(settings={"k": k, "seed": seed, "most": most}),
    )


def _replaced(unit: NDArray[np.float32], lengths: Array, k: int, drawn: Index) -> tuple[Array, Array, float]:
    """Of some vectors the share of their k nearest that change with the distance, and the crowding of the longest."""
    cosines = unit[drawn] @ unit.T
    rows = np.arange(len(drawn))
    cosines[rows, drawn] = -np.inf
    sizes = (lengths / lengths.max()).astype(np.float32)  # whose squares single precision holds
    dots = cosines * sizes
    # ‖q − x‖² = ‖q‖² + ‖x‖² − 2 q·x; the first is the same for all.
    distances = 2 * sizes[drawn][:, None] * dots - sizes**2
    near, by_dot, by_l2 = (best_of_rows(scores, k)[0] for scores in (cosines, dots, distances))

    def changed(others: Index) -> Array:
        same = (near[:, :, None] == others[:, None, :]).any(axis=2)
        return np.asarray(1 - same.mean(axis=1), dtype=np.float64)

    longest = lengths >= np.quantile(lengths, 0.9)
    often = float(longest[near].mean())
    return changed(by_dot), changed(by_l2), float(longest[by_dot].mean()) / often if often > 0 else float("inf")
