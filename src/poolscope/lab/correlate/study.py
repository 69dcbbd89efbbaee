"""The result of `correlate`: every metric against every score, with the conclusions that n models allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import factorial, sqrt, tanh
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from poolscope.errors import InputError, require
from poolscope.lab.items import weighted_correlations
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result, cells, key, origin
from poolscope.show.charts import COLOURS, grid, short_name, style

Array = NDArray[np.float64]

MOST_PANELS = 9
LEVEL = 0.05  # of all p-values together: Holm's over the metrics, Bonferroni's over the scores
_COLUMNS = 3
_PANEL = (380, 330)  # width and height of one panel, in pixels
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")


@dataclass(frozen=True)
class Association:
    """A coefficient with its bootstrap interval over models and its permutation p-value; None where not defined."""

    estimate: Estimate
    p: PValue | None

    def __str__(self) -> str:
        """Value and interval to two digits, – where there is none."""
        if self.estimate.value is None:
            return "–"
        interval = self.estimate.interval
        return f"{self.estimate.value:.2f}" + (
            "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
        )


NOTHING = Association(Estimate(None), None)


@dataclass(frozen=True)
class PartialAssociation:
    """The correlation once some controls are accounted for, or the reason why it was not computed."""

    controls: tuple[str, ...]
    spearman: Association | None
    pearson: Association | None
    refused: str | None = None


@dataclass(frozen=True)
class WithoutFamily:
    """Spearman's ρ over the models outside one family; None where it is not defined."""

    family: str
    left_out: tuple[str, ...]
    models: int
    spearman: float | None


@dataclass(frozen=True)
class MetricScore:
    """One metric against one score over models.

    `models`, `x`, `y`: who was compared, the metric and the score. `lacking`: matched models without one of the two.
    `holm`: the p-value of ρ corrected for all metrics against this score, None for a single one. `undefined`: why there
    is no correlation.
    """

    metric: str
    score: str
    models: tuple[str, ...]
    families: tuple[str, ...]
    lacking: tuple[str, ...]
    x: Array = field(repr=False)
    y: Array = field(repr=False)
    detectable: float | None
    spearman: Association = NOTHING
    pearson: Association = NOTHING
    kendall: Association = NOTHING
    partials: tuple[PartialAssociation, ...] = ()
    without: tuple[WithoutFamily, ...] = ()
    holm: float | None = None
    undefined: str | None = None

    @property
    def range_without(self) -> tuple[float, float] | None:
        """Smallest and largest ρ when any one family is left out."""
        left = [part.spearman for part in self.without if part.spearman is not None]
        return (min(left), max(left)) if left else None

    def sentence(self) -> str:
        """The finding in one sentence, no stronger than the numbers."""
        if self.spearman.p is None:
            return f"{self.metric} against {self.score}: not defined ({self.undefined})."
        holm = "" if self.holm is None else f", {self.holm:.2g} corrected for all metrics"
        numbers = f"ρ = {self.spearman}, p = {self.spearman.p}{holm}"
        text = f"{self.metric} against {self.score} over {len(self.models)} models: {numbers}."
        edges = self.range_without
        if edges is not None:
            text += f" Without any one family ρ lies between {edges[0]:.2f} and {edges[1]:.2f}"
            text += ", so its sign depends on a single family." if edges[0] * edges[1] <= 0 else "."
        return text


