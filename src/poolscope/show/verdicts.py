"""The four levels, and a verdict: a level with its number and one sentence in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from poolscope.errors import InputError, did_you_mean
from poolscope.numbers.intervals import Interval
from poolscope.results import plain

Level = Literal["ok", "unchecked", "look", "fix"]
LEVELS: tuple[Level, ...] = ("ok", "unchecked", "look", "fix")
"""From the calmest to the most serious. `unchecked`: not looked at, or too few queries to tell."""
LEVEL_COLOURS: dict[Level, str] = {"ok": "#2e9e5b", "unchecked": "#808080", "look": "#c98a00", "fix": "#d1495b"}
"""Dark enough on white and light enough on black."""


@dataclass(frozen=True)
class Verdict:
    """A level, the number behind it with its interval, one sentence, and further sentences as evidence."""

    level: Level
    sentence: str = ""
    value: float | None = None
    interval: Interval | None = None
    evidence: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise InputError(
                f"level: received {self.level!r}; allowed: {', '.join(LEVELS)}.{did_you_mean(self.level, LEVELS)}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return content
