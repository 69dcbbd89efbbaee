"""Interventions on token clouds that keep every mean: what do SOCM and retrieval see of the rest?

A cloud is its mean plus deviations, X = 1μᵀ + D. Each change replaces D by other deviations whose mean is zero, and
returns new clouds in float64 with the ids and texts of the old ones. Mean pooling cannot see it. A text without spread
(one token, or equal tokens) has no deviations and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import InputError, require, whole_number
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.result import PairColumns
from poolscope.numbers.intervals import (
    Estimate,
    Units,
    answers,
    chosen_units,
    paired_difference,
    query_units,
    share_estimate,
    unit_jackknife,
)
from poolscope.numbers.moments import TextMoments, mean, text_moments
from poolscope.numbers.ranking import discount, rank_documents, rank_scores
from poolscope.numbers.streaming import smallest, text_marks
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import COLOURS, GREY, error_bars, grid, style
from poolscope.texts.groups import groups_of_ids

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Intervention = Callable[[TokenClouds], TokenClouds]

# S/‖μ‖² of equal tokens is rounding, about 1e-32; what is below this is no spread.
NO_SPREAD = 1e-20

SPECIFICATIONS = "scale=FACTOR, rotate, match, noise, top=DIRECTIONS"
INTERVENTIONS = ("scale=0", "scale=0.5", "scale=2", "rotate", "match", "noise", "top=1", "top=8")
WASSERSTEIN, COVARIANCE = "wasserstein", "covariance"
RANKINGS = {WASSERSTEIN: "ranking by W<sub>2</sub> (two moments)", COVARIANCE: "ranking by d<sub>Σ</sub> alone"}
_ROW, _WIDTH = 34, 980  # pixels of one intervention in the figure, and of the whole


# -- changes ------------------------------------------------------------------------------------------------------


def scale_deviations(clouds: TokenClouds, factor: float) -> TokenClouds:
    """Multiply all deviations by `factor`: every covariance is multiplied by factor².

    >>> scaled = scale_deviations(TokenClouds.from_arrays([[[1.0, 1.0], [1.0, -1.0]]]), 3.0)
    >>> scaled[0].tolist()
    [[1.0, 3.0], [1.0, -3.0]]
    """
    if not 0 <= factor < np.inf:
        raise InputError(f"factor: received {factor}; allowed is 0 (no spread left) or a positive number.")
    return _changed(clouds, lambda k, D: factor * D, f"scale={factor:g}")


def scale_each(clouds: TokenClouds, factors: ArrayLike) -> TokenClouds:
    """Multiply the deviations of each text by a factor of its own, such as one at random: concentration changes alone.

    >>> two = TokenClouds.from_arrays([[[1.0, 1.0], [1.0, -1.0]], [[2.0, 1.0], [2.0, -1.0]]])
    >>> [cloud.tolist() for cloud in scale_each(two, [2, 0])]
    [[[1.0, 2.0], [1.0, -2.0]], [[2.0, 0.0], [2.0, 0.0]]]
    """
    each = np.asarray(factors, dtype=np.float64)
    if each.shape != (len(clouds),) or not (np.isfinite(each) & (each >= 0)).all():
        raise InputError(
            f"factors: received shape {each.shape} for {len(clouds)} texts; needed: one number a text, 0 or more."
        )
    return _changed(clouds, lambda k, D: each[k] * D, "scale each")


def rotate_deviations(clouds: TokenClouds, *, seed: int = 0, together: bool = False) -> TokenClouds:
    """Turn the deviations of each text by a random orthogonal map of its own: spectrum and trace stay, directions go.

    With D = USVᵀ the new deviations are USWᵀ, W (d × rank) uniform among the orthonormal frames. `together` turns all
    texts by one map; that leaves every d_μ, d_Σ and SOCM within these clouds as it is.
    """
    if together:
        Q = _frame(np.random.default_rng(seed), clouds.dimension, clouds.dimension)
        return _changed(clouds, lambda k, D: D @ Q, "rotate together")

    marks = text_marks(clouds, np.arange(len(clouds)))

    def turn(k: int, D: Array) -> Array:
        U, s, _ = np.linalg.svd(D, full_matrices=False)
        return np.asarray((U * s) @ _frame(np.random.default_rng([seed, marks[k]]), clouds.dimension, len(s)).T)

    return _changed(clouds, turn, "rotate")


def match_traces(clouds: TokenClouds, *, target: float | None = None) -> TokenClouds:
    """Scale the deviations of each text so that all have one concentration ratio S/‖μ‖², the trace that SOCM sees.

    target: that ratio; None: the mean over the texts that have any spread.
    """
    traces = text_moments(clouds).traces
    spread = traces > NO_SPREAD
    if not spread.any() or (target is not None and not 0 <= target < np.inf):
        raise InputError(
            f"received {int(spread.sum())} texts with spread and the target {target}; needed: at least one text of "
            f"different tokens, and a target of 0 or more."
        )
    goal = float(traces[spread].mean()) if target is None else target
    factors = np.sqrt(np.divide(goal, traces, out=np.zeros_like(traces), where=spread))
    return _changed(clouds, lambda k, D: factors[k] * D, "match")


def isotropic_noise(clouds: TokenClouds, *, seed: int = 0) -> TokenClouds:
    """Replace the deviations by centred Gaussian noise, the same in all directions, of equal trace in every text."""
    marks = text_marks(clouds, np.arange(len(clouds)))

    def noise(k: int, D: Array) -> Array:
        drawn = np.random.default_rng([seed, marks[k]]).standard_normal(D.shape)
        drawn -= drawn.mean(axis=0)
        size = float(np.linalg.norm(drawn))
        return drawn * (float(np.linalg.norm(D)) / size) if size > 0 else D

    return _changed(clouds, noise, "noise")


def top_directions(clouds: TokenClouds, directions: int) -> TokenClouds:
    """Keep the deviations of each text along its first principal directions only; the trace falls by the rest."""
    if directions < 1:
        raise InputError(f"directions: received {directions}; allowed is 1 or more. scale=0 leaves none.")

    def project(k: int, D: Array) -> Array:
        U, s, V = np.linalg.svd(D, full_matrices=False)
        return np.asarray((U[:, :directions] * s[:directions]) @ V[:directions])

    return _changed(clouds, project, f"top={directions}")


def parse_intervention(specification: str, *, seed: int = 0) -> Intervention:
    """The intervention that a word names: scale=FACTOR, rotate, match, noise or top=DIRECTIONS.

    >>> parse_intervention("scale=0")(TokenClouds.from_arrays([[[1.0, 1.0], [1.0, -1.0]]]))[0].tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    name, _, value = specification.partition("=")
    try:
        if name == "scale":
            return partial(scale_deviations, factor=float(value))
        if name == "top":
            return partial(top_directions, directions=int(value))
        without_value: dict[str, Intervention] = {
            "rotate": partial(rotate_deviations, seed=seed),
            "match": match_traces,
            "noise": partial(isotropic_noise, seed=seed),
        }
        if value:
            raise ValueError(value)
        return without_value[name]
    except (KeyError, ValueError):
        raise InputError(
            f"intervention: received {specification!r}; allowed: {SPECIFICATIONS}, such as scale=0.5 or top=4."
        ) from None


