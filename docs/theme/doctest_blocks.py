"""Shows the doctests of docstrings as code: without a fence, Markdown takes `>>>` for quotations in quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

# From the first prompt to the next empty line: the examples and what they print.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def fenced(docstring: str) -> str:
    """The text with a fence around every run of examples."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found.group().rstrip()}\n```", docstring)


class DoctestBlocks(Extension):
    """Changes docstrings as they are read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
