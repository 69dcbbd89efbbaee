"""What length and temperature do to tasks: ranks, similarities, grids, scores by task and by type of task."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask, RetrievalTask, SimilarityTask, Task, compare_scores, evaluate
from poolscope.lab.papers.cell import Cell, Kind, Material, Outcome, Row, row_estimate
from poolscope.lab.papers.common import tau_of, texts_of
from poolscope.lab.papers.data_sets import DATA_SETS, TYPES
from poolscope.numbers.intervals import Estimate, Units, mean_estimate
from poolscope.numbers.ranking import rank_documents, unit_rows
from poolscope.repairs import PUBLISHED_GRID
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.rules import LogLength, YarnLike
from poolscope.repairs.vectors import Whitening

Vectors = NDArray[np.float32]
TAUS = tuple(tau for tau in PUBLISHED_GRID if tau >= 0.5)
SETS = {kind: tuple(data.name for data in DATA_SETS.values() if data.type == kind) for kind in TYPES}
AVERAGE = "Avg."


def _search(material: Material) -> RetrievalTask:
    if not isinstance(material.data, RetrievalTask):
        raise InputError("this measurement needs queries and documents. Name a data set of that form.")
    return material.data


def _encoded(encoder: TokenEncoder, task: RetrievalTask, tau: float) -> tuple[Vectors, Vectors]:
    """Queries and documents as the model encodes each, at a temperature."""
    model = Repair(temperature=tau).apply(encoder)
    return tuple(np.asarray(model.encode(side.texts, role=side.role)) for side in task.sides)  # type: ignore[return-value]


def ranks_of_long(material: Material) -> Outcome:
    """The ranks of relevant documents among the longest and the shortest, at a temperature: means and histograms."""
    task = _search(material)
    queries, documents = _encoded(material.model(), task, tau_of(material))
    ranking = rank_documents(queries, documents, task.relevant)
    lengths = np.array([len(text) for text in task.documents])
    own = lengths[ranking.document]
    units = Units(task.query_units.name, task.query_units.of[ranking.query])
    sets = {
        "longest fifth": own >= np.quantile(lengths, 0.8),
        "longest tenth": own >= np.quantile(own, 0.9),
        "shortest tenth": own <= np.quantile(own, 0.1),
    }
    edges = np.linspace(1, len(task.documents) + 1, 11)
    rows: list[Row] = []
    for name, member in sets.items():
        ranks = ranking.rank[member]
        rows.append({"group": name, "judgements": len(ranks), "rank": mean_estimate(ranks, units.among(member))})
        counts = np.histogram(ranks, bins=edges)[0].tolist()
        rows += [{"group": name, "place": f"{round(edges[k])}", "count": count} for k, count in enumerate(counts)]
    return Outcome(rows)


# What unrelated and related pairs may be, since Table 3 does not say: the gold score up to which, and from which.
READINGS: Mapping[str, Callable[[NDArray[Any]], tuple[float, float]]] = {
    "fifths of the gold score": lambda gold: (float(np.quantile(gold, 0.2)), float(np.quantile(gold, 0.8))),
    "gold to 1 and from 4": lambda gold: (0.2 * float(gold.max()), 0.8 * float(gold.max())),
    "lowest and highest gold": lambda gold: (float(gold.min()), float(gold.max())),
}


def similarities(material: Material) -> Outcome:
    """The mean cosine of a pair of the set, of its most and least alike pairs by gold score, and of strangers.

    Random pairs are those of the set: the printed mean of unrelated pairs is below that of random ones, which no pairs
    of strangers would give.
    """
    task = material.data
    if not isinstance(task, SimilarityTask):
        raise InputError("this measurement needs pairs with gold scores. Name a data set of that form.")
    model = Repair(temperature=tau_of(material)).apply(material.model())
    first, second = (unit_rows(np.asarray(model.encode(texts)), "vectors") for texts in (task.first, task.second))
    cosines = (first.astype(np.float64) * second).sum(axis=1)
    shifted = (first.astype(np.float64) * np.roll(second, 1, axis=0)).sum(axis=1)
    rows: list[Row] = [{"pairs": "Strangers", "cosine": mean_estimate(shifted)}]
    for reading, bounds in READINGS.items():
        low, high = bounds(task.gold)
        chosen = {"Random": cosines, "Related": cosines[task.gold >= high], "Unrelated": cosines[task.gold <= low]}
        rows += [{"reading": reading, "pairs": name, "cosine": mean_estimate(own)} for name, own in chosen.items()]
    return Outcome(rows)


def nearest_reading(rows: Sequence[Row], printed: Callable[[Row], float | None]) -> list[Row]:
    """How far each model in each reading is from the printed numbers, the nearest first."""
    gaps: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.get("reading") and row["cosine"] is not None and (number := printed(row)) is not None:
            gaps.setdefault((row["model"], row["reading"]), []).append(abs(row["cosine"] - number))
    found: list[Row] = [
        {"model": model, "nearest": reading, "distance": float(np.mean(own)), "cells": len(own)}
        for (model, reading), own in gaps.items()
    ]
    return sorted(found, key=lambda row: (-row["cells"], row["distance"]))


def queries_by_length(material: Material) -> Outcome:
    """nDCG@10 of the longer and of the shorter half of the queries, at every temperature."""
    task = _search(material)
    lengths = np.array([len(query) for query in task.queries])
    long = lengths > np.median(lengths)
    rows = []
    for tau in TAUS:
        scores = task.score(*_encoded(material.model(), task, tau)).scores
        for name, member in (("long queries", long), ("short queries", ~long)):
            if member.any():
                ndcg = mean_estimate(scores[member], task.query_units.among(member))
                rows.append({"tau": tau, "queries": name, "ndcg": ndcg})
    return Outcome(rows)


def query_and_document_grid(material: Material) -> Outcome:
    """nDCG@10 for every temperature of queries with every temperature of documents, beside that at τ = 1."""
    task = _search(material)
    sides = {tau: _encoded(material.model(), task, tau) for tau in TAUS}
    plain = task.score(*sides[1.0])
    rows = []
    for query_tau in TAUS:
        for document_tau in TAUS:
            found = task.score(sides[query_tau][0], sides[document_tau][1])
            change = compare_scores(plain, found)
            rows.append(
                {
                    "query_tau": query_tau,
                    "document_tau": document_tau,
                    "ndcg": found.value,
                    "change": Estimate(change.mean, change.interval),
                    "relative": 100 * (found.value / max(plain.value, 1e-12) - 1),
                }
            )
    return Outcome(rows)


def score_of(material: Material) -> Outcome:
    """The score of a model on one task, as it is or changed: a temperature, a rule of the length, a post-processing."""
    task, how = material.data, str(material.setting.get("method", ""))
    if not isinstance(task, Task):
        raise InputError("this measurement needs a task. Name a data set of that form.")
    if how == "Whitening":
        model = Repair().apply(material.model())
        sides = [np.asarray(model.encode(side.texts, role=side.role)) for side in task.sides]
        repair = Whitening(accept_risk=True)
        repair.fit(np.concatenate(sides))
        score = task.score(*(repair.transform(side) for side in sides))
    else:
        score = evaluate(_changed(how).apply(material.model()), task)
    return Outcome([{"score": score.score.scaled(100), "metric": score.metric, "units": task.units}])


def _changed(how: str) -> Repair:
    """The change that the papers' row names: ours(τ=0.8), Flow, Method1, YaRN(λ=0.1); nothing for the model itself."""
    number = re.search(r"=([\d.]+)", how)
    if how.startswith("ours") and number:
        return Repair(temperature=float(number[1]))
    if how.startswith("YaRN") and number:
        return Repair(temperature=YarnLike(float(number[1])))
    return {"": Repair(), "Flow": Repair(pooling="last2avg"), "Method1": Repair(temperature=LogLength(1.0))}[how]


