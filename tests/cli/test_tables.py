"""Tables on narrow screens: no number is cut, and what is left out is named."""

from __future__ import annotations

import io

import pytest
from rich.box import SIMPLE_HEAD
from rich.table import Table

from poolscope.show.screen import Screen

CELLS = ["a name of several words", "0.1234 [0.1001, 0.1500]", "-12.5", "31,415"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_what_does_not_fit_is_left_out_whole_and_named(width):
    table = Table("what it is", "value and interval", "change", "how many times", box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    table.add_row(*CELLS)
    screen = Screen()
    screen.file, screen.width = io.StringIO(), width
    screen.print_table(table)
    shown = screen.file.getvalue()
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width
    assert "…" not in shown
    assert CELLS[1] in shown
    assert (CELLS[3] in shown) != ("left out" in shown)
    assert ("left out" in shown) == (width < 60)
