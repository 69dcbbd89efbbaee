"""How far the corpus-level numbers of the token statistics would move with other texts: a jackknife over texts.

Deleting one text changes every number in a way that follows exactly from the moments of all tokens and the tokens of
that text alone. The variance of the jackknife needs only the spread of these changes over the texts, and a random
sample of the texts shows it: their tokens are kept (`TextSample`), those of the others are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from poolscope.metrics.tokens.moments import TokenMoments
from poolscope.metrics.tokens.sample import SampledText
from poolscope.numbers.intervals import Interval
from poolscope.numbers.streaming import Array, DirectionSum, GroupedMoments, Grouping, Index, measure, row_squares

ANSWERS = "the population of texts (as many other texts like these)"


class TextJackknife:
    """The sampled texts of token moments, with the cluster of each token: `kept` keys have their own, the rest is one.

    `kept` are places in the table of the moments; the clusters are in their order, the one of the rest behind them.
    """

    def __init__(self, moments: TokenMoments, kept: Index) -> None:
        table = moments.table
        cluster = np.full(len(table.keys), len(kept))
        cluster[kept] = np.arange(len(kept))
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


def jackknife(value: float, without: Array, copies: Index, *, texts: int, level: float = 0.95) -> Interval:
    """Interval of a number from its values without each of some texts, of which `copies` (weights) are among `texts`.

    Variance (n − 1)²/n · S², with S² the variance of those values; Student's t with as many degrees of freedom as there
    are different texts, less one. Needs two different texts.
    """
    centre = float(copies @ without) / copies.sum()
    variance = float(copies @ (without - centre) ** 2) / (copies.sum() - 1)
    error = (texts - 1) / np.sqrt(texts) * np.sqrt(variance)
    reach = float(stats.t.ppf((1 + level) / 2, len(without) - 1)) * float(error)
    seen = int(copies.sum())
    method = "jackknife over texts" + ("" if seen == texts else f", on a random {seen:,} of {texts:,}")
    return Interval(value - reach, value + reach, level, ANSWERS, method)