def _changed(clouds: TokenClouds, change: Callable[[int, Array], Array], name: str) -> TokenClouds:
    """The clouds with the deviations of text k replaced by `change(k, deviations)`, centred once more."""
    token_ids = [clouds.token_ids(k) for k in range(len(clouds))]
    arrays = []
    for k, cloud in enumerate(clouds):
        centre = mean(cloud)
        D = np.asarray(cloud, dtype=np.float64) - centre
        if D.any():
            D = change(k, D)
            D = D - D.mean(axis=0)
        arrays.append(centre + D)
    return TokenClouds.from_arrays(
        arrays,
        ids=list(clouds.ids),
        texts=None if clouds.texts is None else list(clouds.texts),
        truncated=clouds.truncated,
        token_ids=None if any(ids is None for ids in token_ids) else [ids for ids in token_ids if ids is not None],
        provenance={**clouds.provenance, "intervention": name},
    )


def _frame(random: np.random.Generator, dimension: int, count: int) -> Array:
    """`count` orthonormal columns of length `dimension`, uniform over all such frames."""
    Q, R = np.linalg.qr(random.standard_normal((dimension, count)))
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))  # without the signs it would not be uniform


# -- before and after ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A mean before and after, and the paired difference (after − before)."""

    before: float
    after: float
    difference: Estimate


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
    """Retrieval with the clouds as they are: nDCG@k by the cosine of the means; its floor is ranking at random.

    No intervention can change it, since each keeps every mean. `second_order`: from there to the ranking by W₂².
    """

    k: int
    quality: Estimate
    second_order: Change


