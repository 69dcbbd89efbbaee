"""The questions of poolscope itself, in the order in which they are asked: a new one is one file and one row."""

from __future__ import annotations

from poolscope.auditing.questions import (
    averaging,
    cone,
    decision,
    drift,
    hubs,
    long,
    neighbourhood,
    norms,
    pooling,
    position,
    recall,
    rows,
    scores,
    short,
    space,
    truncation,
)

_MODULES = (
    *(scores, cone, pooling, truncation, short, long, position, averaging, hubs),
    *(rows, norms, space, neighbourhood, recall, drift),  # of vectors alone
    decision,
)
OWN = tuple(module.QUESTION for module in _MODULES)
