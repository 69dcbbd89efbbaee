"""The thresholds of one audit: those that the questions declare, some of them set anew.

A number is `watch` when its estimate reaches the first threshold, and `repair` only when its whole interval lies beyond
the second, when it is a count over these texts, or when a repair that was tried has won on held-out texts: what is not
sure is not called broken. All of them can be set, because what is tolerable depends on the use.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from poolscope.auditing.question import QUESTIONS
from poolscope.errors import InputError
from poolscope.files import text_of
from poolscope.numbers.intervals import Interval
from poolscope.verdicts import Basis, Verdict


def defaults() -> dict[str, float]:
    """Every threshold of every question by name, as the questions set it."""
    return {threshold.name: threshold.value for question in QUESTIONS.values() for threshold in question.thresholds}


class Thresholds(Mapping[str, float]):
    """The thresholds of one audit; immutable.

    >>> chosen = Thresholds({"cut_off_watch": 0.8})
    >>> chosen["cut_off_watch"], chosen["cut_watch"], chosen.changed
    (0.8, 0.01, {'cut_off_watch': 0.8})
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        values = {} if values is None else values
        if not isinstance(values, Mapping):
            raise InputError(
                f"thresholds: received {type(values).__name__}; allowed is a mapping of names to numbers, such as "
                f"{{'cut_off_watch': 0.8}}."
            )
        self._defaults = defaults()
        if unknown := sorted(str(name) for name in values if name not in self._defaults):
            raise InputError(f"thresholds: received {', '.join(unknown)}; known are {', '.join(self._defaults)}.")
        set_anew = {name: _number(name, value, self._defaults[name]) for name, value in values.items()}
        self._values = {**self._defaults, **set_anew}

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Thresholds({self.changed or 'defaults'})"

    @property
    def changed(self) -> dict[str, float]:
        """Those that differ from the defaults."""
        return {name: value for name, value in self._values.items() if value != self._defaults[name]}

    def judge(self, name: str, value: float, interval: Interval | None = None) -> Verdict:
        """`watch` from NAME_watch on; `repair` where all of the interval is at NAME_repair or above.

        The verdict has no sentence yet: the question that judges has the words.

        >>> Thresholds().judge("cut_off", 0.75).level, Thresholds().judge("cut_off", 0.95).level
        ('watch', 'repair')
        """
        surely = value if interval is None else interval.low
        basis: Basis = "no interval" if interval is None else "interval"
        if f"{name}_repair" in self._values and surely >= self[f"{name}_repair"]:
            return Verdict("repair", value=value, interval=interval, basis=basis)
        watch = self[f"{name}_watch"]
        if value < watch:
            return Verdict("ok", value=value, interval=interval)
        return Verdict("watch", value=value, interval=interval, basis=basis if surely >= watch else "estimate")

    def within_chance(self, name: str, value: float, highest: float) -> Verdict:
        """The verdict on a number that chance explains, of which the interval ends at `highest`.

        `ok` below NAME_watch and without room for NAME_repair; otherwise it cannot be told, which is `unchecked`.

        >>> Thresholds().within_chance("short", 1.1, 1.6).level, Thresholds().within_chance("short", 1.1, 2.4).level
        ('ok', 'unchecked')
        """
        told = value < self[f"{name}_watch"] and highest < self[f"{name}_repair"]
        return Verdict("ok" if told else "unchecked", value=value)

    def count(self, name: str, value: float) -> Verdict:
        """The same for a number that is counted, not estimated."""
        judged = self.judge(name, value)
        return judged if judged.level == "ok" else replace(judged, basis="counted")


def read_thresholds(path: str | os.PathLike[str] | None = None, settings: Iterable[str] = ()) -> Thresholds:
    """Thresholds from a TOML or JSON file of names and numbers, and from single settings NAME=VALUE, which win.

    >>> read_thresholds(settings=["hub_watch=0.2"])["hub_watch"]
    0.2
    """
    values = {} if path is None else _read(Path(path))
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"threshold: received {setting!r}; allowed is NAME=VALUE, such as cut_off_watch=0.8.")
        values[name.strip()] = value.strip()
    return Thresholds(values)


def _read(path: Path) -> dict[str, Any]:
    readers = {".toml": tomllib.loads, ".json": json.loads}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: received the ending '{path.suffix}'; thresholds are read from .toml or .json files.")
    try:
        content = readers[path.suffix.lower()](text_of(path))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. Name a .toml or .json file of thresholds.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Write one NAME = VALUE a line (.toml).") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {type(content).__name__}; allowed is a table of names and numbers.")
    return content


def _number(name: str, value: Any, default: float) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"threshold {name}: received {value!r}; allowed is a number, such as {default:g}.")
    return number
