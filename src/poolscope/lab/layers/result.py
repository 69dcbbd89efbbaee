"""What the anatomy of the layers returns: every quantity per text and layer, its mean with an interval, the checks, and
the states with sinks. Its figures draw one model, or several in the same panels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.errors import InputError, did_you_mean, require
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import LEVEL, Estimate, chosen_units, mean_estimate
from poolscope.results import Result, bulk, key, origin, with_provenance
from poolscope.show.charts import COLOURS, GREY, grid, short_name, style, translucent
from poolscope.texts.groups import groups_of_ids


@dataclass(frozen=True)
class Quantity:
    """One quantity: its symbol, its meaning, and whether a text has one for each state, layer or head."""

    name: str
    symbol: str
    over: str
    meaning: str


# States are the clouds between layers: 0 is the embedding output, l the output of layer l.
QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("concentration_ratio", "S(X)/‖μ(X)‖²", "states", "spread of the cloud relative to its mean"),
        Quantity("cosine", "cosine", "states", "mean cosine of the tokens of a text"),
        Quantity("first_norm", "‖x₁‖/median ‖xᵢ‖", "states", "length of the first token beside the others"),
        Quantity("concentration_without_first", "S/‖μ‖² without x₁", "states", "the ratio without the first token"),
        Quantity("cosine_without_first", "cosine without x₁", "states", "the cosine without the first token"),
        Quantity("lambda", "λ", "heads", "what a head does to the spread; below 1 it concentrates"),
        Quantity("sigma_a", "σₐ", "heads", "largest singular value of attention without its mean (PA)"),
        Quantity("r", "r", "layers", "S(H)/‖μ(Y)‖²: the input's spread beside the mean after the residual sum"),
        Quantity("C", "C", "layers", "what norms and feed-forward do to the concentration ratio"),
        Quantity("r_without_first", "r without x₁", "layers", "r without the first token"),
        Quantity("C_without_first", "C without x₁", "layers", "C without the first token"),
        Quantity("spread_input", "S(H)", "layers", "spread of the layer's input"),
        Quantity("spread_attention_input", "S(U)", "layers", "spread of what the attention reads"),
        Quantity("spread_branch", "S(Z)", "layers", "spread of what the attention adds"),
        Quantity("slack", "slack", "layers", "theorem 1: its bound, from λ, over the ratio reached; below 1 it fails"),
        Quantity("slack_proven", "proven slack", "layers", "the same with σₐ in place of λ, which holds for any text"),
        Quantity("high_frequency", "log ‖PX‖/‖PH‖", "layers", "growth of the deviations from the mean over the layer"),
        Quantity("high_frequency_branch", "log ‖PZ‖/‖PU‖", "layers", "the same over the attention branch"),
        Quantity("high_frequency_bound", "log Σ σₐ‖W_V W_O‖", "layers", "bound of the branch"),
        Quantity("high_frequency_published", "log(max σₐ·H·max ‖W_V‖)", "layers", "the published bound, without W_O"),
    )
}


@dataclass(frozen=True)
class Means:
    """Means over texts with their intervals, one entry a layer or state; `texts` is how many have the number.

    A text whose tokens are one, or all alike but for rounding, has no deviations, so that C and the logarithms are not
    defined for it. NaN: no text, or too few for an interval, and `no_interval` says why. `unit`: what intervals are
    over.
    """

    mean: Array
    low: Array
    high: Array
    texts: Index
    level: float
    unit: str
    no_interval: str = ""


@dataclass(frozen=True)
class StateSocm:
    """SOCM of one state: mean over pairs with its interval, the means of d_μ and d_Σ, and theorem 2 on every pair.

    SOCM and d_Σ stay below 1 only while tr Σ ≤ 2: `above_trace` is the share of the texts that break this, and
    `covariance_distance_over_trace` the mean of BW²/(tr Σ₁ + tr Σ₂), which is in [0, 1] always. Theorem 2:
    d_Σ ≤ (tr Σ₁ + tr Σ₂)/4. `largest_share` is the largest d_Σ over that bound; `violations` counts the pairs above it
    by more than rounding. `without_first` holds mean SOCM, d_μ, d_Σ and `above_trace` without the first tokens, where
    these are sinks.
    """

    state: str
    pairs: int
    estimate: Estimate
    mean_distance: float = field(metadata=key("mean_d_mu"))
    covariance_distance: float = field(metadata=key("mean_d_sigma"))
    above_trace: float
    covariance_distance_over_trace: float = field(metadata=key("mean_d_sigma_trace"))
    largest_share: float
    violations: int
    without_first: tuple[float, float, float, float] | None = None

    @property
    def mean(self) -> float:
        """Mean SOCM over the pairs."""
        return self.estimate.value_or_raise

    @property
    def low(self) -> float | None:
        """Lower end of the interval of the mean; None where there are too few texts for one."""
        return None if self.estimate.interval is None else self.estimate.interval.low

    @property
    def high(self) -> float | None:
        """Upper end of the interval of the mean."""
        return None if self.estimate.interval is None else self.estimate.interval.high

    def derived(self) -> dict[str, float | None]:
        """The mean and its interval by names of their own."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Theorem1Check:
    """Theorem 1 in one layer: for how many texts its bound holds, and how much room there is (bound/reached).

    The theorem speaks of λ < 1 only: `premise` counts the texts in which every head meets that, `premise_holds` those
    among them for which the bound holds. `proven_*`: the same for the bound with σₐ, which must hold for every text.
    """

    layer: int
    texts: int
    holds: int
    premise: int
    premise_holds: int
    smallest_slack: float | None
    median_slack: float | None
    proven_holds: int
    proven_smallest_slack: float | None