@dataclass(frozen=True, repr=False)
class InterveneResult(Result):
    """Effects of the interventions, in order, on the same texts, pairs and queries."""

    effects: tuple[Effect, ...]
    baseline: Baseline | None
    texts: int
    queries: int
    socm_texts: int
    without_spread: int
    provenance: Mapping[str, Any] = origin()

    def __getitem__(self, name: str) -> Effect:
        """The effect of one intervention by its name."""
        for effect in self.effects:
            if effect.name == name:
                return effect
        raise InputError(f"received {name!r}; measured were {', '.join(effect.name for effect in self.effects)}.")

    def headline(self) -> dict[str, Any]:
        """How many interventions, texts and queries."""
        return {"interventions": len(self.effects), "texts": self.texts, "queries": self.queries}

    def in_words(self) -> tuple[str, ...]:
        """Sentences on the untouched clouds, on quantities that cannot change, and on the largest change."""
        most = max(self.effects, key=lambda effect: abs(effect.socm.after - effect.socm.before))
        lines = [
            f"SOCM is {most.socm.before:.4f} over all pairs of {self.socm_texts:,} documents as they are; {most.name} "
            f"changes it most, to {most.socm.after:.4f}, while every mean is kept."
        ]
        if (baseline := self.baseline) is not None:
            quality, gain, metric = baseline.quality, baseline.second_order, f"nDCG@{baseline.k}"
            lines += [
                f"Ranking by the cosine of the means gives {metric} {quality.value:.4f} {quality.interval or ''} "
                f"(at random {quality.floor:.4f}); no intervention can change it.",
                f"Ranking by W₂ of mean and covariance gives {gain.after:.4f}, {gain.difference.value:+z.4f}"
                f"{'' if gain.difference.interval is None else f' {gain.difference.interval}'} against the means.",
            ]
        shift = max(effect.mean_shift for effect in self.effects)
        lines.append(f"The largest change of a mean vector is {shift:.1e} of its norm, which is rounding.")
        if self.without_spread:
            lines.append(f"{self.without_spread:,} texts have no spread (a single token) and stay as they are.")
        return tuple(lines)

    def rows(self) -> list[dict[str, Any]]:
        """One row an intervention: before, after and difference of SOCM, d_Σ, trace and quality by ranking."""
        return [_flat(effect) for effect in self.effects]

    def figure(self) -> Any:
        """One row an intervention: left the change of SOCM, right that of nDCG by what the ranking sees.

        Bars are 95 % intervals of the paired difference. Ranking by the means stays at zero by construction.
        """
        titles = ["Change of SOCM"] + ([f"Change of nDCG@{self.baseline.k}"] if self.baseline else [])
        figure, *_ = grid(titles, 2, shared_yaxes=True, horizontal_spacing=0.06)
        figure.add_trace(_points({effect.name: effect.socm for effect in self.effects}, "SOCM", COLOURS[0]), 1, 1)
        if self.baseline is not None:
            for (key, label), colour in zip(RANKINGS.items(), COLOURS[1:3], strict=True):
                changes = {effect.name: effect.quality[key] for effect in self.effects if key in effect.quality}
                figure.add_trace(_points(changes, label, colour), 1, 2)
        for column in range(1, len(titles) + 1):
            figure.add_vline(0, line={"color": GREY, "width": 1, "dash": "dash"}, row=1, col=column)
            figure.update_xaxes(title_text="after − before", row=1, col=column)
        names = [effect.name for effect in self.effects]
        figure.update_yaxes(categoryorder="array", categoryarray=names[::-1])
        title = f"Every mean kept · {self.texts:,} texts, {self.queries:,} queries · bars: 95% intervals"
        return style(figure, title=title, width=_WIDTH, height=_ROW * len(names) + 230)


def _flat(effect: Effect) -> dict[str, Any]:
    changes = {"socm": effect.socm, "d_sigma": effect.covariance_distance, "trace": effect.trace}
    row: dict[str, Any] = {"intervention": effect.name}
    for name, change in {**changes, **{f"ndcg_{ranking}": part for ranking, part in effect.quality.items()}}.items():
        row |= {f"{name}_before": change.before, f"{name}_after": change.after}
        row |= cells({f"{name}_difference": change.difference})
    return {**row, "mean_shift": effect.mean_shift}


