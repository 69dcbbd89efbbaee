"""What an audit tells while it runs: its phases by name, and how far encoding is."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from poolscope.show.lines import short
from poolscope.words import say

if TYPE_CHECKING:
    from poolscope.encoders import Progress

OPENING, ENCODING = "opening the model", "encoding"
_CHARACTERS = 4.0  # a token, in English


@dataclass
class Count:
    """How far encoding is: texts of an earlier run (`stored`), those done, and their tokens."""

    texts: int = 0
    characters: int = 0
    stored: int = 0
    done: int = 0
    tokens: int = 0

    def add(self, texts: int, tokens: int) -> None:
        """A batch; without tokens it was there already."""
        self.stored += 0 if tokens else texts
        self.done += texts
        self.tokens += tokens

    @property
    def share(self) -> float:
        """Of the work, what is done; 0 before the first batch.

        The longest texts come first, so that the texts to come are shorter than those done: how much shorter, the
        characters tell, within bounds that hold for writing of fewer characters a token, and for truncated texts.

        >>> count = Count(texts=100, characters=40_000)
        >>> count.add(10, 2000)  # 200 tokens each, of about 10,000
        >>> count.share
        0.2
        """
        new, coming = self.done - self.stored, self.texts - self.done
        if new <= 0:
            return 0.0
        same = coming * self.tokens / new  # tokens to come, if the texts are as long as those done
        typical = self.characters / _CHARACTERS * (new + coming) / self.texts - self.tokens
        return self.tokens / (self.tokens + min(max(typical, same / 4), same))

    def __str__(self) -> str:
        return f"{self.done:,} of {self.texts:,} texts"


class Watch:
    """What an audit tells while it runs. This one listens and says nothing; others show it."""

    def opened(self, phase: str) -> None:
        """A phase has begun: OPENING, ENCODING, a cause, or a cure."""

    def say(self, sentence: str) -> None:
        """Something to know before the work begins."""

    def begin(self, texts: int, characters: int) -> None:
        """The texts are read."""

    def encoded(self, texts: int, tokens: int) -> None:
        """A batch was encoded; 0 tokens: texts that needed no encoding."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class _Batches(Watch):
    """A function of the caller, which is called after every batch."""

    def __init__(self, call: Progress) -> None:
        self._call = call

    def encoded(self, texts: int, tokens: int) -> None:
        """Hand it on."""
        self._call(texts, tokens)


def as_watch(progress: bool | Progress | Watch | None) -> Watch:
    """What the caller of an audit gave, as a watch: True is a bar, a function one for batches."""
    if isinstance(progress, Watch):
        return progress
    return Bar() if progress is True else _Batches(progress) if callable(progress) else Watch()


class Minutes(Watch):
    """A watch for where nothing is drawn, such as the log of a job: once a minute how far encoding is."""

    def __init__(self, every: float = 60.0) -> None:
        self._count, self._every = Count(), every  # seconds between two lines
        self._began = self._said = time.perf_counter()

    def say(self, sentence: str) -> None:
        """A line."""
        say(sentence)

    def begin(self, texts: int, characters: int) -> None:
        """Know how many there are."""
        self._count = Count(texts, characters)

    def opened(self, phase: str) -> None:
        """Know since when they are encoded."""
        self._began = self._said = time.perf_counter()

    def encoded(self, texts: int, tokens: int) -> None:
        """A line a minute."""
        self._count.add(texts, tokens)
        now, share = time.perf_counter(), self._count.share
        if now - self._said >= self._every and share:
            left = (now - self._began) * (1 / share - 1)
            say(f"encoding: {self._count}, about {duration(left)} left")
            self._said = now


class Bar(Watch):
    """A watch that draws: on a terminal through rich, in a notebook over one line, elsewhere a line a phase."""

    def __init__(self, console: Any = None) -> None:
        from poolscope.show.console import Console

        self._console = console or Console(stderr=True)
        self._phase, self._began, self._phase_began = "starting", time.perf_counter(), time.perf_counter()
        self._count = Count()
        self._live: Any = None
        self._notebook = not self._console.is_terminal and _in_notebook()

    def opened(self, phase: str) -> None:
        """Name a phase."""
        self._phase, self._phase_began = phase, time.perf_counter()
        self._show()

    def say(self, sentence: str) -> None:
        """Print a line above the bar; the line stays."""
        if self._live is None:
            say(sentence)
        else:
            self._live.console.print(sentence, style="dim", soft_wrap=False)

    def begin(self, texts: int, characters: int) -> None:
        """Know how much there is to encode."""
        self._count = Count(texts, characters)

    def encoded(self, texts: int, tokens: int) -> None:
        """Move the line."""
        self._count.add(texts, tokens)
        self._show(same=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(*error)
        elif self._notebook:
            say(" " * 100, over=True, end="\r")

    def _show(self, *, same: bool = False) -> None:
        """Where rich does not draw by itself: a line; within one phase only in a notebook, over the last one."""
        if self._notebook:
            say(f"{self.status(99):<99}", over=True, end="")
        elif self._live is None and not same:
            say(self._phase)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.text import Text

        yield Text(self.status(options.max_width - 1))

    def status(self, width: int) -> str:
        """The phase, how far encoding is, and for how long the audit has run."""
        parts = [f"{time.perf_counter() - self._began:.0f} s"]
        if self._phase == ENCODING:
            gone, share = time.perf_counter() - self._phase_began, self._count.share
            parts.insert(0, str(self._count))
            if share:
                parts.append(f"about {duration(gone * (1 / share - 1))} of encoding left")
        tail = " · ".join(parts)
        return f"{short(self._phase, max(width - len(tail) - 3, 8))} · {tail}"


def duration(seconds: float) -> str:
    """A time in the unit that fits it.

    >>> duration(0.2), duration(600), duration(9000)
    ('1 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _in_notebook() -> bool:
    """Is this a kernel that shows what is written over a line?"""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
