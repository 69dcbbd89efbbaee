"""One pair of clouds: the SOCM formula and its distances (Hara et al., ACL 2026, arXiv 2604.27398), both clouds in one
plane, and the tokens that make them differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import InputError, did_you_mean, require
from poolscope.numbers import Array
from poolscope.numbers.bures.distances import nuclear_norm, same_dimension
from poolscope.numbers.moments import mean, unit_mean_factor
from poolscope.results import Result, bulk, key, origin, provenance
from poolscope.show.charts import COLOURS, curve, style, translucent
from poolscope.surface import check_fields
from poolscope.words import escape

SCALES = ("paper", "trace")
_SYMBOLS = ("circle", "diamond")


@dataclass(frozen=True)
class SocmFormula:
    """SOCM = (1 − d_μ)^a · d_Σ^b.

    scale: "paper" is d_Σ = BW²/4, which stays below 1 only while tr Σ ≤ 2; "trace" is d_Σ = BW²/(tr Σ₁ + tr Σ₂), in
    [0, 1] always. eps > 0 reproduces the published code (1e-9), which adds it to the diagonal before each square root
    and so lowers d_Σ by about (d − rank)·√eps/2.
    """

    scale: str = "paper"
    a: float = 1.0
    b: float = 1.0
    eps: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.scale not in SCALES:
            raise InputError(
                f"scale: received '{self.scale}'; allowed are {', '.join(SCALES)}.{did_you_mean(self.scale, SCALES)}"
            )
        if not (0 < self.a < np.inf and 0 < self.b < np.inf):
            raise InputError(f"received a = {self.a!r}, b = {self.b!r}; allowed are positive numbers. Pass such ones.")
        if not 0 <= self.eps < 1:
            raise InputError(f"eps: received {self.eps}; allowed is 0 (exact) or a small number such as 1e-9.")
        if self.eps and self.b != 1:
            raise InputError("eps can make d_Σ slightly negative, so it goes with b = 1 only; leave out one of them.")

    def covariance_distance(self, bures: Array, trace_sum: Array) -> Array:
        """d_Σ from BW² and tr Σ₁ + tr Σ₂; 0 for two clouds without spread."""
        if self.scale == "paper":
            return bures / 4
        return np.divide(bures, trace_sum, out=np.zeros_like(bures), where=trace_sum > 0)

    def score(self, mean_distance: Array, covariance_distance: Array) -> Array:
        """SOCM from d_μ and d_Σ."""
        if self.a == 1 and self.b == 1:
            return (1 - mean_distance) * covariance_distance
        return np.asarray((1 - mean_distance) ** self.a * covariance_distance**self.b)

    def upper_bound(self, mean_distance: Array, trace_sum: Array) -> Array:
        """A bound that needs no cross product: BW² ≤ tr Σ₁ + tr Σ₂."""
        return self.score(mean_distance, self.covariance_distance(trace_sum, trace_sum))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, repr=False)
class SocmPair(Result):
    """The distances of one pair of clouds: d_μ, d_Σ on the scale of the formula, SOCM, and BW² as it is."""

    mean_distance: float = field(metadata=key("d_mu"))
    covariance_distance: float = field(metadata=key("d_sigma"))
    socm: float
    bures: float
    provenance: Mapping[str, Any] = origin()

    def in_words(self) -> tuple[str, ...]:
        """The distances in words."""
        return (
            f"The means are {self.mean_distance:.2f} apart (d_μ) and the token clouds {self.covariance_distance:.2f} "
            f"(d_Σ); SOCM is high where the means agree while the clouds differ, and is {self.socm:.2f} here.",
        )

    @property
    def squared_wasserstein(self) -> float:
        """W₂² = ‖μ₁ − μ₂‖² + BW²: squared 2-Wasserstein distance of the Gaussians of the unit-mean clouds."""
        return 4 * self.mean_distance + self.bures


def socm_pair(
    X: Any,
    Y: Any,
    *,
    x_weights: ArrayLike | None = None,
    y_weights: ArrayLike | None = None,
    formula: SocmFormula | None = None,
) -> SocmPair:
    """d_μ, d_Σ and SOCM of two token clouds X (n₁ × d) and Y (n₂ × d), exact, in float64.

    High SOCM means that the means agree while the clouds differ, so that mean pooling hides the difference. One-token
    clouds have zero covariance. A zero mean vector is an error.

    Parameters
    ----------
    X, Y : matrix
        One row a token, of numpy, torch or lists.
    x_weights, y_weights : array, optional
        Weights of the tokens, with which mean and covariance are taken; all alike if left out.
    formula : SocmFormula, optional
        Scale and exponents.

    Returns
    -------
    SocmPair
        The distances and the score.

    Examples
    --------
    >>> round(socm_pair([[1, 1], [1, -1]], [[1, 2], [1, -2]]).socm, 12)     # d_mu = 0, BW² = (2 − 1)²
    0.25

    """
    formula = formula or SocmFormula()
    if formula.eps:
        raise InputError("eps applies to corpora: use socm(clouds, pairs=…, eps=…); one pair is always exact.")
    same_dimension(X, Y)
    mean_distance, bures, trace_sum = map(np.asarray, pair_distances(X, Y, x_weights=x_weights, y_weights=y_weights))
    covariance_distance = formula.covariance_distance(bures, trace_sum)
    socm = formula.score(mean_distance, covariance_distance)
    distances = (float(mean_distance), float(covariance_distance))
    return SocmPair(*distances, float(socm), float(bures), provenance=provenance(settings=formula.to_dict()))


def pair_distances(
    X: Any, Y: Any, *, x_weights: ArrayLike | None = None, y_weights: ArrayLike | None = None
) -> tuple[float, float, float]:
    """d_μ, BW² and tr Σ₁ + tr Σ₂ of two clouds of one dimension, both scaled to unit mean."""
    (u, F), (v, G) = unit_mean_factor(X, x_weights), unit_mean_factor(Y, y_weights)
    trace_sum = float((F * F).sum() + (G * G).sum())
    return float((u - v) @ (u - v)) / 4, max(trace_sum - 2 * nuclear_norm(F, G), 0.0), trace_sum


def over_trace(covariance_distance: Array, trace_sum: Array) -> Array:
    """d_Σ on the scale "trace", in [0, 1], from that on the scale "paper"; 0 for two clouds without spread."""
    return SocmFormula(scale="trace").covariance_distance(4 * covariance_distance, trace_sum)


# -- both clouds in one plane --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlatCloud:
    """A cloud in the plane: its tokens (n × 2), its mean (2) and its covariance (2 × 2), divided by n."""

    points: Array
    mean: Array
    covariance: Array

    def ellipse(self, deviations: float = 1.0, steps: int = 120) -> Array:
        """Points (steps × 2) of the ellipse that many standard deviations around the mean, closed.

        >>> flat = FlatCloud(np.zeros((2, 2)), np.array([1.0, 0.0]), np.diag([4.0, 0.0]))
        >>> flat.ellipse(steps=3).round(6).tolist()
        [[3.0, 0.0], [-1.0, 0.0], [3.0, 0.0]]
        """
        values, vectors = np.linalg.eigh(self.covariance)
        angles = np.linspace(0, 2 * np.pi, steps)
        circle = np.stack([np.sin(angles), np.cos(angles)], axis=1)
        return np.asarray(self.mean + deviations * circle * np.sqrt(np.maximum(values, 0)) @ vectors.T)


@dataclass(frozen=True, repr=False, kw_only=True)
class PairProjection(Result):
    """Two clouds, scaled to unit mean, in the plane that keeps most of them; and their distances in full dimension.

    `kept` is the share of the squared norms of all tokens that lies in the plane. `traces` are tr Σ of both clouds at
    unit mean: d_Σ and SOCM stay below 1 only while neither is above 2. `texts` are the two texts where they are known.
    """

    left: FlatCloud = bulk(required=True)
    right: FlatCloud = bulk(required=True)
    kept: float = field(metadata=key("kept_in_plane"))
    distances: SocmPair
    traces: tuple[float, float]
    texts: tuple[str, str] | None = field(default=None, repr=False)
    provenance: Mapping[str, Any] = origin()

    @property
    def above_trace(self) -> int:
        """How many of the two clouds break tr Σ ≤ 2."""
        return sum(trace > 2 for trace in self.traces)

    @property
    def covariance_distance_over_trace(self) -> float:
        """BW²/(tr Σ₁ + tr Σ₂), the covariance distance in [0, 1] always; 0 for two clouds without spread."""
        return self.distances.bures / sum(self.traces) if sum(self.traces) > 0 else 0.0

    shown_rows = 0
    field_words: ClassVar[Mapping[str, str]] = {"kept": "clouds that the plane shows"}

    def in_words(self) -> tuple[str, ...]:
        """The distances in words, and how much of the clouds the picture shows."""
        return (*self.distances.in_words(), f"The picture shows {self.kept:.0%} of the clouds.")

    def headline(self) -> dict[str, Any]:
        """The distances, and how much of the clouds the plane shows."""
        return {**self.distances.headline(), "kept": self.kept}

    def derived(self) -> dict[str, Any]:
        """The distances by the names of the tables, and whether tr Σ ≤ 2 holds."""
        return {
            "d_mu": self.distances.mean_distance,
            "d_sigma": self.distances.covariance_distance,
            "socm": self.distances.socm,
            "above_trace": self.above_trace,
            "d_sigma_trace": self.covariance_distance_over_trace,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a token: of which text (0 or 1), and its place in the plane."""
        clouds = (self.left.points, self.right.points)
        return [{"text": k, "x": x, "y": y} for k, points in enumerate(clouds) for x, y in points.tolist()]

    def figure(self) -> Any:
        """The tokens, means and covariances of both texts in one plane."""
        return pair_figure(self) if self.texts is None else pair_figure(self, names=self.texts)