@dataclass(frozen=True, repr=False)
class CorrelationStudy(Result):
    """Correlations of all metrics with all scores, and notes: unmatched models, and the power of n models."""

    correlations: tuple[MetricScore, ...] = field(metadata=key("rows"))
    models: tuple[str, ...]
    families: Mapping[str, tuple[str, ...]]
    only_metrics: tuple[str, ...]
    only_scores: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, Any] = origin()

    column_words: ClassVar[Mapping[str, str]] = {
        "spearman": "Spearman ρ",
        "spearman_p": "p",
        "holm": "p, all metrics (Holm)",
        "without_family_low": "lowest ρ without a family",
        "without_family_high": "highest",
        "kendall": "Kendall τ",
        "kendall_p": "p of τ",
        "pearson": "Pearson r",
        "pearson_p": "p of r",
        "lacking": "models lacking one",
        "detectable": "smallest ρ that would show",
    }

    def __getitem__(self, names: tuple[str, str]) -> MetricScore:
        """The entry of (metric, score)."""
        for row in self.correlations:
            if (row.metric, row.score) == tuple(names):
                return row
        pairs = ", ".join(f"({row.metric}, {row.score})" for row in self.correlations)
        raise InputError(f"received {names!r}; measured: {pairs}.")

    def headline(self) -> dict[str, Any]:
        """How many models, metrics and scores."""
        metrics, scores = ({getattr(row, part) for row in self.correlations} for part in ("metric", "score"))
        return {"models": len(self.models), "metrics": len(metrics), "scores": len(scores)}

    def in_words(self) -> tuple[str, ...]:
        """Whether any metric goes with a score beyond chance, and the strongest correlation with its numbers."""
        defined = _strongest(self.correlations)
        if not defined:
            return ("No metric has a correlation with a score: too few models, or numbers that are all the same.",)
        scores = len({row.score for row in self.correlations})
        beyond = [row for row in defined if _corrected(row) * scores <= LEVEL]
        if not beyond:
            sentence = f"No metric correlates with a score beyond chance over {len(self.models)} models; the strongest:"
            return (f"{sentence} {defined[0].sentence()}",)
        row = beyond[0]
        way = "higher" if (row.spearman.estimate.value or 0.0) > 0 else "lower"
        return (f"Models with a higher {row.metric} have a {way} {row.score}, beyond chance. {row.sentence()}",)

    def rows(self) -> list[dict[str, Any]]:
        """One row a metric and score: the three coefficients with intervals and p-values, partials, families."""
        return [_flat(row) for row in self.correlations]

    def figure(self, *, panels: Sequence[tuple[str, str]] | None = None) -> Any:
        """Metric against score, a panel a pair, a point a model, a colour and symbol a family.

        `panels` names the pairs (metric, score); by default the pairs of largest |ρ|, at most nine. Each title holds ρ,
        its interval and its p-value. Pairs without a correlation can be drawn when they are named.
        """
        rows = [self[pair] for pair in panels] if panels is not None else _strongest(self.correlations)[:MOST_PANELS]
        if not rows:
            raise InputError("no metric has a correlation to draw; name pairs with panels, or add models.")
        figure, places, (across, down) = grid([_title(row) for row in rows], _COLUMNS)
        shown: set[str] = set()
        several = len(self.families) < len(self.models)  # else a colour would be a model
        looks = {family: k * several for k, family in enumerate(self.families)}
        for row, place in zip(rows, places, strict=False):
            _add_points(figure, place, row, looks, shown)
            figure.update_xaxes(title_text=row.metric, title_standoff=6, **place)
            figure.update_yaxes(title_text=row.score, **place)
        style(
            figure,
            title=f"Metrics against scores over {len(self.models)} models",
            width=across * _PANEL[0] + 120,
            height=down * _PANEL[1] + 150,
        )
        figure.update_layout(margin={"t": 120})
        figure.update_annotations(font={"size": 12})
        return figure


def _corrected(row: MetricScore) -> float:
    """The p-value of ρ, corrected for all metrics against its score."""
    own = 1.0 if row.spearman.p is None else row.spearman.p.value
    return own if row.holm is None else row.holm


def _flat(row: MetricScore) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "metric": row.metric,
        "score": row.score,
        "models": len(row.models),
    }
    edges = row.range_without or (None, None)
    flat |= {**_columns("spearman", row.spearman), "holm": row.holm}
    flat |= {"without_family_low": edges[0], "without_family_high": edges[1]}
    flat |= {**_columns("kendall", row.kendall), **_columns("pearson", row.pearson)}
    flat |= {"lacking": len(row.lacking), "detectable": row.detectable}
    for part in row.partials:
        for kind, association in (("spearman", part.spearman), ("pearson", part.pearson)):
            name = f"partial_{kind}_{'_'.join(part.controls)}"
            flat |= _columns(name, association or NOTHING)
    return {**flat, "undefined": row.undefined}