@dataclass(frozen=True, repr=False, kw_only=True)
class LayersResult(Result):
    """The anatomy of a model's layers on some texts.

    `values[name]` holds one array a quantity (see QUANTITIES): texts × states, × layers, or × layers × heads. `states`
    names the clouds between layers ("0" … "L", and "output" where the model normalises after its last layer). `norms`
    and `value_norms` (layers × heads) are ‖W_V W_O‖₂ and ‖W_V‖₂. `pre_norm`, `post_norm` (one entry a layer): is there
    a norm before the attention, and one after W_O, which makes Z not linear and leaves theorem 1 aside? `lengths`
    counts the tokens that attend to each other, `truncated` those that were cut off.
    """

    model: str
    states: tuple[str, ...]
    norms: Array = field(repr=False)
    value_norms: Array = field(repr=False)
    pre_norm: tuple[bool, ...]
    post_norm: tuple[bool, ...]
    socm: tuple[StateSocm, ...] | None = field(repr=False)
    ids: tuple[str, ...] = bulk(required=True)
    lengths: Index = bulk(required=True)
    truncated: Index = bulk(required=True)
    values: Mapping[str, Array] = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    shown_rows = 0

    def in_words(self) -> tuple[str, ...]:
        """What the numbers say, in plain words: how the tokens of a text move together, and where most."""
        cosine, tight = self.means("cosine").mean, self.means("concentration_ratio").mean
        first, last = self.states[0], self.states[-1]
        more = "more" if cosine[-1] > cosine[0] else "less"
        lines = [
            f"The tokens of a text become {more} alike: their mean cosine goes from {cosine[0]:.2f} (state {first}) to "
            f"{cosine[-1]:.2f} (state {last})."
        ]
        steps = [math.log(after / before) for before, after in itertools.pairwise(tight) if before > 0 and after > 0]
        if len(steps) == len(tight) - 1 and steps:
            largest = min(range(len(steps)), key=steps.__getitem__)
            shrinks = f"shrinks most in layer {self.states[largest + 1]}" if steps[largest] < 0 else "never shrinks"
            lines.append(
                f"The spread of a text around its mean goes from {tight[0]:.2f} to {tight[-1]:.2f} times the squared "
                f"length of the mean; it {shrinks}."
            )
        if self.socm is not None:
            low, high = self.socm[0].mean, self.socm[-1].mean
            lines.append(f"SOCM, which is high where averaging hides a difference, goes from {low:.3f} to {high:.3f}.")
        return tuple(lines)

    def __repr__(self) -> str:
        kind = "post-norm" if not any(self.pre_norm) else "pre-norm"
        return f"LayersResult({self.model}: {len(self.ids):,} texts, {self.layers} layers, {kind})"

    @property
    def layers(self) -> int:
        """Number of layers; layer l reads state l − 1 and gives state l."""
        return len(self.pre_norm)

    def __getitem__(self, name: str) -> Array:
        """The values of one quantity, texts first."""
        if name not in self.values:
            raise InputError(
                f"received the quantity {name!r}; allowed: {', '.join(QUANTITIES)}.{did_you_mean(name, QUANTITIES)}"
            )
        return self.values[name]

    def per_text(self, name: str) -> Array:
        """The values of one quantity, averaged over heads where there is one a head (texts × layers or states)."""
        values = self[name]
        return values if values.ndim == 2 else _mean(values, axis=2)

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Texts of several tokens that are all alike, but for rounding, in some layer: C or a growth is not defined."""
        undefined = ~np.isfinite(self["high_frequency"]) | ~np.isfinite(self["C"])
        return np.asarray((self.lengths > 1) & undefined.any(axis=1))

    def means(self, name: str, *, level: float = LEVEL) -> Means:
        """Mean over texts by layer or state, with its interval over texts, or over documents where the ids tell."""
        values, units = self.per_text(name), chosen_units(len(self.ids), groups_of_ids(list(self.ids)))
        defined = np.isfinite(values)
        found = [
            mean_estimate(own[known], units.among(known), level=level)
            for own, known in zip(values.T, defined.T, strict=True)
        ]
        ends = [
            (np.nan, np.nan) if each.interval is None else (each.interval.low, each.interval.high) for each in found
        ]
        low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
        why = next((each.no_interval for each in found if each.no_interval), "")
        return Means(_mean(values, axis=0), low, high, defined.sum(axis=0), level, units.name, why)

    def theorem_1(self) -> list[Theorem1Check]:
        """Theorem 1 by layer; texts without deviations, which have nothing to concentrate, are not counted."""
        contracts = np.asarray(~(self["lambda"] >= 1).any(axis=2))
        return [
            _theorem_1(layer + 1, self["slack"][:, layer], self["slack_proven"][:, layer], contracts[:, layer])
            for layer in range(self.layers)
        ]

    def to_table(self) -> pa.Table:
        """One row a text and state: what is measured of the state, and of the layer that gave it (null for state 0)."""
        texts, states = len(self.ids), len(self.states)
        columns: dict[str, Any] = {
            "id": pa.array(np.repeat(self.ids, states).tolist(), pa.string()),
            "tokens": np.repeat(self.lengths, states),
            "layer": np.tile(np.arange(states), texts),
            "state": pa.array(list(self.states) * texts, pa.string()),
        }
        for name, quantity in QUANTITIES.items():
            aligned = self.per_text(name) if quantity.over == "states" else self._at_states(self.per_text(name))
            columns[name] = pa.array(aligned.reshape(-1), pa.float64(), from_pandas=True)
            if quantity.over == "heads":
                columns[f"{name}_by_head"] = _lists(self._at_states(self.values[name]))
        return with_provenance(pa.table(columns), self.provenance)

    def derived(self) -> dict[str, Any]:
        """Counts of texts, means with intervals and the checks of theorem 1."""
        return {
            "texts": len(self.ids),
            "tokens": self.lengths.sum(),
            "one_token_texts": (self.lengths == 1).sum(),
            "constant_texts": self.constant.sum(),
            "texts_truncated": (self.truncated > 0).sum(),
            "tokens_truncated": self.truncated.sum(),
            "means": {
                name: {"symbol": quantity.symbol, "over": quantity.over, **vars(self.means(name))}
                for name, quantity in QUANTITIES.items()
            },
            "theorem_1": self.theorem_1(),
        }

    def figure(self) -> Any:
        """All panels by layer on one sheet."""
        return layers_sheet(self)

    def _at_states(self, values: Array) -> Array:
        """Values by layer moved to the state that the layer gives; NaN for state 0, and for a norm after the last."""
        extra = len(self.states) - 1 - self.layers
        return np.pad(values, [(0, 0), (1, extra), *[(0, 0)] * (values.ndim - 2)], constant_values=np.nan)


def _mean(values: Array, *, axis: int) -> Array:
    """Mean of the finite values; NaN where there is none."""
    finite = np.isfinite(values)
    count = finite.sum(axis=axis)
    total = np.where(finite, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def _theorem_1(layer: int, slack: Array, proven: Array, contracts: NDArray[np.bool_]) -> Theorem1Check:
    contracts = contracts[np.isfinite(slack)]
    slack, proven = slack[np.isfinite(slack)], proven[np.isfinite(proven)]
    rounding = 1 - 1e-6
    return Theorem1Check(
        layer=layer,
        texts=len(slack),
        holds=int((slack >= rounding).sum()),
        premise=int(contracts.sum()),
        premise_holds=int((slack[contracts] >= rounding).sum()),
        smallest_slack=float(slack.min()) if len(slack) else None,
        median_slack=float(np.median(slack)) if len(slack) else None,
        proven_holds=int((proven >= rounding).sum()),
        proven_smallest_slack=float(proven.min()) if len(proven) else None,
    )


def _lists(values: Array) -> pa.Array:
    """The last axis as lists; null where all of it is NaN."""
    flat = values.reshape(-1, values.shape[-1])
    return pa.array([None if np.isnan(row).all() else row.tolist() for row in flat], pa.list_(pa.float64()))


# -- states in which the first token is many times as long as the others, and decides every mean ----------------------

# From this many times the median length of the others on, the first token is called a sink.
SINK_TIMES = 5.0
# What is told of a sink, by symbol: quantities of its state and of the layer that gave it, with the first token and
# without it, and numbers of pairs.
_OF_STATES = {
    "S/‖μ‖²": ("concentration_ratio", "concentration_without_first"),
    "cosine": ("cosine", "cosine_without_first"),
}
_OF_LAYERS = {"r": ("r", "r_without_first"), "C": ("C", "C_without_first")}
_OF_PAIRS = ("SOCM", "d_μ", "d_Σ", "texts with tr Σ > 2")


@dataclass(frozen=True)
class Sink:
    """A state whose first token is a sink: `times` is the median over texts of its length beside the others.

    `texts` is the share of texts in which it is one. `numbers` has, by symbol, each number with that token and without
    it: the mean S/‖μ‖² (which is tr Σ at unit mean), the mean cosine of the tokens, r and C of the layer that gave the
    state (not of state 0 and of a final norm), and, where pairs were measured, the mean SOCM, d_μ and d_Σ and the share
    of texts with tr Σ > 2. λ and σₐ are of attention, which sees the first token always.
    """

    state: str
    times: float
    texts: float
    numbers: Mapping[str, tuple[float, float]]


def sinks(result: LayersResult) -> list[Sink]:
    """The states in which the first token is a sink in most texts."""
    times = result["first_norm"]
    return [_sink(result, k, times[np.isfinite(times[:, k]), k]) for k in np.flatnonzero(sink_states(times)).tolist()]


def _sink(result: LayersResult, state: int, times: Array) -> Sink:
    def means(quantities: Mapping[str, tuple[str, str]], place: int) -> dict[str, tuple[float, float]]:
        return {
            symbol: (float(result.means(whole).mean[place]), float(result.means(rest).mean[place]))
            for symbol, (whole, rest) in quantities.items()
        }

    numbers = means(_OF_STATES, state)
    if 1 <= state <= result.layers:
        numbers |= means(_OF_LAYERS, state - 1)
    pairs = None if result.socm is None else result.socm[state]
    if pairs is not None and pairs.without_first is not None:
        whole = (pairs.mean, pairs.mean_distance, pairs.covariance_distance, pairs.above_trace)
        numbers |= dict(zip(_OF_PAIRS, zip(whole, pairs.without_first, strict=True), strict=True))
    return Sink(result.states[state], float(np.median(times)), float((times >= SINK_TIMES).mean()), numbers)


def sink_states(times: Array) -> NDArray[np.bool_]:
    """In which states (columns) is the first token a sink in most texts (rows)?"""
    defined = np.isfinite(times)
    high = (np.where(defined, times, 0.0) >= SINK_TIMES).sum(axis=0)
    return np.asarray((defined.sum(axis=0) > 0) & (2 * high > defined.sum(axis=0)))


# -- figures ----------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 480, 330  # of one panel, in pixels


@dataclass(frozen=True)
class Curve:
    """What is drawn for one model: places, values with their interval, and the look of the line."""

    x: Any
    mean: Any
    low: Any
    high: Any
    dash: str = "solid"
    label: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: its title, its vertical axis, the quantities that it shows, and a line to compare with."""

    title: str
    axis: str
    shown: tuple[str, ...]
    reference: float | None = None
    log: bool = False

    def curves(self, result: LayersResult) -> list[Curve]:
        """The curves of those quantities that were measured."""
        return [curve for name in self.shown if (curve := _curve(result, name)) is not None]


