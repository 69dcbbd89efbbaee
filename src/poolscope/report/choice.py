"""Which pairs of a corpus a page lets the reader look at: the worst of each list, and some at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.result import PairColumns, SocmResult

# What a pair was chosen for; a pair can have been chosen for both of the first two.
NEIGHBOUR, WORST, RANDOM = 1, 2, 4


@dataclass(frozen=True)
class ChosenPairs:
    """The pairs, highest SOCM first; of each what it was chosen for (a sum of NEIGHBOUR, WORST, RANDOM), in words too.

    `kinds` names the three reasons, and `thinning` says in one sentence how many pairs there are of each.
    """

    pairs: PairColumns
    reasons: NDArray[np.int64]
    kinds: tuple[str, str, str]
    thinning: str


@dataclass(frozen=True)
class Sizes:
    """How many pairs of each kind are wanted."""

    worst: int
    nearest: int
    random: int


def choose_pairs(
    clouds: TokenClouds, result: SocmResult, neighbours: SocmResult | None, *, sizes: Sizes, seed: int
) -> ChosenPairs:
    """The pairs of highest SOCM of `result` and of `neighbours` (computed here if None), and others at random."""
    formula = {name: result.provenance["settings"][name] for name in ("scale", "a", "b", "eps")}
    drawn = 4 * (sizes.worst + sizes.nearest + sizes.random)
    nearest = neighbours or socm(clouds, neighbours=1, **formula)
    others = result if result.pairs is not None else socm(clouds, sample=drawn, seed=seed, **formula)
    if nearest.pairs is None or others.pairs is None:
        raise InputError("neighbours: received a result that kept no pairs. Compute it with a larger keep.")
    found = _Found()
    found.add(nearest.pairs.ranked(max(sizes.nearest, 1)), sizes.nearest, NEIGHBOUR)
    found.add((result.pairs or result.top).ranked(max(sizes.worst, 1)), sizes.worst, WORST)
    mixed = np.random.default_rng(seed).permutation(len(others.pairs.i))[:drawn]
    found.add(_rows(others.pairs, mixed), sizes.random, RANDOM)
    pairs, reasons = found.ordered()
    lists = (f"the {nearest.count:,} pairs of nearest neighbours", _listed(result))
    kinds = (f"highest SOCM among {lists[0]}", f"highest SOCM of {lists[1]}", "drawn at random")
    return ChosenPairs(pairs, reasons, kinds, _thinning(reasons, lists))


def _listed(result: SocmResult) -> str:
    words = {"all pairs": "all {:,} pairs", "random sample of pairs": "the {:,} sampled pairs"}
    return words.get(result.kind, "the {:,} " + result.kind).format(result.count)


class _Found:
    """Pairs by the places of their texts, each once, with all reasons for which it was chosen."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, int], tuple[float, ...]] = {}
        self._reasons: dict[tuple[int, int], int] = {}

    def add(self, columns: PairColumns, size: int, reason: int) -> None:
        """The first `size` pairs; a random one only if it was not chosen for anything else."""
        added = 0
        for row in zip(*(getattr(columns, name).tolist() for name in _COLUMNS), strict=True):
            if added == size:
                break
            i, j = key = (min(row[:2]), max(row[:2]))
            known = self._reasons.get(key, 0)
            if i == j or known & reason or (reason == RANDOM and known):
                continue
            self._values.setdefault(key, row)
            self._reasons[key] = known | reason
            added += 1

    def ordered(self) -> tuple[PairColumns, NDArray[np.int64]]:
        keys = sorted(self._values, key=lambda key: -self._values[key][4])
        table = np.array([self._values[key] for key in keys]).reshape(-1, len(_COLUMNS)).T
        i, j = table[:2].astype(np.int64)
        return PairColumns(i, j, *table[2:]), np.array([self._reasons[key] for key in keys], dtype=np.int64)


_COLUMNS = ("i", "j", "d_mu", "d_sigma", "socm")


def _rows(columns: PairColumns, rows: NDArray[np.int64]) -> PairColumns:
    return PairColumns(*(getattr(columns, name)[rows] for name in _COLUMNS))


def _thinning(reasons: NDArray[np.int64], lists: tuple[str, str]) -> str:
    near, worst, random = (int(((reasons & reason) > 0).sum()) for reason in (NEIGHBOUR, WORST, RANDOM))
    both = int(((reasons & (NEIGHBOUR | WORST)) == (NEIGHBOUR | WORST)).sum())
    twice = f" ({both:,} of them are in both lists)" if both else ""
    return (
        f"{len(reasons):,} pairs are shown: the {near:,} of highest SOCM among {lists[0]}, the {worst:,} of highest "
        f"SOCM of {lists[1]}{twice}, and {random:,} more, drawn at random."
    )