def alignment_and_uniformity(material: Material) -> Outcome:
    """Appendix F.1: how near texts are to what belongs to them, and how evenly all lie; for short and for long texts.

    Alignment is the mean squared distance of a query and its document, uniformity log E exp(−2‖x − y‖²) over different
    documents, of unit vectors (Wang and Isola, 2020); lower is better for both.
    """
    task = _search(material)
    queries, documents = (
        unit_rows(side, "vectors").astype(np.float64) for side in _encoded(material.model(), task, tau_of(material))
    )
    of_query, of_text = task.relevant[:, 0], task.relevant[:, 1]
    lengths = np.array([len(text) for text in task.documents])
    long = lengths > np.median(lengths)
    rows: list[Row] = []
    for name, member in (("all", np.ones(len(lengths), dtype=bool)), ("short", ~long), ("long", long)):
        own = member[of_text]
        squared = ((queries[of_query[own]] - documents[of_text[own]]) ** 2).sum(axis=1)
        i, j = np.triu_indices(int(member.sum()), 1)
        apart = 2 - 2 * (documents[member] @ documents[member].T)[i, j]
        if len(squared) and len(apart):
            uniformity = float(np.log(np.exp(-2 * apart).mean()))
            units = Units(task.query_units.name, task.query_units.of[of_query[own]])
            rows.append({"documents": name, "alignment": mean_estimate(squared, units), "uniformity": uniformity})
    return Outcome(rows)


