"""SOCM over a corpus: does mean pooling hide differences between texts? (Hara et al., ACL 2026, arXiv 2604.27398)"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import InputError, whole_number
from poolscope.files import atomic_file
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.metrics.socm.result import PAIR_SCHEMA, PairColumns, SocmResult, TraceCheck
from poolscope.metrics.socm.selection import (
    AllPairs,
    ListedPairs,
    PairSelection,
    PairTally,
    TallyOptions,
    listed,
    nearest,
    sampled,
    tallied,
)
from poolscope.numbers import Array
from poolscope.numbers.bures import native
from poolscope.numbers.bures.factors import ReducedCache
from poolscope.numbers.intervals import (
    RegressionEstimate,
    chosen_units,
    corpus_interval,
    regression_estimate,
)
from poolscope.numbers.moments import TextMoments, text_moments, unit_mean_factors
from poolscope.results import provenance, with_provenance
from poolscope.surface import as_array
from poolscope.texts.groups import known_groups

Corpus = tuple[TokenClouds, TextMoments]
InParts = Callable[[PairSelection, TallyOptions], PairTally]

# Pairs kept in memory (40 bytes each) before the result falls back to a histogram and the worst pairs.
KEEP_PAIRS = 5_000_000


def socm(
    clouds: TokenClouds,
    other: TokenClouds | None = None,
    *,
    pairs: Any = None,
    neighbours: int | None = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    scale: str = "paper",
    a: float = 1.0,
    b: float = 1.0,
    eps: float = 0.0,
    top: int = 100,
    keep: int = KEEP_PAIRS,
    progress: Callable[[int], None] | None = None,
) -> SocmResult:
    """SOCM = (1 − d_μ)^a · d_Σ^b of pairs of texts: high where the means agree while the token clouds differ.

    Without a choice of pairs, all pairs of `clouds` are compared; with `other`, every text of one with every text of
    the other.

    Parameters
    ----------
    clouds : TokenClouds
        The token clouds of at least two texts.
    other : TokenClouds, optional
        Clouds of other texts from the same model and layer, to compare with.
    pairs : int or list of (int, int), optional
        A number: that many random pairs, with intervals for this corpus too, narrower by regression where the corpus
        has at most ten texts a pair. Or the pairs themselves, as positions. Of the other texts nothing is computed.
    neighbours : int, optional
        Each text with so many nearest texts by mean vector. Excludes `pairs`.
    groups : list, optional
        The document of each text: the interval is then over documents. Without it, ids like doc#3 name them.
    seed : int
        Of the random pairs.
    scale, a, b, eps
        Of the formula; see `SocmFormula`.
    top : int
        How many of the worst pairs are kept with their texts.
    keep : int
        At most so many pairs stay in memory. Beyond, the mean and its interval are still exact, quantiles are good to
        0.01 %, and the `top` worst pairs are kept; `socm_table` writes every pair as it comes.
    progress : callable, optional
        Called with the number of pairs just done.

    Returns
    -------
    SocmResult
        The mean with its interval, the distribution, the worst pairs.

    Examples
    --------
    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> round(socm(clouds).mean, 6)           # (1/4 + 1/4 + 1)/3
    0.5
    >>> socm(clouds, pairs=[(0, 1)]).count, socm(clouds, pairs=50).count
    (1, 50)

    """
    choice = {
        "pairs": pairs,
        "neighbours": neighbours,
        "groups": groups,
        "seed": seed,
        "top": top,
        "keep": keep,
        "progress": progress,
    }
    return measured_pairs(clouds, other, scale=scale, a=a, b=b, eps=eps, **choice)


def socm_table(
    clouds: TokenClouds, path: str | os.PathLike[str], other: TokenClouds | None = None, **options: Any
) -> SocmResult:
    """`socm`, and every pair in a Parquet file, written as it comes: for more pairs than memory holds.

    Parameters
    ----------
    clouds, other
        As `socm` takes them.
    path : path
        The file, written whole or not at all: columns i, j, d_mu, d_sigma, socm, and the provenance as metadata.
    **options
        As `socm` takes them.

    Returns
    -------
    SocmResult
        The same as that of `socm`.

    Examples
    --------
    >>> import tempfile, pyarrow.parquet
    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = socm_table(clouds, f"{folder}/pairs.parquet", keep=0)
    ...     pyarrow.parquet.read_table(f"{folder}/pairs.parquet")["socm"].to_numpy().round(6).tolist()
    [0.25, 0.25, 1.0]

    """
    return measured_pairs(clouds, other, path=path, **options)


def pair_count(
    clouds: TokenClouds, other: TokenClouds | None = None, *, pairs: Any = None, neighbours: int | None = None
) -> int | None:
    """How many pairs `socm` will compute for this choice, or None where that is known only later (neighbours)."""
    if pairs is not None:
        return int(pairs) if np.ndim(pairs) == 0 else len(pairs)
    if neighbours is not None:
        return None
    return AllPairs(clouds, other).count


def measured_pairs(
    clouds: TokenClouds,
    other: TokenClouds | None = None,
    *,
    scale: str = "paper",
    a: float = 1.0,
    b: float = 1.0,
    eps: float = 0.0,
    pairs: Any = None,
    neighbours: int | None = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    top: int = 100,
    keep: int = KEEP_PAIRS,
    progress: Callable[[int], None] | None = None,
    path: str | os.PathLike[str] | None = None,
    reduced: tuple[ReducedCache, ReducedCache] | None = None,
    moments: TextMoments | None = None,
    in_parts: InParts | None = None,
) -> SocmResult:
    """Measure pairs as `socm` does, with options for callers inside the package.

    `path`: a Parquet file of every pair. `reduced`: `poolscope.numbers.bures.pairs.reduced_caches(clouds)` of who asks
    for several lists of pairs of the same clouds, whose reduced factors are then made once; and `moments`, those of all
    the clouds. `in_parts`: gives the merged tally of a selection that is tallied elsewhere.
    """
    formula = SocmFormula(scale=scale, a=a, b=b, eps=eps)
    top, keep = whole_number(top, "top"), whole_number(keep, "keep", least=0)
    right = clouds if other is None else other
    _check_corpora(clouds, right)
    corpora = _Corpora(clouds, right, moments if right is clouds else None)
    selection = _select(corpora, pairs, neighbours, seed)
    if reduced is not None and isinstance(selection, ListedPairs):
        selection = replace(selection, reduced=reduced)
    trace_check = _trace_check(selection, corpora)  # before the work: it names texts that cannot be compared
    drawn = selection.count if pairs is not None and np.ndim(pairs) == 0 else None
    settings = {**formula.to_dict(), "pairs": selection.kind, "sample": drawn, "neighbours": neighbours}
    settings |= {"seed": seed if drawn else None, "kernel": "numpy" if native.kernel() is None else "compiled"}
    origin = provenance(*([clouds] if right is clouds else [clouds, right]), settings=settings)
    units = chosen_units(len(clouds), known_groups(groups, list(clouds.ids))) if right is clouds else None
    wanted = TallyOptions(formula, top, keep=selection.count <= keep, units=units)
    with _table_writer(path, origin) as write:
        if in_parts is None:
            tally = tallied(selection, selection.distances(eps=formula.eps), wanted, write, progress)
        else:
            tally = in_parts(selection, wanted)
    columns, overlap = tally.columns(selection)
    count = selection.count
    _, mean_distance, covariance_distance = (tally.totals / count).tolist()
    return SocmResult(
        kind=selection.kind,
        count=count,
        estimate=tally.estimate(selection, columns, units, positive=not formula.eps),
        corpus_interval=corpus_interval(columns.socm, positive=not formula.eps)
        if columns is not None and drawn
        else None,
        regression=_regression(columns, overlap, corpora) if columns is not None and drawn else None,
        mean_distance=mean_distance,
        covariance_distance=covariance_distance,
        trace_check=trace_check,
        provenance=origin,
        pairs=columns,
        top=tally.worst(columns).described(clouds, right),
        distribution=tally.distribution,
        left=clouds,
        right=right,
    )


class _Corpora:
    """The two corpora (one and the same within a corpus) with their moments, which are computed when first needed.

    A list of pairs needs those of its own texts alone, so that it costs the same in a corpus of any size. `known`:
    those of one corpus, where they were computed before.
    """

    def __init__(self, left: TokenClouds, right: TokenClouds, known: TextMoments | None) -> None:
        self.left, self.right, self._known = left, right, known

    @property
    def distinct(self) -> list[TokenClouds]:
        return [self.left] if self.left is self.right else [self.left, self.right]

    @cached_property
    def whole(self) -> tuple[Corpus, Corpus]:
        corpora = [(clouds, self._known or text_moments(clouds)) for clouds in self.distinct]
        return corpora[0], corpora[-1]

    def traces(self, clouds: TokenClouds, texts: NDArray[np.int64]) -> Array:
        """tr Σ at unit mean of some texts of one of the two."""
        return text_moments(clouds, texts).traces if self._known is None else self._known.traces[texts]


def _check_corpora(left: TokenClouds, right: TokenClouds) -> None:
    for clouds in (left, right):
        check_clouds(clouds, "socm")
    if left.dimension != right.dimension:
        raise InputError(
            f"received clouds of dimension {left.dimension} and {right.dimension}; both must come from the same model "
            f"and layer."
        )
    if left is right and len(left) < 2:
        raise InputError("received one text; SOCM compares pairs, so at least two texts are needed.")


def _select(corpora: _Corpora, pairs: Any, neighbours: int | None, seed: int) -> PairSelection:
    left, right = corpora.left, corpora.right
    if pairs is not None and neighbours is not None:
        raise InputError("received pairs and neighbours; they exclude each other. Pass one of them, or none.")
    if pairs is not None and as_array(pairs, "pairs").ndim == 0:
        return sampled(left, right, pairs, seed)
    if pairs is not None:
        return listed(left, right, pairs)
    if neighbours is not None:
        return nearest(left, right, neighbours, *(moments for _, moments in corpora.whole))
    return AllPairs(left, None if left is right else right)


def _trace_check(selection: PairSelection, corpora: _Corpora) -> TraceCheck:
    if isinstance(selection, ListedPairs):
        sides = [np.unique(selection.pairs)] if corpora.left is corpora.right else map(np.unique, selection.pairs.T)
        parts = [(clouds, texts) for clouds, texts in zip(corpora.distinct, sides, strict=True)]
        traces = np.concatenate([corpora.traces(clouds, texts) for clouds, texts in parts])
        lengths = np.concatenate([clouds.lengths[texts] for clouds, texts in parts])
    else:
        distinct = corpora.whole[: len(corpora.distinct)]
        traces = np.concatenate([moments.traces for _, moments in distinct])
        lengths = np.concatenate([clouds.lengths for clouds, _ in distinct])
    return TraceCheck(len(traces), int((traces > 2).sum()), float(traces.max()), int((lengths == 1).sum()))


@contextmanager
def _table_writer(path: Any, origin: dict[str, Any]) -> Iterator[Callable[[PairColumns], None]]:
    """Write pairs to a Parquet file as they come, a row group a piece; nothing if no path is given."""
    if path is None:
        yield lambda columns: None
        return
    schema = with_provenance(PAIR_SCHEMA.empty_table(), origin).schema
    with atomic_file(path) as stream, pq.ParquetWriter(stream, schema) as writer:
        yield lambda columns: writer.write_table(columns.to_table().cast(schema))


# -- the mean over all pairs, from some of them -------------------------------------------------------------------
#
# Every covariate is a sum of products f(i)·g(j), or an inner product of two matrices, so its mean over all pairs
# follows from sums over texts, without going through the pairs:
#
# - (1 − d_μ)·f(i)·g(j), with 1 − d_μ = (1 + u·v)/2 for unit means u, v, and f, g from 1, the trace, its root and the
#   logarithm of the length;
# - the overlap tr Σ₁Σ₂ of the covariances, which says most about how near the two clouds are. Its mean needs one pooled
#   covariance for the whole corpus.

# Which two of the features of `_features` make a term.
_TERMS = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (2, 2), (3, 3), (2, 3)]

# Rows of factors that are multiplied together.
_ROWS = 8192
# The means of the covariates need every text once; beyond so many texts a drawn pair that costs more than drawing more.
_TEXTS_A_PAIR = 10


def _regression(pairs: PairColumns, overlap: Array, corpora: _Corpora) -> RegressionEstimate | None:
    """`socm_regression`, or None where the corpus is so large that it would cost far more than the pairs."""
    if sum(map(len, corpora.distinct)) > _TEXTS_A_PAIR * len(pairs.socm):
        return None
    return socm_regression(pairs, overlap, *corpora.whole)


def socm_regression(pairs: PairColumns, overlap: Array, left: Corpus, right: Corpus) -> RegressionEstimate | None:
    """Estimate the mean SOCM over all pairs (of one corpus if left and right are the same) from sampled pairs."""
    features = _features(*left), _features(*right)
    columns = [_term(pairs, features, left, right, *term) for term in _TERMS]
    columns.append((overlap, _mean_overlap(left, right)))
    covariates, means = zip(*columns, strict=True)
    return regression_estimate(pairs.socm, np.stack(covariates, axis=1), np.array(means))


def _features(clouds: TokenClouds, moments: TextMoments) -> list[Array]:
    return [np.ones(len(clouds)), moments.traces, np.sqrt(moments.traces), np.log(clouds.lengths)]


def _term(
    pairs: PairColumns, features: tuple[list[Array], list[Array]], left: Corpus, right: Corpus, p: int, q: int
) -> tuple[Array, float]:
    """(1 − d_μ)·(f_p(i) g_q(j) + f_q(i) g_p(j))/2 of the sampled pairs, and its mean over all pairs."""
    u, v = left[1].unit_means, right[1].unit_means
    orders = [(features[0][p], features[1][q]), (features[0][q], features[1][p])]
    values = (1 - pairs.mean_distance) * sum(f[pairs.i] * g[pairs.j] for f, g in orders) / 2
    total = float(sum(f.sum() * g.sum() + (f @ u) @ (g @ v) for f, g in orders)) / 4
    # Pairs of a text with itself, where 1 − d_μ = 1, are in the total and not among the pairs.
    with_itself = float(features[0][p] @ features[0][q])
    return values, _pair_mean(total, with_itself, left, right)


def _mean_overlap(left: Corpus, right: Corpus) -> float:
    """Mean of tr ΣᵢΣⱼ over all pairs, from the sums of the covariances."""
    pooled, own = _pooled_covariance(left[0])
    other = pooled if left[0] is right[0] else _pooled_covariance(right[0])[0]
    return _pair_mean(float((pooled * other).sum()), own, left, right)


def _pooled_covariance(clouds: TokenClouds) -> tuple[Array, float]:
    """Sum of the covariances (d × d) of all texts, scaled to unit mean, and the sum of their squared norms."""
    pooled, own = np.zeros((clouds.dimension, clouds.dimension)), 0.0
    waiting: list[NDArray[np.float32]] = []
    for k, cloud in enumerate(clouds):
        _, (exact,), _ = unit_mean_factors(np.asarray(cloud, dtype=np.float64)[None])
        factor = exact.astype(np.float32)  # products in float32, as those of the sampled pairs
        small = factor @ factor.T if len(factor) < clouds.dimension else factor.T @ factor
        own += float(np.square(small, dtype=np.float64).sum())
        waiting.append(factor)
        # One product for many texts: adding d × d matrices text by text would take longer than multiplying.
        if k == len(clouds) - 1 or sum(map(len, waiting)) > _ROWS:
            rows = np.concatenate(waiting)
            pooled += rows.T @ rows
            waiting = []
    return pooled, own


def _pair_mean(total: float, with_itself: float, left: Corpus, right: Corpus) -> float:
    """Mean over pairs from the sum over all (i, j); within one corpus without the pairs of a text with itself."""
    if left[0] is right[0]:
        return (total - with_itself) / (len(left[0]) * (len(left[0]) - 1))
    return total / (len(left[0]) * len(right[0]))
