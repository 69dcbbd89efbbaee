"""Metrics against scores over models: does a number of poolscope go with the quality of a model?

Models are few, related and not a random sample. So every coefficient comes with a bootstrap interval over models and a
permutation p-value, what other numbers explain is taken out, each family is left out once, and what so few models could
show at all is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.lab.correlate.model_records import (
    TRAITS,
    Joined,
    JoinedModel,
    Source,
    join,
    listed,
    read_metrics,
    read_scores,
)
from poolscope.lab.correlate.study import (
    KINDS,
    Association,
    CorrelationStudy,
    Kind,
    MetricScore,
    PartialAssociation,
    WithoutFamily,
    correlation_p,
    detectable_correlation,
    holm,
    kendall,
    kendall_p,
    partial_correlation,
    ranks,
)
from poolscope.lab.items import MIN_ITEMS, ItemBootstrap, is_constant
from poolscope.results import provenance

Array = NDArray[np.float64]

MEAN = "mean over tasks"
CONTROLS: tuple[str, ...] = (*TRAITS, "concentration_ratio")
MIN_MODELS = 3
_MIN_FREEDOM = 3  # degrees of freedom that must be left
_FEW = 20  # models below which 95 % intervals of r were seen to cover 89 to 94 % (those of ρ and τ 94 to 98 %)
_ANSWERS = "other models like these (if they were independent draws)"


def correlate(
    metrics: Source | Sequence[str | PathLike[str]],
    scores: Source,
    *,
    only_metrics: Iterable[str] = (),
    only_scores: Iterable[str] = (),
    controls: Iterable[str] = CONTROLS,
    seed: int = 0,
) -> CorrelationStudy:
    """Spearman, Pearson and Kendall correlation of every metric with every score over the models that have both.

    Parameters
    ----------
    metrics : path, sequence of paths, or ModelRecords
        Audits (files or folders, a list), of which the headline numbers are taken, or a table with one row a model.
    scores : path or ModelRecords
        A table, or a folder of MTEB results, of which the mean over the tasks that every matched model has is the
        score.
    only_metrics, only_scores : iterable of str
        Choose instead among all numbers (for MTEB also single tasks).
    controls : iterable of str
        Traits or metrics to account for, each alone and all together; those that not every model has are left out, and
        named.
    seed : int
        Of resamples and permutations.

    Returns
    -------
    CorrelationStudy
        One entry a metric and score, by these two names or in order, and the notes without which it is not to be read.

    Examples
    --------
    >>> from poolscope import correlate
    >>> from poolscope.lab.correlate.model_records import ModelRecord, ModelRecords
    >>> names, measured, scored = "abcde", (0.4, 0.1, 0.3, 0.2, 0.5), (48, 61, 52, 55, 50)
    >>> metrics = ModelRecords("mine", tuple(ModelRecord(n, {"socm": x}) for n, x in zip(names, measured)))
    >>> scores = ModelRecords("task", tuple(ModelRecord(n, {"ndcg": y}) for n, y in zip(names, scored)))
    >>> study = correlate(metrics, scores)
    >>> study
    CorrelationStudy(models 5, metrics 1, scores 1)
    >>> row = study["socm", "ndcg"]
    >>> print(row.spearman, "p", row.spearman.p)      # no interval from fewer than 6 models
    -0.90 p 0.083

    """
    only_metrics = list(only_metrics)
    left = read_metrics(metrics)
    right = read_scores(scores)
    joined = join(left, right)
    if len(joined.models) < MIN_MODELS:
        raise InputError(
            f"{len(joined.models)} models have metrics and scores; at least {MIN_MODELS} are needed. Only in "
            f"{left.source}: {listed(joined.only_metrics)}; only in {right.source}: {listed(joined.only_scores)}. "
            f"Names match as org/model or org__model; put other spellings in a column 'aliases'."
        )
    headlines = [name for name in left.numbers if name in left.headlines]
    chosen_metrics = _choose(only_metrics or headlines, left.numbers, "metric")
    notes = [*left.notes, *right.notes]
    if headlines and not only_metrics and (others := [name for name in left.numbers if name not in headlines]):
        notes.append(f"Not tried unless named (--metric): {listed(others)}.")
    known = (*right.numbers, MEAN) if right.tasks else right.numbers
    chosen_scores = _choose(list(only_scores) or ([MEAN] if right.tasks else []), known, "score")
    if right.tasks and MEAN in chosen_scores:
        joined, note = _with_mean(joined)
        notes.append(note)
    usable, lacking = _usable_controls(joined.models, list(controls))
    notes += lacking
    rows = []
    for score in chosen_scores:
        rows += _corrected([_row(joined.models, metric, score, usable, seed=seed) for metric in chosen_metrics])
    settings = {"controls": usable, "seed": seed, "metrics": left.source, "scores": right.source}
    origin = provenance(settings=settings)
    del origin["clouds"]
    return CorrelationStudy(
        correlations=tuple(rows),
        models=tuple(model.name for model in joined.models),
        families={family: tuple(m.name for m in members) for family, members in _families(joined.models).items()},
        only_metrics=joined.only_metrics,
        only_scores=joined.only_scores,
        notes=(*notes, *_reading(joined, rows)),
        provenance=origin,
    )


def _choose(wanted: Iterable[str], known: Sequence[str], what: str) -> list[str]:
    names = list(wanted) or list(known)
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"received the {what}s {unknown}; known: {', '.join(known) or 'none'}. Choose among these.")
    if not names:
        raise InputError(f"no {what} was found: a table needs at least one column of numbers beside the model's name.")
    return names


def _with_mean(joined: Joined) -> tuple[Joined, str]:
    """The mean over the tasks that all models have, as a score more, and what it is made of."""
    everywhere = [task for task in joined.models[0].scores if all(task in model.scores for model in joined.models)]
    if not everywhere:
        raise InputError(
            f"no task has scores of all {len(joined.models)} models ({listed(m.name for m in joined.models)}), so "
            f"that no mean over tasks can be compared. Leave out a model, or name tasks with only_scores (--score)."
        )
    others = {task for model in joined.models for task in model.scores} - set(everywhere)
    models = [
        replace(model, scores={**model.scores, MEAN: float(np.mean([model.scores[task] for task in everywhere]))})
        for model in joined.models
    ]
    note = f"The score is the mean over {len(everywhere)} tasks that every model has: {listed(everywhere)}."
    if others:
        note += f" {len(others)} tasks that some model lacks are not in it: {listed(sorted(others))}."
    return replace(joined, models=tuple(models)), note


def _row(models: Sequence[JoinedModel], metric: str, score: str, controls: Sequence[str], *, seed: int) -> MetricScore:
    both = [model for model in models if metric in model.metrics and score in model.scores]
    x = np.array([model.metrics[metric] for model in both])
    y = np.array([model.scores[score] for model in both])
    row = MetricScore(
        metric=metric,
        score=score,
        models=tuple(model.name for model in both),
        families=tuple(model.family for model in both),
        lacking=tuple(model.name for model in models if model not in both),
        x=x,
        y=y,
        detectable=detectable_correlation(len(both)),
        undefined=_undefined(x, y, metric, score),
    )
    if row.undefined is not None:
        return row
    bootstrap = ItemBootstrap(len(both), answers=_ANSWERS, unit="models", seed=seed)
    measured = bootstrap.correlations({"x": x, "y": y})["x", "y"]
    return replace(
        row,
        spearman=Association(measured.spearman, correlation_p(ranks(x), ranks(y), seed=seed)),
        pearson=Association(measured.pearson, correlation_p(x, y, seed=seed)),
        kendall=Association(bootstrap.estimate(kendall(x, y)), kendall_p(x, y, seed=seed)),
        partials=tuple(
            _partial_association(both, x, y, names, bootstrap, seed=seed) for names in _control_sets(controls, metric)
        ),
        without=tuple(_without(both, x, y)),
    )


def _undefined(x: Array, y: Array, metric: str, score: str) -> str | None:
    if len(x) < MIN_MODELS:
        return f"{len(x)} models have both; at least {MIN_MODELS} are needed"
    same = [name for name, values in ((metric, x), (score, y)) if is_constant(values)]
    return f"{' and '.join(same)} is the same for all models" if same else None


def _without(models: Sequence[JoinedModel], x: Array, y: Array) -> Iterable[WithoutFamily]:
    for family, members in _families(models).items():
        others = np.array([model.family != family for model in models])
        left = x[others], y[others]
        defined = len(left[0]) >= MIN_MODELS and not any(map(is_constant, left))
        spearman = float(np.corrcoef(ranks(left[0]), ranks(left[1]))[0, 1]) if defined else None
        yield WithoutFamily(family, tuple(model.name for model in members), int(others.sum()), spearman)


def _families(models: Sequence[JoinedModel]) -> dict[str, list[JoinedModel]]:
    ordered = sorted(models, key=lambda model: model.family)
    return {family: list(members) for family, members in groupby(ordered, key=lambda model: model.family)}


def _corrected(rows: Sequence[MetricScore]) -> list[MetricScore]:
    """The rows of one score with Holm's correction over its metrics."""
    tested = [row.spearman.p.value for row in rows if row.spearman.p is not None]
    if len(tested) < 2:  # nothing to correct for
        return list(rows)
    corrected = iter(holm(tested))
    return [row if row.spearman.p is None else replace(row, holm=next(corrected)) for row in rows]


