"""The result of the token statistics: Q, M and V of every group by layer, what they add up to, how they go together.

Its figures show one model, or several beside each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.errors import InputError, did_you_mean, require
from poolscope.lab.items import MIN_ITEMS, Correlation
from poolscope.lab.tokens.moments import TokenMoments, save_state
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.streaming import Decomposition
from poolscope.results import Result, bulk, cells, column_rows, key, origin, plain, transient, with_provenance
from poolscope.show.charts import COLOURS, GREY, curve, error_bars, grid, short_name, style

_TABLE = ["layer", "id", "name", "special", "count", "mean_square", "norm_of_mean", "variance"]
_PAIRS = ("mean_and_variance", "mean_and_frequency", "variance_and_frequency")


@dataclass(frozen=True)
class GroupNames:
    """Groups of tokens, most frequent first: vocabulary id (or number of the label), name, number of tokens."""

    ids: Index
    names: tuple[str, ...]
    counts: Index

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class GroupColumns:
    """One entry a group, in the order of its `GroupNames`: Q = M + V for every group.

    `mean_squares` Q: mean of ‖x‖² over the tokens of the group; `norms_of_means` M: ‖mean of x‖²; `variances` V: sum of
    the variances of the dimensions.
    """

    mean_squares: Array
    norms_of_means: Array
    variances: Array

    def corrected(self, counts: Index) -> tuple[Array, Array]:
        """M and V without the bias of a small sample: M − V/(n − 1) and V·n/(n − 1); their sum is still Q.

        The mean of n independent tokens is off by V/n in its squared norm, so rare groups seem to have a larger M. All
        groups need two tokens or more; M can come out below 0.
        """
        shift = self.variances / (counts - 1)
        return self.norms_of_means - shift, self.variances + shift


@dataclass(frozen=True)
class Associations:
    """Correlations over the groups: of M with V, and of each with the logarithm of the number of tokens."""

    mean_and_variance: Correlation
    mean_and_frequency: Correlation
    variance_and_frequency: Correlation


def corpus_numbers(corpus: Decomposition, mean_cosine: float | None) -> dict[str, float | None]:
    """The corpus-level numbers that have an interval over texts, by name."""
    mean_share, within_share, between_share = corpus.shares
    return {
        "mean_square": corpus.mean_square,
        "norm_of_mean": corpus.norm_of_mean,
        "variance": corpus.variance,
        "within": corpus.within,
        "between": corpus.between,
        "mean_share": mean_share,
        "within_share": within_share,
        "between_share": between_share,
        "mean_cosine": mean_cosine,
    }


@dataclass(frozen=True, kw_only=True)
class LayerTokens:
    """One layer.

    `corpus`: all ordinary tokens, with the groups as clusters; the pool of rare groups, if there is one, counts as one
    cluster, so `corpus.within` may be too high by at most `within_excess` (and `corpus.between` too low by as much).
    `mean_cosine`: mean cosine over all pairs of ordinary tokens, without the `zero_vectors`. `intervals`: those of the
    numbers that `corpus_numbers` names, over texts (empty if one text is all there is); `estimate` has both. `types`
    and `special`: columns for the groups of `TokenStatistics.types` and `.special`. The last three are over the groups
    with at least `min_count` tokens: `variation`, the coefficient of variation of Q; `associations`, of M and V as
    defined; `corrected`, the same with M and V freed of what few tokens do to them (see `GroupColumns.corrected`).
    """

    layer: int
    corpus: Decomposition
    within_excess: float
    mean_cosine: float | None
    zero_vectors: int
    intervals: Mapping[str, Interval]
    variation: Estimate = field(metadata=key("variation_estimate"))
    associations: Associations
    corrected: Associations
    types: GroupColumns = bulk(required=True, key="type_columns")
    special: GroupColumns = bulk(required=True, key="special_columns")

    def estimate(self, name: str) -> Estimate:
        """A corpus-level number (`mean_square`, `within_share`, …; see `corpus_numbers`) with its interval."""
        numbers = corpus_numbers(self.corpus, self.mean_cosine)
        if name not in numbers:
            raise InputError(f"received the name {name!r}; allowed: {', '.join(numbers)}.{did_you_mean(name, numbers)}")
        return Estimate(numbers[name], self.intervals.get(name))

    def derived(self) -> dict[str, Any]:
        """The numbers of the layer by name, without those of single groups; intervals as `…_low` and `…_high`."""
        correlations = {
            f"{prefix}{pair}_{kind}": getattr(getattr(associations, pair), kind)
            for prefix, associations in (("", self.associations), ("corrected_", self.corrected))
            for pair in _PAIRS
            for kind in ("pearson", "spearman")
        }
        return {
            "layer": self.layer,
            "tokens": self.corpus.count,
            **cells({name: self.estimate(name) for name in corpus_numbers(self.corpus, self.mean_cosine)}, ends=True),
            "within_excess": self.within_excess,
            "residual": self.corpus.residual,
            "zero_vectors": self.zero_vectors,
            **cells({"variation": self.variation, **correlations}, ends=True),
        }


@dataclass(frozen=True)
class Coverage:
    """Basis of the statistics: tokens and groups read, counted and left out.

    `kept` of the `groups` (special ones apart) have numbers of their own; the `pooled_tokens` of the others are one
    group. `counted` of the kept have at least `min_count` tokens. `missed` of the pooled groups have more tokens than
    the rarest kept one: 0 means that the kept are the most frequent. `special_known`: special tokens are told apart.
    """

    texts: int
    tokens: int
    special_tokens: int
    groups: int
    kept: int
    counted: int
    pooled_tokens: int
    missed: int
    truncated_texts: int
    truncated_tokens: int
    special_known: bool


@dataclass(frozen=True, repr=False, kw_only=True)
class TokenStatistics(Result):
    """Norm and variance of token embeddings by layer and group (Yamagiwa and Shimodaira, arXiv 2409.11253).

    `types` are the kept groups (token types, or the labels that were given) and `special` the special tokens; every
    layer has their Q, M and V. `moments` is the running state behind the numbers: it merges, and can be saved; a
    result that was loaded from a file has none.
    """

    grouping: str
    min_count: int
    layers: tuple[LayerTokens, ...]
    coverage: Coverage
    types: GroupNames = bulk(required=True)
    special: GroupNames = bulk(required=True)
    provenance: Mapping[str, Any] = origin()
    moments: TokenMoments | None = transient()

    def in_words(self) -> tuple[str, ...]:
        """What the squared lengths of the tokens are made of, in the last layer and in the first one."""
        parts = ("mean_share", "between_share", "within_share")
        shares = {name: [layer.estimate(name).value for layer in (self.layers[0], self.layers[-1])] for name in parts}
        if any(value is None for both in shares.values() for value in both):
            return ()
        (all_first, all_last), (word_first, word_last), (context_first, context_last) = shares.values()
        lines = [
            f"In the last layer, {all_last:.0%} of the squared length of tokens is shared by all, {word_last:.0%} goes "
            f"with the {self.grouping}, and {context_last:.0%} with the context."
        ]
        if len(self.layers) > 1:
            lines.append(
                f"In layer {self.layers[0].layer} these shares are {all_first:.0%}, {word_first:.0%} and "
                f"{context_first:.0%}."
            )
        return tuple(lines)

    def __repr__(self) -> str:
        plural = "" if len(self.layers) == 1 else "s"
        return (
            f"TokenStatistics({len(self.layers)} layer{plural}, {self.coverage.tokens:,} tokens, "
            f"{self.coverage.groups:,} {self.grouping}s)"
        )

    def __getitem__(self, layer: int) -> LayerTokens:
        """One layer by its number (0 = embedding output; negative from the end)."""
        numbers = [own.layer for own in self.layers]
        if layer in numbers:
            return self.layers[numbers.index(layer)]
        if -len(self.layers) <= layer < 0:
            return self.layers[layer]
        raise InputError(f"layer {layer} was asked for; measured: {numbers}.")

    @property
    def model(self) -> str:
        """Name of the model."""
        return str((self.provenance["clouds"][0].get("model") or {}).get("name", "unknown model"))

    def merge(self, other: TokenStatistics) -> TokenStatistics:
        """The statistics of the tokens of both, as if measured in one pass (see `TokenMoments.merge`)."""
        from poolscope.lab.tokens.summary import summarise

        seed = int(self.provenance["settings"]["seed"])
        return summarise(self._state().merge(other._state()), min_count=self.min_count, seed=seed)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Save the running state, to be merged or continued later."""
        save_state(self._state(), path)

    def _state(self) -> TokenMoments:
        if self.moments is None:
            raise InputError(
                "this result was loaded from a file, which keeps its numbers and not its running state. Merge and "
                "continue the state that save_state wrote."
            )
        return self.moments

    def notes(self) -> list[str]:
        """What a reader of the numbers should know, in sentences."""
        part, kind = self.coverage, self.grouping
        notes = [
            f"{part.counted:,} of {part.groups:,} {kind}s have {self.min_count} tokens or more; the variation of Q and "
            f"the correlations are over these."
        ]
        if 0 < part.counted < MIN_ITEMS:
            notes.append(
                f"No interval over fewer than {MIN_ITEMS} {kind}s: so few cannot tell how far others like them would "
                f"differ."
            )
        if part.pooled_tokens:
            share = part.pooled_tokens / (part.tokens - part.special_tokens)
            notes.append(
                f"{part.groups - part.kept:,} rare {kind}s ({share:.1%} of the tokens) are pooled and count as one "
                f"cluster."
            )
        if part.missed:
            notes.append(
                f"{part.missed:,} of the pooled {kind}s turned out more frequent than the rarest one that was kept; "
                f"raise max_types to keep them."
            )
        if not part.special_known:
            notes.append("It is not known which tokens are special; they count as ordinary ones.")
        if part.truncated_tokens:
            notes.append(
                f"{part.truncated_texts:,} of {part.texts:,} texts are truncated; the model never reads "
                f"{part.truncated_tokens:,} tokens."
            )
        if zeros := max(layer.zero_vectors for layer in self.layers):
            notes.append(f"Up to {zeros:,} tokens of a layer are zero vectors and have no cosine.")
        return notes

    def to_table(self) -> pa.Table:
        """One row a layer and group: layer, id, name, special, count, mean_square, norm_of_mean, variance."""
        parts = []
        for layer in self.layers:
            for groups, columns, special in ((self.types, layer.types, False), (self.special, layer.special, True)):
                listed = _columns(groups, columns) | {"name": pa.array(groups.names, pa.string())}
                place = {"layer": np.full(len(groups), layer.layer, np.int32), "special": np.full(len(groups), special)}
                parts.append(pa.table(place | listed).select(_TABLE))
        return with_provenance(pa.concat_tables(parts), self.provenance)

    def layer_table(self) -> pa.Table:
        """One row a layer: everything but the single groups."""
        rows = [plain(layer.derived()) for layer in self.layers]
        floats = {name: pa.float64() for name in rows[0]}
        schema = pa.schema({**floats, "layer": pa.int32(), "tokens": pa.int64(), "zero_vectors": pa.int64()})
        return with_provenance(pa.Table.from_pylist(rows, schema=schema), self.provenance)

    def derived(self) -> dict[str, Any]:
        """Notes, and the populations of the intervals."""
        return {"notes": self.notes(), "intervals": self.interval_meanings()}

    def to_dict(self, *, arrays: bool = False, groups: int = 50) -> dict[str, Any]:
        """Everything in plain types; of the groups the most frequent (`to_table` has all) and the special ones."""
        content = super().to_dict(arrays=arrays)
        if not arrays:
            for layer, numbers in zip(self.layers, content["layers"], strict=True):
                numbers["types"] = _rows(self.types, layer.types, min(groups, len(self.types)))
                numbers["special"] = _rows(self.special, layer.special, len(self.special))
        return content

    def figure(self) -> Any:
        """M against V, the shares of the mean squared norm, variation and correlations, on one sheet."""
        return tokens_figure(self)

    def interval_meanings(self) -> dict[str, str]:
        """Population and method of each kind of interval that the result has.

        `corpus`: of Q, M, V, V_W, V_B, the shares and the mean cosine; `variation`: of that of Q over the groups;
        `correlations`: of those over the groups.
        """
        candidates = {
            "corpus": (layer.intervals.get("mean_square") for layer in self.layers),
            "variation": (layer.variation.interval for layer in self.layers),
            "correlations": (
                pair.spearman.interval
                for layer in self.layers
                for pair in (layer.associations.mean_and_variance, layer.corrected.mean_and_frequency)
            ),
        }
        first = {name: next((i for i in each if i is not None), None) for name, each in candidates.items()}
        return {name: f"{i.level:.0%} for {i.answers}; {i.method}" for name, i in first.items() if i is not None}


