"""The questions of poolscope itself, in the order in which they are asked: a new one is one file and one row."""

from __future__ import annotations

from poolscope.auditing.questions import (
    averaging,
    cone,
    decision,
    hubs,
    long,
    neighbourhood,
    norms,
    pooling,
    position,
    rows,
    scores,
    short,
    space,
    truncation,
)

OWN = tuple(
    module.QUESTION for module in (scores, cone, pooling, truncation, short, long, position, averaging, hubs, rows, norms, space, neighbourhood, decision)
)
