"""A temperature for each bin of lengths, chosen from measured quality, and only where the gain is beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError
from poolscope.metrics.length.bins import length_bins
from poolscope.numbers.intervals import Interval, bootstrap_interval
from poolscope.repairs.temperature.rules import Steps

_DRAWS = 10_000  # the levels below are far out in the tails


@dataclass(frozen=True)
class StepChoice:
    """One bin: its texts, the temperature with the best mean, what it gains over τ = 1, and what was chosen."""

    label: str
    texts: int
    best: float
    gain: float
    interval: Interval | None
    chosen: float


@dataclass(frozen=True)
class StepFit:
    """The fitted rule with the evidence for each of its steps."""

    rule: Steps
    bins: tuple[StepChoice, ...]
    notes: tuple[str, ...] = ()


def fit_steps(
    lengths: ArrayLike,
    scores: ArrayLike,
    *,
    temperatures: Sequence[float],
    bins: int | Sequence[float] | None = None,
    level: float = 0.95,
) -> StepFit:
    """The best temperature for each bin of lengths.

    lengths (texts): tokens of each text; scores (texts × temperatures): its quality at each temperature, higher is
    better, one column must belong to τ = 1. A bin takes the temperature with the highest mean if the interval of its
    paired gain over τ = 1 lies above 0 (bootstrap over texts; the level is raised for the number of temperatures that
    competed in all bins), and otherwise stays at 1. Test the rule on texts that it was not fitted on.

    >>> lengths = np.repeat([10, 400], 40)
    >>> scores = np.column_stack([lengths * 0.0 + 1, np.where(lengths > 100, 2.0, 0.0)])
    >>> fit_steps(lengths, scores, temperatures=[1.0, 0.8], bins=[0, 100, 500]).rule
    Steps(edges=(100,), temperatures=(1.0, 0.8))
    """
    n, values, plain = _checked(lengths, scores, temperatures)
    found = length_bins(n, bins)
    competed = (len(temperatures) - 1) * len(found)
    raised = 1 - (1 - level) / max(competed, 1)
    choices = []
    for k, label in enumerate(found.labels):
        inside = values[found.of == k]
        best = int(inside.mean(axis=0).argmax()) if len(inside) else plain
        gains = inside[:, best] - inside[:, plain]
        interval = None if best == plain else bootstrap_interval(gains, level=raised, draws=_DRAWS)
        convincing = interval is not None and interval.low > 0
        choices.append(
            StepChoice(
                label=label,
                texts=len(inside),
                best=float(temperatures[best]),
                gain=float(gains.mean()) if len(gains) else 0.0,
                interval=interval,
                chosen=float(temperatures[best]) if convincing else 1.0,
            )
        )
    edges = tuple(int(np.ceil(edge)) for edge in found.edges[1:-1])
    return StepFit(Steps(edges, tuple(choice.chosen for choice in choices)), tuple(choices), found.notes())


def _checked(
    lengths: ArrayLike, scores: ArrayLike, temperatures: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    n, values = np.asarray(lengths), np.asarray(scores, dtype=np.float64)
    if n.ndim != 1 or not len(n) or values.shape != (len(n), len(temperatures)):
        raise InputError(
            f"scores: received the shape {values.shape} for {n.size} lengths and {len(temperatures)} temperatures; "
            f"needed: a row for every text and a column for every temperature."
        )
    if not np.issubdtype(n.dtype, np.integer) or n.min() < 1 or not np.isfinite(values).all():
        raise InputError(
            "lengths and scores: received lengths below 1 or not whole, or scores that are not finite; needed: tokens "
            "of each text and a finite score. Leave out the texts without a score."
        )
    if list(temperatures).count(1) != 1:
        raise InputError(
            f"temperatures: received {list(temperatures)}; τ = 1 must be among them once, to compare with."
        )
    return n.astype(np.int64), values, list(temperatures).index(1)
