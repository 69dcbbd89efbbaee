"""From the running state of the token statistics to their result.

How far the corpus-level numbers would move with other texts is told by a jackknife over texts: deleting one text
changes every number in a way that follows exactly from the moments of all tokens and the tokens of that text alone. The
variance of the jackknife needs only the spread of these changes over the texts, and a random sample of the texts shows
it: their tokens are kept (`TextSample`), those of the others are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from poolscope.errors import InputError, whole_number
from poolscope.lab.items import ItemBootstrap, variation
from poolscope.lab.tokens.moments import LayerMoments, SampledText, TokenMoments, special_key
from poolscope.lab.tokens.result import (
    Associations,
    Coverage,
    GroupColumns,
    GroupNames,
    LayerTokens,
    TokenStatistics,
    corpus_numbers,
)
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Interval
from poolscope.numbers.streaming import DirectionSum, GroupedMoments, Grouping, measure, row_squares
from poolscope.results import provenance

ANSWERS = "the population of texts (as many other texts like these)"
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
    frequent, rare = ranked[: moments.max_types], ranked[moments.max_types :]
    special = np.flatnonzero(table.keys < 0)
    special = special[np.argsort(-table.counts[special], kind="stable")]
    counted = int((table.counts[frequent] >= min_count).sum())  # the kept ones are in the order of their counts
    repeated = int((table.counts[frequent] >= max(min_count, 2)).sum())
    unit = f"{moments.source['grouping']}s"
    answers = f"the population of {unit} ({unit} as draws, these texts as given)"
    bootstraps = [ItemBootstrap(number, answers=answers, unit=unit, seed=seed) for number in (counted, repeated)]
    jackknife = TextJackknife(moments, frequent)
    slots = [table.slots[part] for part in (frequent, rare, special)]
    settings = {"min_count": min_count, "max_types": moments.max_types, "seed": seed}
    return TokenStatistics(
        grouping=str(moments.source["grouping"]),
        min_count=min_count,
        types=_names(moments, frequent),
        special=_names(moments, special),
        layers=tuple(
            _layer(number, moments.layers[number], slots, bootstraps, jackknife) for number in sorted(moments.layers)
        ),
        coverage=_coverage(moments, frequent, counted),
        provenance=_provenance(moments, settings),
        moments=moments,
    )


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
        variation=variation(columns.mean_squares[: bootstrap.count], answers=bootstrap.answers, unit=bootstrap.unit),
        associations=_associations(bootstrap, columns.norms_of_means, columns.variances, groups.counts),
        corrected=_associations(of_repeated, *corrected, groups.counts),
    )


def _associations(bootstrap: ItemBootstrap, means: Array, variances: Array, counts: Index) -> Associations:
    """Of the first groups, as many as the bootstrap draws from."""
    first = slice(bootstrap.count)
    means, variances, counts = means[first], variances[first], counts[first]
    # Equal vectors (a static table) have a variance of rounding squared, which must not count as one that differs.
    variances = np.where(variances > _ROUNDING**2 * (means + variances), variances, 0.0)
    both = bootstrap.correlations({"mean": means, "variance": variances, "frequency": np.log(counts)})
    return Associations(both["mean", "variance"], both["mean", "frequency"], both["variance", "frequency"])


def _columns(groups: GroupedMoments) -> GroupColumns:
    return GroupColumns(groups.mean_squares, groups.norms_of_means, groups.variances)


def _coverage(moments: TokenMoments, frequent: Index, counted: int) -> Coverage:
    table = moments.table
    ordinary = table.keys >= 0
    pooled = ordinary.copy()
    pooled[frequent] = False
    rarest = table.counts[frequent].min(initial=np.iinfo(np.int64).max)
    return Coverage(
        texts=moments.texts,
        tokens=moments.tokens,
        special_tokens=int(table.counts[~ordinary].sum()),
        groups=int(ordinary.sum()),
        kept=len(frequent),
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


# -- the jackknife over texts ---------------------------------------------------------------------------------------


class TextJackknife:
    """The sampled texts of token moments, with the cluster of each token: one a `frequent` key, one for the rest.

    `frequent` are places in the table of the moments; the clusters are in their order, the one of the rest behind them.
    """

    def __init__(self, moments: TokenMoments, frequent: Index) -> None:
        table = moments.table
        cluster = np.full(len(table.keys), len(frequent))
        cluster[frequent] = np.arange(len(frequent))
        self._texts = [text for _, text in moments.sample.items()]
        self._copies = np.array([text.copies for text in self._texts], np.int64)
        self._members = [cluster[table.find(text.keys)[0]] for text in self._texts]
        self._count = moments.texts

    def intervals(
        self, layer: int, values: Mapping[str, float | None], *, clusters: GroupedMoments, directions: DirectionSum
    ) -> dict[str, Interval]:
        """Intervals of the corpus-level numbers of a layer, by name; none if there are too few texts to tell."""
        if len(self._texts) < 2 or max(map(len, self._members)) == clusters.counts.sum():
            return {}
        sums = TextSums.of(self._texts, layer, members=self._members, clusters=clusters)
        changed = without_each(sums, clusters, directions)
        return {
            name: jackknife(value, changed[name], self._copies, texts=self._count)
            for name, value in values.items()
            if value is not None and name in changed
        }


@dataclass(frozen=True)
class TextSums:
    """What each of some texts puts into the sums of a layer.

    Its tokens: `counts`, `means` (texts × d), `scatters` around that mean, `squares` Σ‖x‖². `within`: how much less the
    scatter around the means of the clusters is without it. `directions`: Σ x/‖x‖ (texts × d) of its `directed` tokens.
    """

    counts: Index
    means: Array
    scatters: Array
    squares: Array
    within: Array
    directions: Array
    directed: Index

    @classmethod
    def of(
        cls, texts: Sequence[SampledText], layer: int, *, members: Sequence[Index], clusters: GroupedMoments
    ) -> TextSums:
        """`members` has, for each text, the cluster of each of its tokens."""
        owner = np.repeat(np.arange(len(texts)), [len(part) for part in members])
        member = np.concatenate(members)
        rows = np.concatenate([text.rows[layer] for text in texts]).astype(np.float64)
        norms = np.sqrt(row_squares(rows))
        own = _by_text(rows, owner, len(texts))
        units = _by_text(rows / np.where(norms > 0, norms, 1)[:, None], owner, len(texts))
        pieces = Grouping.of(owner * len(clusters) + member)
        lost = _within_lost(measure(rows, pieces)[0], clusters.select(pieces.keys % len(clusters)))
        return cls(
            own.counts,
            own.means,
            own.scatters,
            own.squares,
            within=np.bincount(pieces.keys // len(clusters), lost, len(texts)).astype(np.float64),
            directions=units.means * units.counts[:, None],
            directed=np.bincount(owner[norms > 0], minlength=len(texts)),
        )


def _by_text(rows: Array, owner: Index, texts: int) -> GroupedMoments:
    """Moments of the rows of each text; a text without rows has none."""
    result = GroupedMoments.empty(texts, rows.shape[1])
    grouping = Grouping.of(owner)
    result.merge(grouping.keys, measure(rows, grouping)[0])
    return result


def _within_lost(pieces: GroupedMoments, clusters: GroupedMoments) -> Array:
    """Scatter that a cluster loses with a piece of it (the update of Chan et al. backwards), for each pair of them."""
    rest = clusters.counts - pieces.counts
    shift = row_squares(pieces.means - clusters.means)
    # A piece that is all of its cluster has the same mean: there is no shift to divide by nothing.
    lost: Array = pieces.scatters + shift * pieces.counts * clusters.counts / np.maximum(rest, 1)
    return lost


def without_each(sums: TextSums, clusters: GroupedMoments, directions: DirectionSum) -> dict[str, Array]:
    """Every number of the corpus without each of the texts in turn; every text must leave some tokens."""
    whole = clusters.union()
    count = whole.counts[0] - sums.counts
    offset = sums.means - whole.means[0]
    centre = whole.means[0] - offset * (sums.counts / count)[:, None]
    lost = sums.scatters + row_squares(offset) * sums.counts * whole.counts[0] / count
    square = (whole.squares[0] - sums.squares) / count
    mean = row_squares(centre)
    variance = (whole.scatters[0] - lost) / count
    within = (clusters.scatters.sum() - sums.within) / count
    scale = np.where(square > 0, square, 1)
    numbers = {
        "mean_square": square,
        "norm_of_mean": mean,
        "variance": variance,
        "within": within,
        "between": variance - within,
        "mean_share": mean / scale,
        "within_share": within / scale,
        "between_share": (variance - within) / scale,
    }
    directed = directions.count - sums.directed
    if (directed >= 2).all():
        rest = directions.total - sums.directions
        numbers["mean_cosine"] = (row_squares(rest) - directed) / (directed * (directed - 1.0))
    return numbers


def jackknife(value: float, without: Array, copies: Index, *, texts: int) -> Interval:
    """Interval of a number from its values without each of some texts, of which `copies` (weights) are among `texts`.

    Variance (n − 1)²/n · S², with S² the variance of those values; Student's t with as many degrees of freedom as there
    are different texts, less one. Needs two different texts.
    """
    centre = float(copies @ without) / copies.sum()
    variance = float(copies @ (without - centre) ** 2) / (copies.sum() - 1)
    error = (texts - 1) / np.sqrt(texts) * np.sqrt(variance)
    reach = float(special.stdtrit(len(without) - 1, 0.975)) * float(error)
    seen = int(copies.sum())
    method = "jackknife over texts" + ("" if seen == texts else f", on a random {seen:,} of {texts:,}")
    return Interval(value - reach, value + reach, 0.95, ANSWERS, method, "texts")
