"""One layer of the token statistics: Q, M and V of every group, what they add up to, and how they go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.numbers.correlation import Correlation
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.streaming import Decomposition

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GroupNames:
    """Groups of tokens, most frequent first: vocabulary id (or number of the label), name, number of tokens."""

    ids: NDArray[np.int64]
    names: Sequence[str]
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


@dataclass(frozen=True)
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
    types: GroupColumns
    special: GroupColumns
    variation: Estimate
    associations: Associations
    corrected: Associations

    def estimate(self, name: str) -> Estimate:
        """A corpus-level number (`mean_square`, `within_share`, …; see `corpus_numbers`) with its interval."""
        numbers = corpus_numbers(self.corpus, self.mean_cosine)
        if name not in numbers:
            raise InputError(f"received the name {name!r}; allowed: {', '.join(numbers)}.")
        return Estimate(numbers[name], self.intervals.get(name))

    def summary(self) -> dict[str, Any]:
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
    for pair in ("mean_and_variance", "mean_and_frequency", "variance_and_frequency"):
        for kind in ("pearson", "spearman"):
            result |= _flat(f"{prefix}{pair}_{kind}", getattr(getattr(associations, pair), kind))
    return result
