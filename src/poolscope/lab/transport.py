"""Beyond second order: how much of the distance between two token lists do two moments see?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.clouds.token_clouds import check_clouds
from poolscope.errors import InputError, require, whole_number
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.selection import sampled
from poolscope.numbers.intervals import Estimate, Units, chosen_units, pair_estimate
from poolscope.numbers.moments import unit_mean_factor
from poolscope.numbers.streaming import text_marks
from poolscope.numbers.transport import transport_cost
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import GREY, curves_figure, short_name
from poolscope.texts.groups import groups_of_ids

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class LayerTransport:
    """One layer: exact W₂² of the pairs beside what the means and the first two moments say.

    mean_distance (4 d_μ) and gaussian (4(d_μ + d_Σ)) and exact: one entry a pair, in this order never falling.
    surrogate: exact W₂² of clouds with the same means and covariances and nothing else in common with the real ones.
    means, two_moments: the shares of the first two in the third, Σ part/Σ whole over the pairs with an interval
    clustered by text; two_moments_surrogate: of `gaussian` in `surrogate`; beyond: (exact − surrogate)/exact: above
    zero, something besides two moments keeps the real lists apart; below zero, they are nearer to each other than
    random lists.
    """

    layer: int
    i: Index = field(repr=False)
    j: Index = field(repr=False)
    mean_distance: Array = field(repr=False)
    gaussian: Array = field(repr=False)
    exact: Array = field(repr=False)
    surrogate: Array = field(repr=False)
    means: Estimate
    two_moments: Estimate
    two_moments_surrogate: Estimate
    beyond: Estimate


@dataclass(frozen=True, repr=False)
class TransportResult(Result):
    """Shares of the exact distance by layer, over the same pairs of texts in every layer."""

    layers: tuple[LayerTransport, ...]
    texts: int
    pairs: int
    provenance: Mapping[str, Any] = origin()

    def __getitem__(self, layer: int) -> LayerTransport:
        """One layer by its number."""
        for entry in self.layers:
            if entry.layer == layer:
                return entry
        raise InputError(f"layer: received {layer}; measured were {[entry.layer for entry in self.layers]}.")

    def headline(self) -> dict[str, Any]:
        """What two moments see in the last layer, and of how much."""
        last = self.layers[-1]
        return {"texts": self.texts, "pairs": self.pairs, "layer": last.layer, "two_moments": last.two_moments}

    def in_words(self) -> tuple[str, ...]:
        """What means and two moments see of the exact distance, in the last layer."""
        last = self.layers[-1]
        if last.means.value is None or last.two_moments.value is None:
            return ()
        return (
            f"Of the exact distance between the tokens of two texts, the means see {last.means.value:.0%}, and means "
            f"and covariances together {last.two_moments.value:.0%}.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer: mean distances over the pairs, and the shares with their intervals."""
        return [
            {
                "layer": entry.layer,
                **{name: float(getattr(entry, name).mean()) for name in ("mean_distance", "gaussian", "exact")},
                **cells({name: getattr(entry, name) for name in _SHARES}),
            }
            for entry in self.layers
        ]

    def figure(self) -> Any:
        """Shares of the exact W₂² by layer with 95 % intervals: means, two moments, and two moments of random lists."""
        curves = {
            label: {str(entry.layer): getattr(entry, name) for entry in self.layers} for label, name in _CURVES.items()
        }
        words = [short_name(self.model)] if self.model else []
        title = " · ".join(["What two moments see", *words, f"{self.pairs:,} pairs of {self.texts:,} texts"])
        figure = curves_figure(curves, title=title, along="share of the exact W₂²")
        figure.data[1].line.update(color=GREY, dash="dash")  # what nothing but two moments would give
        figure.update_xaxes(type="category")
        figure.update_yaxes(tickformat=".0%", range=[0, 1.03])
        return figure

    @property
    def model(self) -> str:
        """The name of the model that the clouds are from, if they say so."""
        clouds = self.provenance.get("clouds") or [{}]
        return str((clouds[0].get("model") or {}).get("name", ""))


_SHARES = ("means", "two_moments", "two_moments_surrogate", "beyond")
_CURVES = {
    "two moments": "two_moments",
    "two moments, random lists": "two_moments_surrogate",
    "means alone": "means",
}


