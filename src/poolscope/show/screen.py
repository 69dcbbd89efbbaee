"""What commands say and write: sentences, tables, verdicts, and the files that were asked for."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

import poolscope
from poolscope.errors import InputError
from poolscope.files import write_json
from poolscope.show.console import Console
from poolscope.show.lines import command_lines, wrapped
from poolscope.words import as_json, clean, logger

if TYPE_CHECKING:
    from poolscope.numbers.intervals import Estimate
    from poolscope.results import Result

SCREEN = "-"
_NEGATIVE = re.compile(r"(?<![\w.\-/=\"'])-(?=\d+\.\d)")
QUIET = "dim"  # of what stands in small letters below what it is about


class Screen(Console):
    """Where a command prints, which is standard error while JSON goes to standard output.

    `seen_first`: which model and texts were measured, and notes on them, wait until what was seen is printed.
    `details`: everything is shown, not only the table that answers the question.
    """

    def __init__(
        self, json: str | None = None, *, soft_wrap: bool = False, seen_first: bool = False, details: bool = False
    ) -> None:
        super().__init__(stderr=json == SCREEN, soft_wrap=soft_wrap, quiet=is_quiet())
        self.details = details
        self._waiting: list[tuple[str, str]] | None = [] if seen_first else None

    def name_origin(self, sentence: str, notes: Iterable[str] = ()) -> None:
        """Print the model and the texts that were measured, with notes on both."""
        if self._waiting is None:
            self.say(sentence)
        else:
            self._waiting.append((sentence, ""))
        self.print_notes(notes)

    def release(self) -> None:
        """Print what waited."""
        waiting, self._waiting = self._waiting or [], None
        for sentence, indent in waiting:
            self.say(sentence, indent, style=QUIET)

    def shows_details(self) -> bool:
        """Whether the rest is shown below; where it is not, say how to see it."""
        if not self.details:
            self.say("More numbers, and what they mean: --details", style=QUIET)
        return self.details

    def say(self, sentence: str, indent: str = "", *, hanging: str = "", style: str | None = None) -> None:
        """Print a sentence, its lines broken between words, its negative numbers with a true minus."""
        words = _NEGATIVE.sub("−", sentence)
        self.print(wrapped(words, self.width, indent, hanging=hanging), style=style, soft_wrap=True)

    def print_notes(self, notes: Iterable[str], indent: str = "  ") -> None:
        """Print notes in small letters below their subject."""
        for note in notes:
            if self._waiting is None:
                self.say(note, indent, style=QUIET)
            else:
                self._waiting.append((note, indent))

    def print_in_words(self, *results: Result) -> None:
        """Print results in plain words, then the notes that waited."""
        for sentence in (sentence for result in results for sentence in result.in_words()):
            self.say(sentence)
        self.release()

    def print_table(self, table: Table, *, whole: str = "--json FILE has all of them") -> None:
        """Print a table; of one that is wider than the screen the last columns are left out, and `whole` says where.

        Its title is broken at the edge of the screen, not at that of the table.
        """
        if table.title:
            self.say(str(table.title), style="bold")
            table.title = None
        left_out = _fit(table, self.width)
        self.print(table)
        if left_out:
            columns = f"1 column is left out here ({left_out[0]})"
            if len(left_out) > 1:
                columns = f"{len(left_out)} columns are left out here ({', '.join(left_out)})"
            self.say(f"{columns}: {whole}", style=QUIET)

    def print_rows(self, headings: Sequence[Any], rows: Iterable[Iterable[Any]], **looks: Any) -> None:
        """Print rows of cells below their headings; `looks` are those of `open_table`."""
        table = open_table(*headings, **looks)
        for row in rows:
            table.add_row(*row)
        self.print_table(table)

    def print_numbers(self, numbers: Sequence[tuple[str, str]]) -> None:
        """Print numbers below each other, each behind its words."""
        width = max((len(words) for words, _ in numbers), default=0)
        for words, number in numbers:
            self.say(f"{words:<{width}}  {number}", hanging=" " * (width + 2))

    def name_written(self, *paths: object) -> None:
        """Say which files were written; None and the screen are none."""
        for path in paths:
            if path is not None and path != SCREEN:
                self.print(f"written: {path}", soft_wrap=True)  # a path that is broken in two cannot be copied

    def name_next(self, command: str) -> None:
        """Say which command comes next: alone in its lines, so that it can be copied."""
        self.print("Next", style="bold")
        self.print(command_lines(command, self.width), soft_wrap=True)

    def put_result(
        self, result: Result, *, json: str | None = None, table: Path | None = None, figure: Path | None = None
    ) -> None:
        """Write a result as JSON, as a table and as a figure where a name says so, and name what was written."""
        if json is not None:
            put_json(result.to_dict(), json)
        if table is not None:
            result.save(table)
        if figure is not None:
            poolscope.save_figure(result.figure(), figure)
        self.name_written(json, table, figure)


def tell(message: str) -> None:
    """Say on standard error what is being done."""
    if not is_quiet():
        typer.echo(clean(message), err=True)


def put_json(content: dict[str, Any], target: str) -> None:
    """Write the content to a file, or to standard output for "-"."""
    if target == SCREEN:
        typer.echo(as_json(content, indent=2))
    else:
        write_json(target, content)


# -- how much is said -------------------------------------------------------------------------------------------------

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


def is_quiet() -> bool:
    """Was --quiet given? Then nothing is said but errors and what goes to standard output by name."""
    return _QUIET.get()


@contextmanager
def loudness(*, quiet: bool, verbose: bool) -> Iterator[None]:
    """Set how much is said while the body runs; --verbose tells at the end what it took."""
    if quiet and verbose:
        raise InputError("received --quiet and --verbose; allowed is one of them. Leave one out.")
    log, token = logger("poolscope"), _QUIET.set(quiet)
    level = log.level
    log.setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else level)
    handler = logging.StreamHandler() if verbose else None
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        log.addHandler(handler)
    try:
        with _spent() if verbose else nullcontext():
            yield
    finally:
        _QUIET.reset(token)
        log.setLevel(level)
        if handler is not None:
            log.removeHandler(handler)


@contextmanager
def _spent() -> Iterator[None]:
    """Say afterwards how long it took, how much memory, and by which route distances are computed."""
    began = time.perf_counter()
    yield
    from poolscope.numbers.bures.native import route

    spent = [f"{time.perf_counter() - began:.1f} s", f"distances of token clouds: {route()}"]
    try:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        spent.insert(1, f"at most {peak / 2**20:,.0f} MiB of memory")
    except ImportError:  # Windows has no such record
        pass
    typer.echo(" · ".join(spent), err=True)


# -- tables: what does not fit is left out whole, and named, instead of cut inside a number ---------------------------


class _Rows(Table):
    """A table in whose columns of numbers a minus is a true one."""

    def add_row(self, *cells: Any, **looks: Any) -> None:
        """Add a row; what stands in columns of words stays as it is."""
        numbers = {place for place, column in enumerate(self.columns) if column.justify == "right"}
        shown = (
            _NEGATIVE.sub("−", cell) if place in numbers and isinstance(cell, str) else cell
            for place, cell in enumerate(cells)
        )
        super().add_row(*shown, **looks)


def open_table(*headings: Any, words: int = 0, title: str | None = None, **looks: Any) -> Table:
    """An empty table in the look of all commands: the first `words` columns hold words, the others numbers.

    `looks` are those of rich, such as a caption.
    """
    table = _Rows(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, **looks)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < words else "right", no_wrap=place >= words, overflow="fold")
    return table


def digits(value: float | None, places: int = 3) -> str:
    """A number to so many places; a dash where it is not known."""
    return "–" if value is None else f"{value:z.{places}f}".replace("-", "−")


def signed(value: float | None, places: int = 3) -> str:
    """A change with its sign, to so many places; a dash where it is not known.

    >>> signed(-0.0168), signed(-1e-9), signed(None)
    ('−0.017', '+0.000', '–')
    """
    return "–" if value is None else f"{value:+z.{places}f}".replace("-", "−")


def with_reach(estimate: Estimate, places: int = 3, *, gap: str = " ") -> str:
    """A number with the half of its interval.

    >>> from poolscope.numbers.intervals import Estimate, Interval
    >>> with_reach(Estimate(0.25, Interval(0.2, 0.3, 0.95, "", "", "texts")), 2), with_reach(Estimate(0.25))
    ('0.25 ±0.05', '0.250')
    """
    around = None if estimate.value is None else estimate.interval
    half = "" if around is None else f"{gap}±{(around.high - around.low) / 2:.{places}f}"
    return digits(estimate.value, places) + half


def with_ends(estimate: Estimate, form: str = ".2f", *, interval: bool = True) -> str:
    """A number with the ends of its interval; a dash where it is not known.

    >>> from poolscope.numbers.intervals import Estimate, Interval
    >>> with_ends(Estimate(0.25, Interval(0.2, 0.3, 0.95, "", "", "texts"))), with_ends(Estimate(None))
    ('0.25 [0.20, 0.30]', '–')
    """
    if estimate.value is None:
        return "–"
    around = estimate.interval if interval else None
    ends = "" if around is None else f" [{around.low:{form}}, {around.high:{form}}]"
    return f"{estimate.value:{form}}{ends}".replace("-", "−")


def _fit(table: Table, width: int) -> list[str]:
    """Take columns off the right end until no word or number is broken; give the headings of these columns."""
    sides = table.padding[1] + table.padding[3]  # between columns, and one column of the box
    edges = 2 if table.box is not None and table.show_edge else 0
    if _room(table, [_whole(column) for column in table.columns], sides, edges) <= width:
        return []
    left_out: list[str] = []
    widths = [_narrowest(column) for column in table.columns]
    while len(widths) > 2 and _room(table, widths, sides, edges) > width:
        widths.pop()
        left_out.insert(0, str(table.columns.pop().header))
    for column, narrow in zip(table.columns, widths, strict=True):
        if _is_unbroken(column):  # headings may stand in several lines
            column.width, column.no_wrap = narrow, False
        else:
            column.min_width = narrow
    return left_out


def _room(table: Table, widths: list[int], sides: int, edges: int) -> int:
    return sum(widths) + len(widths) * (sides + (table.box is not None)) + edges


def _whole(column: Column) -> int:
    return max(len(line) for cell in (column.header, *column.cells) for line in (str(cell).splitlines() or [""]))


def _narrowest(column: Column) -> int:
    """Numbers, and what is not to be wrapped, stay whole; words are parted from each other."""
    words = [word for cell in (column.header, *column.cells) for word in str(cell).split()]
    longest = max(map(len, words), default=0)
    return max(longest, *(len(str(cell)) for cell in column.cells)) if _is_unbroken(column) else longest


def _is_unbroken(column: Column) -> bool:
    return column.justify == "right" or column.no_wrap