def pair(clouds: TokenClouds, first: int = 0, second: int = 1) -> PairProjection:
    """The texts at two positions of `clouds`, side by side; see `project_pair`.

    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]]], texts=["one", "other"])
    >>> pair(clouds)
    PairProjection(mean distance 0, covariance distance 0.25, socm 0.25, bures 1, kept 1)
    """
    if not isinstance(clouds, TokenClouds) or len(clouds) < 2:
        raise InputError("pair: two texts are needed. Pass clouds of at least two, or project_pair(X, Y).")
    both = clouds.select([first, second])
    texts = None if both.texts is None else (both.texts[0], both.texts[1])
    return project_pair(both[0], both[1], texts=texts, origin=provenance(both, settings={}))


def project_pair(
    X: Any, Y: Any, *, texts: tuple[str, str] | None = None, origin: Mapping[str, Any] | None = None
) -> PairProjection:
    """Truncated singular value decomposition, without centring, of the tokens of both clouds (n₁ × d and n₂ × d).

    Without centring the origin stays the origin, so that angles between means are seen as angles. Axes point to where
    the means are: neither coordinate of their sum is negative. One token is a cloud too; a zero mean is an error.

    Parameters
    ----------
    X, Y : matrix
        The tokens of the two texts, one row a token.
    texts : pair of str, optional
        The two texts, kept with the numbers.
    origin : mapping, optional
        A provenance, kept with the numbers.

    Returns
    -------
    PairProjection
        Both clouds on two axes, their means, their distances, and the share of the square that the axes keep.

    Examples
    --------
    >>> pair = project_pair([[1, 1], [1, -1]], [[1, 2], [1, -2]])
    >>> pair.left.mean.round(6).tolist(), round(pair.distances.socm, 6), round(pair.kept, 6)
    ([0.0, 1.0], 0.25, 1.0)

    """
    distances = socm_pair(X, Y)
    clouds = [_unit_mean(X), _unit_mean(Y)]
    tokens = np.concatenate(clouds)
    points = _in_the_plane(tokens)
    left, right = (_flat(part) for part in np.split(points, [len(clouds[0])]))
    signs = np.where(left.mean + right.mean < 0, -1.0, 1.0)
    left, right = (_flat(cloud.points * signs) for cloud in (left, right))
    in_plane = float((points**2).sum() / (tokens**2).sum())
    traces = float(clouds[0].var(axis=0).sum()), float(clouds[1].var(axis=0).sum())
    known = distances.provenance if origin is None else origin
    return PairProjection(
        left=left, right=right, kept=in_plane, distances=distances, traces=traces, texts=texts, provenance=known
    )


