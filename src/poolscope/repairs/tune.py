"""Which repair helps a model on these texts, if any: searched on one half of them, reported on the other.

The half that chooses flatters what it chooses (the winner's curse), so its numbers claim nothing. Only the chosen
candidate is tested on the other half, and it is recommended only if the interval there excludes no gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress, TokenEncoder, check_texts
from poolscope.errors import InputError, ModelError
from poolscope.evaluate import Evaluation, RetrievalTask, Task, compare_scores, split_half_task
from poolscope.evaluate.tasks import halve, shared_texts
from poolscope.repairs.candidates import Candidate, Layers, combined, default_poolings, default_repairs
from poolscope.repairs.encoding import can_be_scaled, encode_side
from poolscope.repairs.pooling import Pooling, declared_pooling, make_pooling
from poolscope.repairs.repair_file import Repair, RepairedModel
from poolscope.repairs.reranking import rerank
from poolscope.repairs.temperature_rules import PUBLISHED_GRID, Constant
from poolscope.repairs.tune_result import Trial, TuneResult, decide
from poolscope.repairs.vectors import VectorRepair
from poolscope.results import provenance

# Queries (texts, pairs) that are looked at, both halves together: the cost is about this many texts × temperatures.
SAMPLE = 1_000
# Documents of each query that the Gaussian re-ranking puts in order.
RERANKED = 20


def tune(
    model: Any,
    texts: Sequence[str] | Task,
    *,
    temperatures: Sequence[float] = PUBLISHED_GRID,
    poolings: Iterable[str | Pooling] | None = None,
    repairs: Iterable[VectorRepair] | None = None,
    reranked: int = RERANKED,
    sample: int | None = SAMPLE,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> TuneResult:
    """Search temperatures, poolings and vector repairs on half of the texts; recommend one only if the rest agrees.

    `texts` are plain texts, judged by split-half self-retrieval, or a task of `poolscope.evaluate` with labels.
    `model` and `options` are those of `as_encoder`. An empty list leaves a family out. `reranked` documents a query are
    also re-ranked by their clouds, to compare (0: not); that is no repair of the vectors and never recommended.
    `sample` bounds the queries, texts or pairs that are looked at (None: all). Every temperature encodes the texts of
    one half again; poolings and vector repairs share their clouds.
    """
    encoder = as_encoder(model, **options)
    task = _sampled(_as_task(texts), sample, seed)
    choosing, reporting = halve(task, seed=seed)
    search = _Search(encoder, choosing, progress)
    search.try_clouds(
        [make_pooling(how) for how in (default_poolings() if poolings is None else poolings)],
        list(default_repairs() if repairs is None else repairs),
        reranked=reranked,
    )
    search.try_temperatures([tau for tau in temperatures if tau != 1])
    search.try_combinations()
    selected = search.best()
    before, after = _report(encoder, reporting, selected, declared=search.declared, progress=progress)
    difference = None if after is None else compare_scores(before, after)
    decision = decide(search.trials, selected, difference, chosen_on=search.baseline, reported_on=before)
    repair = None
    if decision.level == "repair" and selected is not None and selected.repair is not None:
        evidence = {"verdict": decision.to_dict(), "task": before.task, "metric": before.metric}
        repair = selected.repair.made_for(encoder, evidence)
    settings = {"temperatures": list(temperatures), "reranked": reranked, "sample": sample, "seed": seed}
    origin = provenance(*(side[-1] for side in search.sides), settings=settings)
    return TuneResult(
        model=encoder.card.name,
        chosen_on=search.baseline,
        reported_on=before,
        trials=tuple(search.trials),
        selected=selected,
        difference=difference,
        verdict=decision,
        recommendation=repair,
        notes=(*task_notes(task), *_shared_note(choosing, reporting), *search.notes),
        provenance=origin,
    )


def texts_to_encode(task: Task, temperatures: Sequence[float]) -> int:
    """About how many texts `tune` will encode, for a progress bar: one half at every temperature, the other twice."""
    texts = sum(len(side.texts) for side in task.sides)
    return texts * (len({*temperatures, 1}) + 2) // 2


def task_notes(task: Task) -> tuple[str, ...]:
    """What the task says about itself."""
    return tuple(getattr(task, "notes", ()))


def _shared_note(choosing: Task, reporting: Task) -> tuple[str, ...]:
    """Repairs are fitted on texts of the half that chooses; those that stand in the other one too are not held out."""
    shared = shared_texts(choosing, reporting)
    return (f"{shared:,} texts stand in both halves: what was fitted has seen them.",) if shared else ()


class _Search:
    """The half on which candidates are compared with the model as it is."""

    def __init__(self, encoder: TokenEncoder, task: Task, progress: Progress | None) -> None:
        self.encoder = encoder
        self.task = task
        self.declared = declared_pooling(encoder.card)
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._progress = progress
        deep = (encoder.card.layers or 0) >= 1
        self.sides = self._encode(1.0, layers=(-1, -2) if deep else (-1,))
        self._plain = [Repair().pooled(side, self.declared) for side in self.sides]
        self.baseline = task.score(*self._plain)
        self._scaled = self.sides  # the clouds of the best temperature so far

    def _encode(self, temperature: float, layers: Sequence[int] = (-1,)) -> list[Layers]:
        return [
            encode_side(
                self.encoder,
                side.texts,
                role=side.role,
                temperature=Constant(temperature),
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

    def try_temperatures(self, temperatures: list[float]) -> None:
        """Each temperature encodes the texts again; the clouds of the best one are kept for the combinations."""
        if temperatures and not can_be_scaled(self.encoder):
            kind = self.encoder.card.kind
            self.notes.append(
                f"No temperature was tried: a model of kind '{kind}' has no attention that can be scaled."
            )
            return
        highest = -np.inf
        for temperature in temperatures:
            try:
                sides = self._encode(temperature)
            except ModelError as error:
                self.notes.append(f"No temperature was tried: {error}")
                return
            trial = self._try(Candidate(temperature=temperature), sides)
            if trial is not None and trial.search.mean > highest:
                highest, self._scaled = trial.search.mean, sides

    def try_combinations(self) -> None:
        """The best of each family together, also where it gains nothing alone: one defect may hide another."""
        rising = sorted(self.trials, key=lambda trial: trial.search.mean)
        best = {trial.family: trial.candidate for trial in rising if trial.candidate is not None}
        for candidate in combined(best):
            self._try(candidate, self.sides if candidate.temperature == 1 else self._scaled)

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


def _report(
    encoder: TokenEncoder, task: Task, selected: Trial | None, *, declared: Pooling, progress: Progress | None
) -> tuple[Evaluation, Evaluation | None]:
    """The model as it is and with the selected repair, on the half that had no part in choosing it."""
    repairs = [Repair()] if selected is None or selected.repair is None else [Repair(), selected.repair]
    found = []
    for repair in repairs:
        model = RepairedModel(encoder, repair, repair.pooling or declared)
        found.append(task.score(*(model.encode(s.texts, role=s.role, progress=progress) for s in task.sides)))
    return found[0], found[1] if len(found) > 1 else None


def _as_task(texts: Sequence[str] | Task) -> Task:
    return texts if isinstance(texts, Task) else split_half_task(check_texts(texts))


def _sampled(task: Task, sample: int | None, seed: int) -> Task:
    if sample is None or task.units <= sample:
        return task
    if sample < 4:
        raise InputError(f"sample: received {sample}; allowed: at least 4, two for each half, or None for all.")
    chosen = np.random.default_rng([seed, 1]).permutation(task.units)[:sample]
    return task.take(np.sort(chosen))