def transport(
    clouds: TokenClouds | Mapping[int, TokenClouds],
    *,
    pairs: int = 200,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> TransportResult:
    """Exact W₂² between token lists on random pairs of texts, beside the Gaussian value 4(d_μ + d_Σ).

    Clouds are scaled to unit mean, and each token weighs 1/n, as for SOCM. Needs the extra 'transport'.

    Parameters
    ----------
    clouds : TokenClouds or dict of int to TokenClouds
        Those of one layer, or of the same texts by layer, as `encode(…, layers=…)` gives.
    pairs : int
        How many pairs of texts are drawn, with replacement; 2 or more.
    seed : int
        Of the draw of the pairs and of the random lists.
    progress : callable, optional
        Called with the number of pairs just done.

    Returns
    -------
    TransportResult
        By layer the three distances of every pair, and the shares that the means and two moments see.

    Examples
    --------
    Two lists with equal means and covariances, so that two moments see nothing of what lies between them:

    >>> from poolscope import TokenClouds, transport
    >>> right = [[1, 2**0.5], [1, 0], [1, 0], [1, -(2**0.5)]]
    >>> result = transport(TokenClouds.from_arrays([[[1, 1], [1, -1]], right]), pairs=3)
    >>> round(float(result[-1].exact[0]), 4), round(abs(result[-1].two_moments.value), 4)
    (0.5858, 0.0)

    """
    pairs = whole_number(pairs, "pairs", least=2)
    by_layer = dict(clouds) if isinstance(clouds, Mapping) else {-1: clouds}
    for part in by_layer.values():
        check_clouds(part, "transport")
    counts = {len(part) for part in by_layer.values()}
    if len(counts) != 1 or counts.pop() < 2:
        raise InputError(
            f"received clouds of {[len(part) for part in by_layer.values()]} texts by layer; needed: one layer or "
            f"more, and the same two or more texts in each."
        )
    require("ot", "transport")
    first = next(iter(by_layer.values()))
    drawn = sampled(first, first, pairs, seed).pairs
    return TransportResult(
        layers=tuple(_layer(layer, part, drawn, seed, progress) for layer, part in by_layer.items()),
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
    a, b = F * np.sqrt(len(F)), G * np.sqrt(len(G))
    return transport_cost(np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0))


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
    marks = text_marks(clouds, np.arange(len(clouds)))
    fresh = {k: surrogate_factor(F, np.random.default_rng([seed, marks[k]])) for k, (_, F) in scaled.items()}
    centred, surrogate = np.empty(len(pairs)), np.empty(len(pairs))
    for row, (i, j) in enumerate(pairs.tolist()):
        centred[row] = _centred(scaled[i][1], scaled[j][1])
        surrogate[row] = _centred(fresh[i], fresh[j])
        if progress is not None:
            progress(1)
    units = chosen_units(len(clouds), groups_of_ids(list(clouds.ids)))
    means, gaussian = 4 * moments.mean_distance, 4 * (moments.mean_distance + moments.covariance_distance)
    exact, surrogate = means + centred, means + surrogate
    return LayerTransport(
        layer=layer,
        i=pairs[:, 0],
        j=pairs[:, 1],
        mean_distance=means,
        gaussian=gaussian,
        exact=exact,
        surrogate=surrogate,
        means=_share(means, exact, pairs, units),
        two_moments=_share(gaussian, exact, pairs, units),
        two_moments_surrogate=_share(gaussian, surrogate, pairs, units),
        beyond=_share(exact - surrogate, exact, pairs, units),
    )


def _share(part: Array, whole: Array, pairs: Index, units: Units) -> Estimate:
    """Σ part/Σ whole over the pairs.

    The interval is that of one value a pair, share + (part − share · whole)/mean(whole): their mean is the share, and
    to first order they have the same error.
    """
    total = float(whole.sum())
    if total == 0:
        raise InputError("all pairs drawn have equal clouds, so there is no distance to share out. Give other texts.")
    share = float(part.sum()) / total
    values = share + (part - share * whole) * (len(whole) / total)
    return pair_estimate(values, units.of[pairs[:, 0]], units.of[pairs[:, 1]], unit=units.name)
