"""Sentences are templates that are filled from named values; nothing takes a sentence apart again.

A template names its values in braces, with the form that each is shown in: `{count:count text}` shows "1,234 texts",
`{share:percent}` "27%", `{gain:signed}` "+0.019", `{gain:interval}` "[−0.005, +0.044]".
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping
from typing import Any

from poolscope.numbers.intervals import Estimate, Interval

MOST_WORDS = 25
MOST_LABEL = 32
_MINUS = "−"
_PLURALS = {
    "query": "queries",
    "missed query": "missed queries",
    "self-made query": "self-made queries",
    "copy": "copies",
    "is": "are",
    "has": "have",
    "was": "were",
    "it": "them",
}


def count(value: float, noun: str = "") -> str:
    """A count with its noun in the right number.

    >>> count(1, "text"), count(1234, "query"), count(2, "is")
    ('1 text', '1,234 queries', '2 are')
    """
    return f"{round(value):,} {number(value, noun)}" if noun else f"{round(value):,}"


def number(value: float, noun: str) -> str:
    """A noun or a verb in the number of the value, without the value.

    >>> number(1, "is"), number(3, "is"), number(3, "text")
    ('is', 'are', 'texts')
    """
    return noun if round(value) == 1 else _PLURALS.get(noun, f"{noun}s")


def percent(value: float) -> str:
    """A share in whole per cent; in one digit more where that would be 0% or 100% and is not.

    >>> percent(0.274), percent(0.004), percent(0.9996), percent(0.0), percent(-0.002), percent(-0.0002)
    ('27%', '0.4%', 'above 99.9%', '0%', '−0.2%', '0%')
    """
    shown = f"{value:z.0%}"
    if -0.005 <= value < 0:
        return f"{value:z.1%}".replace("-", _MINUS).replace("0.0%", "0%")
    if 0 < value < 1 and shown in ("0%", "100%"):
        return (
            "below 0.1%"
            if value < 0.001
            else "above 99.9%"
            if value > 0.9995
            else f"{math.floor(value * 1000) / 10:.1f}%"
        )
    return shown.replace("-", _MINUS)


def signed(value: float) -> str:
    """A change with its sign, in three decimals.

    >>> signed(0.0187), signed(-0.02), signed(-1e-9)
    ('+0.019', '−0.020', '+0.000')
    """
    return f"{value:+z.3f}".replace("-", _MINUS)


def score(value: float) -> str:
    """A score in three decimals.

    >>> score(0.66)
    '0.660'
    """
    return f"{value:z.3f}".replace("-", _MINUS)


def _interval(interval: Interval | None, show: Any) -> str:
    return "" if interval is None else f"[{show(interval.low)}, {show(interval.high)}]"


_FORMS: dict[str, Callable[[float], str]] = {
    "percent": percent,
    "score": score,
    "signed": signed,
    "times": lambda value: f"{value:z.2f}×".replace("-", _MINUS),
}


def number_text(estimate: Estimate, form: str) -> str:
    """The value of an estimate in a form; a dash where it is not known."""
    return "–" if estimate.value is None else _FORMS[form](estimate.value)


def interval_text(estimate: Estimate, form: str) -> str:
    """The interval of an estimate in a form; empty where there is none.

    >>> interval_text(Estimate(0.5, Interval(0.4, 0.6, 0.95, "", "", "texts")), "percent")
    '[40%, 60%]'
    """
    return _interval(estimate.interval, _FORMS[form])


class _Formatter(string.Formatter):
    """Fills a template; every value must be named, and every form known."""

    def format_field(self, value: Any, spec: str) -> str:
        form, _, noun = spec.partition(" ")
        estimate = value if isinstance(value, Estimate) else None
        plain = value if estimate is None else estimate.value
        if spec == "":
            return str(plain)
        if plain is None:
            return "–"
        match form:
            case "count":
                return count(plain, noun)
            case "number":
                return number(plain, noun)
            case "percent":
                return percent(plain)
            case "signed":
                return signed(plain)
            case "score":
                return score(plain)
            case "times":
                return f"{plain:.2f}"
            case "interval":
                interval = value if estimate is None else estimate.interval
                return _interval(interval, {"percent": percent, "score": score}.get(noun, signed))
        raise ValueError(f"the form {spec!r} is not known")


_FORMATTER = _Formatter()


_BEFORE_MARKS = re.compile(r" ([.,;])(?=\s|$)")  # where a number has no interval


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The sentence of a template.

    >>> fill("{count:count text} {count:number is} truncated: {share:percent}.", {"count": 3, "share": 0.25})
    '3 texts are truncated: 25%.'
    """
    filled = " ".join(_FORMATTER.vformat(template, (), values).split())
    return _BEFORE_MARKS.sub(r"\1", filled)


def names_of(template: str) -> list[tuple[str, str]]:
    """The values that a template names, each with its form."""
    return [(name, form or "") for _, name, form, _ in string.Formatter().parse(template) if name is not None]


def broken_rules(sentence: str) -> list[str]:
    """The rules of plain words that a sentence breaks; empty for a good one."""
    broken = []
    if len(sentence.split()) > MOST_WORDS:
        broken.append(f"{len(sentence.split())} words, at most {MOST_WORDS}")
    if sentence.count(";") + sentence.count(":") > 2:
        broken.append("more than two semicolons or colons")
    if re.search(r"(?<![\w-])-\d", sentence):
        broken.append("a hyphen for a minus")
    avoided = ("is not shown", "can be told", "anew", " stands", "hang on", "of them", "cut off", "cut-off", "first 10")
    broken += [f"the words {words!r}" for words in avoided if words in sentence]
    if sentence[:1].islower() or not sentence.endswith((".", "?")):
        broken.append("no whole sentence")
    return broken
