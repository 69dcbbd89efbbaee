"""A result in a notebook: its sentences, its numbers and the first rows of its table as HTML, then plotly's figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from poolscope.show.lines import short
from poolscope.words import escape

_LETTERS = 100  # of a text in a cell
_COLUMNS, _NAMED = 9, 6  # of a table; of the others so many are named below it
_WIDE = 24  # letters from which on a cell may break them
_TINY = 1e-9  # what is nearer to zero is rounding
_QUIET = "opacity:0.75;margin:4px 0"


def word(value: Any) -> str:
    """A value as a reader takes it in.

    >>> word(0.123456), word(12345), word(True), word(4e-17)
    ('0.1235', '12,345', 'yes', '0')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "0" if abs(value) < _TINY else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def opening(name: str, sentences: Sequence[str], numbers: Sequence[tuple[str, str]]) -> str:
    """The name of a result, what is seen in words, and the numbers below."""
    words = "".join(f"<br>{escape(sentence)}" for sentence in sentences)
    numbers_line = " · ".join(escape(f"{name} {number}") for name, number in numbers)
    return f'<p style="margin:4px 0"><b>{escape(name)}</b>{words}</p><p style="{_QUIET}">{numbers_line}</p>'


def note(text: str) -> str:
    """A quiet line below a drawing or a table."""
    return f'<p style="{_QUIET}">{escape(text)}</p>'


def shown_columns(table: pa.Table) -> list[str]:
    """The columns of a table that a screen shows: not empty ones, lists, nor the ends and floors of others."""
    names = [
        column.name
        for column in table.schema
        if table[column.name].null_count < len(table) and not pa.types.is_nested(column.type)
    ]
    beside = {f"{name}_{end}" for name in names for end in ("low", "high", "floor")}
    return [name for name in names if name not in beside]


def heading(name: str, words: Mapping[str, str]) -> str:
    """The heading of a column: the words for it where there are any, else its name."""
    return words.get(name) or name.replace("_", " ")


def table_view(table: pa.Table, rows: int, words: Mapping[str, str]) -> str:
    """The first rows and columns of a table, with `words` for their names, and what more there is."""
    first = min(rows, len(table))
    names = shown_columns(table) if first else []
    shown, others = names[:_COLUMNS], names[_COLUMNS:]
    parts = []
    if shown:
        head = "".join(
            f"<th style='text-align:{_side(table.schema.field(name).type)}'>{escape(heading(name, words))}</th>"
            for name in shown
        )
        body = "".join(
            "<tr>" + "".join(_cell(row[name], table.schema.field(name).type) for name in shown) + "</tr>"
            for row in table.slice(0, first).to_pylist()
        )
        parts.append(f"<div style='overflow-x:auto'><table><tr>{head}</tr>{body}</table></div>")
    left = len(table) - first
    more = [f"{left:,} {'more ' if first else ''}row{'' if left == 1 else 's'}"] if left else []
    if others:
        named = [*(heading(name, words) for name in others[:_NAMED]), *(["…"] if len(others) > _NAMED else [])]
        more.append(f"{len(others)} more column{'' if len(others) == 1 else 's'} ({', '.join(named)})")
    if more:
        parts.append(note(f"{' and '.join(more)}: to_pandas(), to_polars(), to_table()"))
    return "".join(parts)


def is_numeric(kind: pa.DataType) -> bool:
    """Does a column of this type hold numbers, which stand at its right?"""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _side(kind: Any) -> str:
    return "right" if is_numeric(kind) else "left"


def _cell(value: Any, kind: Any) -> str:
    words = "" if value is None else short(word(value), _LETTERS)
    width = ";white-space:nowrap" if _side(kind) == "right" else ""
    if len(words) > _WIDE:
        width = f";min-width:{'16em' if ' ' in words else '9em'};overflow-wrap:anywhere"
    return f"<td style='text-align:{_side(kind)};vertical-align:top{width}'>{escape(words)}</td>"


def show_in_notebook(view: str, figure: Any) -> None:
    """Display HTML in the running notebook, and below it the figure as plotly itself shows one (None: no figure)."""
    from IPython.display import HTML, display

    from poolscope.show.charts import without_markup

    display(HTML(view))  # type: ignore[no-untyped-call]
    if figure is not None:
        display(without_markup(figure))  # type: ignore[no-untyped-call]
