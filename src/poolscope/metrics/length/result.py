"""What the profile by length returns: every statistic of every bin, the slope, and what it means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.files import write_json
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.results import plain
from poolscope.verdicts import Level, Verdict


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


STATISTICS = tuple(part.name for part in fields(BinProfile) if part.type == "Estimate")


@dataclass(frozen=True)
class LengthProfile:
    """Do long texts look alike? Statistics by length bin, the slope per doubling, and a verdict.

    `slope`: change of the mean pairwise cosine per doubling of the length, the least-squares line through the bins
    weighted by their texts (None where there is a single bin, or all lengths are the same). `slope_interval` is over
    texts; `slope_floor` is the slope that 97.5 % of the shuffles stay below. `doublings` is log₂ of the length of the
    longest tenth over that of the shortest (quantiles 0.9 and 0.1); `cosine_deviation` the standard deviation of the
    cosine over all pairs; `assignment` the bin of every text.
    """

    bins: tuple[BinProfile, ...]
    texts: int
    dimension: int
    unit: str
    notes: tuple[str, ...]
    mean_cosine: float
    cosine_deviation: float
    doublings: float
    slope: float | None
    slope_interval: Interval | None
    slope_floor: float | None
    thresholds: tuple[float, float]
    assignment: NDArray[np.int64] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        slope = "no slope" if self.slope is None else f"slope {self.slope:+.4f} per doubling"
        return f"LengthProfile({self.texts:,} texts in {len(self.bins)} bins, {slope}: {self.verdict.level})"

    def rise(self, slope: float) -> float:
        """What a slope adds up to from the shortest to the longest tenth of the texts, in standard deviations of the
        cosine over all pairs; 0 where all pairs have one cosine.
        """
        return slope * self.doublings / self.cosine_deviation if self.cosine_deviation > 0 else 0.0

    @cached_property
    def verdict(self) -> Verdict:
        """`watch` or `repair` if the cosine rises with length beyond chance and by enough to matter; otherwise `ok`."""
        if self.slope is None or self.slope_interval is None or self.slope_floor is None:
            why = "all texts fall into one length bin" if len(self.bins) == 1 else "too few texts in the bins"
            return Verdict("ok", f"Length cannot be judged here: {why}, so there is no slope to see.")
        level, sentence = self._judge(self.slope, self.slope_interval, self.slope_floor)
        return Verdict(level, sentence, self.slope, self.slope_interval, self.slope_floor, self._evidence())

    def _judge(self, slope: float, interval: Interval, floor: float) -> tuple[Level, str]:
        rise, certain = self.rise(slope), self.rise(interval.low)
        watch, repair = self.thresholds
        if interval.high < 0:
            return (
                "ok",
                f"Long texts do not look more alike than short ones; they look less so ({slope:+.3f} per doubling).",
            )
        if interval.low <= 0 or slope <= floor:
            return (
                "ok",
                f"Long texts look no more alike than short ones (slope {slope:+.3f} per doubling, within chance).",
            )
        grows = f"the mean cosine grows by {slope:.3f} per doubling of length"
        if slope < 0.0005:  # in a narrow cone, where all cosines are near 1
            grows = f"the mean cosine grows by {slope:.1e} per doubling of length"
        size = f"{rise:.2g} standard deviations of the cosine from the shortest to the longest tenth"
        if rise < watch:
            return "ok", f"Long texts look a little more alike: {grows}, only {size}."
        level: Level = "repair" if certain >= repair else "watch"
        return level, f"Long texts look more alike: {grows}, {size}."

    def _evidence(self) -> tuple[str, ...]:
        found = []
        shown = [row for row in self.bins if row.cosine.value is not None]
        if len(shown) > 1:
            first, last = shown[0], shown[-1]
            found.append(
                f"Mean pairwise cosine {first.cosine.value:.3f} at {first.label} {self.unit}, "
                f"{last.cosine.value:.3f} at {last.label}; lengths shuffled: {last.cosine.floor:.3f}."
            )
            found.append(
                f"Mean distance from the centre {first.distance.value:.3f} and {last.distance.value:.3f}; lengths "
                f"shuffled: {last.distance.floor:.3f}."
            )
        return (*found, *self.notes)

    def table(self) -> list[dict[str, Any]]:
        """One row a bin, plain types: the value, interval (low, high) and floor of every statistic."""
        rows = []
        for row in self.bins:
            cells: dict[str, Any] = {
                "bin": row.label,
                "texts": row.texts,
                "mean_length": row.mean_length,
            }
            for name in STATISTICS:
                cells |= estimate_cells(name, getattr(row, name))
            rows.append(cells)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Everything but the bin of every text."""
        names = [name for name in self.__dataclass_fields__ if name != "assignment"]
        return {**{name: plain(getattr(self, name)) for name in names}, "verdict": self.verdict.to_dict()}

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict()` as JSON, atomically."""
        write_json(path, self.to_dict())


def estimate_cells(name: str, estimate: Estimate) -> dict[str, float | None]:
    """An estimate as the cells of a table: value, low, high and, where there is one, floor."""
    interval = estimate.interval
    cells = {
        name: estimate.value,
        f"{name}_low": None if interval is None else interval.low,
        f"{name}_high": None if interval is None else interval.high,
    }
    return cells if estimate.floor is None else {**cells, f"{name}_floor": estimate.floor}
