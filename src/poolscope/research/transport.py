"""Beyond second order: how much of the distance between two token lists do two moments see?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, PoolscopeError, require, whole_number
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.selection import sampled
from poolscope.numbers.intervals import Interval, dyadic_interval
from poolscope.numbers.moments import unit_mean_factor
from poolscope.results import plain, provenance

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Pivots of the network simplex before it gives up; two lists of 500 tokens need some thousands.
_MOST_PIVOTS = 2_000_000


@dataclass(frozen=True)
class Share:
    """A share of W₂², Σ part/Σ whole over the pairs, with an interval clustered by text."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class LayerTransport:
    """One layer: exact W₂² of the pairs beside what the means and the first two moments say.

    mean_distance (4 d_μ) and gaussian (4(d_μ + d_Σ)) and exact: one entry a pair, in this order never falling.
    surrogate: exact W₂² of clouds with the same means and covariances and nothing else in common with the real ones.
    means, two_moments: the shares of the first two in the third; two_moments_surrogate: of `gaussian` in `surrogate`;
    beyond: (exact − surrogate)/exact: above zero, something besides two moments keeps the real lists apart; below zero,
    they are nearer to each other than random lists.
    """

    layer: int
    i: Index = field(repr=False)
    j: Index = field(repr=False)
    mean_distance: Array = field(repr=False)
    gaussian: Array = field(repr=False)
    exact: Array = field(repr=False)
    surrogate: Array = field(repr=False)
    means: Share
    two_moments: Share
    two_moments_surrogate: Share
    beyond: Share