# Dash and label of quantities that share a panel.
_LOOKS = {
    "high_frequency": ("solid", "layer"),
    "high_frequency_branch": ("dash", "attention branch"),
    "high_frequency_bound": ("dot", "bound of the branch"),
    "high_frequency_published": ("dashdot", "published bound"),
}


def _curve(result: LayersResult, name: str) -> Curve | None:
    """A quantity by state from 0, by layer from 1; None where it was not measured."""
    if name != "socm":
        means = result.means(name)
        mean, low, high = means.mean, means.low, means.high
    elif result.socm is not None:
        rows = [(state.mean, state.low, state.high) for state in result.socm]
        mean, low, high = np.array(rows, dtype=np.float64).T  # no interval: NaN
    else:
        return None
    first = 0 if len(mean) == len(result.states) else 1
    return Curve(np.arange(first, first + len(mean)), mean, low, high, *_LOOKS.get(name, ()))


PANELS = {
    "lambda": Panel("What attention does to the spread", "λ, mean over heads", ("lambda",), reference=1.0),
    "r": Panel("Spread left in the residual", "r = S(H)/‖μ(Y)‖²", ("r",), log=True),
    "C": Panel("What norms and feed-forward do", "C", ("C",), reference=1.0),
    "concentration_ratio": Panel("Concentration of the clouds", "S(X)/‖μ(X)‖²", ("concentration_ratio",), log=True),
    "cosine": Panel("Tokens of a text among each other", "within-text cosine", ("cosine",)),
    "socm": Panel("Second-order collapse", "SOCM, mean over pairs", ("socm",)),
    "sigma_a": Panel("Largest singular value of PA", "σ<sub>a</sub>, mean over heads", ("sigma_a",), reference=1.0),
    "high_frequency": Panel(
        "Deviations: layer (—), branch (– –), bound (···), published (–·)",
        "log of the ratio of norms",
        tuple(_LOOKS),
        reference=0.0,
    ),
}
PAPER = ("lambda", "r", "C", "concentration_ratio")


