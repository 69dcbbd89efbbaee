"""The half of the texts on which `tune` compares candidates with the model as it is, and chooses one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.capabilities import has_attention
from poolscope.encoders.pooling import own_pooling
from poolscope.errors import InputError, ModelError
from poolscope.evaluation import Evaluation, RetrievalTask, Task, Trial, compare_scores
from poolscope.numbers.pooling import Pooling
from poolscope.repairs.readings import Reading
from poolscope.repairs.repair_file import Layers, Repair, combined
from poolscope.repairs.temperature.rules import Constant, Steps, TemperatureRule, fit_steps
from poolscope.repairs.trials import Bench, unit_lengths
from poolscope.repairs.vectors import VectorRepair

# Units that the half that reports must have: 95 % intervals of the bootstrap miss the truth in 10 of 100 cases at 10
# normal units and in 8 at 20, and what is proven here changes an index.
FEWEST_HELD_OUT = 20
_BINS = 3  # of the step rule, with about equally many units: short, middle and long


class Search:
    """The half on which candidates are compared with the model as it is, and one of them is chosen."""

    def __init__(self, encoder: TokenEncoder, task: Task, progress: Progress | None) -> None:
        layers = (-1, -2) if (encoder.card.layers or 0) >= 1 else (-1,)
        self.bench = Bench(encoder, task, own_pooling(encoder), layers=layers, progress=progress)
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._scaled, self._highest = self.bench.sides, -np.inf  # the clouds of the best temperature so far
        self._read, self._best_read = self.bench.sides, -np.inf  # and of the best reading

    def try_clouds(self, poolings: list[Pooling], repairs: list[VectorRepair], *, reranked: int) -> None:
        """What needs no second encoding."""
        others = [pooling for pooling in poolings if pooling.label != self.bench.pooling.label]
        for repair in [*(Repair(pooling=p) for p in others), *(Repair(vectors=v) for v in repairs)]:
            self._try(repair, self.bench.sides)
        if reranked and isinstance(self.bench.task, RetrievalTask):
            self.trials.append(self.bench.try_reranking(reranked))

    def try_readings(self, readings: Sequence[Reading]) -> None:
        """Each reading encodes the texts again; the clouds of the best one are kept for the combinations."""
        for reading in readings:
            try:
                sides = self.bench.encode(None, reading=reading)
            except (InputError, ModelError) as error:
                self.notes.append(f"Not tried: {reading.label}; {error}")
                continue
            if cut := sum(int((side[-1].truncated > 0).sum()) for side in sides) - self._cut:
                self.notes.append(f"{reading.label}: {cut:,} texts more than otherwise were cut to fit the model.")
            trial = self._try(Repair(reading=reading), sides)
            if trial is not None and trial.change.mean > self._best_read:
                self._best_read, self._read = trial.change.mean, sides

    @property
    def _cut(self) -> int:
        return sum(int((side[-1].truncated > 0).sum()) for side in self.bench.sides)

    def try_temperatures(self, rules: list[TemperatureRule]) -> None:
        """Each temperature encodes the texts again, and from what the constants did a step rule is fitted and tried.

        The clouds of the best one are kept for the combinations.
        """
        if rules and not has_attention(self.bench.encoder):
            kind = self.bench.encoder.card.kind
            self.notes.append(
                f"No temperature was tried: a model of kind '{kind}' has no attention that can be scaled."
            )
            return
        tried: dict[float, Evaluation] = {}
        for rule in rules:
            try:
                trial = self._try_temperature(rule)
            except ModelError as error:
                self.notes.append(f"No temperature was tried: {error}")
                return
            if trial is not None and isinstance(rule, Constant):
                tried[rule.tau] = trial.evaluation
        steps = self._fitted_steps(tried)
        if steps is not None:
            self._try_temperature(steps)

    def _try_temperature(self, rule: TemperatureRule) -> Trial | None:
        sides = self.bench.encode(rule)
        trial = self._try(Repair(temperature=rule), sides)
        if trial is not None and trial.change.mean > self._highest:
            self._highest, self._scaled = trial.change.mean, sides
        return trial

    def _fitted_steps(self, tried: Mapping[float, Evaluation]) -> Steps | None:
        """A step rule by the length of each unit's longest text; None where no bin gains, or all bins alike."""
        bench = self.bench
        if not tried or bench.before.statistic != "mean" or bench.task.units < FEWEST_HELD_OUT:
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
        rising = sorted(self.trials, key=lambda trial: trial.change.mean)
        best = {trial.family: trial.repair for trial in rising if trial.repair is not None}
        for repair in combined(best):
            if repair.reading is None or repair.temperature is None:
                changed = self._scaled if repair.temperature is not None else self._read
                plain = repair.reading is None and repair.temperature is None
                self._try(repair, self.bench.sides if plain else changed)

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
            self.notes.append(f"Not tried: {repair.label}; {error}")
            return None
        self.trials.append(trial)
        return trial
