"""The questions of poolscope itself, in the order in which they are asked: a new one is one file and one row."""

from __future__ import annotations

from poolscope.auditing.questions import (
    averaging,
    cone,
    decision,
    hubs,
    long,
    pooling,
    position,
    scores,
    short,
    truncation,
)

OWN = tuple(
    module.QUESTION for module in (scores, cone, pooling, truncation, short, long, position, averaging, hubs, decision)
)