def _reading(joined: Joined, rows: Sequence[MetricScore]) -> list[str]:
    """What a reader must know of this many models."""
    metrics = len({row.metric for row in rows})
    n, detectable = len(joined.models), detectable_correlation(len(joined.models))
    if detectable is None:
        notes = [f"{n} models cannot show a correlation at the 5% level with any certainty; read the points only."]
    else:
        notes = [
            f"With {n} models a correlation of about |ρ| = {detectable:.2f} is found four times in five (5% level); a "
            f"weaker one would mostly be missed, so a large p-value says little."
        ]
    if short := [row.metric for row in rows if row.undefined is None and len(row.models) < MIN_ITEMS]:
        whom = "" if n < MIN_ITEMS else f" ({listed(dict.fromkeys(short))})"
        notes.append(
            f"No interval from fewer than {MIN_ITEMS} models{whom}: resamples of so few repeat the same orders "
            f"and would shrink it to a point."
        )
    if MIN_ITEMS <= n < _FEW:
        notes.append("From so few models intervals of Pearson's r are a little too narrow (about 90% in place of 95%).")
    if metrics > 1:
        notes.append(f"{metrics} metrics were tried; 'holm' holds for all of them together, a single p does not.")
    if joined.families_given:
        notes.append("Models of one family are not independent: see what is left without each family.")
    else:
        notes.append("No families are known, so that each model is left out by itself; add a column 'family'.")
    return notes


