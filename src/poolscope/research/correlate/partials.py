"""Partial correlations: what is left of a correlation once other numbers of the models are accounted for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.correlation import ItemBootstrap, is_constant
from poolscope.research.correlate.matching import JoinedModel, listed
from poolscope.research.correlate.model_records import TRAITS
from poolscope.research.correlate.rank_statistics import KINDS, Kind, correlation_p, partial_correlation, ranks
from poolscope.research.correlate.study import Association, PartialAssociation

Array = NDArray[np.float64]

CONTROLS: tuple[str, ...] = (*TRAITS, "concentration_ratio")
_MIN_FREEDOM = 3  # degrees of freedom that must be left


def usable_controls(models: Sequence[JoinedModel], asked: Sequence[str]) -> tuple[list[str], list[str]]:
    """The controls that every model has, and a note for each of the others."""
    usable, notes = [], []
    for name in asked:
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


def control_sets(controls: Sequence[str], metric: str) -> list[tuple[str, ...]]:
    """Each control alone, then all together; a metric is no control of itself."""
    others = [name for name in controls if name != metric]
    return [*((name,) for name in others), *([tuple(others)] if len(others) > 1 else [])]


def partial_association(
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
    found: dict[Kind, Association] = {}
    for kind in KINDS:
        estimate = bootstrap.estimate(partial_correlation(columns, kind))
        if estimate.value is None:
            return PartialAssociation(
                names, None, None, "a control is constant here, or follows from the metric or from another"
            )
        seen = [ranks(column) if kind == "spearman" else column for column in columns.values()]
        found[kind] = Association(estimate, correlation_p(seen[0], seen[1], controls=seen[2:], seed=seed))
    return PartialAssociation(names, found["spearman"], found["pearson"])