def _in_the_plane(tokens: Array) -> Array:
    """The tokens (n × d) on their two leading right singular vectors (n × 2), from the smaller Gram matrix.

    Two eigenvectors of it take a fifth of the time of a whole decomposition. A rank of 1 leaves the second column 0.
    """
    from scipy.linalg import eigh

    n, d = tokens.shape
    gram = tokens @ tokens.T if n <= d else tokens.T @ tokens
    values, vectors = eigh(gram, subset_by_index=[max(0, len(gram) - 2), len(gram) - 1])
    points = vectors * np.sqrt(np.maximum(values, 0)) if n <= d else tokens @ vectors
    return np.pad(points[:, ::-1], [(0, 0), (0, 2 - points.shape[1])])


def _unit_mean(cloud: Any) -> Array:
    return as_matrix(cloud).astype(np.float64) / float(np.linalg.norm(mean(cloud)))


def _flat(points: Array) -> FlatCloud:
    centre = points.mean(axis=0)
    deviations = points - centre
    return FlatCloud(points, centre, deviations.T @ deviations / len(points))


# -- which tokens make two clouds differ ---------------------------------------------------------------------------


def token_contributions(X: Any, Y: Any) -> tuple[Array, Array]:
    """What each token of X (n₁ × d) and of Y (n₂ × d) adds to BW²(Σ₁, Σ₂); the n₁ + n₂ numbers sum to it exactly.

    With the factors F₁ and F₂ of the two covariances at unit mean, BW² = tr Σ₁ + tr Σ₂ − 2‖F₁F₂ᵀ‖_*, and each term is a
    sum over tokens: tr Σ₁ = Σᵢ ‖fᵢ‖² and ‖F₁F₂ᵀ‖_* = tr (F₁F₂ᵀF₂F₁ᵀ)^{1/2}. So token i of X adds ‖fᵢ‖², its squared
    deviation from the mean, minus entry (i, i) of that root: the part of it that the best alignment of both clouds
    finds in Y. It is negative where Y spreads more along a token than X does there. Of a one-token cloud, 0.

    >>> left, right = token_contributions([[1, 1], [1, -1]], [[1, 2], [1, -2]])
    >>> left.round(6).tolist(), right.round(6).tolist()         # BW² = (2 − 1)² = 1
    ([-0.5, -0.5], [1.0, 1.0])
    """
    same_dimension(X, Y)
    (_, F), (_, G) = unit_mean_factor(X), unit_mean_factor(Y)
    (Q, F_rows), (W, G_rows) = _fewest_rows(F), _fewest_rows(G)
    U, values, Vt = np.linalg.svd(F_rows @ G_rows.T, full_matrices=False)
    left, right = U if Q is None else Q @ U, Vt.T if W is None else W @ Vt.T
    return (F * F).sum(axis=1) - left**2 @ values, (G * G).sum(axis=1) - right**2 @ values