def _columns(groups: GroupNames, columns: GroupColumns) -> dict[str, Any]:
    """Groups column by column, by the names of tables and files."""
    return {
        "id": groups.ids,
        "name": np.array(groups.names, dtype=object),
        "count": groups.counts,
        "mean_square": columns.mean_squares,
        "norm_of_mean": columns.norms_of_means,
        "variance": columns.variances,
    }


def _rows(groups: GroupNames, columns: GroupColumns, shown: int) -> list[dict[str, Any]]:
    return column_rows(**{name: values[:shown] for name, values in _columns(groups, columns).items()})


# -- figures ------------------------------------------------------------------------------------------------------

_PARTS = {
    "mean_share": ("M/Q: mean", "#0072B2"),
    "within_share": ("V_W/Q: within", "#E69F00"),
    "between_share": ("V_B/Q: between", "#009E73"),
}
_SPECIAL = "#D55E00"
_COLUMNS = 4
_PANEL = (330, 300)  # width and height of one panel, in pixels
_MOST_POINTS = 1000  # of a panel: a page with more gets slow; the note of the sheet says how many are left out


def tokens_figure(*results: TokenStatistics) -> Any:
    """M against V, what the mean squared norm is made of, and how Q varies, layer by layer, on one sheet.

    M against V: the groups with `min_count` tokens or more, at most the 1,000 most frequent, special tokens as crosses.
    The dashed line is M + V = Q with Q the mean over all of them: the closer the points, the less the norms vary. At
    most eight layers of a model are shown (four if there are several models), and the note says what is left out. A
    whisker at the upper end of a share is the interval of its height (over texts), not of its place.
    """
    points = _point_panels(results)
    points += [("", None)] * (-len(points) % _COLUMNS)  # the next kind of panel begins a new row
    title = "Norm and variance of token embeddings"
    panels = [*points, *_share_panels(results), *_curve_panels(results)]
    return _sheet(title, results, panels, note=_left_out(results))


