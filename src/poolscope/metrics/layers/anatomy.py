"""The quantities of a layer, one short function each: what attention and the rest do to the spread of a cloud.

Rows of several texts lie end to end: text k is `rows[offsets[k]:offsets[k+1]]`. P = I − 11ᵀ/n centres the n tokens of a
text. All sums run in float64. Sinks are states in which the first token is many times as long as the others, and
decides every mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds

if TYPE_CHECKING:
    from poolscope.metrics.layers.result import LayersResult, StateSocm

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# From this many times the median length of the others on, the first token is called a sink.
SINK_TIMES = 5.0
# Below this share of what it is taken from, a difference of two sums is computed anew from vectors that are centred.
_CANCELLED = 1e-4


@dataclass(frozen=True)
class CloudMoments:
    """Per text: spread S(X) = tr Σ(X), and squared norm of the mean ‖μ(X)‖²."""

    spread: Array
    mean_square: Array

    @property
    def ratio(self) -> Array:
        """Concentration ratio S(X)/‖μ(X)‖²; infinite or NaN for a zero mean."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.spread / self.mean_square


def cloud_moments(rows: NDArray[Any], offsets: Index) -> CloudMoments:
    """Spread and squared mean of every text; a single token has spread 0 exactly.

    >>> cloud_moments(np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 5.0]]), np.array([0, 2, 3]))
    CloudMoments(spread=array([1., 0.]), mean_square=array([ 4., 50.]))
    """
    rows, lengths = rows.astype(np.float64), np.diff(offsets)
    means = np.add.reduceat(rows, offsets[:-1]) / lengths[:, None]
    rows -= np.repeat(means, lengths, axis=0)
    squares = np.einsum("ij,ij->i", rows, rows)
    return CloudMoments(np.add.reduceat(squares, offsets[:-1]) / lengths, np.einsum("ij,ij->i", means, means))


@dataclass(frozen=True)
class CloudNumbers:
    """Per text: moments; mean of the full n × n cosine matrix, ‖Σ xᵢ/‖xᵢ‖‖²/n² (NaN where a token is the zero vector);
    ‖x₁‖ over the median ‖xᵢ‖ of the other tokens; and moments and cosine of these others. NaN where there are none.
    """

    moments: CloudMoments
    others: CloudMoments
    cosine: Array
    others_cosine: Array
    first_norm: Array


