"""Every threshold of the audit, in one place, each with its reason.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolscope.auditing.basis import OK, Judgement
from poolscope.errors import InputError
from poolscope.metrics.length.position import REPAIR_DROP, WATCH_DROP
from poolscope.metrics.length.profile import REPAIR_RISE, WATCH_RISE
from poolscope.metrics.length.retrieval import REPAIR_RATIO, WATCH_RATIO
from poolscope.numbers.intervals import Interval


@dataclass(frozen=True)
class Threshold:
    """One threshold: its name, its default, the question that uses it, and why it has this value."""

    name: str
    value: float
    question: int
    reason: str


TABLE: tuple[Threshold, ...] = (
    Threshold("false_hits", 0.01, 1, "The cut-off lets this share of unrelated pairs pass; users ask for 1 %."),
    Threshold(
        "cut_off_watch",
        0.7,
        1,
        "Tools and tutorials cut at 0.7 to 0.8; from here on such a default lets unrelated pairs pass.",
    ),
    Threshold(
        "cut_off_repair",
        0.9,
        1,
        "Less than a tenth of the scale is left for everything that is related: thresholds set by hand do not hold.",
    ),
    Threshold(
        "cone_gain",
        0.01,
        2,
        "Points of nDCG@10 that removing the mean must win on held-out texts; published gains are of this size.",
    ),
    Threshold(
        "pooling_match",
        0.99,
        3,
        "Cosine of a runtime's vector with ours: rounding to 16 or 8 bits stays above it, another pooling does not.",
    ),
    Threshold(
        "cut_watch", 0.01, 4, "Share of the tokens that never reached the model: from 1 % on it is worth a look."
    ),
    Threshold(
        "cut_repair", 0.1, 4, "Every tenth token is lost: whole sections cannot be found, whatever the model is worth."
    ),
    Threshold(
        "twins_repair", 0.01, 4, "Share of texts that truncation made equal to another text: no ranking can part them."
    ),
    Threshold(
        "short_watch",
        WATCH_RATIO,
        5,
        "The shortest fifth stands this many times as often among wrong answers as its number explains: seen on every "
        "result page.",
    ),
    Threshold("short_repair", REPAIR_RATIO, 5, "Twice as often, while the longest fifth is found less often for it."),
    Threshold(
        "length_watch",
        WATCH_RISE,
        6,
        "Rise of the mean cosine from the shortest to the longest tenth, in standard deviations of the cosine: enough "
        "to move a fixed cut-off visibly.",
    ),
    Threshold(
        "length_repair",
        REPAIR_RISE,
        6,
        "The same, where an unrelated pair of long texts scores like the better sixth of all pairs.",
    ),
    Threshold(
        "length_gain",
        0.01,
        6,
        "Points of nDCG@10 that a temperature or smaller chunks must win on held-out halves; without such a cure a "
        "rise is watched, not repaired.",
    ),
    Threshold(
        "position_watch",
        WATCH_DROP,
        7,
        "Loss of similarity when the answer moves from the start to the end: a third of published worst cases.",
    ),
    Threshold("position_repair", REPAIR_DROP, 7, "The size of published worst cases, while the rank falls with it."),
    Threshold(
        "socm_watch",
        0.25,
        8,
        "SOCM among nearest neighbours, while its interval lies above the floor. Published averages on hard negatives: "
        "encoders trained for retrieval 0.02 to 0.13, the raw BERT backbone 0.48.",
    ),
    Threshold(
        "socm_gain", 0.01, 8, "Points of nDCG@10 that using the clouds must win on held-out halves: then it matters."
    ),
    Threshold(
        "hub_watch", 0.1, 9, "One text is among the ten nearest of so many more texts than by chance: of every tenth."
    ),
    Threshold("hub_repair", 0.3, 9, "The same for every third text: one text takes a place in a third of all answers."),
    Threshold(
        "antihub_watch",
        0.2,
        9,
        "Share of texts that are never found, above that of Gaussian vectors of the same shape.",
    ),
    Threshold("duplicate_cosine", 0.99, 9, "Two vectors this near are one to a ranking: their order is rounding."),
    Threshold("duplicate_watch", 0.05, 9, "Every twentieth text has a near-duplicate that takes its place in answers."),
    Threshold(
        "duplicate_repair", 0.3, 9, "Almost every third text equals another: answers fill with copies of one text."
    ),
)
DEFAULTS: Mapping[str, float] = {threshold.name: threshold.value for threshold in TABLE}


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
        if unknown := sorted(str(name) for name in values if name not in DEFAULTS):
            raise InputError(f"thresholds: received {', '.join(unknown)}; known are {', '.join(DEFAULTS)}.")
        self._values = {**DEFAULTS, **{name: _number(name, value) for name, value in values.items()}}

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
        return {name: value for name, value in self._values.items() if value != DEFAULTS[name]}

    def replaced(self, values: Mapping[str, Any]) -> Thresholds:
        """These thresholds with some set anew."""
        return Thresholds({**self._values, **values})

    def judge(self, name: str, value: float, interval: Interval | None = None) -> Judgement:
        """`watch` from NAME_watch on; `repair` where all of the interval is at NAME_repair or above.

        >>> Thresholds().judge("cut_off", 0.75).level, Thresholds().judge("cut_off", 0.95).level
        ('watch', 'repair')
        """
        surely = value if interval is None else interval.low
        if f"{name}_repair" in self._values and surely >= self[f"{name}_repair"]:
            return Judgement("repair", "no interval" if interval is None else "interval")
        watch = self[f"{name}_watch"]
        if value < watch:
            return OK
        return Judgement("watch", "no interval" if interval is None else "interval" if surely >= watch else "estimate")

    def count(self, name: str, value: float) -> Judgement:
        """The same for a number that is counted, not estimated."""
        level = self.judge(name, value).level
        return OK if level == "ok" else Judgement(level, "counted")


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
        found = readers[path.suffix.lower()](path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. Name a .toml or .json file of thresholds.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Write one NAME = VALUE a line (.toml).") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: holds {type(found).__name__}; allowed is a table of names and numbers.")
    return found


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"threshold {name}: received {value!r}; allowed is a number, such as {DEFAULTS[name]:g}.")
    return number
