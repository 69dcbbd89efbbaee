"""Which repair helps a model on these texts, if any: searched on one half of them, reported on the other.

The half that chooses flatters what it chooses (the winner's curse), so its numbers claim nothing. Only the chosen
candidate is tested on the other half, and it is recommended only if the interval there excludes no gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from poolscope.encoders.base import Progress, TokenEncoder, check_texts
from poolscope.errors import InputError
from poolscope.evaluation import Evaluation, Task, compare_scores, split_half_task
from poolscope.evaluation.tasks import halve, shared_texts
from poolscope.numbers.pooling import Pooling, make_pooling
from poolscope.repairs.candidates import default_poolings, default_repairs, make_repair, make_rules
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.repaired_model import RepairedModel, plain_encoder
from poolscope.repairs.search import Search
from poolscope.repairs.temperature.rules import PUBLISHED_GRID, TemperatureRule
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
    temperatures: Iterable[float | TemperatureRule] = PUBLISHED_GRID,
    poolings: Iterable[str | Pooling] | None = None,
    repairs: Iterable[str | VectorRepair] | None = None,
    reranked: int = RERANKED,
    sample: int | None = SAMPLE,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> TuneResult:
    """Search temperatures, poolings and vector repairs on half of the texts; recommend one only if the rest agrees.

    `texts` are plain texts, judged by split-half self-retrieval, or a task of `poolscope.evaluate` with labels.
    `model` and `options` are those of `as_encoder`. `temperatures` are numbers or rules of the length; from the numbers
    a step rule by length is fitted too, and tried if a bin gains beyond chance. An empty list leaves a family out.
    `reranked` documents a query are also re-ranked by their clouds, to compare (0: not); that is no repair of the
    vectors and never recommended. `sample` bounds the queries, texts or pairs that are looked at (None: all). Every
    temperature encodes the texts of one half again; poolings and vector repairs share their clouds.
    """
    rules = make_rules(temperatures)
    tried_poolings = [make_pooling(how) for how in (default_poolings() if poolings is None else poolings)]
    tried_repairs = [make_repair(how) for how in (default_repairs() if repairs is None else repairs)]
    task = _sampled(_as_task(texts), sample, seed)
    choosing, reporting = halve(task, seed=seed)
    encoder = plain_encoder(model, **options)
    search = Search(encoder, choosing, progress)
    search.try_clouds(tried_poolings, tried_repairs, reranked=reranked)
    search.try_temperatures(rules)
    search.try_combinations()
    selected = search.best()
    before, after = _report(encoder, reporting, selected, declared=search.declared, progress=progress)
    difference = None if after is None else compare_scores(before, after)
    decision = decide(search.trials, selected, difference, chosen_on=search.baseline, reported_on=before)
    repair = None
    if decision.level == "repair" and selected is not None and selected.repair is not None:
        evidence = {"verdict": decision.to_dict(), "task": before.task, "metric": before.metric}
        repair = selected.repair.made_for(encoder, evidence)
    settings = {
        "temperatures": [rule.to_dict() for rule in rules],
        "reranked": reranked,
        "sample": sample,
        "seed": seed,
        "options": options,
    }
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


def texts_to_encode(task: Task, temperatures: Iterable[float | TemperatureRule]) -> int:
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