def _fewest_rows(F: Array) -> tuple[Array | None, Array]:
    """F = Q R with at most d rows in R; Q is None where F has no more: a text may have thousands of tokens."""
    return np.linalg.qr(F) if len(F) > F.shape[1] else (None, F)


# -- the picture --------------------------------------------------------------------------------------------------


def pair_figure(
    pair: PairProjection,
    *,
    names: Sequence[str] = ("text a", "text b"),
    tokens: Sequence[Sequence[str]] | None = None,
    model: str = "",
) -> Any:
    """Tokens as points, means as crosses, covariances as ellipses of one and two standard deviations.

    `names` label the two clouds (shortened); `tokens` are shown when the pointer is on a point. Both axes have one
    scale, and the origin is that of the embedding space: the angle between the two means is what the cosine sees.
    """
    figure = require("plotly.graph_objects", "report").Figure()
    for k, cloud in enumerate((pair.left, pair.right)):
        shown = None if tokens is None else [shortened(token) for token in tokens[k]]
        figure.add_traces(_cloud(cloud, COLOURS[k], _SYMBOLS[k], shortened(names[k]), shown))
    for k, cloud in enumerate((pair.left, pair.right)):
        figure.add_trace(_arrow(cloud, COLOURS[k]))
    distances = pair.distances
    title = (
        f"<b>SOCM {distances.socm:.3f}</b>   d<sub>μ</sub> {distances.mean_distance:.3f}   "
        f"d<sub>Σ</sub> {distances.covariance_distance:.3f}   <span style='font-size:14px'>{shortened(model)}</span>"
    )
    style(figure, title=title, width=860, height=760)
    figure.update_layout(margin={"t": 125}, legend={"orientation": "v"})
    figure.update_xaxes(title_text="first singular direction")
    figure.update_yaxes(
        title={"text": f"second singular direction ({pair.kept:.0%} in the plane)", "standoff": 12},
        scaleanchor="x",
        scaleratio=1,
    )
    return figure


