"""The permutation floor of d_Σ: what the same tokens give when chance, not the text, deals them into two clouds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import DegenerateCloudError, InputError, whole_number
from poolscope.metrics.socm.pair import pair_distances
from poolscope.numbers import Array, Index
from poolscope.numbers.bures.distances import nuclear_norms
from poolscope.numbers.bures.pairs import workers
from poolscope.numbers.streaming import pair_marks, text_marks
from poolscope.results import Result, column_rows, origin, provenance
from poolscope.surface import as_array

# Deals of each pair of a corpus: the fewest whose ends are an exact 95 % range, as (39 + 1) · 2.5 % is one deal.
DEALS = 39
# Deals of one pair on its own, for p to a thousandth.
MANY_DEALS = 999
# Numbers in the cross products that are held at a time.
_HELD = 1 << 21
# What is left of the mean of tokens that cancel, of their mean square, or of two opposite means: no direction.
_CANCELLED = 1e-12
# Two equal distances may be parted by so much rounding, of the mean of the deals and at least.
_ROUNDING, _NOTHING = 1e-5, 1e-12


@dataclass(frozen=True)
class DealtColumns:
    """Of each pair: the mean of d_Σ over its deals, the ends of the 95 % range of the deals, and p.

    p is the share of the deals, the texts themselves among them, whose clouds are at least as far apart.
    """

    floor: Array
    low: Array
    high: Array
    p: Array

    @classmethod
    def empty(cls) -> DealtColumns:
        """No pairs."""
        return cls(*(np.zeros(0) for _ in fields(cls)))


@dataclass(frozen=True, repr=False, kw_only=True)
class PermutationFloor(Result):
    """d_Σ of pairs of texts beside its permutation floor: mean, 95 % range and p over `deals` deals of their tokens."""

    deals: int
    i: Index
    j: Index
    d_sigma: Array
    dealt: DealtColumns
    provenance: Mapping[str, Any] = origin()

    def __len__(self) -> int:
        return len(self.i)

    def headline(self) -> dict[str, Any]:
        """How many pairs, and the means of d_Σ and of its floor."""
        means = {"d_sigma": float(self.d_sigma.mean()), "floor": float(self.dealt.floor.mean())} if len(self) else {}
        return {"pairs": len(self), **means, "deals": self.deals}

    def in_words(self) -> tuple[str, ...]:
        """How far the clouds are apart, and how far chance puts them."""
        if len(self) != 1:
            return (f"The clouds of {int((self.dealt.p <= 0.05).sum())} of {len(self)} pairs differ (p ≤ 0.05).",)
        values = {name: float(column[0]) for name, column in vars(self.dealt).items()}
        return (
            "The clouds are {d_sigma:.3f} apart (d_Σ); the same tokens dealt at random {floor:.3f} [{low:.3f}, "
            "{high:.3f}], p {p:.3f}.".format(d_sigma=float(self.d_sigma[0]), **values),
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair."""
        return column_rows(i=self.i, j=self.j, d_sigma=self.d_sigma, **vars(self.dealt))


def permutation_floor(
    clouds: TokenClouds, pairs: ArrayLike = ((0, 1),), *, deals: int = MANY_DEALS, seed: int = 0
) -> PermutationFloor:
    """d_Σ of pairs of texts, and what chance makes of the same tokens.

    The tokens of both texts are pooled and dealt anew into clouds of as many tokens, without replacement, and each deal
    is scaled to unit means as the two texts are. Dealing mixes two means, which makes the mean of a deal shorter (by a
    factor 1 − d_μ of the texts, squared norms) and would raise d_Σ of every deal. So deals and texts are compared by
    d_Σ/(1 − d_μ), and what the deals give is told on the scale of the texts. The texts are one deal of their tokens:
    where tokens are exchangeable p is exact and the mean excess over the floor is 0, however few they are.

    Parameters
    ----------
    clouds : TokenClouds
        The token clouds of the texts.
    pairs : matrix
        Positions of the two texts of each pair (m × 2); the first two texts if left out.
    deals : int
        How often the tokens of a pair are dealt: 39 are the fewest with a 95 % range.
    seed : int
        Of the deals, which hang on the words of the two texts (or their vectors) and on it, not on their place.

    Returns
    -------
    PermutationFloor
        d_Σ, the mean of the deals, their 95 % range and p of each pair.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> tokens = 1 + random.normal(size=(60, 8))
    >>> one, other = tokens[:30], tokens[30:]
    >>> chance = permutation_floor(TokenClouds.from_arrays([one, other]))
    >>> wider = permutation_floor(TokenClouds.from_arrays([one, 1 + 3 * (other - 1)]))
    >>> bool(chance.dealt.p[0] > 0.05), float(wider.dealt.p[0])
    (True, 0.001)

    """
    check_clouds(clouds, "permutation_floor")
    positions = as_array(pairs, "pairs")
    if positions.ndim != 2 or positions.shape[1:] != (2,) or positions.dtype.kind not in "iu":
        raise InputError(f"pairs: received shape {positions.shape}; allowed: two positions a row. Pass [[0, 1]].")
    if positions.size and not (positions.min() >= 0 and positions.max() < len(clouds)):
        raise InputError(f"pairs: received {positions.max()}; allowed: 0 to {len(clouds) - 1}. Pass such positions.")
    deals, seed = whole_number(deals, "deals", least=DEALS), whole_number(seed, "seed", least=0)
    pairs = positions.astype(np.int64)
    observed, dealt = dealt_pairs(clouds, pairs, deals=deals, seed=seed)
    made = provenance(clouds, settings={"deals": deals, "seed": seed})
    return PermutationFloor(deals=deals, i=pairs[:, 0], j=pairs[:, 1], d_sigma=observed, dealt=dealt, provenance=made)


