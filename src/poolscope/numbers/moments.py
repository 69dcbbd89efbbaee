"""First and second moments of token clouds. numpy in, numpy out; float64 wherever it decides accuracy.

A cloud is `X` (n tokens × d dimensions); `weights` (n numbers ≥ 0, scaled here to sum 1) replace the uniform
1/n for weighted pooling. All functions refuse clouds that are empty or hold NaN or infinity.

A window of adjacent tokens is kept as its mean. What is lost under mean squared error is exact: the scatter Σ‖x − μ‖²
inside the windows, as a share of the scatter of the whole text. Windows of equal length are `window_bounds`; windows
that are cut where the vectors change are `Spans`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.numbers import Array, Index
from poolscope.numbers.streaming import Grouping, measure
from poolscope.surface import as_array

# The largest number of a cloud that can be squared and summed, and one of which a small mean can be squared, too.
_LARGEST, _SMALLEST = 1e150, 1e-100
# Clouds of equal length are taken together, up to so many numbers: few enough for the cache.
_STACK_SIZE = 50_000


def mean(cloud: Any, weights: ArrayLike | None = None) -> Array:
    """The pooled vector, μ(X) = Σ wᵢ xᵢ (d numbers).

    >>> mean([[1.0, 0.0], [3.0, 2.0]])
    array([2., 1.])
    """
    X, w = _checked(cloud, weights)
    return w @ X


def deviations(cloud: Any, weights: ArrayLike | None = None) -> Array:
    """The centred, weighted rows `√wᵢ (xᵢ − μ)` (n × d): a factor F of the covariance, Σ(X) = FᵀF.

    >>> deviations([[1.0, 0.0], [3.0, 0.0]]).round(4).tolist()
    [[-0.7071, 0.0], [0.7071, 0.0]]
    """
    X, w = _checked(cloud, weights)
    if np.abs(X).max() > _LARGEST:
        raise InputError(
            f"received token values up to {np.abs(X).max():.0e}, whose squares are beyond double precision; allowed is "
            f"up to {_LARGEST:.0e}. Divide the cloud by a constant; socm_pair and concentration_ratio need no scale."
        )
    return (X - w @ X) * np.sqrt(w)[:, None]


def spread(cloud: Any, weights: ArrayLike | None = None) -> float:
    """Total variance around the mean, S(X) = tr Σ(X) = Σ wᵢ ‖xᵢ − μ‖²; 0 for one token.

    >>> round(spread([[1.0, 0.0], [3.0, 0.0]]), 12)
    1.0
    """
    return float((deviations(cloud, weights) ** 2).sum())


def concentration_ratio(cloud: Any, weights: ArrayLike | None = None) -> float:
    """Spread relative to the pooled vector, S(X)/‖μ(X)‖²; small means concentrated.

    >>> round(concentration_ratio([[1.0, 0.0], [3.0, 0.0]]), 12)
    0.25
    """
    return _unit_mean(cloud, weights)[2]


def unit_mean_factor(cloud: Any, weights: ArrayLike | None = None) -> tuple[Array, Array]:
    """Unit mean and factor of the cloud scaled to ‖μ‖ = 1.

    Returns `(u, F)` with `u = μ/‖μ‖` (d) and `F` (n × d), rows `√wᵢ (xᵢ − μ)/‖μ‖`, so that the covariance of the
    scaled cloud is `FᵀF` and its trace `‖F‖²`. The covariance itself is never formed.

    >>> unit_mean_factor([[2.0, 1.0], [2.0, -1.0]])[1].round(4).tolist()
    [[0.0, 0.3536], [0.0, -0.3536]]
    """
    return _unit_mean(cloud, weights)[:2]


def unit_mean_factors(stack: Array, dtype: DTypeLike = np.float64) -> tuple[Array, Array, Array]:
    """`unit_mean_factor` of a stack of equal-length clouds (texts × n × d): unit means, factors and traces.

    dtype: of the token vectors before they became float64. Degenerate clouds (zero mean, NaN, infinity) have a trace of
    NaN or infinity, for the caller to find and name.
    """
    means, _, factors, traces = _unit_mean_stack(stack, dtype)
    return means, factors, traces


def _unit_mean_stack(stack: Array, dtype: DTypeLike) -> tuple[Array, Array, Array, Array]:
    """Unit means, norms of the means, factors and traces of a stack (texts × n × d)."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        stack, scales = _moderate(stack)
        centres = stack.mean(axis=1)
        norms = np.linalg.norm(centres, axis=1)
        factors = stack - centres[:, None]
        factors *= (1 / (norms * np.sqrt(stack.shape[1])))[:, None, None]
        traces = np.einsum("kij,kij->k", factors, factors)
        traces[traces >= _largest_trace(dtype, stack.shape[1])] = np.inf
        return centres / norms[:, None], norms * scales, factors, traces


