"""The experiments on length collapse: symptoms by length bin, σₐ by length and τ, and the temperature grid.

The paper averages over 40 data sets, which is out of reach of a single run; here one set of texts and one of pairs
carry the same figures, and the published averages stand beside them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.encoders.base import TokenEncoder
from poolscope.evaluation import RetrievalTask, compare_scores, evaluate
from poolscope.metrics.length.mechanism import length_mechanism
from poolscope.metrics.length.passes import measure_texts
from poolscope.metrics.length.probes import repetition_probe
from poolscope.metrics.length.profile import length_profile
from poolscope.repairs import PUBLISHED_GRID
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.tempscale import tempscale
from poolscope.research.correlate.published import LENGTH_PAPER, TEMPERATURES
from poolscope.research.reproduce.figure import grid_figure, length_figure
from poolscope.research.reproduce.folder import ReproductionFolder
from poolscope.research.reproduce.request import MEASURED, NOT_MEASURED, NOT_REACHED, Reproduction, Request, attempt
from poolscope.texts import Texts, read_pairs, read_texts
from poolscope.texts.records import BUILTIN

# The paper names families; these checkpoints of them are the choice made here.
MODELS = {
    "ANCE": "sentence-transformers/msmarco-roberta-base-ance-firstp",
    "GTR": "sentence-transformers/gtr-t5-base",
    "GIST": "avsolatorio/GIST-small-Embedding-v0",
    "BGE": "BAAI/bge-base-en-v1.5",
    "E5-4k": "dwzhu/e5-base-4k",
}
TEXTS = {"texts": BUILTIN, "pairs": BUILTIN}
_TEXTS = 1_000
_LONGEST = 0.8  # quantile of the words of the relevant document from which on a query counts as one for a long text
_ABOUT = f"""
Length collapse and attention temperature ({LENGTH_PAPER}). `bins`: by length bin and temperature τ the mean pairwise
cosine, the distance from the centre, σₐ of the last layer with its published bound and ‖PA‖²/(n − 1), which on real
models moves the other way. `grid`: retrieval quality by τ, for all queries and for those whose document is among the
longest fifth, as paired differences to τ = 1. The paper's own averages over 40 data sets are in `published`.
"""


@dataclass
class _Tables:
    """The rows of all models so far."""

    bins: list[dict[str, Any]] = field(default_factory=list)
    slopes: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    grid: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: _Tables) -> None:
        for name, rows in vars(self).items():
            rows += getattr(other, name)


def run(
    output: str | os.PathLike[str],
    request: Request,
    *,
    temperatures: Sequence[float] = PUBLISHED_GRID,
    command: str = "",
) -> Reproduction:
    """Run what can be reached and write one folder: bins, slopes, the repetition probe and the temperature grid."""
    runs: list[dict[str, Any]] = []
    tables = _Tables()
    taus = sorted({*temperatures, 1.0}, reverse=True)  # τ = 1 first: the others are compared with it
    with ReproductionFolder(output) as folder:
        folder.notes += request.substitutes(MODELS, TEXTS)
        sample, seed = request.limit or _TEXTS, request.seed
        texts, no_texts = attempt(read_texts, request.texts["texts"], sample=sample, seed=seed)
        task, no_task = attempt(_task, request.texts["pairs"], sample, seed)

        def measure(name: str, encoder: TokenEncoder | None, reason: str | None) -> None:
            place = {"model": name, "source": request.models[name], **request.texts, "status": NOT_REACHED}
            if encoder is None or texts is None or task is None:
                runs.append({**place, "reason": reason or no_texts or no_task})
                return
            request.say(f"{name}: {len(texts):,} texts, {task.units:,} queries, {len(taus)} temperatures")
            found, failure = attempt(_measure, name, encoder, texts, task, taus)
            runs.append({**place, "status": NOT_MEASURED if found is None else MEASURED, "reason": failure})
            if found is not None:
                tables.add(found)

        request.each_model(measure)
        _write(folder, tables)
        folder.readme("Length collapse and attention temperature", about=_ABOUT, runs=runs, command=command)
    return Reproduction(folder.target, tuple(runs))


def _task(source: str, sample: int, seed: int) -> RetrievalTask:
    pairs = read_pairs(source, sample=sample, seed=seed)
    return RetrievalTask(pairs.queries.texts, pairs.documents.texts, pairs.index, name=source)


def _measure(name: str, encoder: TokenEncoder, texts: Texts, task: RetrievalTask, taus: Sequence[float]) -> _Tables:
    found = _Tables()
    reference = None
    longest = _long_queries(task)
    for tau in taus:
        with tempscale(encoder, tau):
            bins, slope = _profile(encoder, texts, tau)
            probe = repetition_probe(encoder)
        place = {"model": name, "tau": tau}
        found.bins += [{**place, **row} for row in bins]
        found.slopes.append({**place, **slope})
        found.probes += [
            {**place, "times": row.times, "tokens": row.tokens, "cosine": row.cosine.value} for row in probe.rows
        ]
        scores = evaluate(Repair(temperature=tau).apply(encoder), task).scores
        reference = scores if reference is None else reference
        for queries, chosen in (("all", np.ones(len(scores), dtype=bool)), ("longest fifth", longest)):
            change = compare_scores(reference[chosen], scores[chosen])
            row = {"queries": queries, "count": int(chosen.sum()), "ndcg": float(scores[chosen].mean())}
            low, high = (None, None) if change.interval is None else (change.interval.low, change.interval.high)
            found.grid.append({**place, **row, "change": change.mean, "change_low": low, "change_high": high})
    return found


def _profile(encoder: TokenEncoder, texts: Texts, tau: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Symptoms and mechanism by bin, from one pass, and the slope; called at the temperature."""
    measured = measure_texts(encoder, texts.texts)
    own = measured.vectors
    if encoder.card.pooling not in ((), ("mean",)):  # the model's vectors are no means of its tokens
        own = np.asarray(Repair(temperature=tau).apply(encoder).encode(texts.texts))
    profile = length_profile(own, measured.lengths)
    mechanism = length_mechanism(measured, profile)
    rows = [{**left, **right} for left, right in zip(profile.table(), mechanism.table(), strict=True)]
    interval = profile.slope_interval
    slope = {
        "slope": profile.slope,
        "slope_low": None if interval is None else interval.low,
        "slope_high": None if interval is None else interval.high,
        "slope_floor": profile.slope_floor,
        "words_slope": mechanism.words_slope,
        "verdict": profile.verdict.sentence,
    }
    return rows, slope


