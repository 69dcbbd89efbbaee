"""Lines of text for screens: broken between words, and neither inside a number nor inside an interval."""

from __future__ import annotations

import re
import textwrap

_GLUE = "\N{NO-BREAK SPACE}"  # a blank at which no line is broken, while lines are made
# Blanks inside an interval, after "floor", and before a per cent sign.
_WITHIN = re.compile(r"(?<=[\d.,%]) (?=[−+-]?\d[\d.,%]*\])|(?<=\(floor) |(?<=\d) (?=%)")
# Words of a shell, quotes kept: a command is never broken inside them.
_SHELL_WORDS = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"])+""")


def wrapped(text: str, width: int, indent: str = "", *, hanging: str = "") -> str:
    r"""The text in lines of at most `width` columns; no word and no number is broken, a longer one stands out.

    >>> wrapped("a gain of 0.05 [0.01, 0.09]", 22)
    'a gain of 0.05\n[0.01, 0.09]'
    """
    lines = textwrap.wrap(
        _WITHIN.sub(_GLUE, text),
        width,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_GLUE, " ")


def short(text: str, width: int) -> str:
    """The words of a text that fit into one line of `width`, and … where some do not.

    >>> short("as long as it is", 12)
    'as long as…'
    """
    if len(text) <= width:
        return text
    start = text[: width - 1]
    if text[width - 1] != " " and " " in start:
        start = start.rsplit(" ", 1)[0]
    return start.rstrip(" ,;:(") + "…"


def command_lines(command: str, width: int) -> str:
    r"""A command in lines of at most `width` columns, which a shell reads as one: broken after && and between words.

    >>> print(command_lines("poolscope chunk a.jsonl --output b.jsonl && poolscope audit b.jsonl --id-column id", 30))
    poolscope chunk a.jsonl \
      --output b.jsonl &&
    poolscope audit b.jsonl \
      --id-column id
    """
    if len(command) <= width:
        return command
    units: list[str] = []
    for word in _SHELL_WORDS.findall(command):
        value = units and units[-1].startswith("-") and " " not in units[-1] and not word.startswith("-")
        if value or word == "&&":
            units[-1] += f" {word}"  # an option keeps its value
        else:
            units.append(word)
    lines: list[str] = []
    end = "" if "(" in units[0] else " \\"  # a call of Python goes on by itself
    for unit in units:
        if not lines or lines[-1].endswith("&&"):
            lines.append(unit)
        elif len(lines[-1]) + len(unit) + 3 <= width:
            lines[-1] += f" {unit}"
        else:
            lines[-1] += end
            lines.append(f"  {unit}")
    return "\n".join(lines)
