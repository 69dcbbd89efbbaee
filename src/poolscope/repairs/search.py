"""Repairs on trial against the model as it is, sharing what was encoded: for `tune` and for the audit.

And the half of the texts on which `tune` compares candidates, and chooses one of them.

Re-ranking takes the nearest documents by cosine and puts them in order by the distance of the Gaussians. Every cloud is
scaled to unit mean first, as SOCM and cosine do: the length of the pooled vector does not count, the spread relative to
it does. Then W₂² = ‖u₁ − u₂‖² + BW²(Σ₁, Σ₂) = 4(d_μ + d_Σ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.capabilities import has_attention, token_counts
from poolscope.encoders.pooling import own_pooling
from poolscope.errors import InputError, ModelError
from poolscope.evaluation import Evaluation, RetrievalTask, Task, Trial, compare_scores
from poolscope.evaluation.run import Vectors, check_task, for_role
from poolscope.evaluation.scores import compared
from poolscope.numbers import Array, Index
from poolscope.numbers.bures import given_pairs
from poolscope.numbers.intervals import FEWEST_PAIRED
from poolscope.numbers.moments import text_moments
from poolscope.numbers.pooling import Pooling
from poolscope.numbers.ranking import Ranking
from poolscope.repairs.readings import Layers, Reading
from poolscope.repairs.repair_file import Repair, combined, encode_at
from poolscope.repairs.temperature.rules import Constant, Steps, TemperatureRule, fit_steps
from poolscope.repairs.vectors import VectorRepair

# -- re-ranking by the clouds -----------------------------------------------------------------------------------------


def gaussian_distances(queries: TokenClouds, documents: TokenClouds, pairs: Index, *, weight: float = 1.0) -> Array:
    """W₂² = 4(d_μ + weight·d_Σ) of pairs (query, document), both clouds scaled to unit mean.

    A weight of 0 leaves the cosine order; 1 is the squared 2-Wasserstein distance of the two Gaussians.
    """
    if not 0 <= weight < np.inf:
        raise InputError(f"weight: received {weight!r}; allowed: a number from 0 (order of the cosine) on.")
    if weight == 0:  # the means alone, without looking at the clouds around them
        asking, sought = (text_moments(side).unit_means for side in (queries, documents))
        return np.asarray(((asking[pairs[:, 0]] - sought[pairs[:, 1]]) ** 2).sum(axis=1))
    distances = np.empty(len(pairs))
    for rows, measured in given_pairs(queries, pairs, documents):
        distances[rows] = 4 * measured.mean_distance + weight * measured.bures
    return distances


def rerank(
    rankings: Sequence[Ranking], queries: TokenClouds, documents: TokenClouds, *, weight: float = 1.0
) -> list[Ranking]:
    """The rankings with their top documents of each query in the order of W₂²; what lies below the top stays.

    `rankings`: the documents for the queries and, where documents ask too, the queries for the documents. A pair is as
    far apart whoever asks, and many stand in the top both ways: each is measured once. `scores` are −W₂², best first.
    The number of documents that are looked at is that of `top`.
    """
    pairs = []
    for way, (ranking, sides) in enumerate(zip(rankings, ((queries, documents), (documents, queries)), strict=False)):
        asking, sought = map(len, sides)
        if (ranking.queries, True) != (asking, ranking.top.max(initial=0) < sought):
            raise InputError(
                f"received a ranking of {ranking.queries} queries with clouds of {asking} queries and {sought} "
                f"documents; they must be those that were ranked."
            )
        places = np.stack([np.repeat(np.arange(asking), ranking.top.shape[1]), ranking.top.ravel()], axis=1)
        pairs.append(places[:, ::-1] if way else places)
    every, places = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)
    distances = gaussian_distances(queries, documents, every, weight=weight)[places.ravel()]
    parts = np.split(distances, np.cumsum([len(part) for part in pairs])[:-1])
    return [_reordered(*part) for part in zip(rankings, parts, strict=True)]


def _reordered(ranking: Ranking, distances: Array) -> Ranking:
    """The ranking with its top in the order of these distances; equal distances tie."""
    distances = distances.reshape(ranking.top.shape)
    order = np.lexsort((ranking.top, distances), axis=1)
    matches = ranking.top[ranking.query] == ranking.document[:, None]
    inside = matches.any(axis=1)
    around = distances[ranking.query]
    own = np.take_along_axis(around, matches.argmax(axis=1)[:, None], axis=1)
    # A document that ties at the edge of the top without being in it is behind all of the top.
    behind = np.maximum(ranking.above, ranking.top.shape[1])
    return replace(
        ranking,
        top=np.take_along_axis(ranking.top, order, axis=1),
        scores=-np.take_along_axis(distances, order, axis=1),
        above=np.where(inside, (around < own).sum(axis=1), behind),
        ties=np.where(inside, (around == own).sum(axis=1), ranking.above + ranking.ties - behind),
    )


# -- trials -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bench:
    """A model on a task. Its texts are encoded once as the model is, and again for a temperature or a reading only.

    `pooling` is the model's own, `layers` are those that are kept of the first encoding, for poolings that need them.
    Differences have intervals of `level`; `units` names the units in the sentences of trials.
    """

    encoder: TokenEncoder
    task: Task
    pooling: Pooling
    layers: tuple[int, ...] = (-1,)
    level: float = 0.95
    units: str = ""
    progress: Progress | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_task(self.encoder, self.task)

    @cached_property
    def sides(self) -> list[Layers]:
        """The clouds of every side of the task by layer, as the model is."""
        return self.encode(None, layers=self.layers)

    @cached_property
    def vectors(self) -> list[Vectors]:
        """The vectors of every side, of length 1, as the model is."""
        return [Repair().pooled(side, self.pooling) for side in self.sides]

    @cached_property
    def before(self) -> Evaluation:
        """The score of the model as it is."""
        return self.task.score(*self.vectors)

    def encode(
        self, rule: TemperatureRule | None, *, reading: Reading | None = None, layers: Sequence[int] = (-1,)
    ) -> list[Layers]:
        """The clouds of every side at a temperature, or read so. Sides in one role go in one pass: cores wait once."""
        sides, encoded = self.task.sides, {}
        for role in dict.fromkeys(side.role for side in sides):
            alike = [k for k, side in enumerate(sides) if side.role == role]
            texts = [text for k in alike for text in sides[k].texts]
            clouds = encode_at(
                self.encoder, texts, rule, reading=reading, role=role, layers=layers, progress=self.progress
            )
            ends = np.cumsum([0, *(len(sides[k].texts) for k in alike)])
            for k, (start, stop) in zip(alike, pairwise(ends), strict=True):
                encoded[k] = {layer: part[start:stop] for layer, part in clouds.items()}
        return [encoded[k] for k in range(len(sides))]

    def reads(self, reading: Reading | None) -> float:
        """The tokens that the model reads of the task's texts, as a multiple of those it reads as it is."""
        if reading is None:
            return 1.0
        sides = [(for_role(self.encoder, side.role), side.texts) for side in self.task.sides]
        before = sum(int(token_counts(encoder, texts).sum()) for encoder, texts in sides)
        return sum(reading.tokens(encoder, texts) for encoder, texts in sides) / before

    def try_repair(self, repair: Repair, *, sides: list[Layers] | None = None) -> Trial:
        """A repair, learnt from the clouds of the task. `sides` are clouds at its temperature, if they are at hand.

        Queries teach nothing: what is searched is known beforehand, and they may have a mean of their own.
        """
        rule = repair.temperature
        if sides is None:
            plain = repair.reading is None and (rule is None or rule.neutral)
            sides = self.sides if plain else self.encode(rule, reading=repair.reading)
        lacking = set(() if repair.pooling is None else repair.pooling.layers) - set(sides[0])
        if lacking:
            raise InputError(f"it needs layers {repair.pooling.layers}, which were not encoded.")
        searched = [clouds for clouds, side in zip(sides, self.task.sides, strict=True) if side.role != "query"]
        fitted = repair.fitted(searched or sides, self.pooling)
        vectors = [fitted.pooled(side, self.pooling) for side in sides]
        trial = self.compare(repair.label, self.before, self.task.score(*vectors), repair=fitted)
        return replace(trial, reads=self.reads(repair.reading), width=vectors[0].shape[1])

    def try_reranking(self, top: int) -> Trial:
        """The nearest `top` documents of each query put in order by d_μ + d_Σ of their clouds.

        That is no repair of the vectors: it needs the clouds when a query is asked.
        """
        if not isinstance(self.task, RetrievalTask):
            raise InputError(f"{self.task.name}: only documents that were retrieved can be put in another order.")
        task, (queries, documents) = self.task, (side[-1] for side in self.sides)
        rankings = [task.rank(*vectors, k=max(top, task.k)) for vectors in task.ways(*self.vectors)]
        after = task.mean_of([task.evaluation(ranking) for ranking in rerank(rankings, queries, documents)])
        return self.compare(f"re-ranking of the top {top} by W₂²", self.before, after, family="re-ranking")

    def compare(self, name: str, before: Evaluation, after: Evaluation, **about: Any) -> Trial:
        """The trial of two evaluations of the task, at the level of this bench; `about` as `compared` takes it."""
        return compared(name, before, after, level=self.level, units=self.units, **about)