# -- panels -------------------------------------------------------------------------------------------------------

# The title of a panel, and what draws it at a place (its `row` and `col`); None leaves the place empty.
_Panel = tuple[str, Callable[[Any, Mapping[str, int]], None] | None]


def _point_panels(results: Sequence[TokenStatistics]) -> list[_Panel]:
    panels: list[_Panel] = []
    for result in results:
        for layer in _shown(result.layers, of_several=len(results) > 1):
            name = {0: "layer 0 (embeddings)", -1: "last layer"}.get(layer.layer, f"layer {layer.layer}")
            title = name if len(results) == 1 else f"{short_name(result.model)}, {name}"
            panels.append((title, partial(_add_points, result=result, layer=layer)))
        panels += [("", None)] * (-len(panels) % _COLUMNS if result is not results[-1] else 0)
    return panels


def _shown(layers: Sequence[LayerTokens], *, of_several: bool) -> list[LayerTokens]:
    """The layers that have a panel: all, or some at equal distances, the first and the last among them."""
    most = min(len(layers), _COLUMNS if of_several else 2 * _COLUMNS)
    places = np.unique(np.linspace(0, len(layers) - 1, most).round().astype(int))
    return [layers[k] for k in places]


def _left_out(results: Sequence[TokenStatistics]) -> str:
    """What the panels of M against V do not show, in one line; empty where they show everything."""
    parts = []
    for result in results:
        shown, layers = len(_shown(result.layers, of_several=len(results) > 1)), len(result.layers)
        missing = [f"{shown} of {layers} layers"] if shown < layers else []
        if result.coverage.counted > _MOST_POINTS:
            missing.append(f"the {_MOST_POINTS:,} most frequent of {result.coverage.counted:,} {result.grouping}s")
        if missing:
            parts.append(f"{short_name(result.model)}: " * (len(results) > 1) + ", ".join(missing))
    return f"M against V shows {' · '.join(parts)}" if parts else ""


