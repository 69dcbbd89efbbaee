"""The console of every screen: rich, with all words clean (`words.clean`) and only rich's own control codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import rich.console
from rich.segment import Segment

from poolscope.words import clean

_NARROWEST, _USUAL, _WIDEST = 10, 80, 2000


class Console(rich.console.Console):
    """A console that takes brackets and colons for text, and shows no control character, direction mark or secret."""

    def __init__(self, **looks: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **looks})
        if not _NARROWEST <= self.width <= _WIDEST:  # what COLUMNS says is no width of a screen
            self.width = _USUAL if self.width < _NARROWEST else _WIDEST

    @property
    def file(self) -> IO[str]:
        """The stream behind a guarded one: what is written here is clean already, and holds codes of rich."""
        file = super().file
        return getattr(file, "trusted", file)

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """Render an object, and clean every word of it."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean(segment.text))