# -- partial correlations: what is left once other numbers of the models are accounted for ------------------------


def _usable_controls(models: Sequence[JoinedModel], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """The controls that every model has, and a note for each of the others."""
    usable, notes = [], []
    for name in wanted:
        without = [model.name for model in models if model.control(name) is None]
        values = np.array([model.control(name) for model in models if model.control(name) is not None])
        if without:
            whom = "any of the models" if len(without) == len(models) else listed(without)
            notes.append(f"No control for {name}: it is not known for {whom}.")
        elif is_constant(values):
            notes.append(f"No control for {name}: it is the same for all models.")
        else:
            usable.append(name)
    return usable, notes


def _control_sets(controls: Sequence[str], metric: str) -> list[tuple[str, ...]]:
    """Each control alone, then all together; a metric is no control of itself."""
    others = [name for name in controls if name != metric]
    return [*((name,) for name in others), *([tuple(others)] if len(others) > 1 else [])]


def _partial_association(
    models: Sequence[JoinedModel],
    x: Array,
    y: Array,
    names: tuple[str, ...],
    bootstrap: ItemBootstrap,
    *,
    seed: int,
) -> PartialAssociation:
    """Spearman and Pearson correlation of x and y over models once the named controls are accounted for.

    Refused, with the reason, where too few degrees of freedom are left or a control leaves nothing to compare.
    """
    freedom = len(models) - 2 - len(names)
    if freedom < _MIN_FREEDOM:
        reason = (
            f"{len(models)} models and {len(names)} controls leave {max(freedom, 0)} degrees of freedom; at least "
            f"{_MIN_FREEDOM} are needed"
        )
        return PartialAssociation(names, None, None, reason)
    values = {f"control {name}": np.array([model.control(name) for model in models], np.float64) for name in names}
    columns = {"metric": x, "score": y, **values}
    associations: dict[Kind, Association] = {}
    for kind in KINDS:
        estimate = bootstrap.estimate(partial_correlation(columns, kind))
        if estimate.value is None:
            return PartialAssociation(
                names, None, None, "a control is constant here, or follows from the metric or from another"
            )
        seen = [ranks(column) if kind == "spearman" else column for column in columns.values()]
        associations[kind] = Association(estimate, correlation_p(seen[0], seen[1], controls=seen[2:], seed=seed))
    return PartialAssociation(names, associations["spearman"], associations["pearson"])
