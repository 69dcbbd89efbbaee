"""The bars that are shown while a command works: how much, how fast, how long to go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from poolscope.encoders.base import Progress


@contextmanager
def encoding_progress(total: int, *, console: Console | None = None) -> Iterator[Progress]:
    """Show a bar for `total` texts on standard error while the body runs; yields what to call after a batch.

    A call with 0 tokens reports texts that needed no encoding: they move the bar and leave the speed alone.
    Nothing is drawn where standard error is not a terminal.
    """
    screen = console or Console(stderr=True)
    columns = (
        TextColumn("encoding"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("texts {task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("encoding", total=total, speed="")
        began, texts_done, tokens_done = time.perf_counter(), 0, 0

        def advance(texts: int, tokens: int) -> None:
            nonlocal texts_done, tokens_done
            if tokens == 0:
                bar.reset(task, completed=texts)
                return
            texts_done += texts
            tokens_done += tokens
            seconds = time.perf_counter() - began
            speed = f"· {texts_done / seconds:,.0f} texts/s · {tokens_done / seconds:,.0f} tokens/s"
            bar.update(task, advance=texts, speed=speed)

        yield advance


@contextmanager
def counting_progress(name: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a bar for `total` items (None: not known); yields what to call with the number just done."""
    screen = Console(stderr=True)
    columns = (
        TextColumn(name),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(name, total=total, state="")
        began, done = time.perf_counter(), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            rate = done / (time.perf_counter() - began)
            of = "" if total is None else f" of {total:,}"
            bar.update(task, advance=count, state=f"{done:,}{of} {unit} · {rate:,.0f} {unit}/s")

        yield advance