def _cloud(cloud: FlatCloud, colour: str, symbol: str, name: str, tokens: Sequence[str] | None) -> list[Any]:
    """Two ellipses, and the tokens over them."""
    look: dict[str, Any] = {"mode": "lines", "fill": "toself", "fillcolor": translucent(colour, 0.07)}
    look |= {"hoverinfo": "skip", "showlegend": False, "legendgroup": name}
    ellipses = []
    for deviations, width in ((2.0, 1.0), (1.0, 2.0)):
        x, y = cloud.ellipse(deviations).T
        ellipses.append(curve(x, y, name, colour, width=width, **look))
    edge = {"color": "white", "width": 1}
    points = require("plotly.graph_objects", "report").Scatter(
        x=cloud.points[:, 0],
        y=cloud.points[:, 1],
        mode="markers",
        name=name,
        legendgroup=name,
        marker={"color": colour, "size": 8, "symbol": symbol, "opacity": 0.75, "line": edge},
        text=tokens,
        hovertemplate=None if tokens is None else "%{text}<extra></extra>",
    )
    return [*ellipses, points]


def _arrow(cloud: FlatCloud, colour: str) -> Any:
    """From the origin to the mean, with a cross at the mean."""
    edges = {"color": "white", "width": np.array([0, 2])}
    return curve(
        [0, cloud.mean[0]],
        [0, cloud.mean[1]],
        "mean",
        colour,
        dash="dot",
        width=1.5,
        mode="lines+markers",
        marker={"symbol": ["circle", "x"], "size": [1, 15], "color": colour, "line": edges},
        hovertemplate="mean<extra></extra>",
        showlegend=False,
    )


def shortened(text: str, width: int = 90) -> str:
    """One line of a text, cut at a width; nothing in it can be read as markup.

    >>> shortened("a <b>bold</b>   line")
    'a &lt;b&gt;bold&lt;/b&gt; line'
    """
    line = " ".join(text.split())
    line = line if len(line) <= width else line[: width - 1] + "…"
    return escape(line, quote=False)