def layers_figure(*results: LayersResult, panels: Sequence[str] = PAPER) -> Any:
    """The panels by layer for one model, or for several side by side; bands are 95 % intervals over texts.

    Without `panels`, the four of Hara et al. (ACL 2026): λ, r, C and the concentration ratio. Allowed are the keys of
    PANELS; `layers_sheet` shows all. Layer 0 is the embedding output.
    """
    if not results or not panels or (unknown := [name for name in panels if name not in PANELS]):
        received = f"the panels {unknown}" if results and panels else f"{len(results)} results and {len(panels)} panels"
        raise InputError(f"received {received}; needed: at least one result, and panels among {', '.join(PANELS)}.")
    chosen = [PANELS[name] for name in panels]
    figure, places, (across, down) = grid([panel.title for panel in chosen], 2)
    for number, panel in enumerate(chosen):
        _draw(figure, places[number], panel, results, legend=number == 0)
    texts = " and ".join(dict.fromkeys(f"{len(result.ids):,}" for result in results))
    title = f"Anatomy of the layers · {texts} texts · bands: 95% intervals"
    return style(figure, title=title, width=_WIDTH * across, height=_HEIGHT * down + 110)


def layers_sheet(*results: LayersResult) -> Any:
    """All panels on one sheet; that of SOCM only where it was measured."""
    measured = any(result.socm is not None for result in results)
    return layers_figure(*results, panels=[name for name in PANELS if name != "socm" or measured])


