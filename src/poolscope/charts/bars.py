"""Bars of intervals around points, as plotly wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolscope.numbers.intervals import Estimate


def error_bars(estimates: Sequence[Estimate], colour: str) -> dict[str, Any]:
    """From each value to the ends of its interval; no bar where one of the two is missing."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [_reach(estimate, "high") for estimate in estimates],
        "arrayminus": [_reach(estimate, "low") for estimate in estimates],
        "color": colour,
        "thickness": 1.3,
    }


def _reach(estimate: Estimate, end: str) -> float:
    if estimate.value is None or estimate.interval is None:
        return 0.0
    return abs(float(getattr(estimate.interval, end)) - estimate.value)