def dealt_pairs(clouds: TokenClouds, pairs: Index, *, deals: int = DEALS, seed: int = 0) -> tuple[Array, DealtColumns]:
    """d_Σ of each pair (m × 2), and its permutation floor."""
    if not len(pairs):
        return np.zeros(0), DealtColumns.empty()
    texts, places = np.unique(pairs, return_inverse=True)
    marks = text_marks(clouds, texts, seed=seed)[places.reshape(pairs.shape)]
    ordered = np.where((marks[:, 0] <= marks[:, 1])[:, None], pairs, pairs[:, ::-1])  # (j, i) is dealt as (i, j) is

    def one(pair: Index, mark: int) -> list[float]:
        return _one_pair(clouds[int(pair[0])], clouds[int(pair[1])], deals, np.random.default_rng(mark))

    with workers() as pool:
        rows = list(pool.map(one, ordered, pair_marks(*marks.T).tolist()))
    observed, *columns = np.array(rows).T
    return observed, DealtColumns(*columns)


def _one_pair(first: Any, second: Any, deals: int, random: np.random.Generator) -> list[float]:
    """d_Σ of two texts, the mean of its deals, the ends of their 95 % range, and p."""
    tokens = np.concatenate([first, second]).astype(np.float64)
    orders = random.permuted(np.tile(np.arange(len(tokens)), (deals + 1, 1)), axis=1)
    orders[0] = np.arange(len(tokens))
    mean_distance, covariance_distance = deal_distances(tokens, orders, len(first))
    observed, agreement = float(covariance_distance[0]), 1 - mean_distance
    defined = np.flatnonzero(agreement[1:] > _CANCELLED) + 1
    if not len(defined) or agreement[0] <= _CANCELLED:  # means that cancel have no direction, and say nothing
        return [observed, observed, observed, observed, 1.0]
    floor = float(covariance_distance[defined].mean() * agreement[0] / agreement[defined].mean())
    dealt = np.sort(covariance_distance[defined] * agreement[0] / agreement[defined])
    outside = max(1, int(0.025 * (len(dealt) + 1)))  # the end of the range is the deal of this number
    p = (1 + int((dealt >= observed - _ROUNDING * floor - _NOTHING).sum())) / (1 + len(dealt))
    return [observed, floor, float(dealt[outside - 1]), float(dealt[-outside]), p]


def deal_distances(tokens: Array, orders: Index, size: int) -> tuple[Array, Array]:
    """d_μ and d_Σ of each deal of the tokens (N × d): the first `size` of an order (m × N) against the others.

    All deals share the Gram matrix of the tokens: a cross product is a block of it, centred and scaled by the means of
    the deal. Where the tokens of a side cancel, d_μ is 1. Clouds of more tokens than dimensions go by d × d factors.
    """
    sides = orders[:, :size], orders[:, size:]
    if min(side.shape[1] for side in sides) > tokens.shape[1]:
        both = np.array([_long_distances(tokens[left], tokens[right]) for left, right in zip(*sides, strict=True)])
        return both[:, 0], both[:, 1]
    centre = tokens.mean(axis=0)
    deviations = tokens - centre
    gram, along, square = deviations @ deviations.T, deviations @ centre, float(centre @ centre)
    step = max(1, _HELD // (sides[0].shape[1] * sides[1].shape[1]))
    parts = [
        _gram_distances(gram, along, square, sides[0][start : start + step], sides[1][start : start + step])
        for start in range(0, len(orders), step)
    ]
    mean_distances, covariance_distances = zip(*parts, strict=True)
    return np.concatenate(mean_distances), np.concatenate(covariance_distances)


def _gram_distances(gram: Array, along: Array, square: float, first: Index, second: Index) -> tuple[Array, Array]:
    """The distances from the Gram matrix around the centre, the products of its rows with the centre, and ‖centre‖²."""
    left, right = (_memberships(side, len(gram)) for side in (first, second))
    moved = [members @ gram for members in (left, right)]
    within = [np.einsum("mn,mn->m", move, members) for move, members in zip(moved, (left, right), strict=True)]
    traces = [members @ np.diagonal(gram) - inner for members, inner in zip((left, right), within, strict=True)]
    squares = [square + 2 * members @ along + inner for members, inner in zip((left, right), within, strict=True)]
    product = square + (left + right) @ along + np.einsum("mn,mn->m", moved[0], right)
    cross = gram[first[:, :, None], second[:, None, :]]
    cross -= cross.mean(axis=1, keepdims=True)
    cross -= cross.mean(axis=2, keepdims=True)
    nuclear = nuclear_norms(cross) / np.sqrt(first.shape[1] * second.shape[1])
    least = _CANCELLED * (square + float(np.diagonal(gram).mean()))
    defined = (squares[0] > least) & (squares[1] > least)
    one, other = (np.where(defined, each, 1.0) for each in squares)
    bures = traces[0] / one + traces[1] / other - 2 * nuclear / np.sqrt(one * other)
    cosine = np.where(defined, product / np.sqrt(one * other), -1.0)
    return (1 - cosine.clip(-1, 1)) / 2, np.maximum(bures, 0.0) / 4


def _memberships(side: Index, tokens: int) -> Array:
    """The weights (m × N) with which the tokens of a side make its mean."""
    weights = np.zeros((len(side), tokens))
    np.put_along_axis(weights, side, 1 / side.shape[1], axis=1)
    return weights


def _long_distances(first: Array, second: Array) -> tuple[float, float]:
    """d_μ and d_Σ of two clouds of many tokens; d_μ is 1 where the tokens of one cancel."""
    try:
        mean_distance, bures, _ = pair_distances(first, second)
    except DegenerateCloudError:
        return 1.0, 0.0
    return mean_distance, bures / 4