def _share_panels(results: Sequence[TokenStatistics]) -> list[_Panel]:
    return [
        (f"shares: {short_name(result.model)}", partial(_add_shares, result=result, legend=result is results[0]))
        for result in results
    ]


def _curve_panels(results: Sequence[TokenStatistics]) -> list[_Panel]:
    legend = {name: len(results) > 1 and name == next(iter(_CURVES)) for name in _CURVES}
    return [(name, partial(_add_curves, results=results, name=name, legend=legend[name])) for name in _CURVES]


def _add_points(figure: Any, place: Mapping[str, int], result: TokenStatistics, layer: LayerTokens) -> None:
    go = require("plotly.graph_objects", "report")
    shown = slice(min(result.coverage.counted, _MOST_POINTS))
    mean, variance, counts = layer.types.norms_of_means[shown], layer.types.variances[shown], result.types.counts[shown]
    hover = "<b>%{text}</b><br>M %{x:.3g}<br>V %{y:.3g}<br>%{customdata:,} tokens<extra></extra>"
    look: dict[str, Any] = {"mode": "markers", "hovertemplate": hover, "showlegend": False}
    marker = {"size": 4, "opacity": 0.7, "color": np.log10(counts), "coloraxis": "coloraxis"}
    names = result.types.names[shown]
    figure.add_trace(go.Scatter(x=mean, y=variance, text=names, customdata=counts, marker=marker, **look), **place)
    if len(mean):
        square = float(layer.types.mean_squares[: result.coverage.counted].mean())
        reach = np.array([max(mean.min(), square - variance.max()), min(mean.max(), square)])
        quiet: dict[str, Any] = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
        figure.add_trace(curve(reach, square - reach, "Q", GREY, width=1, dash="dash", **quiet), **place)
    special = go.Scatter(
        x=layer.special.norms_of_means,
        y=layer.special.variances,
        text=result.special.names,
        customdata=result.special.counts,
        marker={"size": 8, "symbol": "x", "color": _SPECIAL},
        cliponaxis=False,
        **look,
    )
    figure.add_trace(special, **place)
    figure.update_xaxes(title_text="M", rangemode="tozero", **place)
    figure.update_yaxes(title_text="V", rangemode="tozero", **place)


