"""What a number means: a level, what the level rests on, and one sentence in plain words with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from poolscope.errors import InputError
from poolscope.numbers.intervals import Interval
from poolscope.results import plain

Level = Literal["ok", "unchecked", "watch", "repair"]
LEVELS: tuple[Level, ...] = ("ok", "unchecked", "watch", "repair")
"""From the calmest to the most serious. `unchecked`: not applicable, not asked, or too little to tell."""

# Dark enough on white and light enough on black.
LEVEL_COLOURS = {"ok": "#2e9e5b", "unchecked": "#808080", "watch": "#c98a00", "repair": "#d1495b"}

Basis = Literal[
    "counted",  # over these texts: nothing is estimated
    "cut",  # counted, but what is cut off may not be asked for
    "equal texts",  # counted, but sure of equal texts only: others are near by their vectors
    "interval",  # all of the interval lies beyond the threshold
    "estimate",  # the estimate does, not all of its interval
    "no interval",  # the estimate does, and it has no interval
    "beyond chance",  # that there is an excess is sure, its size is an estimate
    "trial",  # a repair won on held-out texts, by enough
    "small gain",  # it won by less than the threshold asks
    "no cure",  # beyond the threshold, but what was tried has not helped
    "too few",  # beyond the threshold, and too few queries to tell whether it harms or a repair helps
    "untried",  # beyond the threshold, and nothing could be tried
    "harmless",  # beyond the threshold of a repair, but nothing is found worse for it
    "lost",  # all of the interval of what a cut-off loses lies beyond the threshold
    "lost by estimate",  # the estimate of it does
    "few texts",  # beyond the threshold because of a few texts, and less without them
    "between texts",  # all of the interval lies beyond the threshold of a repair, but no query was asked
    "declared",  # read from what the model declares, not measured
]


@dataclass(frozen=True)
class Verdict:
    """What a judge says of a number: the level, the number with its interval and floor, one sentence in plain words.

    `floor` is what the same statistic gives where there is nothing to find (shuffled, permuted, a null model); None
    where the statistic is a count that needs none. `evidence` holds further sentences, each with its numbers. `basis`
    is what a level above `ok` rests on.
    """

    level: Level
    sentence: str = ""
    value: float | None = None
    interval: Interval | None = None
    floor: float | None = None
    evidence: tuple[str, ...] = ()
    basis: Basis | None = None

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise InputError(f"level: received {self.level!r}; allowed: {', '.join(LEVELS)}.")

    def at_least(self, level: Level) -> bool:
        """Is this verdict as serious as `level`, or more?

        >>> Verdict("watch", "…").at_least("repair"), Verdict("watch", "…").at_least("watch")
        (False, True)
        """
        return LEVELS.index(self.level) >= LEVELS.index(level)

    def at_most_watch(self, basis: Basis) -> Verdict:
        """The verdict, with `repair` lowered to `watch` for a reason.

        >>> lowered = Verdict("repair", basis="interval").at_most_watch("no cure")
        >>> lowered.level, lowered.basis
        ('watch', 'no cure')
        """
        return replace(self, level="watch", basis=basis) if self.level == "repair" else self

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return content


def worst_level(verdicts: list[Verdict]) -> Level:
    """The most serious level among the verdicts; `ok` if there are none.

    >>> worst_level([Verdict("ok", "…"), Verdict("watch", "…")])
    'watch'
    """
    return max((verdict.level for verdict in verdicts), key=LEVELS.index, default="ok")


def most_serious(*verdicts: Verdict) -> Verdict:
    """The most serious of some verdicts, of equals the first.

    >>> most_serious(Verdict("ok"), Verdict("watch", basis="counted"), Verdict("watch")).basis
    'counted'
    """
    return max(verdicts, key=lambda verdict: LEVELS.index(verdict.level))


def number_text(verdict: Verdict, form: str = ".3g") -> str:
    """The number with its interval and floor in one line; empty where there is none.

    >>> number_text(Verdict("ok", "…", value=0.1234, floor=0.05))
    '0.123 (floor 0.05)'
    """
    if verdict.value is None:
        return ""
    parts = [format(verdict.value, form)]
    if verdict.interval is not None:
        parts.append(f"[{verdict.interval.low:{form}}, {verdict.interval.high:{form}}]")
    if verdict.floor is not None:
        parts.append(f"(floor {verdict.floor:{form}})")
    return " ".join(parts)
