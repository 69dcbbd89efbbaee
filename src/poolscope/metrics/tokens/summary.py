"""From the running state of the token statistics to their result."""

from __future__ import annotations

from typing import Any

import numpy as np

from poolscope.errors import InputError, whole_number
from poolscope.metrics.tokens.jackknife import TextJackknife
from poolscope.metrics.tokens.layer import Associations, GroupColumns, GroupNames, LayerTokens, corpus_numbers
from poolscope.metrics.tokens.moments import LayerMoments, TokenMoments, special_key
from poolscope.metrics.tokens.result import Coverage, TokenStatistics
from poolscope.numbers.correlation import ItemBootstrap, variation
from poolscope.numbers.streaming import Array, GroupedMoments, Index
from poolscope.results import provenance

_ROUNDING = 1e-12  # of a vector: a deviation below this share of its norm is no deviation


def summarise(moments: TokenMoments, *, min_count: int = 10, seed: int = 0) -> TokenStatistics:
    """The statistics of the tokens taken in so far; the moments are left as they are.

    Correlations and the variation of Q are over the groups with at least `min_count` tokens. Their intervals are over
    the groups, by bootstrap (`seed`) and by jackknife: they tell how far the numbers hang on which types the corpus
    happens to have.
    The corpus-level numbers have intervals from a jackknife over texts: how far they hang on which texts there are.
    """
    table = moments.table
    min_count = whole_number(min_count, "min_count")
    if not (table.keys >= 0).any():
        raise InputError(
            f"{moments.texts} texts gave no ordinary token, only special ones; there is nothing to measure."
        )
    ranked = table.ranked()
    kept, rare = ranked[: moments.max_types], ranked[moments.max_types :]
    special = np.flatnonzero(table.keys < 0)
    special = special[np.argsort(-table.counts[special], kind="stable")]
    counted = int((table.counts[kept] >= min_count).sum())  # the kept ones are in the order of their counts
    repeated = int((table.counts[kept] >= max(min_count, 2)).sum())
    bootstraps = [ItemBootstrap(number, answers=_population(moments), seed=seed) for number in (counted, repeated)]
    jackknife = TextJackknife(moments, kept)
    slots = [table.slots[part] for part in (kept, rare, special)]
    settings = {"min_count": min_count, "max_types": moments.max_types, "seed": seed}
    return TokenStatistics(
        grouping=str(moments.source["grouping"]),
        min_count=min_count,
        types=_names(moments, kept),
        special=_names(moments, special),
        layers=tuple(
            _layer(number, moments.layers[number], slots, bootstraps, jackknife) for number in sorted(moments.layers)
        ),
        coverage=_coverage(moments, kept, counted),
        provenance=_provenance(moments, settings),
        moments=moments,
    )


def _population(moments: TokenMoments) -> str:
    kind = moments.source["grouping"]
    return f"the population of {kind}s ({kind}s as draws, these texts as given)"


def _names(moments: TokenMoments, places: Index) -> GroupNames:
    keys = moments.table.keys[places]
    names = tuple(moments.names[key] for key in keys.tolist())
    return GroupNames(np.where(keys < 0, special_key(keys), keys), names, moments.table.counts[places])


def _layer(
    number: int, state: LayerMoments, slots: list[Index], bootstraps: list[ItemBootstrap], jackknife: TextJackknife
) -> LayerTokens:
    groups, rare, special = (state.groups.select(part) for part in slots)
    pool = rare.join(state.pool).union()
    clusters = groups.join(pool) if pool.counts[0] else groups
    corpus = clusters.decompose()
    values = corpus_numbers(corpus, state.directions.mean_cosine)
    columns = _columns(groups)
    bootstrap, of_repeated = bootstraps
    first = groups.select(np.arange(of_repeated.count))
    corrected = _columns(first).corrected(first.counts)
    return LayerTokens(
        layer=number,
        corpus=corpus,
        within_excess=float(pool.scatters[0]) / corpus.count,
        mean_cosine=state.directions.mean_cosine,
        zero_vectors=state.directions.zeros,
        intervals=jackknife.intervals(number, values, clusters=clusters, directions=state.directions),
        types=columns,
        special=_columns(special),
        variation=variation(columns.mean_squares[: bootstrap.count], answers=bootstrap.answers),
        associations=_associations(bootstrap, columns.norms_of_means, columns.variances, groups.counts),
        corrected=_associations(of_repeated, *corrected, groups.counts),
    )


def _associations(bootstrap: ItemBootstrap, means: Array, variances: Array, counts: Index) -> Associations:
    """Of the first groups, as many as the bootstrap draws from."""
    first = slice(bootstrap.count)
    means, variances, counts = means[first], variances[first], counts[first]
    # Equal vectors (a static table) have a variance of rounding squared, which must not count as one that differs.
    variances = np.where(variances > _ROUNDING**2 * (means + variances), variances, 0.0)
    found = bootstrap.correlations({"mean": means, "variance": variances, "frequency": np.log(counts)})
    return Associations(found["mean", "variance"], found["mean", "frequency"], found["variance", "frequency"])


def _columns(groups: GroupedMoments) -> GroupColumns:
    return GroupColumns(groups.mean_squares, groups.norms_of_means, groups.variances)


def _coverage(moments: TokenMoments, kept: Index, counted: int) -> Coverage:
    table = moments.table
    ordinary = table.keys >= 0
    pooled = ordinary.copy()
    pooled[kept] = False
    rarest = table.counts[kept].min(initial=np.iinfo(np.int64).max)
    return Coverage(
        texts=moments.texts,
        tokens=moments.tokens,
        special_tokens=int(table.counts[~ordinary].sum()),
        groups=int(ordinary.sum()),
        kept=len(kept),
        counted=counted,
        pooled_tokens=int(table.counts[pooled].sum()),
        missed=int((table.counts[pooled] > rarest).sum()),
        truncated_texts=moments.truncated_texts,
        truncated_tokens=moments.truncated_tokens,
        special_known=moments.source["special"] is not None,
    )


def _provenance(moments: TokenMoments, settings: dict[str, Any]) -> dict[str, Any]:
    origin = provenance(settings={**settings, "grouping": moments.source["grouping"]})
    origin["clouds"] = [
        {
            "texts": moments.texts,
            "tokens": moments.tokens,
            "dimension": {str(layer): len(state.directions.total) for layer, state in moments.layers.items()},
            "texts_truncated": moments.truncated_texts,
            "tokens_truncated": moments.truncated_tokens,
            **{name: value for name, value in moments.source.items() if name != "grouping"},
        }
    ]
    return origin
