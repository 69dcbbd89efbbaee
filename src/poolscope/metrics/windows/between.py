"""Distances between windows: do the means of windows agree while their tokens differ?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.intervals import Estimate, dyadic_interval, leave_one_out_interval
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.windows import window_bounds

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_WINDOWS = 12  # of a text, at most: they make 66 pairs


@dataclass(frozen=True)
class Between:
    """SOCM and the share of collapsed pairs, among windows of one text and with the nearest window of another."""

    within_socm: Estimate
    within_collapse: Estimate
    nearest_socm: Estimate
    nearest_collapse: Estimate


def between_windows(documents: Sequence[NDArray[Any]], ratio: int, *, collapse_at: float, seed: int = 0) -> Between:
    """Distances between windows of `ratio` tokens; the floors are those of the tokens of each text in random order.

    A window needs two tokens. Of a text with more than a dozen windows a dozen are drawn. Intervals are over texts.
    """
    random = np.random.default_rng(seed)
    kept = [_kept(len(tokens), ratio, random) for tokens in documents]
    mixed = [tokens[random.permutation(len(tokens))] for tokens in documents]
    measured, chance = (_Pairs.of(texts, kept, ratio) for texts in (documents, mixed))
    estimates = []
    for name in ("within", "nearest"):
        for share in (False, True):
            one, other = (_values(getattr(pairs, name), collapse_at if share else None) for pairs in (measured, chance))
            floor = float(other[0].mean()) if len(other[0]) else None
            estimates.append(_estimate(*one, floor=floor))
    return Between(*estimates)


def _kept(tokens: int, ratio: int, random: np.random.Generator) -> Index:
    """Which windows of a text are looked at: those of two tokens or more, at most a dozen."""
    sizes = np.diff(window_bounds(tokens, ratio))
    whole = np.flatnonzero(sizes > 1)
    return np.sort(random.choice(whole, _WINDOWS, replace=False)) if len(whole) > _WINDOWS else whole


Values = tuple[Array, Index, Index]  # SOCM of pairs, and the texts of their two windows


@dataclass(frozen=True)
class _Pairs:
    within: Values
    nearest: Values

    @classmethod
    def of(cls, texts: Sequence[NDArray[Any]], kept: Sequence[Index], ratio: int) -> _Pairs:
        clouds, owner = [], []
        for number, (tokens, chosen) in enumerate(zip(texts, kept, strict=True)):
            cuts = list(pairwise(window_bounds(len(tokens), ratio).tolist()))
            clouds += [tokens[slice(*cuts[k])] for k in chosen.tolist()]
            owner += [number] * len(chosen)
        if len(clouds) < 2:
            return cls(_none(), _none())
        texts_of, windows = np.array(owner), TokenClouds.from_arrays(clouds)
        numbers = [np.flatnonzero(texts_of == one).tolist() for one in np.unique(texts_of)]
        within = [pair for group in numbers for pair in combinations(group, 2)]
        return cls(_socm(windows, within, texts_of), _socm(windows, _nearest(windows, texts_of), texts_of))


def _nearest(windows: TokenClouds, texts: Index) -> list[tuple[int, int]]:
    """Each window with the window of another text whose mean is nearest; a pair stands once."""
    if texts[0] == texts[-1]:
        return []
    unit = unit_rows(np.stack([np.asarray(cloud, dtype=np.float64).mean(axis=0) for cloud in windows]), "windows")
    cosines = np.asarray(unit @ unit.T, dtype=np.float64)
    cosines[texts[:, None] == texts] = -np.inf
    partner = cosines.argmax(axis=1)
    return sorted({(min(k, int(j)), max(k, int(j))) for k, j in enumerate(partner)})


def _socm(windows: TokenClouds, pairs: Sequence[tuple[int, int]], texts: Index) -> Values:
    if not pairs:
        return _none()
    listed = np.array(pairs)
    columns = socm(windows, pairs=listed).pairs
    if columns is None:
        raise RuntimeError("pairs that were named are kept")
    return columns.socm, texts[listed[:, 0]], texts[listed[:, 1]]


def _none() -> Values:
    return np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)


def _values(values: Values, collapse_at: float | None) -> Values:
    scores, *texts = values
    return scores if collapse_at is None else (scores >= collapse_at).astype(np.float64), texts[0], texts[1]


def _estimate(values: Array, left: Index, right: Index, *, floor: float | None) -> Estimate:
    """The mean over pairs with its interval over texts: by leaving out one text, or two-sided where pairs cross."""
    if not len(values):
        return Estimate(None)
    mean = float(values.mean())
    if not np.array_equal(left, right):
        return Estimate(mean, dyadic_interval(values, left, right, crossed=False), floor)
    groups, inverse = np.unique(left, return_inverse=True)
    sums, counts = np.bincount(inverse, values), np.bincount(inverse)
    if len(groups) < 3:
        return Estimate(mean, None, floor)
    without = (values.sum() - sums) / (len(values) - counts)
    return Estimate(mean, leave_one_out_interval(mean, without), floor)