def _points(changes: Mapping[str, Change], label: str, colour: str) -> Any:
    go = require("plotly.graph_objects", "report")
    differences = [change.difference for change in changes.values()]
    return go.Scatter(
        x=[difference.value for difference in differences],
        y=list(changes),
        mode="markers",
        name=label,
        marker={"color": colour, "size": 9},
        error_x=error_bars(differences, colour),
        customdata=[[change.before, change.after] for change in changes.values()],
        hovertemplate="%{y}: %{customdata[0]:.4f} → %{customdata[1]:.4f} (%{x:+z.4f})<extra>" + label + "</extra>",
    )


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

    Quality is nDCG@k of three rankings: by the cosine of the means, which no intervention can change; by W₂² =
    4(d_μ + d_Σ), which sees two moments; by d_Σ alone.

    Parameters
    ----------
    documents : TokenClouds
        The clouds to change, of at least 3 texts.
    queries : TokenClouds, optional
        Changed likewise; with `relevant` they measure quality.
    relevant : array of int (judgements × 2), optional
        Judgements (query, document), positions from 0.
    interventions : sequence of str
        Any of scale=FACTOR, rotate, match, noise and top=DIRECTIONS.
    socm_texts : int
        SOCM is over all pairs of at most this many documents; 3 or more.
    k : int
        Quality is nDCG@k.
    seed : int
        Of random directions and of the draw of documents.
    progress : callable, optional
        Called with 1 after each intervention.

    Returns
    -------
    InterveneResult
        One effect an intervention, by its name or in order, and the quality before any of them.

    Examples
    --------
    >>> from poolscope import TokenClouds, intervene
    >>> clouds = TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]], [[1, 0], [1, 0]]])
    >>> result = intervene(clouds, interventions=["scale=2"])
    >>> result
    InterveneResult(interventions 1, texts 3, queries 0)
    >>> change = result["scale=2"].socm
    >>> round(change.before, 6), round(change.after, 6)      # d_Σ grows by 2²
    (0.5, 2.0)

    """
    if (queries is None) != (relevant is None):
        raise InputError("received queries without relevant, or relevant without queries; both are needed for quality.")
    for clouds in (documents,) if queries is None else (documents, queries):
        check_clouds(clouds, "intervene")
    seed = whole_number(seed, "seed", least=0)
    k, socm_texts = whole_number(k, "k"), whole_number(socm_texts, "socm_texts", least=3)
    if len(documents) < 3:
        raise InputError(f"received {len(documents)} documents; at least 3 are needed. Give more.")
    named = [(name, parse_intervention(name, seed=seed)) for name in interventions]
    texts = documents if queries is None else TokenClouds.concatenate([documents, queries])
    drawn = smallest(text_marks(documents, np.arange(len(documents)), seed=seed), socm_texts)
    judged = None if relevant is None else np.asarray(relevant)
    before = _measure(texts, len(documents), drawn, judged, k)
    pairs = np.zeros((0, 2), dtype=np.int64) if judged is None else judged
    units = _Units.of(documents, len(texts) - len(documents), pairs)
    effects = []
    for name, apply in named:
        after = _measure(apply(texts), len(documents), drawn, judged, k)
        effects.append(_effect(name, before, after, units, drawn))
        if progress is not None:
            progress(1)
    return InterveneResult(
        effects=tuple(effects),
        baseline=None if judged is None else _baseline(before, len(documents), judged, k, units.queries),
        texts=len(documents),
        queries=0 if queries is None else len(queries),
        socm_texts=len(drawn),
        without_spread=int((before.moments.traces <= NO_SPREAD).sum()),
        provenance=provenance(
            *([documents] if queries is None else [documents, queries]),
            settings={"interventions": list(interventions), "socm_texts": socm_texts, "k": k, "seed": seed},
        ),
    )


class _Units(NamedTuple):
    """The unit of each document, of each of all texts (documents, then queries), and of each query."""

    documents: Units
    texts: Units
    queries: Units

    @classmethod
    def of(cls, documents: TokenClouds, queries: int, relevant: Index) -> _Units:
        names = groups_of_ids(list(documents.ids))
        own, marks = chosen_units(len(documents), names), text_marks(documents, relevant[:, 1])
        asking = query_units(relevant, names, queries=queries)
        if names is None:
            return cls(own, chosen_units(len(documents) + queries), asking)
        judged, answered = answers(relevant, marks)
        of = len(own) + np.arange(queries)
        of[judged] = own.of[answered]
        return cls(own, chosen_units(len(documents) + queries, np.concatenate([own.of, of])), asking)


@dataclass(frozen=True)
class _Measured:
    """One state of the clouds: moments of all texts, SOCM pairs of the drawn ones, nDCG of each query by ranking."""

    moments: TextMoments
    pairs: PairColumns
    quality: Mapping[str, Array]


def _measure(texts: TokenClouds, documents: int, drawn: Index, relevant: Array | None, k: int) -> _Measured:
    moments = text_moments(texts)
    pairs = _kept_pairs(texts.select(drawn), None)
    quality = {}
    if relevant is not None:
        searched, searching = texts.select(np.arange(documents)), texts.select(np.arange(documents, len(texts)))
        crossed = _kept_pairs(searching, searched)
        d_mu, d_sigma = (
            column.reshape(len(searching), len(searched))
            for column in (crossed.mean_distance, crossed.covariance_distance)
        )
        by_means = rank_documents(moments.unit_means[documents:], moments.unit_means[:documents], relevant, k=k)
        quality = {
            "means": by_means.ndcg(k),
            WASSERSTEIN: rank_scores(-(d_mu + d_sigma), relevant, k=k).ndcg(k),
            COVARIANCE: rank_scores(-d_sigma, relevant, k=k).ndcg(k),
        }
    return _Measured(moments, pairs, quality)


def _kept_pairs(left: TokenClouds, right: TokenClouds | None) -> PairColumns:
    result = socm(left, right, keep=len(left) * len(left if right is None else right))
    assert result.pairs is not None  # all were kept
    return result.pairs


def _effect(name: str, before: _Measured, after: _Measured, units: _Units, drawn: Index) -> Effect:
    old, new = before.moments, after.moments
    compared = units.documents.among(drawn)
    shift = np.linalg.norm(new.unit_means * (new.norms / old.norms)[:, None] - old.unit_means, axis=1)
    return Effect(
        name=name,
        socm=_pair_change(before.pairs, before.pairs.socm, after.pairs.socm, compared),
        covariance_distance=_pair_change(
            before.pairs, before.pairs.covariance_distance, after.pairs.covariance_distance, compared
        ),
        trace=_change(old.traces, new.traces, units.texts),
        quality={
            key: _query_change(before.quality[key], after.quality[key], units.queries)
            for key in (WASSERSTEIN, COVARIANCE)
            if key in before.quality and (key == WASSERSTEIN or new.traces.max() > NO_SPREAD)
        },
        mean_shift=float(shift.max()),
    )


def _pair_change(pairs: PairColumns, before: Array, after: Array, units: Units) -> Change:
    """The interval leaves out one unit at a time: pairs that share a text are not independent."""
    difference = after - before
    sums = np.zeros(len(units.of))
    for side in (pairs.i, pairs.j):
        sums += np.bincount(side, difference, len(sums))
    own = units.of[pairs.i]
    within = own == units.of[pairs.j]
    inside = np.bincount(own[within], difference[within], len(units)).astype(np.float64)
    change = unit_jackknife(sums, inside, units, float(difference.sum()), len(difference))
    return Change(float(before.mean()), float(after.mean()), change)


def _change(before: Array, after: Array, units: Units) -> Change:
    return Change(float(before.mean()), float(after.mean()), paired_difference(before, after, units).change)


def _query_change(before: Array, after: Array, units: Units) -> Change:
    judged = ~np.isnan(before)
    return _change(before[judged], after[judged], units.among(judged))


def _baseline(before: _Measured, documents: int, relevant: Array, k: int, units: Units) -> Baseline:
    means = before.quality["means"]
    judged = ~np.isnan(means)
    counts = np.unique(relevant[:, 0], return_counts=True)[1]
    gains = np.cumsum(1 / discount(np.arange(1, k + 1)))
    chance = float((counts / documents * gains[min(k, documents) - 1] / gains[np.minimum(counts, k) - 1]).mean())
    return Baseline(
        k=k,
        quality=replace(share_estimate(means[judged], units=units.among(judged)), floor=chance),
        second_order=_query_change(means, before.quality[WASSERSTEIN], units),
    )
