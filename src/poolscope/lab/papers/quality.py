"""SOCM against the quality of the models (§7): scores as a table or mteb's folder, correlations over models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from poolscope.errors import InputError
from poolscope.lab.correlate.model_records import ModelRecords
from poolscope.lab.correlate.study import correlation_p, ranks
from poolscope.lab.items import MIN_ITEMS
from poolscope.lab.papers.cell import Cell, Material, Ours, Outcome, Row, printed_number, row_estimate
from poolscope.lab.papers.models import SOCM_MODELS
from poolscope.lab.papers.published import SOCM
from poolscope.numbers.intervals import LEVEL, Estimate, Interval
from poolscope.results import cells

PREDICTORS = ("socm", "concentration_ratio", "d_mu")
_PRINTED = {"socm": ("SOCM", "all models"), "concentration_ratio": ("S(X)/‖μ(X)‖²",)}
# Traits of models that could lie behind a correlation: size, dimension, how much data it was trained on.
CONTROLS = {"parameters": "parameters", "dimension": "dimension", "pairs_trained": "training pairs"}
_FEWEST, _DRAWS = 4, 2_000


def model_scores(material: Material) -> Outcome:
    """The score of every model: its one number, or the mean over its tasks."""
    records = material.data
    if not isinstance(records, ModelRecords):
        raise InputError("this measurement needs scores of models. Pass a table or a folder of results.")
    rows = []
    for record in records.records:
        if record.numbers:
            score = float(np.mean(list(record.numbers.values())))
            rows.append({"scored": record.name, "aliases": "; ".join(record.aliases), "score": score})
    return Outcome(rows, notes=records.notes)


def quality(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """SOCM, the concentration ratio and d_μ of every model beside its score, and how each goes with it over models.

    Spearman's ρ with a bootstrap over models and a permutation p, and the difference of the first two, which is what
    the claim that SOCM predicts better rests on.
    """
    found = points(rows, PREDICTORS)
    return [*found, *correlations(found, PREDICTORS), *controlled(found, PREDICTORS)]


def controlled(found: Sequence[Row], predictors: Sequence[str]) -> list[Row]:
    """Spearman's partial ρ of each predictor with quality once a trait of the models is accounted for.

    A trait counts where it is known for every model and differs between them. The interval is a bootstrap over models,
    p that of Freedman and Lane.
    """
    rows: list[Row] = []
    for trait in CONTROLS:
        values = np.array([np.nan if point.get(trait) is None else point[trait] for point in found])
        if len(found) < _FEWEST + 1 or not np.isfinite(values).all() or np.ptp(values) == 0:
            continue
        score = np.array([point["quality"] for point in found])
        draws = np.random.default_rng(0).integers(0, len(found), size=(_DRAWS, len(found)))
        for name in predictors:
            own = np.array([point[name] for point in found])
            row: Row = {"predictor": f"{name}, accounting for {CONTROLS[trait]}", "rho": Estimate(None), "p": None}
            if np.isfinite(rho := partial_spearman(own, score, values)):  # else the trait leaves nothing to compare
                drawn = _partial(*(spearman_rows(a[draws], b[draws]) for a, b in combinations((own, score, values), 2)))
                row["rho"] = _estimate(rho, drawn)
                row["p"] = correlation_p(ranks(own), ranks(score), controls=[ranks(values)]).value
            rows.append(row)
    return [{**cells(row), "models": len(found)} for row in rows]


def partial_spearman(x: NDArray[Any], y: NDArray[Any], given: NDArray[Any]) -> float:
    """Spearman's ρ of x and y once `given` is accounted for; NaN where it leaves nothing to compare.

    >>> round(partial_spearman(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4]), np.array([2, 1, 1, 2])), 6)
    0.8
    """
    return float(_partial(*(np.array(spearman(a, b)) for a, b in combinations((x, y, given), 2))))


def _partial(xy: NDArray[Any], xz: NDArray[Any], yz: NDArray[Any]) -> NDArray[Any]:
    """Partial correlations from plain ones."""
    left = (1 - xz**2) * (1 - yz**2)
    return np.where(left > 1e-12, xy - xz * yz, np.nan) / np.sqrt(np.where(left > 1e-12, left, 1.0))


def correlations(found: Sequence[Row], predictors: Sequence[str]) -> list[Row]:
    """Spearman's ρ of each predictor with quality over models, and the difference of the first two; none for few."""
    if len(found) < _FEWEST:
        return []
    score = np.array([point["quality"] for point in found])
    values = {name: np.array([point[name] for point in found]) for name in predictors}
    draws = np.random.default_rng(0).integers(0, len(found), size=(_DRAWS, len(found)))
    if len(found) < MIN_ITEMS:  # resamples of so few repeat the same orders
        draws = draws[:0]
    drawn = {name: spearman_rows(own[draws], score[draws]) for name, own in values.items()}
    rho = {name: spearman(own, score) for name, own in values.items()}
    rows: list[Row] = [
        {"predictor": name, "rho": _estimate(rho[name], drawn[name]), "p": permuted(values[name], score)}
        for name in predictors
    ]
    first, second = predictors[:2]
    gap = _estimate(rho[first] - rho[second], drawn[first] - drawn[second])
    rows.append({"predictor": f"{first} − {second}", "rho": gap})
    return [{**cells(row), "models": len(found)} for row in rows]


