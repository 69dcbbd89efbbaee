"""The result of the token statistics: all layers, what they rest on, and ways to write them down."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.errors import InputError
from poolscope.files import atomic_path, write_json
from poolscope.metrics.tokens.layer import GroupColumns, GroupNames, LayerTokens
from poolscope.metrics.tokens.moments import TokenMoments
from poolscope.numbers.correlation import MIN_ITEMS
from poolscope.results import plain


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


@dataclass(frozen=True)
class TokenStatistics:
    """Norm and variance of token embeddings by layer and group (Yamagiwa and Shimodaira, arXiv 2409.11253).

    `types` are the kept groups (token types, or the labels that were given) and `special` the special tokens; every
    layer has their Q, M and V. `moments` is the running state behind the numbers: it merges, and can be saved.
    """

    grouping: str
    min_count: int
    types: GroupNames
    special: GroupNames
    layers: tuple[LayerTokens, ...]
    coverage: Coverage
    provenance: Mapping[str, Any]
    moments: TokenMoments = field(repr=False, compare=False)

    def __repr__(self) -> str:
        plural = "" if len(self.layers) == 1 else "s"
        return (
            f"TokenStatistics({len(self.layers)} layer{plural}, {self.coverage.tokens:,} tokens, "
            f"{self.coverage.groups:,} {self.grouping}s)"
        )

    def __getitem__(self, layer: int) -> LayerTokens:
        """One layer by its number (0 = embedding output; negative from the end)."""
        for found in self.layers:
            if found.layer == layer:
                return found
        if -len(self.layers) <= layer < 0:
            return self.layers[layer]
        raise InputError(f"layer {layer} was asked for; measured: {[found.layer for found in self.layers]}.")

    @property
    def model(self) -> str:
        """Name of the model."""
        return str((self.moments.source.get("model") or {}).get("name", "unknown model"))

    def merge(self, other: TokenStatistics) -> TokenStatistics:
        """The statistics of the tokens of both, as if measured in one pass (see `TokenMoments.merge`)."""
        from poolscope.metrics.tokens.summary import summarise

        seed = int(self.provenance["settings"]["seed"])
        return summarise(self.moments.merge(other.moments), min_count=self.min_count, seed=seed)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Save the running state, to be merged or continued later."""
        from poolscope.metrics.tokens.state import save_state

        save_state(self.moments, path)

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
                parts.append(
                    pa.table(
                        {
                            "layer": pa.array(np.full(len(groups), layer.layer), pa.int32()),
                            "id": pa.array(groups.ids, pa.int64()),
                            "name": pa.array(groups.names, pa.string()),
                            "special": pa.array(np.full(len(groups), special), pa.bool_()),
                            "count": pa.array(groups.counts, pa.int64()),
                            "mean_square": columns.mean_squares,
                            "norm_of_mean": columns.norms_of_means,
                            "variance": columns.variances,
                        }
                    )
                )
        return pa.concat_tables(parts).replace_schema_metadata(self._metadata())

    def layer_table(self) -> pa.Table:
        """One row a layer: everything but the single groups."""
        rows = [plain(layer.summary()) for layer in self.layers]
        floats = {name: pa.float64() for name in rows[0]}
        schema = pa.schema({**floats, "layer": pa.int32(), "tokens": pa.int64(), "zero_vectors": pa.int64()})
        return pa.Table.from_pylist(rows, schema=schema.with_metadata(self._metadata()))

    def to_dict(self, *, groups: int = 50) -> dict[str, Any]:
        """Everything in plain types; of the groups the most frequent (`to_table` has all) and the special ones."""
        shown = min(groups, len(self.types))
        return {
            "grouping": self.grouping,
            "min_count": self.min_count,
            "coverage": plain(self.coverage),
            "notes": self.notes(),
            "intervals": self.interval_meanings(),
            "layers": [
                {
                    **plain(layer.summary()),
                    "types": _rows(self.types, layer.types, shown),
                    "special": _rows(self.special, layer.special, len(self.special)),
                }
                for layer in self.layers
            ],
            "provenance": plain(self.provenance),
        }

    def save_json(self, path: str | os.PathLike[str], *, groups: int = 50) -> None:
        """Write `to_dict()` as JSON, atomically."""
        write_json(path, self.to_dict(groups=groups))

    def save_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write `to_table()` as Parquet, atomically."""
        from pyarrow import parquet

        table = self.to_table()
        with atomic_path(path) as temporary:
            parquet.write_table(table, temporary)

    def interval_meanings(self) -> dict[str, str]:
        """For what the intervals are, and how they were made; without the kinds of which there are none.

        `corpus`: of Q, M, V, V_W, V_B, the shares and the mean cosine; `variation`: of that of Q over the groups;
        `correlations`: of those over the groups.
        """
        candidates = {
            "corpus": (layer.intervals.get("mean_square") for layer in self.layers),
            "variation": (layer.variation.interval for layer in self.layers),
            "correlations": (
                found.spearman.interval
                for layer in self.layers
                for found in (layer.associations.mean_and_variance, layer.corrected.mean_and_frequency)
            ),
        }
        first = {name: next((i for i in found if i is not None), None) for name, found in candidates.items()}
        return {name: f"{i.level:.0%} for {i.answers}; {i.method}" for name, i in first.items() if i is not None}

    def _metadata(self) -> dict[bytes, bytes]:
        return {b"poolscope": json.dumps(plain(self.provenance)).encode()}


def _rows(groups: GroupNames, columns: GroupColumns, shown: int) -> list[dict[str, Any]]:
    return [
        {
            "id": int(groups.ids[k]),
            "name": groups.names[k],
            "count": int(groups.counts[k]),
            "mean_square": float(columns.mean_squares[k]),
            "norm_of_mean": float(columns.norms_of_means[k]),
            "variance": float(columns.variances[k]),
        }
        for k in range(shown)
    ]