def unit_lengths(encoder: TokenEncoder, task: Task) -> Index:
    """The tokens of the longest text of each unit of a task (a query with its relevant documents, a text), as a rule of
    the length counts them: with special tokens and prompt.
    """
    lengths = [token_counts(for_role(encoder, side.role), side.texts) for side in task.sides]
    if not isinstance(task, RetrievalTask):
        return np.asarray(np.max(lengths, axis=0))
    longest = lengths[0].copy()
    np.maximum.at(longest, task.relevant[:, 0], lengths[1][task.relevant[:, 1]])
    return longest


_BINS = 3  # of the step rule, with about equally many units: short, middle and long


class Search:
    """The half on which candidates are compared with the model as it is, and one of them is chosen."""

    def __init__(self, encoder: TokenEncoder, task: Task, progress: Progress | None) -> None:
        layers = (-1, -2) if (encoder.card.layers or 0) >= 1 else (-1,)
        self.bench = Bench(encoder, task, own_pooling(encoder), layers=layers, progress=progress)
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        # Of each family the best trial so far, and its clouds: combinations need no further encoding.
        self._best: dict[str, tuple[Trial, list[Layers]]] = {}

    def try_clouds(self, poolings: list[Pooling], repairs: list[VectorRepair], *, reranked: int) -> None:
        """What needs no second encoding."""
        others = [pooling for pooling in poolings if pooling.label != self.bench.pooling.label]
        for repair in [*(Repair(pooling=p) for p in others), *(Repair(vectors=v) for v in repairs)]:
            self._try(repair, self.bench.sides)
        if reranked and isinstance(self.bench.task, RetrievalTask):
            self.trials.append(self.bench.try_reranking(reranked))

    def try_readings(self, readings: Sequence[Reading]) -> None:
        """Each reading encodes the texts again."""
        for reading in readings:
            try:
                sides = self.bench.encode(None, reading=reading)
            except (InputError, ModelError) as error:
                self.notes.append(f"Skipped {reading.label}: {error}")
                continue
            if cut := _cut_texts(sides) - _cut_texts(self.bench.sides):
                self.notes.append(f"{reading.label}: {cut:,} texts more than otherwise were cut to fit the model.")
            self._try(Repair(reading=reading), sides)

    def try_temperatures(self, rules: list[TemperatureRule]) -> None:
        """Each temperature encodes the texts again, and from what the constants did a step rule is fitted and tried."""
        if rules and not has_attention(self.bench.encoder):
            kind = self.bench.encoder.card.kind
            self.notes.append(
                f"No temperature was tried: a model of kind '{kind}' has no attention that can be scaled."
            )
            return
        tried: dict[float, Evaluation] = {}
        for rule in rules:
            try:
                trial = self._try(Repair(temperature=rule), self.bench.encode(rule))
            except ModelError as error:
                self.notes.append(f"No temperature was tried: {error}")
                return
            if trial is not None and isinstance(rule, Constant):
                tried[rule.tau] = trial.evaluation
        if (steps := self._fitted_steps(tried)) is not None:
            self._try(Repair(temperature=steps), self.bench.encode(steps))

    def _fitted_steps(self, tried: Mapping[float, Evaluation]) -> Steps | None:
        """A step rule by the length of each unit's longest text; None where no bin gains, or all bins alike."""
        bench = self.bench
        if not tried or bench.before.statistic != "mean" or bench.task.units < FEWEST_PAIRED:
            return None
        scores = np.stack([bench.before.scores, *(evaluation.scores for evaluation in tried.values())], axis=1)
        fit = fit_steps(unit_lengths(bench.encoder, bench.task), scores, temperatures=[1.0, *tried], bins=_BINS)
        if fit.rule.neutral or len(set(fit.rule.temperatures)) == 1:
            return None
        self.notes.append(f"A step rule was fitted to {len(scores):,} {bench.before.unit}: {fit.rule}.")
        return fit.rule

    def try_combinations(self) -> None:
        """The best of each family together, also where it gains nothing alone: one defect may hide another.

        A reading at a temperature is left out: its texts would have to be encoded once more.
        """
        for repair in combined({family: trial.repair for family, (trial, _) in self._best.items()}):
            encoded = [name for name in ("reading", "temperature") if getattr(repair, name) is not None]
            if len(encoded) < 2:
                self._try(repair, self._best[encoded[0]][1] if encoded else self.bench.sides)

    def best(self) -> Trial | None:
        """The candidate with the largest gain on this half; None if none gains.

        A combination takes the place of a simpler candidate only if it is better than that beyond chance.
        """
        gaining = [trial for trial in self.trials if trial.repair is not None and trial.change.mean > 0]
        best = max((t for t in gaining if t.family != "combination"), key=lambda t: t.change.mean, default=None)
        for trial in gaining:
            simpler = self.bench.before if best is None else best.evaluation
            if trial.family == "combination" and compare_scores(simpler, trial.evaluation).proves_gain:
                best = trial
        return best

    def _try(self, repair: Repair, sides: list[Layers]) -> Trial | None:
        try:
            trial = self.bench.try_repair(repair, sides=sides)
        except InputError as error:
            self.notes.append(f"Skipped {repair.label}: {error}")
            return None
        self.trials.append(trial)
        best, _ = self._best.get(trial.family, (trial, sides))
        if trial.change.mean >= best.change.mean:
            self._best[trial.family] = trial, sides
        return trial


def _cut_texts(sides: Sequence[Layers]) -> int:
    return sum(int((side[-1].truncated > 0).sum()) for side in sides)
