"""Bars of intervals around points, as plotly wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolscope.numbers.intervals import Estimate


def error_bars(estimates: Sequence[Estimate], colour: str) -> dict[str, Any]:
    """From each value to the ends of its interval; no bar where one of the two is missing."""
    known = [(part.value, part.interval) for part in estimates]
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if at is None or around is None else around.high - at for at, around in known],
        "arrayminus": [0.0 if at is None or around is None else at - around.low for at, around in known],
        "color": colour,
        "thickness": 1.3,
    }
