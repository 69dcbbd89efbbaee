"""What a notebook shows of a result: words, numbers and the first rows of a table, as a little HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from poolscope.lines import short

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
    words = "".join(f"<br>{html.escape(sentence)}" for sentence in sentences)
    told = " · ".join(html.escape(f"{name} {number}") for name, number in numbers)
    return f'<p style="margin:4px 0"><b>{html.escape(name)}</b>{words}</p><p style="{_QUIET}">{told}</p>'


def shown_columns(table: pa.Table) -> list[str]:
    """The columns of a table that a screen shows: not empty ones, lists, nor the ends and floors of others."""
    names = [
        column.name
        for column in table.schema
        if table[column.name].null_count < len(table) and not pa.types.is_nested(column.type)
    ]
    beside = {f"{name}_{end}" for name in names for end in ("low", "high", "floor")}
    return [name for name in names if name not in beside]


def table_view(table: pa.Table, rows: int) -> str:
    """The first rows and columns of a table, and in words what more there is."""
    kept = min(rows, len(table))
    names = shown_columns(table) if kept else []
    shown, others = names[:_COLUMNS], names[_COLUMNS:]
    parts = []
    if shown:
        head = "".join(
            f"<th style='text-align:{_side(table.schema.field(name).type)}'>{html.escape(name.replace('_', ' '))}</th>"
            for name in shown
        )
        body = "".join(
            "<tr>" + "".join(_cell(row[name], table.schema.field(name).type) for name in shown) + "</tr>"
            for row in table.slice(0, kept).to_pylist()
        )
        parts.append(f"<div style='overflow-x:auto'><table><tr>{head}</tr>{body}</table></div>")
    left = len(table) - kept
    more = [f"{left:,} {'more ' if kept else ''}row{'' if left == 1 else 's'}"] if left else []
    if others:
        named = [*(name.replace("_", " ") for name in others[:_NAMED]), *(["…"] if len(others) > _NAMED else [])]
        more.append(f"{len(others)} more column{'' if len(others) == 1 else 's'} ({html.escape(', '.join(named))})")
    if more:
        parts.append(f'<p style="{_QUIET}">{" and ".join(more)}: to_pandas(), to_polars(), to_table()</p>')
    return "".join(parts)


def _side(kind: Any) -> str:
    return "right" if pa.types.is_floating(kind) or pa.types.is_integer(kind) else "left"


def _cell(value: Any, kind: Any) -> str:
    words = "" if value is None else short(word(value), _LETTERS)
    width = ";white-space:nowrap" if _side(kind) == "right" else ""
    if len(words) > _WIDE:
        width = f";min-width:{'16em' if ' ' in words else '9em'};overflow-wrap:anywhere"
    return f"<td style='text-align:{_side(kind)};vertical-align:top{width}'>{html.escape(words)}</td>"
