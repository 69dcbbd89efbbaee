"""The result of the token statistics: Q, M and V of every group by layer, what they add up to, how they go together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.metrics.tokens.moments import TokenMoments, save_state
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.items import MIN_ITEMS, Correlation
from poolscope.numbers.streaming import Decomposition
from poolscope.results import Result, bulk, column_rows, key, origin, plain, transient, with_provenance

Array = NDArray[np.float64]

_TABLE = ["layer", "id", "name", "special", "count", "mean_square", "norm_of_mean", "variance"]
_PAIRS = ("mean_and_variance", "mean_and_frequency", "variance_and_frequency")


@dataclass(frozen=True)
class GroupNames:
    """Groups of tokens, most frequent first: vocabulary id (or number of the label), name, number of tokens."""

    ids: NDArray[np.int64]
    names: tuple[str, ...]
    counts: NDArray[np.int64]

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

    def corrected(self, counts: NDArray[np.int64]) -> tuple[Array, Array]:
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
            raise InputError(f"received the name {name!r}; allowed: {', '.join(numbers)}.")
        return Estimate(numbers[name], self.intervals.get(name))

    def derived(self) -> dict[str, Any]:
        """The numbers of the layer by name, without those of single groups; intervals as `…_low` and `…_high`."""
        result: dict[str, Any] = {"layer": self.layer, "tokens": self.corpus.count}
        for name in corpus_numbers(self.corpus, self.mean_cosine):
            result |= _flat(name, self.estimate(name))
        return result | {
            "within_excess": self.within_excess,
            "residual": self.corpus.residual,
            "zero_vectors": self.zero_vectors,
            **_flat("variation", self.variation),
            **_flat_associations("", self.associations),
            **_flat_associations("corrected_", self.corrected),
        }


def _flat(name: str, estimate: Estimate) -> dict[str, float | None]:
    interval = estimate.interval
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return {name: estimate.value, f"{name}_low": low, f"{name}_high": high}


def _flat_associations(prefix: str, associations: Associations) -> dict[str, float | None]:
    result: dict[str, float | None] = {}
    for pair in _PAIRS:
        for kind in ("pearson", "spearman"):
            result |= _flat(f"{prefix}{pair}_{kind}", getattr(getattr(associations, pair), kind))
    return result


@dataclass(frozen=True)
class Coverage:
    """What the statistics rest on: tokens and groups in, and what became of them.

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

    def seen(self) -> tuple[str, ...]:
        """What the squared lengths of the tokens are made of, in the last layer and in the first one."""
        parts = ("mean_share", "between_share", "within_share")
        shares = {name: [layer.estimate(name).value for layer in (self.layers[0], self.layers[-1])] for name in parts}
        if any(value is None for both in shares.values() for value in both):
            return ()
        (all_first, all_last), (word_first, word_last), (context_first, context_last) = shares.values()
        lines = [
            f"Of the squared length of the tokens, {all_last:.0%} is a direction that all of them share, "
            f"{word_last:.0%} tells one {self.grouping} from another, and {context_last:.0%} is what the context adds "
            f"to one."
        ]
        if len(self.layers) > 1:
            lines.append(
                f"That is the last layer; in layer {self.layers[0].layer} it is {all_first:.0%}, {word_first:.0%} and "
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
        from poolscope.metrics.tokens.summary import summarise

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
                f"{part.truncated_texts:,} of {part.texts:,} texts were cut; {part.truncated_tokens:,} tokens never "
                f"reached the model."
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
        """What a reader should know, and what the intervals are for."""
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
        from poolscope.metrics.tokens.figure import tokens_figure

        return tokens_figure(self)

    def interval_meanings(self) -> dict[str, str]:
        """For what the intervals are, and how they were made; without the kinds of which there are none.

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