def _columns(name: str, association: Association) -> dict[str, float | None]:
    p = None if association.p is None else association.p.value
    return {**cells({name: association.estimate}, ends=True), f"{name}_p": p}


def _strongest(rows: Sequence[MetricScore]) -> list[MetricScore]:
    defined = [row for row in rows if row.spearman.estimate.value is not None]
    return sorted(defined, key=lambda row: -abs(row.spearman.estimate.value or 0.0))


def _title(row: MetricScore) -> str:
    if row.spearman.p is None:
        return f"ρ not defined ({len(row.models)} models)"
    return f"ρ = {row.spearman}, p = {row.spearman.p}, n = {len(row.models)}"


def _add_points(figure: Any, place: dict[str, int], row: MetricScore, looks: dict[str, int], shown: set[str]) -> None:
    """One trace a family, so that the legend switches it off; a model that is its own family has no legend entry."""
    go = require("plotly.graph_objects", "report")
    families = np.array(row.families)
    names = np.array([short_name(model) for model in row.models])
    # Neighbours along the axis have their names above and below their points in turn.
    places = np.array(["top center", "bottom center"])[np.argsort(np.argsort(row.x)) % 2]
    for family in dict.fromkeys(row.families):
        members = families == family
        look = looks[family]
        figure.add_trace(
            go.Scatter(
                x=row.x[members],
                y=row.y[members],
                mode="markers+text" if len(row.models) <= 15 else "markers",
                text=names[members],
                textposition=places[members],
                textfont={"size": 9},
                hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
                name=family,
                legendgroup=family,
                showlegend=family not in shown and len(looks) < len(row.models),
                marker={
                    "size": 9,
                    "color": COLOURS[look % len(COLOURS)],
                    "symbol": _SYMBOLS[look // len(COLOURS) % len(_SYMBOLS)],
                },
                cliponaxis=False,
            ),
            **place,
        )
        shown.add(family)


# -- statistics over few items ----------------------------------------------------------------------------------------

# Statistics over few items, such as a dozen models: what to compute, how sure one can be, what could be seen at all.
#
# A statistic for `ItemBootstrap.estimate` takes rows of weights (how often each item was drawn) and gives one value a
# row, as if the drawn items were listed one by one.

Kind = Literal["pearson", "spearman"]
KINDS: tuple[Kind, ...] = ("pearson", "spearman")

PERMUTATIONS = 9_999
_ALL_UP_TO = 8  # items whose n! orders are all looked at
_SINGULAR = 1e-9  # smallest eigenvalue of a correlation matrix below which controls determine each other


@dataclass(frozen=True)
class PValue:
    """Two-sided: twice the share of orders of the items at least as far out on the side of this one, at most 1.

    The side is the one with the smaller share. `method`: over which orders, all or random ones (the one seen counted).
    """

    value: float
    method: str

    def __str__(self) -> str:
        return f"{self.value:.2g}" if self.value < 0.1 else f"{self.value:.2f}"


def kendall(x: Array, y: Array) -> Callable[[Array], Array]:
    """Kendall's τ_b (agreement of all pairs of items, ties allowed for) as a statistic of weights.

    >>> kendall(np.array([1.0, 2, 3]), np.array([1.0, 3, 2]))(np.ones((1, 3))).round(6).tolist()
    [0.333333]
    """
    order_x, order_y = (np.sign(values[:, None] - values[None, :]) for values in (x, y))

    def over_pairs(weights: Array, values: Array) -> Array:
        total: Array = ((weights @ values) * weights).sum(axis=1)
        return total

    def statistic(weights: Array) -> Array:
        both = over_pairs(weights, order_x * order_y)
        tau: Array = both / np.sqrt(over_pairs(weights, order_x**2) * over_pairs(weights, order_y**2))
        return tau

    return statistic


def partial_correlation(columns: Mapping[str, Array], kind: Kind) -> Callable[[Array], Array]:
    """Correlation of the first two columns once the others are accounted for, as a statistic of weights.

    With R the correlation matrix (of values, or of ranks for Spearman) and P = R⁻¹: −P₁₂/√(P₁₁P₂₂). NaN where one
    column follows from the others.
    """
    names, which = list(columns), KINDS.index(kind)
    places = {pair: (names.index(pair[0]), names.index(pair[1])) for pair in combinations(names, 2)}

    def statistic(weights: Array) -> Array:
        matrices = np.tile(np.eye(len(names)), (len(weights), 1, 1))
        for pair, correlations in weighted_correlations(weights, columns, list(places)).items():
            i, j = places[pair]
            matrices[:, i, j] = matrices[:, j, i] = correlations[which]
        result = np.full(len(weights), np.nan)
        usable = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
        usable[usable] = np.linalg.eigvalsh(matrices[usable])[:, 0] > _SINGULAR
        inverse = np.linalg.inv(matrices[usable])
        result[usable] = -inverse[:, 0, 1] / np.sqrt(inverse[:, 0, 0] * inverse[:, 1, 1])
        return result

    return statistic


def correlation_p(x: Array, y: Array, *, controls: Sequence[Array] = (), seed: int = 0) -> PValue:
    """Permutation p-value of the Pearson correlation; pass ranks for Spearman.

    All n! orders of y for up to 8 items, otherwise 9,999 random ones. With controls the residuals of y are permuted and
    freed of the controls again (Freedman and Lane 1983), which is close to exact and not exact.
    """
    design = np.column_stack([np.ones(len(x)), *controls])
    basis = np.linalg.qr(design)[0]
    own, other = (values - basis @ (basis.T @ values) for values in (x, y))

    def statistic(values: Array, axis: int = -1) -> Array:
        residuals = values - (values @ basis) @ basis.T
        correlation: Array = residuals @ own / (np.linalg.norm(residuals, axis=axis) * np.linalg.norm(own))
        return correlation

    return _permutation_p(other, statistic, seed=seed)


def kendall_p(x: Array, y: Array, *, seed: int = 0) -> PValue:
    """Permutation p-value of Kendall's τ_b, by the same rule."""
    left, right = np.triu_indices(len(x), 1)
    order = np.sign(x[left] - x[right])

    def statistic(values: Array, axis: int = -1) -> Array:
        agreement: Array = np.sign(values[..., left] - values[..., right]) @ order  # ties do not move: the rest is one
        return agreement

    return _permutation_p(y, statistic, seed=seed)


def _permutation_p(values: Array, statistic: Callable[..., Array], *, seed: int) -> PValue:
    exact = len(values) <= _ALL_UP_TO
    count = factorial(len(values)) if exact else PERMUTATIONS
    tested = stats.permutation_test(
        (values,),
        statistic,
        permutation_type="pairings",
        vectorized=True,
        n_resamples=count,
        batch=max(1, 2**22 // len(values) ** 2),
        random_state=np.random.default_rng(seed),
    )
    return PValue(float(tested.pvalue), f"all {count:,} orders" if exact else f"{count:,} random orders")


def ranks(values: Array) -> Array:
    """Ranks from 1, equal values sharing the mean of theirs."""
    shared: Array = stats.rankdata(values)
    return shared


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that hold for all the tests together, whatever their dependence.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted.round(12)]


def detectable_correlation(n: int) -> float | None:
    """The smallest Spearman correlation that n items show 4 times in 5 (two-sided, 5 %); None below 5 items.

    Fisher's z with the standard error √(1.06/(n − 3)) of Fieller, Hartley and Pearson (1957): a good approximation, and
    for n below 10 an optimistic one.

    >>> round(detectable_correlation(12), 2), round(detectable_correlation(100), 2)
    (0.74, 0.28)
    """
    if n < 5:
        return None
    reach = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    return tanh(float(reach) * sqrt(1.06 / (n - 3)))
