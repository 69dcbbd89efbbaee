"""Bars of intervals around points, as plotly wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolscope.numbers.intervals import Interval


def error_bars(values: Sequence[float], intervals: Sequence[Interval | None], colour: str) -> dict[str, Any]:
    """From each value to the ends of its interval; no bar where there is none."""
    both = list(zip(values, intervals, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if interval is None else interval.high - value for value, interval in both],
        "arrayminus": [0.0 if interval is None else value - interval.low for value, interval in both],
        "color": colour,
        "thickness": 1.3,
    }
