"""Attention sinks: states in which the first token is many times as long as the others, and decides every mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.metrics.layers.anatomy import cloud_moments

if TYPE_CHECKING:
    from poolscope.metrics.layers.result import LayersResult

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# From this many times the median length of the others on, the first token is called a sink.
SINK_TIMES = 5.0


def first_token(rows: NDArray[Any], offsets: Index) -> tuple[Array, Array]:
    """Of every text: ‖x₁‖ over the median ‖xᵢ‖ of the other tokens, and S/‖μ‖² without x₁; NaN for one token.

    rows: tokens of texts end to end (Σ n × d), parted at `offsets`.

    >>> times, ratio = first_token(np.array([[6.0, 0.0], [2.0, 0.0], [4.0, 0.0], [1.0, 0.0]]), np.array([0, 3, 4]))
    >>> times.tolist(), ratio.round(6).tolist()
    ([2.0, nan], [0.111111, nan])
    """
    lengths = np.diff(offsets)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    times, ratios = (np.full(len(lengths), np.nan) for _ in range(2))
    several = np.flatnonzero(lengths > 1)
    for text in several.tolist():
        others = float(np.median(norms[offsets[text] + 1 : offsets[text + 1]]))
        times[text] = norms[offsets[text]] / others if others > 0 else np.nan
    if len(several):
        first = np.zeros(len(rows), dtype=bool)
        first[offsets[:-1]] = True  # of a single token too, which has nothing left
        moments = cloud_moments(rows[~first], np.concatenate([[0], np.cumsum(lengths[several] - 1)]))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios[several] = np.where(moments.mean_square > 0, moments.ratio, np.nan)
    return times, ratios


def without_first(clouds: TokenClouds) -> TokenClouds | None:
    """The clouds without their first tokens; texts of one token are left out. None for fewer than two others."""
    longer = [cloud[1:] for cloud in clouds if len(cloud) > 1]
    return TokenClouds.from_arrays(longer) if len(longer) > 1 else None


@dataclass(frozen=True)
class Sink:
    """A state whose first token is a sink: `times` is the median over texts of its length beside the others.

    `texts` is the share of texts in which it is one. `ratio` and `ratio_without` are the mean S/‖μ‖² with that token
    and without; `socm` and `socm_without` the mean SOCM (None where it was not measured).
    """

    state: str
    times: float
    texts: float
    ratio: float
    ratio_without: float
    socm: float | None
    socm_without: float | None


def sinks(result: LayersResult) -> list[Sink]:
    """The states in which the first token is a sink in most texts."""
    times = result["first_norm"]
    measured = [None] * len(result.states) if result.socm is None else list(result.socm)
    ratios, others = (result.means(name).mean for name in ("concentration_ratio", "concentration_without_first"))
    rows = []
    for k in np.flatnonzero(sink_states(times)).tolist():
        defined, state = times[np.isfinite(times[:, k]), k], measured[k]
        with_it, without = (None, None) if state is None else (state.mean, state.without_first)
        share = float((defined >= SINK_TIMES).mean())
        numbers = (float(np.median(defined)), share, float(ratios[k]), float(others[k]))
        rows.append(Sink(result.states[k], *numbers, with_it, without))
    return rows


def sink_states(times: Array) -> NDArray[np.bool_]:
    """In which states (columns) is the first token a sink in most texts (rows)?"""
    defined = np.isfinite(times)
    high = (np.where(defined, times, 0.0) >= SINK_TIMES).sum(axis=0)
    return np.asarray((defined.sum(axis=0) > 0) & (2 * high > defined.sum(axis=0)))
