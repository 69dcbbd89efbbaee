"""The half of a task on which repairs are compared with the model as it is, and one of them is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.pooling import declared_pooling
from poolscope.errors import InputError, ModelError
from poolscope.evaluation import Evaluation, RetrievalTask, Task, compare_scores
from poolscope.numbers.pooling import Pooling
from poolscope.repairs.candidates import Candidate, Layers, combined
from poolscope.repairs.encoding import can_be_scaled, encode_side, token_counts_of
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.reranking import rerank
from poolscope.repairs.temperature.rules import Constant, Steps, TemperatureRule
from poolscope.repairs.temperature.steps import fit_steps
from poolscope.repairs.tune_result import FEWEST_HELD_OUT, Trial
from poolscope.repairs.vectors import VectorRepair

Index = NDArray[np.int64]

_BINS = 3  # of the step rule, with about equally many units: short, middle and long


class Search:
    """The half on which candidates are compared with the model as it is."""

    def __init__(self, encoder: TokenEncoder, task: Task, progress: Progress | None) -> None:
        self.encoder = encoder
        self.task = task
        self.declared = declared_pooling(encoder.card)
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._progress = progress
        deep = (encoder.card.layers or 0) >= 1
        self.sides = self._encode(None, layers=(-1, -2) if deep else (-1,))
        self._plain = [Repair().pooled(side, self.declared) for side in self.sides]
        self.baseline = task.score(*self._plain)
        self._scaled, self._highest = self.sides, -np.inf  # the clouds of the best temperature so far

    def _encode(self, temperature: TemperatureRule | None, layers: Sequence[int] = (-1,)) -> list[Layers]:
        return [
            encode_side(
                self.encoder,
                side.texts,
                role=side.role,
                temperature=temperature,
                layers=layers,
                progress=self._progress,
            )
            for side in self.task.sides
        ]

    def try_clouds(self, poolings: list[Pooling], repairs: list[VectorRepair], *, reranked: int) -> None:
        """What needs no second encoding."""
        others = [pooling for pooling in poolings if pooling.label != self.declared.label]
        for candidate in [*(Candidate(pooling=p) for p in others), *(Candidate(vectors=v) for v in repairs)]:
            self._try(candidate, self.sides)
        if reranked and isinstance(self.task, RetrievalTask):
            ranking = self.task.rank(*self._plain, k=max(reranked, self.task.k))
            queries, documents = (side[-1] for side in self.sides)
            found = self.task.evaluation(rerank(ranking, queries, documents))
            self._add(f"re-ranking of the top {reranked} by W₂²", "re-ranking", found, None)

    def try_temperatures(self, rules: list[TemperatureRule]) -> None:
        """Each temperature encodes the texts again, and from what the constants did a step rule is fitted and tried.

        The clouds of the best one are kept for the combinations.
        """
        if rules and not can_be_scaled(self.encoder):
            kind = self.encoder.card.kind
            self.notes.append(
                f"No temperature was tried: a model of kind '{kind}' has no attention that can be scaled."
            )
            return
        tried: dict[float, Evaluation] = {}
        for rule in rules:
            try:
                found = self._try_temperature(rule)
            except ModelError as error:
                self.notes.append(f"No temperature was tried: {error}")
                return
            if found is not None and isinstance(rule, Constant):
                tried[rule.tau] = found.evaluation
        steps = self._fitted_steps(tried)
        if steps is not None:
            self._try_temperature(steps)

    def _try_temperature(self, rule: TemperatureRule) -> Trial | None:
        sides = self._encode(rule)
        trial = self._try(Candidate(temperature=rule), sides)
        if trial is not None and trial.search.mean > self._highest:
            self._highest, self._scaled = trial.search.mean, sides
        return trial

    def _fitted_steps(self, tried: Mapping[float, Evaluation]) -> Steps | None:
        """A step rule by the length of each unit's longest text; None where no bin gains, or all bins alike."""
        if not tried or self.baseline.statistic != "mean" or self.task.units < FEWEST_HELD_OUT:
            return None
        scores = np.stack([self.baseline.scores, *(found.scores for found in tried.values())], axis=1)
        fit = fit_steps(unit_lengths(self.encoder, self.task), scores, temperatures=[1.0, *tried], bins=_BINS)
        if fit.rule.neutral or len(set(fit.rule.temperatures)) == 1:
            return None
        self.notes.append(f"A step rule was fitted to {len(scores):,} {self.baseline.unit}: {fit.rule}.")
        return fit.rule

    def try_combinations(self) -> None:
        """The best of each family together, also where it gains nothing alone: one defect may hide another."""
        rising = sorted(self.trials, key=lambda trial: trial.search.mean)
        best = {trial.family: trial.candidate for trial in rising if trial.candidate is not None}
        for candidate in combined(best):
            self._try(candidate, self.sides if candidate.temperature is None else self._scaled)

    def best(self) -> Trial | None:
        """The candidate with the largest gain on this half; None if none gains.

        A combination takes the place of a simpler candidate only if it is better than that beyond chance.
        """
        gaining = [trial for trial in self.trials if trial.candidate is not None and trial.search.mean > 0]
        best = max((t for t in gaining if t.family != "combination"), key=lambda t: t.search.mean, default=None)
        for trial in gaining:
            simpler = self.baseline if best is None else best.evaluation
            if trial.family == "combination" and compare_scores(simpler, trial.evaluation).proves_gain:
                best = trial
        return best

    def _try(self, candidate: Candidate, sides: list[Layers]) -> Trial | None:
        layers = () if candidate.pooling is None else candidate.pooling.layers
        if set(layers) - set(sides[0]):
            self.notes.append(f"Not tried: {candidate.label}; it needs layers {layers}, which were not encoded.")
            return None
        try:
            repair = candidate.fitted(sides, self.declared)
            found = self.task.score(*(repair.pooled(side, self.declared) for side in sides))
        except InputError as error:
            self.notes.append(f"Not tried: {candidate.label}; {error}")
            return None
        return self._add(candidate.label, candidate.family, found, candidate, repair)

    def _add(
        self, label: str, family: str, found: Evaluation, candidate: Candidate | None, repair: Repair | None = None
    ) -> Trial:
        trial = Trial(label, family, found, compare_scores(self.baseline, found), candidate, repair)
        self.trials.append(trial)
        return trial


def unit_lengths(encoder: TokenEncoder, task: Task) -> Index:
    """The tokens of the longest text of each unit of a task (a query with its relevant documents, a text), as a rule of
    the length counts them: with special tokens and prompt.
    """
    lengths = [token_counts_of(encoder, side.texts, role=side.role) for side in task.sides]
    if not isinstance(task, RetrievalTask):
        return np.asarray(np.max(lengths, axis=0))
    longest = lengths[0].copy()
    np.maximum.at(longest, task.relevant[:, 0], lengths[1][task.relevant[:, 1]])
    return longest
