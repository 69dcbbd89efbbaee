"""Lines of text for screens: broken between words, and neither inside a number nor inside an interval."""

from __future__ import annotations

import re
import textwrap

_GLUE = "\N{NO-BREAK SPACE}"  # a blank at which no line is broken, while lines are made
# Blanks inside an interval, after "floor", and before a per cent sign.
_WITHIN = re.compile(r"(?<=[\d.,%]) (?=[−+-]?\d[\d.,%]*\])|(?<=\(floor) |(?<=\d) (?=%)")


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
    kept = text[: width - 1]
    if text[width - 1] != " " and " " in kept:
        kept = kept.rsplit(" ", 1)[0]
    return kept.rstrip(" ,;:(") + "…"
