"""Attention sinks: states in which the first token is many times as long as the others, and decides every mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds

if TYPE_CHECKING:
    from poolscope.metrics.layers.result import LayersResult, StateSocm

Array = NDArray[np.float64]

# From this many times the median length of the others on, the first token is called a sink.
SINK_TIMES = 5.0


def without_first(clouds: TokenClouds) -> TokenClouds | None:
    """The clouds without their first tokens; texts of one token are left out. None for fewer than two others."""
    longer = [cloud[1:] for cloud in clouds if len(cloud) > 1]
    return TokenClouds.from_arrays(longer) if len(longer) > 1 else None


@dataclass(frozen=True)
class Sink:
    """A state whose first token is a sink: `times` is the median over texts of its length beside the others.

    `texts` is the share of texts in which it is one. The numbers stand with that token and (`…_without`) without it:
    the mean S/‖μ‖² (which is tr Σ at unit mean), the mean cosine of the tokens, r and C of the layer that gave the
    state (None for state 0 and for a final norm), and of pairs the mean SOCM, d_μ and d_Σ and the share of texts with
    tr Σ > 2 (None where they were not measured). λ and σₐ are of attention, which sees the first token always.
    """

    state: str
    times: float
    texts: float
    ratio: float
    ratio_without: float
    cosine: float
    cosine_without: float
    r: float | None
    r_without: float | None
    C: float | None
    C_without: float | None
    socm: float | None
    socm_without: float | None
    mean_distance: float | None
    mean_distance_without: float | None
    covariance_distance: float | None
    covariance_distance_without: float | None
    above_trace: float | None
    above_trace_without: float | None

    def pairs(self) -> list[tuple[str, float, float]]:
        """Every number that there is, by its symbol: with the first token, and without it."""
        numbers = {
            "S/‖μ‖²": (self.ratio, self.ratio_without),
            "cosine": (self.cosine, self.cosine_without),
            "r": (self.r, self.r_without),
            "C": (self.C, self.C_without),
            "SOCM": (self.socm, self.socm_without),
            "d_μ": (self.mean_distance, self.mean_distance_without),
            "d_Σ": (self.covariance_distance, self.covariance_distance_without),
            "texts with tr Σ > 2": (self.above_trace, self.above_trace_without),
        }
        return [(name, a, b) for name, (a, b) in numbers.items() if a is not None and b is not None]


def sinks(result: LayersResult) -> list[Sink]:
    """The states in which the first token is a sink in most texts."""
    times = result["first_norm"]
    of_states, of_layers = ("concentration_ratio", "concentration_without_first", "cosine", "cosine_without_first"), (
        "r", "r_without_first", "C", "C_without_first",
    )  # fmt: skip
    means = {name: result.means(name).mean for name in (*of_states, *of_layers)}
    rows = []
    for k in np.flatnonzero(sink_states(times)).tolist():
        defined = times[np.isfinite(times[:, k]), k]
        given = 1 <= k <= result.layers
        rows.append(
            Sink(
                result.states[k],
                float(np.median(defined)),
                float((defined >= SINK_TIMES).mean()),
                *(float(means[name][k]) for name in of_states),
                *(float(means[name][k - 1]) if given else None for name in of_layers),
                *_of_pairs(None if result.socm is None else result.socm[k]),
            )
        )
    return rows


def _of_pairs(state: StateSocm | None) -> tuple[float | None, ...]:
    """SOCM, d_μ, d_Σ and the share above the trace, each with the first tokens and without."""
    if state is None:
        return (None,) * 8
    rest = state.without_first or (None,) * 4
    whole = (state.mean, state.mean_distance, state.covariance_distance, state.above_trace)
    return tuple(number for pair in zip(whole, rest, strict=True) for number in pair)


def sink_states(times: Array) -> NDArray[np.bool_]:
    """In which states (columns) is the first token a sink in most texts (rows)?"""
    defined = np.isfinite(times)
    high = (np.where(defined, times, 0.0) >= SINK_TIMES).sum(axis=0)
    return np.asarray((defined.sum(axis=0) > 0) & (2 * high > defined.sum(axis=0)))
