"""Tables on a screen of any width: what does not fit is left out whole, and named, instead of cut inside a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolscope.lines import wrapped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

    from poolscope.verdicts import Verdict


def print_table(table: Table, screen: Console, *, whole: str = "--json FILE has all of them") -> None:
    """Print a table; of one that is wider than the screen the last columns are left out, and `whole` says where."""
    left_out = _fit(table, screen)
    screen.print(table)
    if left_out:
        columns = f"1 column is left out here ({left_out[0]})"
        if len(left_out) > 1:
            columns = f"{len(left_out)} columns are left out here ({', '.join(left_out)})"
        screen.print(wrapped(f"{columns}: {whole}", screen.width), style="dim", soft_wrap=True)


def print_verdict(verdict: Verdict, screen: Console, *, name: str = "") -> None:
    """The level in its colour, after the `name` of what it is about, and the sentence."""
    from rich.text import Text

    from poolscope.verdicts import LEVEL_COLOURS

    head = f"{name}: {verdict.level}" if name else verdict.level
    told = Text(wrapped(f"{head}  {verdict.sentence}", screen.width))
    told.stylize(f"bold {LEVEL_COLOURS[verdict.level]}", 0, len(head))
    screen.print(told)


def _fit(table: Table, screen: Console) -> list[str]:
    """Take columns off the right end until no word and no number is broken; the headings of these."""
    sides = table.padding[1] + table.padding[3]  # between columns, and one column of the box
    edges = 2 if table.box is not None and table.show_edge else 0
    if _room(table, [_whole(column) for column in table.columns], sides, edges) <= screen.width:
        return []
    left_out: list[str] = []
    widths = [_narrowest(column) for column in table.columns]
    while len(widths) > 2 and _room(table, widths, sides, edges) > screen.width:
        widths.pop()
        left_out.insert(0, str(table.columns.pop().header))
    for column, width in zip(table.columns, widths, strict=True):
        if _is_unbroken(column):  # headings may stand in several lines
            column.width, column.no_wrap = width, False
        else:
            column.min_width = width
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
