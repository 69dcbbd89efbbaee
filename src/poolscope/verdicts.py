"""The verdict of an analysis: `ok`, `watch` or `repair`, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from poolscope.errors import InputError
from poolscope.intervals import Interval
from poolscope.results import plain

Level = Literal["ok", "watch", "repair"]
LEVELS: tuple[Level, ...] = ("ok", "watch", "repair")


@dataclass(frozen=True)
class Verdict:
    """What a number means: the level, the number with its interval and its floor, and one sentence in plain words.

    `floor` is what the same statistic gives where there is nothing to find (shuffled, permuted, a null model); None
    where the statistic is a count that needs none. `evidence` holds further sentences, each with its numbers.
    """

    level: Level
    sentence: str
    value: float | None = None
    interval: Interval | None = None
    floor: float | None = None
    evidence: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise InputError(f"level: received {self.level!r}; allowed: {', '.join(LEVELS)}.")

    def at_least(self, level: Level) -> bool:
        """Is this verdict as serious as `level`, or more?

        >>> Verdict("watch", "…").at_least("repair"), Verdict("watch", "…").at_least("watch")
        (False, True)
        """
        return LEVELS.index(self.level) >= LEVELS.index(level)

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