def _long_queries(task: RetrievalTask) -> Any:
    """Which queries have a relevant document among the longest fifth (by words)."""
    words = np.array([len(document.split()) for document in task.documents])
    longest = np.zeros(task.units, dtype=np.int64)
    np.maximum.at(longest, task.relevant[:, 0], words[task.relevant[:, 1]])
    return longest >= np.quantile(longest, _LONGEST)


def _write(folder: ReproductionFolder, tables: _Tables) -> None:
    published: list[Mapping[str, Any]] = [vars(row) for row in TEMPERATURES]
    folder.table("published", published, "averages over 40 data sets before and after, as the paper reports them")
    folder.table("bins", tables.bins, "symptoms and mechanism by model, temperature and length bin")
    folder.table(
        "slopes", tables.slopes, "change of the mean cosine per doubling of the length, with floor and verdict"
    )
    folder.table("probes", tables.probes, "cosine of two texts that repeat one word each, by number of repetitions")
    folder.table("grid", tables.grid, "retrieval quality by temperature, as differences to τ = 1")
    for model in dict.fromkeys(row["model"] for row in tables.bins):
        rows = [row for row in tables.bins if row["model"] == model]
        folder.figure(
            f"bins-{model.lower().replace('/', '-')}", f"by length and temperature: {model}", length_figure, rows
        )
    if tables.grid:
        folder.figure("grid", "retrieval quality by temperature", grid_figure, tables.grid)