def data_statistics(material: Material) -> Outcome:
    """How many texts a data set has here, and how long they are in characters; training set and test set apart."""
    data = material.data
    texts = (
        [text for side in data.sides for text in side.texts]
        if isinstance(data, Task)
        else list(texts_of(material).texts)
    )
    start = data.trained or 0 if isinstance(data, ClassificationTask) else 0
    parts = {"Train": texts[:start], "Test": texts[start:]}
    lengths = {split: np.array([float(len(text)) for text in own]) for split, own in parts.items() if own}
    return Outcome(
        [{"split": split, "texts": len(own), "characters": mean_estimate(own)} for split, own in lengths.items()]
    )


def type_means(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """The mean score of each task type whose data sets were all measured, and of all types, by model and way."""
    scored = {(row["model"], row.get("method", ""), row["data"]): row for row in rows if "score" in row}
    means: list[Row] = []
    for model, method in dict.fromkeys((model, method) for model, method, _ in scored):
        of_types: list[Row] = []
        for kind, sets in SETS.items():
            own = [scored[model, method, name] for name in sets if (model, method, name) in scored]
            if len(own) == len(sets):
                of_types.append({"model": model, "method": method, "type": kind, **_mean_row(own, "score")})
        means += of_types
        if len(of_types) == len(SETS):
            means.append({"model": model, "method": method, "type": AVERAGE, **_mean_row(of_types, "mean")})
    return means


def _mean_row(rows: Sequence[Row], column: str) -> Row:
    """The mean of independent numbers with its interval, and whether all are of what the paper names."""
    estimates = [row_estimate(row, column) for row in rows]
    value = float(np.mean([each.value_or_raise for each in estimates]))
    row: Row = {"mean": value}
    if all(each.interval for each in estimates):
        halves = [(each.interval.high - each.interval.low) / 2 for each in estimates if each.interval]
        half = float(np.sqrt(np.sum(np.square(halves)))) / len(rows)
        row |= {"mean_low": value - half, "mean_high": value + half}
    return row | {name: all(each.get(name, True) for each in rows) for name in ("same_model", "same_data")}


def best_temperatures(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """The temperature with the best mean over task types, by model; over the types that every temperature was tried on.

    Chosen and reported on the same tasks, as in the paper, so its gain flatters it.
    """
    means = type_means(rows, outcomes)
    found: list[Row] = [*means]
    for model in dict.fromkeys(row["model"] for row in means):
        own = [row for row in means if row["model"] == model and row["type"] != AVERAGE]
        by_tau: dict[float, dict[str, float]] = {}
        for row in own:
            by_tau.setdefault(_tau_named(row["method"]), {})[row["type"]] = row["mean"]
        shared = set.intersection(*(set(values) for values in by_tau.values()))
        if shared and 1.0 in by_tau:
            overall = {tau: float(np.mean([values[kind] for kind in shared])) for tau, values in by_tau.items()}
            best = max(overall, key=lambda tau: overall[tau])
            gain = overall[best] - overall[1.0]
            found += [{"model": model, "tau": tau, "over_types": value} for tau, value in sorted(overall.items())]
            found.append({"model": model, "best": best, "gain": gain, "task_types": len(shared)})
    return found


def _tau_named(method: str) -> float:
    """The temperature of a way; 1 for the model as it is.

    >>> _tau_named("ours(τ=0.8)"), _tau_named("")
    (0.8, 1.0)
    """
    number = re.search(r"=([\d.]+)", method)
    return float(number[1]) if number else 1.0


KINDS: dict[str, Kind] = {
    "ranks": ranks_of_long,
    "similarities": similarities,
    "queries": queries_by_length,
    "grid": query_and_document_grid,
    "score": score_of,
    "statistics": data_statistics,
    "alignment": alignment_and_uniformity,
}
