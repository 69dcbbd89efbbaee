"""How figures, tables and texts become data inside a page: compact, and inert whatever they hold."""

from __future__ import annotations

import base64
import html
import json
import re
from typing import Any

import numpy as np

from poolscope.errors import InputError
from poolscope.report.sections import ReportColumn, ReportTable
from poolscope.results import plain

# Characters of one text that a page keeps; of longer texts the page says how long they are.
KEPT_CHARACTERS = 2000
# Significant digits of the numbers in figures, and so of their CSV files.
DIGITS = 6

# What a browser could read as the end of the data, or JavaScript as the end of a line; and what is no valid Unicode.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Plotly reads a little markup in labels. These tags are let through; any other < is a character like all others.
_MARKUP = re.compile(r"<(?!/?(?:b|i|br|sub|sup|extra|span)\s*/?>|span style=(?:'[\w\s:;.#%-]*'|\"[\w\s:;.#%-]*\")>)")

# Kinds of traces that are drawn as SVG, and so printed, downloaded and shown without WebGL or code made at run time.
_DRAWN = frozenset({"bar", "box", "contour", "heatmap", "histogram", "histogram2d", "scatter", "violin"})


def json_block(value: Any) -> str:
    r"""JSON that can stand inside a script element: nothing in it ends the element or begins another.

    >>> json_block({"text": "</script><!-- & \ud800"})
    '{"text":"\\u003c/script\\u003e\\u003c!-- \\u0026 \\ud800"}'
    """
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def readable(text: str) -> str:
    r"""The text with what cannot stand in a page made visible: control characters as pictures, half characters as �.

    >>> readable("a\x00b\ud800")
    'a␀b�'
    """
    shown = _CONTROL.sub(lambda found: chr(0x2400 + ord(found[0])) if ord(found[0]) < 0x20 else "␡", text)
    return _SURROGATE.sub("�", shown)


def kept_text(text: str, limit: int = KEPT_CHARACTERS, *, start: int = 0) -> str | dict[str, Any]:
    """The text, or `limit` characters of it from `start` on, with its full length, where it is longer than that.

    >>> kept_text("abc"), kept_text("abcdef", 4, start=1)
    ('abc', {'text': 'bcde', 'length': 6, 'start': 1})
    """
    if len(text) <= limit:
        return text
    return {"text": text[start : start + limit], "length": len(text), "start": start}


def table_data(table: ReportTable) -> dict[str, Any]:
    """A table for the page: its cells, and which columns are shown together, under which heading."""
    rows = [[plain(cell) for cell in row] for row in table.rows]
    place = {name: k for k, name in enumerate(table.columns)}
    view = table.view if table.view is not None else [ReportColumn(name, name) for name in table.columns]
    return {
        "name": table.name,
        "columns": list(table.columns),
        "searchable": table.searchable,
        "view": [_column(shown, place, rows) for shown in view],
        "pair": None if table.pair is None else [place[name] for name in table.pair],
        "rows": [[_cell(cell) for cell in row] for row in rows],
    }


def _column(shown: ReportColumn, place: dict[str, int], rows: list[list[Any]]) -> dict[str, Any]:
    parts = {name: getattr(shown, name) for name in ("low", "high", "level", "below")}
    return {
        "heading": shown.heading,
        "column": place[shown.column],
        "numeric": _numeric([row[place[shown.column]] for row in rows]),
        **{name: None if column is None else place[column] for name, column in parts.items()},
    }


def _numeric(cells: list[Any]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known)


def _cell(cell: Any) -> Any:
    if cell is None or isinstance(cell, bool | int | float):
        return cell
    return kept_text(str(cell))


def figure_data(name: str, figure: Any) -> dict[str, Any]:
    """A plotly figure for the page: plain lists, DIGITS significant digits, no template, no foreign markup."""
    content = _inert(plain(_unpacked(figure.to_dict())))
    for trace in content["data"]:
        kind = trace.setdefault("type", "scatter")
        trace["type"] = kind = "scatter" if kind == "scattergl" else kind
        if kind not in _DRAWN:
            raise InputError(
                f"figure '{name}': received a trace of type '{kind}', which a page cannot draw as SVG; allowed: "
                f"{', '.join(sorted(_DRAWN))}."
            )
    layout = content["layout"]
    layout.pop("template", None)
    title = (layout.get("title") or {}).get("text", "")
    return {
        "name": name,
        "title": html.unescape(re.sub(r"<[^>]*>", "", title)),
        "data": content["data"],
        "layout": layout,
    }


def _unpacked(value: Any) -> Any:
    """Arrays that plotly packed as base64, as arrays again."""
    if isinstance(value, dict):
        if "bdata" in value:
            array = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
            return array.reshape([int(size) for size in str(value["shape"]).split(",")]) if "shape" in value else array
        return {key: _unpacked(item) for key, item in value.items()}
    return [_unpacked(item) for item in value] if isinstance(value, list | tuple) else value


def _inert(value: Any) -> Any:
    if isinstance(value, str):
        return _MARKUP.sub("&lt;", value)
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _inert(item) for key, item in value.items()}
    return [_inert(item) for item in value] if isinstance(value, list) else value


def packed(values: Any, dtype: str) -> str:
    """Whole numbers as base64 of little-endian bytes: a third of the size of digits.

    >>> packed([1, 258], "uint16")
    'AQACAQ=='
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()).decode()