@dataclass(frozen=True)
class TransportResult:
    """Shares of the exact distance by layer, over the same pairs of texts in every layer."""

    layers: tuple[LayerTransport, ...]
    texts: int
    pairs: int
    provenance: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        last = self.layers[-1]
        return (
            f"TransportResult({self.pairs:,} pairs of {self.texts:,} texts, {len(self.layers)} layers; two moments see "
            f"{last.two_moments.value:.1%} in layer {last.layer})"
        )

    def __getitem__(self, layer: int) -> LayerTransport:
        found = [entry for entry in self.layers if entry.layer == layer]
        if not found:
            raise InputError(f"layer: received {layer}; measured were {[entry.layer for entry in self.layers]}.")
        return found[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, every pair included."""
        content: dict[str, Any] = plain(self)
        return content


def transport(
    clouds: TokenClouds | Mapping[int, TokenClouds],
    *,
    pairs: int = 200,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> TransportResult:
    """Exact W₂² between token lists on random pairs of texts, beside the Gaussian value 4(d_μ + d_Σ).

    clouds: those of one layer, or a dictionary from layer to clouds of the same texts, as `encode(…, layers=…)` gives.
    Clouds are scaled to unit mean, and each token weighs 1/n, as for SOCM. `pairs` are drawn with replacement.
    `progress` is called with the number of pairs just done. Needs the extra 'transport'.
    """
    pairs = whole_number(pairs, "pairs", least=2)
    by_layer = dict(clouds) if isinstance(clouds, Mapping) else {-1: clouds}
    counts = {len(part) for part in by_layer.values()}
    if len(counts) != 1 or counts.pop() < 2:
        raise InputError(
            f"received clouds of {[len(part) for part in by_layer.values()]} texts by layer; needed: one layer or "
            f"more, and the same two or more texts in each."
        )
    require("ot", "transport")
    first = next(iter(by_layer.values()))
    drawn = sampled(first, first, pairs, seed).pairs
    found = [_layer(layer, part, drawn, seed, progress) for layer, part in by_layer.items()]
    return TransportResult(
        layers=tuple(found),
        texts=len(first),
        pairs=len(drawn),
        provenance=provenance(
            *by_layer.values(), settings={"pairs": pairs, "seed": seed, "solver": "network simplex (POT)"}
        ),
    )


def exact_wasserstein(X: Any, Y: Any) -> float:
    """Squared 2-Wasserstein distance of two token lists scaled to unit mean, each token of weight 1/n.

    W₂² = min over couplings of Σ π_ij ‖x_i − y_j‖², by the network simplex; X (n₁ × d), Y (n₂ × d). The means are
    taken out first, since W₂² = ‖μ₁ − μ₂‖² + W₂² of the centred lists. Never below 4(d_μ + d_Σ), and equal to it where
    one list is the image of the other under a symmetric positive map and a shift, as Gaussians are of each other.

    >>> round(exact_wasserstein([[1, 1], [1, -1]], [[1, 3], [1, -3]]), 12)      # each token moves by 2
    4.0
    """
    (u, F), (v, G) = unit_mean_factor(X), unit_mean_factor(Y)
    return float((u - v) @ (u - v)) + _centred(F, G)


def _centred(F: Array, G: Array) -> float:
    """W₂² of two centred lists given by their factors, rows (x_i − μ)/√n."""
    ot = require("ot", "transport")
    a, b = F * np.sqrt(len(F)), G * np.sqrt(len(G))
    cost = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0)
    uniform = np.full(len(a), 1 / len(a)), np.full(len(b), 1 / len(b))
    value, log = ot.emd2(*uniform, cost, numItermax=_MOST_PIVOTS, log=True)
    if log["warning"] is not None:
        raise PoolscopeError(
            f"optimal transport of {len(a)} to {len(b)} tokens did not finish ({log['warning']}). Cut the texts with "
            f"max_length, or leave the longest out."
        )
    return float(value)


def surrogate_factor(F: Array, random: np.random.Generator) -> Array:
    """Other deviations with exactly the same covariance FᵀF and mean zero, but otherwise at random, as a Gaussian's.

    F = USVᵀ (n × d): U is replaced by random orthonormal columns orthogonal to 1.
    """
    _, s, V = np.linalg.svd(F, full_matrices=False)
    rank = int((s > s.max(initial=0.0) * max(F.shape) * np.finfo(float).eps).sum())
    columns = np.column_stack([np.ones(len(F)), random.standard_normal((len(F), rank))])
    fresh = np.linalg.qr(columns)[0][:, 1 : rank + 1]
    return np.asarray((fresh * s[:rank]) @ V[:rank])


def _layer(
    layer: int, clouds: TokenClouds, pairs: Index, seed: int, progress: Callable[[int], None] | None
) -> LayerTransport:
    moments = socm(clouds, pairs=pairs).pairs
    assert moments is not None  # given pairs are kept
    scaled = {int(k): unit_mean_factor(clouds[int(k)]) for k in np.unique(pairs)}
    fresh = {k: surrogate_factor(F, np.random.default_rng([seed, k])) for k, (_, F) in scaled.items()}
    centred, surrogate = np.empty(len(pairs)), np.empty(len(pairs))
    for row, (i, j) in enumerate(pairs.tolist()):
        centred[row] = _centred(scaled[i][1], scaled[j][1])
        surrogate[row] = _centred(fresh[i], fresh[j])
        if progress is not None:
            progress(1)
    means, gaussian = 4 * moments.mean_distance, 4 * (moments.mean_distance + moments.covariance_distance)
    exact, surrogate = means + centred, means + surrogate
    i, j = pairs[:, 0], pairs[:, 1]
    return LayerTransport(
        layer=layer,
        i=i,
        j=j,
        mean_distance=means,
        gaussian=gaussian,
        exact=exact,
        surrogate=surrogate,
        means=_share(_linearised(means, exact), i, j),
        two_moments=_share(_linearised(gaussian, exact), i, j),
        two_moments_surrogate=_share(_linearised(gaussian, surrogate), i, j),
        beyond=_share(_linearised(exact - surrogate, exact), i, j),
    )


def _linearised(part: Array, whole: Array) -> Array:
    """One value a pair, share + (part − share · whole)/mean(whole): their mean is Σ part/Σ whole, to first order with
    the same error.
    """
    total = float(whole.sum())
    if total == 0:
        raise InputError("all pairs drawn have equal clouds, so there is no distance to share out. Give other texts.")
    share = float(part.sum()) / total
    return share + (part - share * whole) * (len(whole) / total)


def _share(values: Array, i: Index, j: Index) -> Share:
    return Share(float(values.mean()), dyadic_interval(values, i, j, crossed=False))