def over_models(rows: Sequence[Row]) -> list[Row]:
    """Spearman's ρ over models of the concentration ratio with SOCM, on the published scale and by the trace."""
    measured = [row for row in rows if "compatible" in row]
    if len(measured) < _FEWEST:
        return []
    ratio = np.array([row["concentration_ratio"] for row in measured])
    found = []
    for name in ("socm", "socm_trace"):
        values = np.array([row[name] for row in measured])
        rho = {"predictor": f"concentration_ratio and {name}", "rho": spearman(ratio, values)}
        found.append({**rho, "p": permuted(ratio, values), "models": len(measured)})
    return found


def points(rows: Sequence[Row], predictors: Sequence[str]) -> list[Row]:
    """The models that have a score and every predictor."""
    known = {model.name: model for model in SOCM_MODELS}
    scores = {name: row["score"] for row in rows if "scored" in row for name in _spellings(row)}
    found: list[Row] = []
    for row in rows:
        if any(row.get(name) is None for name in predictors):
            continue
        model = known.get(row["model"])
        called = [row["model"], *([] if model is None else [model.hub, model.file])]
        score = next((scores[name.lower()] for name in called if name.lower() in scores), None)
        if score is not None:
            family = "others" if model is None else model.family
            numbers = {name: row[name] for name in ("model", *predictors)}
            size = printed_number(SOCM, "Table 4", row["model"], "Params (M)")
            traits = {"parameters": size, "pairs_trained": None if model is None else model.pairs}
            numbers |= traits | {"dimension": row.get("dimension")}
            found.append({**numbers, "family": family, "quality": score, "text": row["model"]})
    return found


def _spellings(row: Row) -> list[str]:
    """A model as ORGANISATION/NAME, as mteb's folders write it, and by its last part."""
    listed = [row["scored"], *filter(None, row["aliases"].split("; "))]
    plain = [name.replace("__", "/").lower() for name in listed]
    return [*(name.lower() for name in listed), *plain, *(name.rpartition("/")[2] for name in plain)]


def spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Spearman's ρ; NaN where one side does not vary.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 0.0]))
    -1.0
    """
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return round(float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]), 12)


def spearman_rows(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Spearman's ρ of each row of x with that of y; NaN where one of both does not vary.

    >>> spearman_rows(np.array([[1, 2, 3], [1, 1, 1]]), np.array([[2, 1, 0], [1, 2, 3]])).tolist()
    [-1.0, nan]
    """
    ranked = [stats.rankdata(side, axis=1) for side in (x, y)]
    left, right = (side - side.mean(axis=1, keepdims=True) for side in ranked)
    length = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    products = np.where(length > 0, (left * right).sum(axis=1), np.nan)
    return np.asarray((products / np.where(length > 0, length, 1.0)).round(12))


def _estimate(value: float, draws: NDArray[Any]) -> Estimate:
    if not len(draws):
        return Estimate(value, no_interval=f"no interval of fewer than {MIN_ITEMS} models")
    low, high = np.quantile(draws[np.isfinite(draws)], [0.025, 0.975])
    return Estimate(value, Interval(float(low), float(high), LEVEL, "the population of models", "bootstrap", "models"))


def permuted(x: NDArray[Any], y: NDArray[Any]) -> float:
    """The share of orders of the models that give a correlation at least as strong."""
    random = np.random.default_rng(0)
    rho = abs(spearman(x, y))
    beyond = sum(abs(spearman(random.permutation(x), y)) >= rho - 1e-12 for _ in range(_DRAWS))
    return (beyond + 1) / (_DRAWS + 1)


def quality_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    """The printed correlations: those over all twelve models can agree or differ."""
    for row in rows:
        for name in _PRINTED.get(row.get("predictor", ""), ()):
            whole = row["models"] == len(SOCM_MODELS)
            yield Ours(name, "ρ", row_estimate(row, "rho"), whole)
            yield Ours(name, "p", Estimate(row["p"]), whole)