def cloud_numbers(rows: NDArray[Any], offsets: Index, *, directions: bool = True) -> CloudNumbers:
    """All that is asked of the clouds of one state, text by text, so that each stays in the cache meanwhile.

    Without `directions`, the moments alone.

    >>> found = cloud_numbers(np.array([[6.0, 0.0], [2.0, 0.0], [4.0, 0.0], [1.0, 1.0]]), np.array([0, 3, 4]))
    >>> found.first_norm.tolist(), found.cosine.round(12).tolist(), found.others.ratio.round(6).tolist()
    ([2.0, nan], [1.0, 1.0], [0.111111, nan])
    """
    numbers = np.full((7, len(offsets) - 1), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        for text, (start, stop) in enumerate(pairwise(offsets.tolist())):
            X = rows[start:stop].astype(np.float64)
            squares = np.einsum("ij,ij->i", X, X)
            if directions:
                numbers[4:, text] = _directions(X, np.sqrt(squares))
            numbers[:4, text] = _moments(X, float(squares.sum()))
    return CloudNumbers(CloudMoments(*numbers[:2]), CloudMoments(*numbers[2:4]), *numbers[4:])


def _directions(X: Array, norms: Array) -> tuple[float, float, float]:
    """Mean cosine of the tokens, that of all but the first, and the length of the first beside theirs."""
    n, units = len(X), 1 / norms
    total = units @ X
    if n == 1:
        return float(total @ total), np.nan, np.nan
    others = total - units[0] * X[0]
    middle = float(np.median(norms[1:]))
    times = float(norms[0]) / middle if middle > 0 else np.nan
    return float(total @ total) / n**2, float(others @ others) / (n - 1) ** 2, times


def _moments(X: Array, squares: float) -> tuple[float, float, float, float]:
    """Spread and squared mean of the tokens, and of all but the first; `squares` is the sum of all ‖xᵢ‖²."""
    n = len(X)
    mean = np.full(n, 1 / n) @ X
    length = float(mean @ mean)
    if n == 1:
        return 0.0, length, np.nan, np.nan
    total = squares - n * length
    if not total > _CANCELLED * squares:
        total = float(np.vdot(X - mean, X - mean))
    apart = (X[0] - mean) / (n - 1)  # the others' mean is beyond that of all, on the other side
    rest = total - (n - 1) * n * float(apart @ apart)
    if not rest > _CANCELLED * total:
        centred = X[1:] - (mean - apart)
        rest = float(np.vdot(centred, centred)) if n > 2 else 0.0
    others = float((mean - apart) @ (mean - apart))
    return total / n, length, rest / (n - 1), others if others > 0 else np.nan


def centred_attention(A: NDArray[Any], n: int) -> NDArray[Any]:
    """PA of every head (heads × n × n) from padded weights: only the first n rows and columns count."""
    A = A[:, :n, :n]
    return np.asarray(A - np.full((1, n), 1 / n, dtype=A.dtype) @ A)  # the mean as a product: several times as fast


def squared_norms(M: NDArray[Any]) -> Array:
    """‖M‖_F² of every matrix of a stack."""
    flat = M.reshape(len(M), -1)
    return np.asarray((flat[:, None, :] @ flat[:, :, None])[:, 0, 0], dtype=np.float64)


def contraction(norms: Array, squares: Array, n: int) -> Array:
    """λ_h = ‖W_V W_O‖₂² · ‖PA‖_F²/(n − 1) of every head; 0 for one token.

    What a head does to the spread of tokens whose centred vectors have no preferred direction among the tokens;
    below 1 it concentrates.

    >>> contraction(np.array([2.0]), np.array([0.5]), 3), contraction(np.array([2.0]), np.array([0.0]), 1)
    (array([1.]), array([0.]))
    """
    return np.zeros_like(squares) if n == 1 else norms**2 * squares / (n - 1)


@dataclass(frozen=True)
class LayerSums:
    """What the quantities of a layer are made of, per text and layer (texts × layers, λ and σₐ × heads).

    `spread` and `mean_square` by letter: H, U, B (the output of W_O), Z, Y, X. `norms` and `value_norms` (layers ×
    heads) are ‖W_V W_O‖₂ and ‖W_V‖₂. `linear` (layers): is Z = B, with no norm between? `precision`: of the numbers
    that the model computes with, 1.2e-7 in float32.
    """

    spread: Mapping[str, Array]
    mean_square: Mapping[str, Array]
    contraction: Array
    sigma: Array
    norms: Array
    value_norms: Array
    linear: NDArray[np.bool_]
    precision: float

    def quantities(self) -> dict[str, Array]:
        """r, C, spreads, both slacks of theorem 1, and the growth of the high-frequency part with its bounds.

        C and the growths are ratios of spreads, and NaN where one of them is not beyond rounding.
        """
        S, sigma = self.spread, np.nan_to_num(self.sigma)
        seen = {letter: np.where(self._varies(letter), S[letter], np.nan) for letter in S}
        stretch = (sigma * np.nan_to_num(self.norms)).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = seen["X"] / self.mean_square["X"]
            before = seen["Y"] / self.mean_square["Y"]
            heads = np.isfinite(self.sigma).sum(axis=2)
            published = sigma.max(axis=2) * heads * np.nan_to_num(self.value_norms).max(axis=1)
            return {
                "r": S["H"] / self.mean_square["Y"],
                "C": reached / before,
                "spread_input": S["H"],
                "spread_attention_input": S["U"],
                "spread_branch": S["Z"],
                "slack": self._slack(np.sqrt(np.nan_to_num(self.contraction)).sum(axis=2)),
                "slack_proven": self._slack(stretch),
                "high_frequency": np.log(seen["X"] / seen["H"]) / 2,
                "high_frequency_branch": np.log(seen["B"] / seen["U"]) / 2,
                "high_frequency_bound": _finite_log(stretch),
                "high_frequency_published": _finite_log(published),
            }

    def _slack(self, stretch: Array) -> Array:
        """How far S(Y) stays below (√S(H) + stretch·√S(U))², and so the ratio of X below its bound.

        The ratio of X is C·S(Y)/‖μ(Y)‖² and the bound C·(√S(H) + stretch·√S(U))²/‖μ(Y)‖²: C and ‖μ(Y)‖² cancel. What
        rounding can add to the deviations is granted. NaN for one token, where all tokens are one but for rounding, and
        where Z is not linear in U.
        """
        S = self.spread
        slack = (np.sqrt(S["H"]) + stretch * np.sqrt(S["U"]) + self._rounding("Y")) ** 2 / S["Y"]
        return np.where(self.linear & self._varies("Y"), slack, np.nan)

    def _varies(self, letter: str) -> NDArray[np.bool_]:
        """Do the tokens of a text differ by more than rounding?"""
        return np.asarray(np.sqrt(self.spread[letter]) > self._rounding(letter))

    def _rounding(self, letter: str) -> Array:
        """What rounding can add to √S: a few last bits of vectors of the size of the tokens."""
        return np.asarray(4 * self.precision * np.sqrt(self.spread[letter] + self.mean_square[letter]))


def _finite_log(values: Array) -> Array:
    return np.log(np.where(values > 0, values, np.nan))


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
