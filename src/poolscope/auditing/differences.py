"""Differences between two audits of the same corpus, paired wherever their tables hold what both measured.

What was measured text by text, pair by pair or query by query is in the tables of an audit, so that what both models
share cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.evaluation import compare_scores
from poolscope.metrics.hubs import skewness_draws
from poolscope.metrics.socm.score import trace_scores
from poolscope.numbers.intervals import (
    Interval,
    bootstrap_interval,
    bootstrap_sums,
    dyadic_interval,
    jackknife_interval,
    percentile_interval,
)

NOT_PAIRED = "not paired: both intervals as if independent"
OTHER_SHARE = "no interval: cut-offs for different shares of false hits"


@dataclass(frozen=True)
class Record:
    """One audit as compared: its name, the content of its `audit.json`, and its tables by name."""

    name: str
    document: Mapping[str, Any] = field(repr=False)
    read: Callable[[str], pa.Table | None] = field(repr=False)

    @property
    def answers(self) -> Sequence[Mapping[str, Any]]:
        """The answers as they stand in `audit.json`."""
        return list(self.document["answers"])

    @cached_property
    def numbers(self) -> Mapping[str, float]:
        """The flat numbers."""
        return dict(self.document["numbers"])

    def column(self, table: str, name: str) -> Any:
        """A column of a table as an array, or None where the audit has no such table."""
        found = self.read(table)
        return None if found is None else found[name].to_numpy()


@dataclass(frozen=True)
class DifferenceRow:
    """Second minus first of one number, with its interval and how that was found (None: no interval can be given)."""

    number: str
    first: str
    second: str
    first_value: float
    second_value: float
    difference: float
    interval: Interval | None
    how: str


def differences(first: Record, second: Record) -> list[DifferenceRow]:
    """Second minus first for every number that both audits have."""
    rows = []
    for name, paired in PAIRED.items():
        if name not in first.numbers or name not in second.numbers:
            continue
        values = (first.numbers[name], second.numbers[name])
        found = paired(first, second)
        interval, how = found if found is not None else _independent(first, second, name)
        rows.append(DifferenceRow(name, first.name, second.name, *values, values[1] - values[0], interval, how))
    return rows


Paired = tuple[Interval | None, str]


def _mean_cosine(first: Record, second: Record) -> Paired | None:
    """Mean cosine: a mean over pairs of texts, so texts are left out one at a time, in both at once."""
    sides = [record.column("texts", "mean_cosine") for record in (first, second)]
    if any(side is None for side in sides):
        return None
    change = sides[1] - sides[0]
    change = change[~np.isnan(change)]  # texts that repeat an earlier one have none
    count = len(change)
    if count < 3:
        return None
    sums = change * (count - 1)
    interval = jackknife_interval([sums], [count - 1], float(sums.sum() / 2), count * (count - 1) // 2)
    return interval, "paired over texts (jackknife)"


def _cut_off(first: Record, second: Record) -> Paired | None:
    """Cut-offs for different shares of false hits differ by what was asked: no interval tells of the models then."""
    shares = [record.document["thresholds"].get("false_hits") for record in (first, second)]
    return (None, OTHER_SHARE) if shares[0] != shares[1] else None


def _concentration(first: Record, second: Record) -> Paired | None:
    """Mean over texts of the concentration ratio."""
    sides = [record.column("texts", "concentration_ratio") for record in (first, second)]
    if any(side is None for side in sides):
        return None
    return bootstrap_interval(sides[1] - sides[0]), "paired over texts (bootstrap)"


def _cut(first: Record, second: Record) -> Paired | None:
    """Share of the tokens that was cut: both ratios of sums over the same drawn texts."""
    columns = []
    for record in (first, second):
        kept, cut = record.column("truncation", "tokens"), record.column("truncation", "cut")
        if kept is None or len(kept) < 2:
            return None
        columns += [cut, kept + cut]
    sums = bootstrap_sums(np.stack(columns, axis=1).astype(np.float64))
    return percentile_interval(sums[:, 2] / sums[:, 3] - sums[:, 0] / sums[:, 1]), "paired over texts (bootstrap)"


def _socm(first: Record, second: Record) -> Paired | None:
    """SOCM over the same pairs, clustered by text."""
    left, right = first.read("pairs"), second.read("pairs")
    if left is None or right is None or not all(left[name].equals(right[name]) for name in ("i", "j")):
        return None
    i, j = (left[name].to_numpy() for name in ("i", "j"))
    values = right["socm"].to_numpy() - left["socm"].to_numpy()
    return dyadic_interval(values, i, j, crossed=False), "paired over the same pairs (clustered by text)"


def _socm_trace(first: Record, second: Record) -> Paired | None:
    """SOCM on the scale that no model breaks, over the same pairs, clustered by text."""
    left, right = first.read("pairs"), second.read("pairs")
    if left is None or right is None or not all(left[name].equals(right[name]) for name in ("i", "j")):
        return None
    traces = [record.column("texts", "concentration_ratio") for record in (first, second)]
    if any(side is None for side in traces):
        return None
    i, j = (left[name].to_numpy() for name in ("i", "j"))
    scores = [
        trace_scores(pairs["d_mu"].to_numpy(), pairs["d_sigma"].to_numpy(), side[i] + side[j])
        for pairs, side in zip((left, right), traces, strict=True)
    ]
    return dyadic_interval(scores[1] - scores[0], i, j, crossed=False), "paired over the same pairs (clustered by text)"


def _split_half(first: Record, second: Record) -> Paired | None:
    """nDCG@10 of split-half self-retrieval, query by query."""
    left, right = first.read("mean_removal"), second.read("mean_removal")
    if left is None or right is None or not left["query"].equals(right["query"]):
        return None
    return compare_scores(*(side["before"].to_numpy() for side in (left, right))).interval, (
        "paired over queries (bootstrap)"
    )


def _hubs(first: Record, second: Record) -> Paired | None:
    """Skewness of the times found, both for the same drawn texts."""
    sides = []
    for record in (first, second):
        table = record.read("hubs")
        if table is None:
            return None
        sides.append(table.sort_by("id"))
    if not sides[0]["id"].equals(sides[1]["id"]) or len(sides[0]) < 3:
        return None
    counts = [side["times_found"].to_numpy() for side in sides]
    draws = [skewness_draws(values) for values in counts]
    return percentile_interval(draws[1] - draws[0]), "paired over texts (bootstrap)"


def _independent(first: Record, second: Record, name: str) -> Paired:
    """From the two intervals, as if the audits had nothing in common: too wide rather than too narrow."""
    intervals = [found for record in (first, second) if (found := _interval(record, name)) is not None]
    if len(intervals) < 2:
        return None, "no interval: a number without one"
    values = [record.numbers[name] for record in (first, second)]
    below = [value - found["low"] for value, found in zip(values, intervals, strict=True)]
    above = [found["high"] - value for value, found in zip(values, intervals, strict=True)]
    # The difference is least where the second is low and the first high: each arm has its own reach.
    low = values[1] - values[0] - float(np.hypot(below[1], above[0]))
    high = values[1] - values[0] + float(np.hypot(above[1], below[0]))
    return Interval(low, high, 0.95, "the population of texts", NOT_PAIRED), NOT_PAIRED


def _interval(record: Record, name: str) -> Mapping[str, float] | None:
    """The interval that stands beside a number in its answer."""
    return next(
        (n[f"{name}_interval"] for answer in record.answers if f"{name}_interval" in (n := answer["numbers"])), None
    )


def _nothing(first: Record, second: Record) -> Paired | None:
    return None


# The numbers that are compared, and how each is paired.
PAIRED: Mapping[str, Callable[[Record, Record], Paired | None]] = {
    "anisotropy": _mean_cosine,
    "cut_off": _cut_off,
    "split_half": _split_half,
    "share_cut": _cut,
    "short_share": _nothing,
    "length_slope": _nothing,
    "position_drop": _nothing,
    "socm": _socm,
    "socm_trace": _socm_trace,
    "socm_neighbours": _nothing,
    "concentration_ratio": _concentration,
    "hub_skewness": _hubs,
}
