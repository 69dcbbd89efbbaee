"""A number with its interval, and what the same statistic gives where there is nothing to find."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from poolscope.numbers import Array

CORPUS = "this corpus (sampled pairs as draws)"
POPULATION = "the population of texts (clustered by text)"
LEVEL = 0.95  # of the intervals that need no other


@dataclass(frozen=True)
class Interval:
    """A confidence interval with its population (`answers`), its method, its level, and the unit of the draws."""

    low: float
    high: float
    level: float
    answers: str
    method: str
    unit: str

    def __str__(self) -> str:
        """Both ends; where documents are the unit, which no count beside a number says, that too."""
        ends = f"[{self.low:.4f}, {self.high:.4f}]"
        return f"{ends} over documents" if self.unit == "documents" else ends


def signed(value: float) -> str:
    """A change in three decimals with its sign; one significant digit where three decimals would print 0.000.

    >>> signed(-0.02), signed(-0.000425), signed(0.0), signed(-1e-17)
    ('−0.020', '−0.0004', '+0.000', '+0.000')
    """
    return format(value, "+.1g" if 1e-6 <= abs(value) < 0.0005 else "+z.3f").replace("-", "−")


def score_text(value: float | None) -> str:
    """A cosine in two decimals; near 1 in as many as tell it from 1, rounded down, so that as a cut-off it lets pass.

    >>> [score_text(value) for value in (0.417, 0.994, 0.99985, 1.0)]
    ['0.42', '0.994', '0.9998', '1.00']
    """
    if value is None or not 0.98 < value < 1 - 1e-7:
        return "none" if value is None else f"{value:.2f}"
    digits = int(np.ceil(-np.log10(1 - value)))
    return f"{np.floor(value * 10**digits) / 10**digits:.{digits}f}"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and what the same statistic gives where there is nothing to find.

    value: None where it is not defined or could not be measured. interval: None where there is too little to give one,
    and `no_interval` says why; it names its unit. floor: the mean over draws from a null (shuffled, permuted, a null
    model), and `floor_low`, `floor_high` hold 95 % of these draws; None where the number needs none or was not
    shuffled.

    >>> print(Estimate(0.25, Interval(0.2, 0.3, 0.95, "the population of texts", "bootstrap", "texts"), floor=0.1))
    0.250 [0.200, 0.300] (floor 0.1)
    """

    value: float | None
    interval: Interval | None = None
    floor: float | None = None
    floor_low: float | None = None
    floor_high: float | None = None
    no_interval: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return "undefined"
        parts = [f"{self.value:.3f}"]
        if self.interval is not None:
            over = " over documents" if self.interval.unit == "documents" else ""
            parts.append(f"[{self.interval.low:.3f}, {self.interval.high:.3f}]{over}")
        elif self.no_interval:
            parts.append(f"({self.no_interval})")
        if self.floor is not None:
            parts.append(f"(floor {self.floor:.3g})")
        return " ".join(parts)

    def percent(self, *, interval: bool = True) -> str:
        """The value in per cent, with the half of its interval; a dash where it is not defined.

        >>> Estimate(0.25, Interval(0.2, 0.3, 0.95, "the population of texts", "bootstrap", "texts")).percent()
        '25.0% ±5.0%'
        """
        if self.value is None:
            return "–"
        around = self.interval if interval else None
        return f"{self.value:.1%}" + ("" if around is None else f" ±{(around.high - around.low) / 2:.1%}")

    @property
    def value_or_raise(self) -> float:
        """The value of an estimate that is always defined.

        >>> Estimate(0.25).value_or_raise
        0.25
        """
        if self.value is None:
            raise ValueError("the estimate is not defined")
        return self.value

    @property
    def excess(self) -> float:
        """How far a defined value lies above its floor; without a floor, the value.

        >>> Estimate(0.25, floor=0.125).excess
        0.125
        """
        return self.value_or_raise - (self.floor or 0.0)

    def scaled(self, factor: float) -> Estimate:
        """The estimate of `factor` times the number; a negative factor swaps the ends."""

        def times(number: float | None) -> float | None:
            return None if number is None else number * factor

        interval = self.interval
        if interval is not None:
            low, high = sorted((interval.low * factor, interval.high * factor))
            interval = replace(interval, low=low, high=high)
        ends = (times(self.floor_low), times(self.floor_high))
        low_end, high_end = ends if factor >= 0 else ends[::-1]
        return Estimate(times(self.value), interval, times(self.floor), low_end, high_end, self.no_interval)


def with_floor(estimate: Estimate, chance: Array) -> Estimate:
    """The estimate beside what chance gives: mean and central 95 % over the draws of a null."""
    if estimate.value is None or not np.isfinite(chance).all():
        return estimate
    low, high = np.quantile(chance, [0.025, 0.975])
    return replace(estimate, floor=float(chance.mean()), floor_low=float(low), floor_high=float(high))