def _add_shares(figure: Any, place: Mapping[str, int], result: TokenStatistics, *, legend: bool) -> None:
    go = require("plotly.graph_objects", "report")
    numbers = [layer.layer for layer in result.layers]

    def series(name: str) -> dict[str, Any]:
        estimates = [layer.estimate(name) for layer in result.layers]
        return {"x": numbers, "y": [one.value for one in estimates], "error_y": error_bars(estimates)}

    for part, (name, colour) in _PARTS.items():
        look: dict[str, Any] = {"width": 0.8, "marker_color": colour, "showlegend": legend, "legendgroup": name}
        figure.add_trace(go.Bar(**series(part), name=name, **look), **place)
    marker = {"color": "black", "size": 8, "symbol": "circle-open", "line": {"width": 2}}
    look = {"mode": "markers", "marker": marker, "showlegend": legend, "legendgroup": "c"}
    figure.add_trace(go.Scatter(**series("mean_cosine"), name="mean cosine", **look), **place)
    figure.update_xaxes(title_text="layer", dtick=max(1, len(numbers) // 8), **place)
    figure.update_yaxes(title_text="share of Q", **place)


_CURVES = {
    "coefficient of variation of Q": lambda layer: layer.variation,
    "Spearman of M and V": lambda layer: layer.associations.mean_and_variance.spearman,
    "Spearman of M and log n, corrected": lambda layer: layer.corrected.mean_and_frequency.spearman,
}


def _add_curves(
    figure: Any, place: Mapping[str, int], results: Sequence[TokenStatistics], name: str, *, legend: bool
) -> None:
    for number, result in enumerate(results):
        estimates: list[Estimate] = [_CURVES[name](layer) for layer in result.layers]
        numbers, values = [layer.layer for layer in result.layers], [estimate.value for estimate in estimates]
        look: dict[str, Any] = {"mode": "lines+markers", "showlegend": legend, "legendgroup": f"model {number}"}
        model, colour = short_name(result.model), COLOURS[number % len(COLOURS)]
        figure.add_trace(curve(numbers, values, model, colour, error_y=error_bars(estimates), **look), **place)
    deepest = max(layer.layer for result in results for layer in result.layers)
    figure.update_xaxes(title_text="layer", dtick=max(1, deepest // 8), **place)
    bounds = {"range": [-1.05, 1.05]} if name.startswith("Spearman") else {"rangemode": "tozero"}
    figure.update_yaxes(**bounds, **place)


# -- the sheet ----------------------------------------------------------------------------------------------------


def _sheet(title: str, results: Sequence[TokenStatistics], panels: Sequence[_Panel], *, note: str = "") -> Any:
    """The panels in reading order under one title, with a note below it."""
    if not results:
        raise InputError("received no results to draw; pass at least one TokenStatistics.")
    figure, places, (across, down) = grid([name for name, _ in panels], _COLUMNS)
    for number, place in enumerate(places):
        draw = panels[number][1] if number < len(panels) else None
        if draw is None:
            figure.update_xaxes(visible=False, **place)
            figure.update_yaxes(visible=False, **place)
        else:
            draw(figure, place)
    ticks = list(range(8))
    bar = {"title": "tokens", "tickvals": ticks, "ticktext": [f"{10**k:,}" for k in ticks]}
    width, height = _PANEL
    style(figure, title=_title(title, results), width=across * width + 170, height=down * height + 150)
    figure.update_layout(
        barmode="stack",
        margin={"r": 110},
        coloraxis={"colorscale": "Viridis", "colorbar": {**bar, "len": 0.45, "y": 0.75}},
    )
    if note:  # its line lies between the title and the legend
        below = {"t": figure.layout.margin.t + 16}
        figure.update_layout(title_subtitle={"text": note, "font": {"size": 13}}, margin=below)
        figure.update_layout(legend_y=figure.layout.legend.y - 20 / figure.layout.height)
    return figure


def _title(title: str, results: Sequence[TokenStatistics]) -> str:
    parts = (f"{short_name(r.model)}: {r.coverage.texts:,} texts, {r.coverage.tokens:,} tokens" for r in results)
    return f"{title} · {' · '.join(dict.fromkeys(parts))}"