def stacks_of_equal_length(lengths: NDArray[np.int64], dimension: int, size: int) -> Iterator[list[int]]:
    """Positions of texts of equal length, in lists whose clouds have about `size` numbers together."""
    order = np.argsort(lengths, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(same):
            step = max(1, size // (int(lengths[same[0]]) * dimension))
            yield from (same[start : start + step].tolist() for start in range(0, len(same), step))


def largest_trace(n: Any, *, stored: float, summed: float) -> Any:
    """The trace of a unit-mean cloud of n tokens (a number or an array) from which on its mean can be mere rounding.

    With r the root mean square of the token norms, the trace is r²/‖μ‖² − 1. Storing the vectors, with a precision of
    `stored`, moves their mean by up to about stored·r, and summing them to centre them by √n·summed·r.
    """
    return (4 * (stored + n**0.5 * summed)) ** -2


def within_text_cosine(cloud: Any) -> float:
    """Mean of the full n × n cosine matrix of the tokens, diagonal included: ‖Σ xᵢ/‖xᵢ‖‖²/n².

    1 for one token. A zero token vector has no direction and is an error.

    >>> within_text_cosine([[2.0, 0.0], [0.0, 5.0]])
    0.5
    """
    X, w = _checked(cloud, None)
    X = _moderate(X[None])[0][0]
    norms = np.linalg.norm(X, axis=1)
    if (norms == 0).any():
        raise DegenerateCloudError(
            f"token {int(np.flatnonzero(norms == 0)[0])} is the zero vector, which has no cosine. Leave it out."
        )
    direction = (w / norms) @ X
    return float(direction @ direction)


@dataclass(frozen=True)
class TextMoments:
    """What one pass over the clouds gives for every text: unit mean (texts × d), norm of the mean, and the trace of the
    covariance after scaling to unit mean, which is the concentration ratio.
    """

    unit_means: Array
    norms: Array
    traces: Array


def text_moments(clouds: TokenClouds, texts: NDArray[np.int64] | None = None) -> TextMoments:
    """Moments of every text, or of these positions. A text with NaN, infinity or a zero mean is an error that names it.

    >>> text_moments(TokenClouds.from_arrays([[[1.0, 1.0]], [[3.0, 0.0], [1.0, 0.0]]]), np.array([1])).norms
    array([2.])
    """
    chosen = np.arange(len(clouds)) if texts is None else texts
    means, norms, traces = np.empty((len(chosen), clouds.dimension)), np.empty(len(chosen)), np.empty(len(chosen))
    for places in stacks_of_equal_length(clouds.lengths[chosen], clouds.dimension, _STACK_SIZE):
        stack = np.stack([np.asarray(clouds[k], dtype=np.float64) for k in chosen[places].tolist()])
        means[places], norms[places], _, traces[places] = _unit_mean_stack(stack, clouds.dtype)
    sound = np.isfinite(traces) & np.isfinite(means).all(axis=1)
    for k in chosen[~sound].tolist():
        try:
            _unit_mean(clouds[k], None)
        except DegenerateCloudError as error:
            raise DegenerateCloudError(f"text {k} (id '{clouds.ids[k]}'): {error}") from error
    return TextMoments(means, norms, traces)


def _checked(cloud: Any, weights: ArrayLike | None) -> tuple[Array, Array]:
    X = as_matrix(cloud, name="cloud").astype(np.float64, copy=False)
    if len(X) == 0:
        raise DegenerateCloudError("the cloud has no tokens; at least one is needed. Leave empty texts out.")
    if not np.isfinite(X).all():
        raise DegenerateCloudError(
            "the cloud holds NaN or infinite values; all token vectors must be finite. Encode it again, in float32."
        )
    if weights is None:
        return X, np.full(len(X), 1 / len(X))
    w = as_array(weights, "weights", np.float64)
    if w.shape != (len(X),) or not np.isfinite(w).all() or (w < 0).any() or w.sum() == 0:
        raise InputError(
            f"weights: received shape {w.shape} for {len(X)} tokens; allowed is one finite number ≥ 0 a token, "
            f"with a positive sum."
        )
    return X, w / w.sum()


def _unit_mean(cloud: Any, weights: ArrayLike | None) -> tuple[Array, Array, float]:
    """A cloud scaled to unit mean: its mean (d), its factor (n × d) and trace."""
    matrix = as_matrix(cloud, name="cloud")
    X, w = _checked(matrix, weights)
    (X,), _ = _moderate(X[None])
    centre = w @ X
    norm = float(np.linalg.norm(centre))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rows = (X - centre) * (np.sqrt(w) / norm)[:, None]
        trace = float(np.einsum("ij,ij", rows, rows))
    if not trace < _largest_trace(matrix.dtype, len(X)):
        raise DegenerateCloudError(
            "the mean of the cloud is the zero vector, up to rounding, so it cannot be scaled to unit mean. Leave this "
            "text out, or check that the vectors were not centred token by token."
        )
    return centre / norm, rows, trace


def _moderate(stack: Array) -> tuple[Array, Array]:
    """Clouds (texts × n × d) divided each by a power of two (texts) where their squares would overflow or vanish.

    Exact: of ordinary clouds not a bit changes.
    """
    largest = np.maximum(stack.max(axis=(1, 2)), -stack.min(axis=(1, 2)))
    if ((largest < _LARGEST) & (largest > _SMALLEST)).all():
        return stack, np.ones(len(stack))
    exponents = np.frexp(largest)[1] - 1
    return np.ldexp(stack, -exponents[:, None, None]), np.ldexp(1.0, exponents)


def _largest_trace(dtype: DTypeLike, n: int) -> float:
    summed = np.promote_types(dtype, np.float32)
    return float(largest_trace(n, stored=float(np.finfo(dtype).eps), summed=float(np.finfo(summed).eps)))


def window_bounds(tokens: int, ratio: int) -> Index:
    """Where windows of `ratio` tokens begin, and the end; the last one may be shorter.

    >>> window_bounds(7, 3).tolist()
    [0, 3, 6, 7]
    """
    return np.append(np.arange(0, tokens, ratio), tokens)


def window_scatters(tokens: NDArray[Any], bounds: Index) -> Array:
    """Σ‖x − μ‖² of each window of a row of vectors (n × d); NaN and infinity are an error.

    >>> window_scatters(np.array([[0.0], [2.0], [5.0]]), np.array([0, 2, 3])).tolist()
    [2.0, 0.0]
    """
    windows = len(bounds) - 1
    return measure(tokens, Grouping(np.arange(windows), np.arange(len(tokens)), bounds))[0].scatters


def leading_scatters(windows: NDArray[Any]) -> Array:
    """The part of Σ‖x − μ‖² along the direction in which a window spreads most, of windows of one length (w × n × d).

    >>> leading_scatters(np.array([[[1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, -0.5]]])).round(12).tolist()
    [2.0]
    """
    centred = windows - windows.mean(axis=1, dtype=np.float64, keepdims=True)
    turned = centred.transpose(0, 2, 1)
    small = centred @ turned if centred.shape[1] < centred.shape[2] else turned @ centred
    return np.maximum(np.linalg.eigvalsh(small)[:, -1], 0.0)


def second_order_loss(tokens: NDArray[Any], ratio: int) -> float:
    """Σ‖x − μ‖² that neither the means nor the first directions of windows hold, at the storage of plain windows.

    Two neighbouring windows of `ratio` tokens become one, kept as two vectors: its mean and the direction in which it
    spreads most, as long as its standard deviation there. A window without a partner stays as it is. The order of the
    tokens along that direction is not kept, so this bounds from below what can be had back of each token.

    >>> round(second_order_loss(np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [9.0, 1.0]]), 2), 12)
    0.0
    """
    windows, pairs = -(-len(tokens) // ratio), window_bounds(len(tokens), 2 * ratio)
    lost = window_scatters(tokens, pairs)
    whole = len(tokens) // (2 * ratio)
    if whole:
        lost[:whole] -= leading_scatters(tokens[: pairs[whole]].reshape(whole, 2 * ratio, -1))
    if whole < len(lost) and windows % 2 == 0:  # a last pair, whose second window is short
        lost[whole] -= leading_scatters(tokens[None, pairs[whole] :])[0]
    return float(np.maximum(lost, 0.0).sum())


def exchangeable_share(tokens: Any, windows: Any) -> Any:
    """What windows lose on average of tokens in random order, 1 − (m − 1)/(n − 1); 0 for one token.

    >>> exchangeable_share(np.array([9, 1]), np.array([3, 1])).tolist()
    [0.75, 0.0]
    """
    return np.where(tokens > 1, 1 - (windows - 1) / np.maximum(tokens - 1, 1), 0.0)


@dataclass(frozen=True)
class Spans:
    """Adjacent windows of a text, cut where its vectors change, for every number of windows at once.

    Begun with one window a token, the two neighbours whose union costs least are joined again and again (Ward, with
    neighbours only). `losses[k − 1]` is the scatter inside k windows; `removed` are the places of the cuts in the order
    in which they fell. The cuts of a budget are not the best there are: each step is, given those before it.

    >>> spans = Spans.of(np.array([[0.0], [0.1], [5.0], [5.1], [5.2]]))
    >>> spans.bounds(2).tolist(), spans.losses[1:3].round(3).tolist()
    ([0, 2, 5], [0.025, 0.01])
    """

    losses: Array
    removed: Index

    @classmethod
    def of(cls, tokens: NDArray[Any]) -> Spans:
        """Join windows from single tokens to the whole text (n × d); takes n steps of O(d)."""
        count = len(tokens)
        means = tokens.astype(np.float64)
        sizes, following = [1] * count, [*range(1, count), -1]
        previous = list(range(-1, count - 1))
        steps = means[1:] - means[:-1]
        heap = [(cost, k, 1, 1) for k, cost in enumerate((0.5 * np.einsum("ij,ij->i", steps, steps)).tolist())]
        heapq.heapify(heap)
        costs, removed = np.zeros(count - 1), np.zeros(count - 1, np.int64)
        done = 0
        while done < count - 1:
            cost, left, left_size, right_size = heapq.heappop(heap)
            right = following[left]
            # An entry is of the past if one of its two windows has grown, or is gone, since.
            if right < 0 or sizes[left] != left_size or sizes[right] != right_size:
                continue
            costs[done], removed[done] = cost, right
            done += 1
            sizes[left] += right_size
            means[left] += (means[right] - means[left]) * (right_size / sizes[left])
            sizes[right], after = 0, following[right]
            following[left] = after
            if after >= 0:
                previous[after] = left
                heapq.heappush(heap, _joining(means, sizes, left, after))
            if previous[left] >= 0:
                heapq.heappush(heap, _joining(means, sizes, previous[left], left))
        return cls(np.append(np.cumsum(costs)[::-1], 0.0), removed)

    def bounds(self, windows: int) -> Index:
        """Where so many windows begin, and the end; there are at most as many as tokens."""
        count = len(self.removed) + 1
        cuts = self.removed[count - min(windows, count) :]
        return np.concatenate([[0], np.sort(cuts), [count]])


@dataclass(frozen=True)
class BestSpans:
    """The adjacent windows of a text that lose least, for 1 to `most` windows: dynamic programming over all cuts.

    `losses[k − 1]` is the scatter inside the best k windows; `starts[k − 2, j]` is where the last of the best k windows
    of the first j tokens begins. Takes most · n² steps.

    >>> spans = BestSpans.of(np.array([[0.0], [0.1], [5.0], [5.1], [5.2]]), 3)
    >>> spans.bounds(2).tolist(), spans.losses.round(3).tolist()
    ([0, 2, 5], [30.628, 0.025, 0.01])
    """

    losses: Array
    starts: Index

    @classmethod
    def of(cls, tokens: NDArray[Any], most: int) -> BestSpans:
        """Over all places of the cuts of a text (n × d); fewer windows than `most` where it has fewer tokens."""
        count = len(tokens)
        deviations = tokens.astype(np.float64)
        deviations -= deviations.mean(axis=0)
        sums = np.concatenate([np.zeros((1, deviations.shape[1])), np.cumsum(deviations, axis=0)])
        squares = np.concatenate([[0.0], np.cumsum(np.einsum("nd,nd->n", deviations, deviations))])
        products = sums @ sums.T
        own = np.diagonal(products)
        sizes = np.arange(count + 1) - np.arange(count + 1)[:, None]
        lengths = own + own[:, None] - 2 * products  # squared, of the sum of tokens i to j
        scatter = np.where(sizes > 0, squares - squares[:, None] - lengths / np.maximum(sizes, 1), np.inf)
        lost, losses, starts = scatter[0], [scatter[0, -1]], []
        for _ in range(min(most, count) - 1):
            through = lost[:, None] + scatter
            starts.append(through.argmin(axis=0))
            lost = np.take_along_axis(through, starts[-1][None], axis=0)[0]
            losses.append(lost[-1])
        return cls(np.maximum(losses, 0.0), np.array(starts, dtype=np.int64).reshape(-1, count + 1))

    def bounds(self, windows: int) -> Index:
        """Where so many windows begin, and the end."""
        bounds = [self.starts.shape[1] - 1]
        for starts in self.starts[: windows - 1][::-1]:
            bounds.append(int(starts[bounds[-1]]))
        return np.array([0, *bounds[::-1]])


# Steps of the dynamic programming that take as long as joining windows does, some hundredths of a second.
_CHEAP = 1 << 24


def spans_of(tokens: NDArray[Any], most: int) -> BestSpans | Spans:
    """The best windows of a text for 1 to `most` windows; windows of joined neighbours where the best take too long."""
    return BestSpans.of(tokens, most) if most * len(tokens) ** 2 <= _CHEAP else Spans.of(tokens)


def _joining(means: Array, sizes: list[int], left: int, right: int) -> tuple[float, int, int, int]:
    """What the scatter grows by when two windows become one, n_a n_b/(n_a + n_b) · ‖μ_a − μ_b‖²."""
    step = means[right] - means[left]
    a, b = sizes[left], sizes[right]
    return float(step @ step) * a * b / (a + b), left, a, b


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
