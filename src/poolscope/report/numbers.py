"""How the number of a verdict is written and drawn: with its interval and its floor, all to the same digit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from poolscope.verdicts import Verdict

_AIR = 0.08  # of the width of a strip, left free on both sides


@dataclass(frozen=True)
class ShownNumber:
    """A number in words, and the places of its parts on a strip (per cent of the width; None where there is none)."""

    value: str
    interval: str | None
    method: str | None
    floor: str | None
    strip: dict[str, float] | None


def shown_number(verdict: Verdict, number_format: str | None = None) -> ShownNumber | None:
    """The number of a verdict as the page writes it; None if the verdict has none.

    >>> shown_number(Verdict("ok", "…", value=0.12345, floor=0.02)).value
    '0.123'
    """
    if verdict.value is None:
        return None
    form = number_format or _three_digits(verdict.value)
    interval = verdict.interval
    return ShownNumber(
        value=_written(verdict.value, form),
        interval=None if interval is None else f"{_written(interval.low, form)} to {_written(interval.high, form)}",
        method=None if interval is None else f"{interval.level:.0%} interval for {interval.answers}: {interval.method}",
        floor=None if verdict.floor is None else _written(verdict.floor, form),
        strip=_strip(verdict),
    )


def _three_digits(value: float) -> str:
    """A format with three significant digits of `value`, for its interval and its floor too."""
    if not math.isfinite(value) or value == 0:
        return ",.3f"
    if value == round(value) and abs(value) >= 1:  # a count
        return ",g" if abs(value) < 1e6 else ",.0f"
    return f",.{min(max(2 - math.floor(math.log10(abs(value))), 0), 6)}f"


def _written(value: float, form: str) -> str:
    if not math.isfinite(value):
        return "not defined"
    return "0" if value == 0 and "%" not in form else format(value, form).replace("-", "−")


def _strip(verdict: Verdict) -> dict[str, float] | None:
    """Places of value, interval and floor between the smallest and the largest; None if there is only one number."""
    named: dict[str, Any] = {"value": verdict.value, "floor": verdict.floor}
    if verdict.interval is not None:
        named |= {"low": verdict.interval.low, "high": verdict.interval.high}
    places = {name: float(number) for name, number in named.items() if number is not None and math.isfinite(number)}
    low, high = min(places.values(), default=0.0), max(places.values(), default=0.0)
    if not high > low or "value" not in places:
        return None
    return {name: round(100 * (_AIR + (1 - 2 * _AIR) * (x - low) / (high - low)), 2) for name, x in places.items()}
