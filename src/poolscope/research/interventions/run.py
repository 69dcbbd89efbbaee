"""What follows when the means are kept and the second moment is changed: SOCM and retrieval, before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.result import PairColumns
from poolscope.numbers.intervals import Interval, bootstrap_interval, jackknife_interval
from poolscope.numbers.moments import TextMoments, text_moments
from poolscope.numbers.ranking import Ranking, rank_documents, tied_rank
from poolscope.research.interventions.changes import NO_SPREAD, parse_intervention
from poolscope.results import plain, provenance

Array = NDArray[np.float64]
Index = NDArray[np.int64]

INTERVENTIONS = ("scale=0", "scale=0.5", "scale=2", "rotate", "match", "noise", "top=1", "top=8")
WASSERSTEIN, COVARIANCE = "wasserstein", "covariance"


@dataclass(frozen=True)
class Change:
    """A mean before and after, and the paired difference (after − before) with its interval."""

    before: float
    after: float
    difference: float
    interval: Interval | None


@dataclass(frozen=True)
class Effect:
    """What one intervention does.

    socm, covariance_distance: means over all pairs of the documents that were drawn; trace: mean of S/‖μ‖² over texts;
    quality: mean nDCG by ranking ("wasserstein", and "covariance" where any spread is left to rank by), empty without
    queries; mean_shift: the largest change of a mean vector relative to its norm, which is rounding.
    """

    name: str
    socm: Change
    covariance_distance: Change
    trace: Change
    quality: Mapping[str, Change]
    mean_shift: float


@dataclass(frozen=True)
class Baseline:
    """Retrieval with the clouds as they are: nDCG@k by the cosine of the means, and what ranking at random gives.

    No intervention can change it, since each keeps every mean. `second_order`: from there to the ranking by W₂².
    """

    k: int
    quality: float
    interval: Interval | None
    chance: float
    second_order: Change


@dataclass(frozen=True)
class InterveneResult:
    """Effects of the interventions, in order, on the same texts, pairs and queries."""

    effects: tuple[Effect, ...]
    baseline: Baseline | None
    texts: int
    queries: int
    socm_texts: int
    without_spread: int
    provenance: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        return f"InterveneResult({len(self.effects)} interventions, {self.texts:,} texts, {self.queries:,} queries)"

    def __getitem__(self, name: str) -> Effect:
        found = [effect for effect in self.effects if effect.name == name]
        if not found:
            raise InputError(f"received {name!r}; measured were {', '.join(effect.name for effect in self.effects)}.")
        return found[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return content


def intervene(
    documents: TokenClouds,
    queries: TokenClouds | None = None,
    relevant: ArrayLike | None = None,
    *,
    interventions: Sequence[str] = INTERVENTIONS,
    socm_texts: int = 150,
    k: int = 10,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> InterveneResult:
    """SOCM and retrieval quality before and after interventions that keep every mean.

    SOCM is over all pairs of at most `socm_texts` documents. With `queries` and `relevant` (judgements (query,
    document), positions from 0) quality is nDCG@k of three rankings: by the cosine of the means, which no intervention
    can change; by W₂² = 4(d_μ + d_Σ), which sees two moments; by d_Σ alone. `progress` is called with 1 after each
    intervention.

    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> found = intervene(clouds, interventions=["scale=2"])["scale=2"].socm
    >>> round(found.before, 6), round(found.after, 6)      # d_Σ grows by 2²
    (0.5, 2.0)
    """
    if (queries is None) != (relevant is None):
        raise InputError("received queries without relevant, or relevant without queries; both are needed for quality.")
    k, socm_texts = whole_number(k, "k"), whole_number(socm_texts, "socm_texts", least=3)
    if len(documents) < 3:
        raise InputError(f"received {len(documents)} documents; at least 3 are needed. Give more.")
    named = [(name, parse_intervention(name, seed=seed)) for name in interventions]
    texts = documents if queries is None else TokenClouds.concatenate([documents, queries])
    drawn = np.sort(np.random.default_rng(seed).permutation(len(documents))[:socm_texts])
    judged = None if relevant is None else np.asarray(relevant)
    before = _measure(texts, len(documents), drawn, judged, k)
    effects = []
    for name, apply in named:
        effects.append(_effect(name, before, _measure(apply(texts), len(documents), drawn, judged, k)))
        if progress is not None:
            progress(1)
    return InterveneResult(
        effects=tuple(effects),
        baseline=None if judged is None else _baseline(before, len(documents), judged, k),
        texts=len(documents),
        queries=0 if queries is None else len(queries),
        socm_texts=len(drawn),
        without_spread=int((before.moments.traces <= NO_SPREAD).sum()),
        provenance=provenance(
            *([documents] if queries is None else [documents, queries]),
            settings={"interventions": list(interventions), "socm_texts": socm_texts, "k": k, "seed": seed},
        ),
    )


@dataclass(frozen=True)
class _Measured:
    """One state of the clouds: moments of all texts, SOCM pairs of the drawn ones, nDCG of each query by ranking."""

    moments: TextMoments
    drawn: Index
    pairs: PairColumns
    quality: Mapping[str, Array]


def _measure(texts: TokenClouds, documents: int, drawn: Index, relevant: Array | None, k: int) -> _Measured:
    moments = text_moments(texts)
    pairs = _kept_pairs(texts.select(drawn), None)
    quality = {}
    if relevant is not None:
        held, asked = texts.select(np.arange(documents)), texts.select(np.arange(documents, len(texts)))
        crossed = _kept_pairs(asked, held)
        d_mu, d_sigma = (
            column.reshape(len(asked), len(held)) for column in (crossed.mean_distance, crossed.covariance_distance)
        )
        by_means = rank_documents(moments.unit_means[documents:], moments.unit_means[:documents], relevant, k=k)
        quality = {
            "means": by_means.ndcg(k),
            WASSERSTEIN: _ranked(d_mu + d_sigma, by_means).ndcg(k),
            COVARIANCE: _ranked(d_sigma, by_means).ndcg(k),
        }
    return _Measured(moments, drawn, pairs, quality)


def _kept_pairs(left: TokenClouds, right: TokenClouds | None) -> PairColumns:
    result = socm(left, right, keep=len(left) * len(left if right is None else right))
    assert result.pairs is not None  # all were kept
    return result.pairs


def _ranked(distances: Array, like: Ranking) -> Ranking:
    """The same judgements, ranked by a table of distances (queries × documents); ties count half."""
    rows = distances[like.query]
    rank = tied_rank(-rows, -rows[np.arange(len(rows)), like.document][:, None])
    top = np.argsort(distances, axis=1, kind="stable")[:, : like.top.shape[1]]
    return Ranking(top, -np.take_along_axis(distances, top, axis=1), like.query, like.document, rank)


def _effect(name: str, before: _Measured, after: _Measured) -> Effect:
    old, new = before.moments, after.moments
    shift = np.linalg.norm(new.unit_means * (new.norms / old.norms)[:, None] - old.unit_means, axis=1)
    return Effect(
        name=name,
        socm=_pair_change(before.pairs, before.pairs.socm, after.pairs.socm),
        covariance_distance=_pair_change(
            before.pairs, before.pairs.covariance_distance, after.pairs.covariance_distance
        ),
        trace=_change(old.traces, new.traces, unit="texts"),
        quality={
            key: _query_change(before.quality[key], after.quality[key])
            for key in (WASSERSTEIN, COVARIANCE)
            if key in before.quality and (key == WASSERSTEIN or new.traces.max() > NO_SPREAD)
        },
        mean_shift=float(shift.max()),
    )


def _pair_change(pairs: PairColumns, before: Array, after: Array) -> Change:
    """The interval leaves out one text at a time: pairs that share a text are not independent."""
    difference = after - before
    texts = int(pairs.j.max()) + 1
    sums = np.zeros(texts)
    for side in (pairs.i, pairs.j):
        sums += np.bincount(side, difference, texts)
    interval = jackknife_interval([sums], [texts - 1], float(difference.sum()), len(difference))
    return Change(float(before.mean()), float(after.mean()), float(difference.mean()), interval)


def _change(before: Array, after: Array, *, unit: str) -> Change:
    difference = after - before
    interval = bootstrap_interval(difference, unit=unit)
    return Change(float(before.mean()), float(after.mean()), float(difference.mean()), interval)


def _query_change(before: Array, after: Array) -> Change:
    judged = ~np.isnan(before)
    return _change(before[judged], after[judged], unit="queries")


def _baseline(before: _Measured, documents: int, relevant: Array, k: int) -> Baseline:
    means = before.quality["means"]
    judged = means[~np.isnan(means)]
    counts = np.unique(relevant[:, 0], return_counts=True)[1]
    gains = np.cumsum(1 / np.log2(np.arange(2, k + 2)))
    return Baseline(
        k=k,
        quality=float(judged.mean()),
        interval=bootstrap_interval(judged, unit="queries"),
        chance=float((counts / documents * gains[min(k, documents) - 1] / gains[np.minimum(counts, k) - 1]).mean()),
        second_order=_query_change(means, before.quality[WASSERSTEIN]),
    )