def _draw(figure: Any, place: dict[str, int], panel: Panel, results: Sequence[LayersResult], *, legend: bool) -> None:
    axis = _vertical(panel, [curve for result in results for curve in panel.curves(result)])
    floor = 10.0 ** axis["range"][0] if panel.log and axis else -np.inf
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(results))]
    for result, name, colour in zip(results, _names(results), colours, strict=True):
        for curve in panel.curves(result):
            for trace in _traces(curve, name, colour, result.states, floor=floor, legend=legend):
                figure.add_trace(trace, **place)
    if panel.reference is not None:
        figure.add_hline(panel.reference, line={"color": GREY, "width": 1, "dash": "dash"}, **place)
    figure.update_yaxes(title_text=panel.axis, title_standoff=8, **place, **axis)
    longest = max((result.states for result in results), key=len)
    step = -(-len(longest) // 13)
    shown = list(range(0, len(longest), step))
    if longest[-1] == "output":  # named even where not every layer is
        shown = [*(k for k in shown if k <= len(longest) - 1 - step), len(longest) - 1]
    figure.update_xaxes(
        title_text="layer",
        title_standoff=4,
        range=[-0.4, len(longest) - 0.6],
        tickvals=shown,
        ticktext=[longest[k] for k in shown],
        **place,
    )


def _vertical(panel: Panel, curves: Sequence[Curve]) -> dict[str, Any]:
    """Range and ticks of the vertical axis: a tenth of air around what is drawn, round numbers on a log scale.

    An interval that reaches down to nothing must not stretch a log scale: it is cut at half of the smallest mean.
    """
    means = _finite([curve.mean for curve in curves], above=0.0 if panel.log else -np.inf)
    if not len(means):
        return {}
    drawn = _finite([part for curve in curves for part in (curve.mean, curve.low, curve.high)])
    if panel.log:
        drawn = np.log10(np.maximum(drawn, means.min() / 2))
    elif panel.reference is not None:
        drawn = np.append(drawn, panel.reference)
    air = max(float(np.ptp(drawn)), 1e-3) / 10
    low, high = float(drawn.min()) - air, float(drawn.max()) + air
    if not panel.log:
        return {"range": [low, high]}
    steps = (1, 1.5, 2, 3, 4, 5, 7) if high - low < 1 else (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = [step * 10.0**power for power in range(int(low) - 2, int(high) + 2) for step in steps]
    return {"type": "log", "range": [low, high], "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _finite(parts: Sequence[Any], *, above: float = -np.inf) -> Any:
    joined = np.concatenate([np.zeros(0), *(np.asarray(part, dtype=np.float64) for part in parts)])
    return joined[np.isfinite(joined) & (joined > above)]


def _names(results: Sequence[LayersResult]) -> list[str]:
    """One name a model in the legend: its last part, the whole where two end alike, numbered where two are the same."""
    short = [short_name(result.model) for result in results]
    whole = [name if short.count(name) == 1 else result.model for name, result in zip(short, results, strict=True)]
    return [
        name if whole.count(name) == 1 else f"{name} ({whole[:place].count(name) + 1})"
        for place, name in enumerate(whole)
    ]


def _traces(curve: Curve, model: str, colour: str, states: Sequence[str], *, floor: float, legend: bool) -> list[Any]:
    """The band of the interval, cut at the floor of the panel, and the line over it."""
    go = require("plotly.graph_objects", "report")
    name = f"{model}: {curve.label}" if curve.label else model
    low, high = (np.asarray(edge, dtype=np.float64) for edge in (curve.low, curve.high))
    band = go.Scatter(
        x=np.concatenate([curve.x, curve.x[::-1]]),
        y=np.maximum(np.concatenate([high, low[::-1]]), floor),
        mode="lines",
        fill="toself",
        fillcolor=translucent(colour, 0.18),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=model,
    )
    line = go.Scatter(
        x=curve.x,
        y=curve.mean,
        mode="lines+markers",
        name=name,
        legendgroup=model,
        showlegend=legend,
        line={"color": colour, "width": 2.5, "dash": curve.dash},
        marker={"size": 6},
        customdata=np.stack([low, high], axis=1),
        text=[states[int(k)] for k in curve.x],
        hovertemplate=f"{name}<br>layer %{{text}}: %{{y:.4g}}<br>95%: %{{customdata[0]:.4g}} to %{{customdata[1]:.4g}}"
        "<extra></extra>",
    )
    return [band, line] if np.isfinite(low).any() else [line]
