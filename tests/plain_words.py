"""The rules of plain words that hold for every sentence and every screen, in one place."""

from __future__ import annotations

import re

_NUMBER = r"([−+-]?\d[\d,]*(?:\.\d+)?)(%?×?)"
_WITH_INTERVAL = re.compile(rf"(?<![\w.−+-]){_NUMBER}\s+\[{_NUMBER}, {_NUMBER}\]")
_WITH_REACH = re.compile(rf"(?<![\w.−+-]){_NUMBER} ?±{_NUMBER}")
_WRITTEN = {
    "a blank before %": re.compile(r"\d %(?!\w)"),
    "the number of a question, not its title": re.compile(r"\b[Qq]uestions? \d"),
    "a hyphen for a minus": re.compile(r"(?<![\w.\-/=\"'])-\d+\.\d"),
}


def _is_near_an_end(number: str, unit: str) -> bool:
    """A share that whole per cent would show as 0% or 100% takes a digit more."""
    return unit == "%" and "." in number and not 0.5 <= abs(float(number.replace("−", "-").replace(",", ""))) <= 99.5


def number_faults(text: str) -> list[str]:
    """The rules on numbers that a text breaks, each with the words that break it.

    >>> number_faults("73 % pass, and 0.328 [0.1, 0.5]; change with question 4, by -0.1 or 12% ±0.5%.")
    ... # doctest: +NORMALIZE_WHITESPACE
    ['a blank before %: 3 %', 'the number of a question, not its title: question 4', 'a hyphen for a minus: -0.1',
     'digits of a value and its interval: 0.328 [0.1, 0.5]', 'digits of a value and its interval: 12% ±0.5%']
    >>> number_faults("73% [70%, 75%], −0.010 [−0.013, +0.053], 1,204 [1,100, 1,300], 46.8% ±0.9%, 5% [0.1%, 24%]")
    []
    """
    broken = [f"{rule}: {found[0]}" for rule, form in _WRITTEN.items() for found in form.finditer(text)]
    for form in (_WITH_INTERVAL, _WITH_REACH):
        for found in form.finditer(text):
            numbers, units = found.groups()[::2], found.groups()[1::2]
            pairs = [each for each in zip(numbers, units, strict=True) if not _is_near_an_end(*each)]
            digits = {len(number.partition(".")[2]) for number, _ in pairs}
            if len(digits) > 1 or len(set(units)) > 1:
                broken.append(f"digits of a value and its interval: {' '.join(found[0].split())}")
    return broken
