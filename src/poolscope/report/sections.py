"""What a page is made of: sections (question, verdict with its number, figures, tables), an overview of all, a map.

Figures, tables and texts become data inside the page: compact, and inert whatever they hold.
"""

from __future__ import annotations

import base64
import html
import importlib.util
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.results import plain
from poolscope.verdicts import Verdict

_KEY = re.compile(r"[a-z][a-z0-9_-]*")
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class ReportColumn:
    """How the page shows a column of a table: under a heading in plain words, together with columns that belong to it.

    `low` and `high` name the columns with the ends of an interval: "0.52 [0.41, 0.63]". `level` names the column with
    the level of a verdict, shown as its badge. `below` names the column whose text stands small below the cell, such as
    an id below its text.
    """

    column: str
    heading: str
    low: str | None = None
    high: str | None = None
    level: str | None = None
    below: str | None = None

    @property
    def names(self) -> list[str]:
        """All columns that it shows."""
        return [name for name in (self.column, self.low, self.high, self.level, self.below) if name is not None]


@dataclass(frozen=True)
class ReportTable:
    """A table of the page: sortable, and searchable where that helps.

    A cell is a text, a number, True or False, or None for "not known". A column is one of numbers if every cell that is
    known is a number. `view` says what is shown (by default every column under its own name); the CSV file has all
    columns by their names. `pair` names two columns with ids of texts: a row whose pair is in the explorer of the page
    gets a button that shows it there.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    searchable: bool = False
    view: Sequence[ReportColumn] | None = field(default=None, kw_only=True)
    pair: tuple[str, str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for position, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(
                    f"table '{self.name}': row {position} has {len(row)} cells; the table has {len(self.columns)} "
                    f"columns ({', '.join(self.columns)}). Pass one cell a column, None where nothing is known."
                )
        wanted = [name for shown in self.view or () for name in shown.names] + list(self.pair or ())
        if unknown := [name for name in wanted if name not in self.columns]:
            raise InputError(
                f"table '{self.name}': received a view of {', '.join(unknown)}; the columns are "
                f"{', '.join(self.columns)}. Name only those."
            )


@dataclass(frozen=True)
class ReportAction:
    """What to do about an answer: the step in words, what it costs, and the command that does it or helps."""

    step: str
    cost: str | None = None
    command: str | None = None


class Action(Protocol):
    """What a page asks of what is to be done."""

    @property
    def step(self) -> str: ...
    @property
    def cost(self) -> str | None: ...
    @property
    def command(self) -> str | None: ...


class Section(Protocol):
    """What a page asks of a section: `ReportSection` has it, and so has anything else that answers a question."""

    @property
    def key(self) -> str: ...
    @property
    def heading(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def verdict(self) -> Verdict | None: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def link(self) -> str | None: ...
    @property
    def action(self) -> Action | None: ...
    @property
    def explained_by(self) -> str | None: ...
    @property
    def number_name(self) -> str: ...
    @property
    def number_format(self) -> str | None: ...
    def drawn(self) -> Sequence[tuple[str, Any]]:
        """Figures with their names."""

    def shown(self) -> Sequence[ReportTable]:
        """Tables."""


@dataclass(frozen=True)
class ReportSection:
    """One question and its answer, for a page of your own.

    `key` names the section in addresses (small letters, digits, _ and -). `verdict` makes a tile at the top of the
    page; a section without one has none. `figures` are pairs of a name and a plotly figure. `notes` are further
    sentences, and `action` is what to do. `explained_by` names the page of poolscope's documentation that explains the
    analysis ("socm.md", or a heading of it, "socm.md#limits"): the report brings it along. `link` leads to a page of
    your own instead: http(s), or relative. `number_name` says what the number of the verdict is, and `number_format`
    how it is written (a format specification such as ".0%"; by default three significant digits).
    """

    key: str
    title: str
    question: str
    verdict: Verdict | None = None
    figures: Sequence[tuple[str, Any]] = ()
    tables: Sequence[ReportTable] = ()
    notes: Sequence[str] = ()
    link: str | None = None
    action: ReportAction | None = field(default=None, kw_only=True)
    explained_by: str | None = field(default=None, kw_only=True)
    number_name: str = field(default="", kw_only=True)
    number_format: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise InputError(
                f"key: received {self.key!r}; allowed: a small letter, then small letters, digits, _ or -. "
                f"It becomes a part of an address."
            )
        if self.link is not None and _SCHEME.match(self.link) and not re.match(r"https?://", self.link):
            raise InputError(f"link: received {self.link!r}; allowed: http://…, https://… or a relative path.")

    @property
    def heading(self) -> str:
        """The title."""
        return self.title

    def drawn(self) -> Sequence[tuple[str, Any]]:
        """The figures."""
        return self.figures

    def shown(self) -> Sequence[ReportTable]:
        """The tables."""
        return self.tables


# -- the overview: numbers of all answers between floor and thresholds ------------------------------------------------


@dataclass(frozen=True)
class OverviewGauge:
    """One number on the common scale, all places in per cent of its width.

    `value` is where it lies, `low` and `high` the ends of its interval (None where it has none), `floor`, `watch` and
    `repair` the marks that it is judged by (None where there is none); `written` and `limits` say the same in words.
    """

    words: str
    written: str
    limits: str
    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    watch: float | None = None
    repair: float | None = None


@dataclass(frozen=True)
class OverviewRow:
    """One answer: the key of its section, its number and title, its level, its gauges, or why it has none."""

    key: str
    ordinal: str
    title: str
    level: str
    note: str = ""
    gauges: Sequence[OverviewGauge] = ()
    # Thresholds on the scale of the number of the verdict, by their words.
    limits: Mapping[str, float] = field(default_factory=dict)


# -- the number of a verdict ------------------------------------------------------------------------------------------

_AIR = 0.08  # of the width of a strip, left free on both sides


@dataclass(frozen=True)
class ShownNumber:
    """A number in words, and the places of its parts on a strip (per cent of the width; None where there is none)."""

    value: str
    interval: str | None
    method: str | None
    floor: str | None
    strip: dict[str, float] | None
    ends: tuple[str, str] | None = None
    limits: Mapping[str, str] = field(default_factory=dict)


def shown_number(
    verdict: Verdict, number_format: str | None = None, limits: Mapping[str, float] | None = None
) -> ShownNumber | None:
    """The number of a verdict as the page writes it; None if the verdict has none. `limits` are its thresholds.

    >>> shown_number(Verdict("ok", "…", value=0.12345, floor=0.02)).value
    '0.123'
    """
    if verdict.value is None:
        return None
    form = number_format or _three_digits(verdict.value)
    interval, limits = verdict.interval, limits or {}
    strip, ends = _strip(verdict, limits)
    return ShownNumber(
        value=_written(verdict.value, form),
        interval=None if interval is None else f"{_written(interval.low, form)} to {_written(interval.high, form)}",
        method=None if interval is None else f"{interval.level:.0%} interval for {interval.answers}: {interval.method}",
        floor=None if verdict.floor is None else _written(verdict.floor, form),
        strip=strip,
        ends=None if ends is None else (_written(ends[0], form), _written(ends[1], form)),
        limits={name: _written(edge, form) for name, edge in limits.items()},
    )


def _three_digits(value: float) -> str:
    """A format with three significant digits of `value`, for its interval and its floor too."""
    if not math.isfinite(value) or value == 0:
        return ",.3f"
    if value == round(value) and abs(value) >= 1:  # a count
        return ",g" if abs(value) < 1e6 else ",.0f"
    return f",.{min(max(2 - math.floor(math.log10(abs(value))), 0), 6)}f"


def _written(value: float, form: str) -> str:
    if not math.isfinite(value):
        return "not defined"
    return "0" if value == 0 and "%" not in form else format(value, form).replace("-", "−")


def _strip(verdict: Verdict, limits: Mapping[str, float]) -> tuple[dict[str, float] | None, tuple[float, float] | None]:
    """Places of value, interval, floor and thresholds between the smallest and the largest, and these two.

    None where there is only one number.
    """
    named: dict[str, Any] = {"value": verdict.value, "floor": verdict.floor, **limits}
    if verdict.interval is not None:
        named |= {"low": verdict.interval.low, "high": verdict.interval.high}
    places = {name: float(number) for name, number in named.items() if number is not None and math.isfinite(number)}
    low, high = min(places.values(), default=0.0), max(places.values(), default=0.0)
    if not high > low or "value" not in places:
        return None, None
    shares = {name: round(100 * (_AIR + (1 - 2 * _AIR) * (x - low) / (high - low)), 2) for name, x in places.items()}
    return shares, (low, high)


# -- sections as data inside a page -----------------------------------------------------------------------------------

# Characters of one text that a page keeps; of longer texts the page says how long they are.
KEPT_CHARACTERS = 1000
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
    return _UNSAFE.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def readable(text: str) -> str:
    r"""The text with what cannot stand in a page made visible: control characters as pictures, half characters as �.

    >>> readable("a\x00b\ud800")
    'a␀b�'
    """
    shown = _CONTROL.sub(lambda character: chr(0x2400 + ord(character[0])) if ord(character[0]) < 0x20 else "␡", text)
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


# -- a map of the texts ----------------------------------------------------------------------------------------------

# More texts than this make a picture slow and no clearer: so many are drawn, marked ones first.
MOST_POINTS = 2000
_SNIPPET = 70  # characters of a text that the map keeps
_STEPS = 10_000  # coordinates are whole numbers of this share of the largest


@dataclass(frozen=True)
class MapColour:
    """What the texts are coloured by: `values` has one entry a text, a number, a name, or True and False."""

    named: str
    values: Sequence[Any]

    @property
    def kind(self) -> str:
        """`flag`, `number` or `name`."""
        known = [value for value in self.values if value is not None]
        if all(isinstance(value, bool | np.bool_) for value in known):
            return "flag"
        return "number" if all(isinstance(value, int | float | np.number) for value in known) else "name"


@dataclass(frozen=True)
class CorpusMap:
    """Texts as points of a plane, with what they are coloured by, and an honest note of what the plane leaves out."""

    note: str
    data: dict[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.data["ids"])


def corpus_map(
    vectors: NDArray[Any],
    ids: Sequence[str],
    texts: Sequence[str] | None,
    colours: Sequence[MapColour],
    *,
    seed: int = 0,
) -> CorpusMap | None:
    """A map of the texts by their vectors (texts × d); None where there are fewer than three.

    The plane is that of the two largest principal components, or that of UMAP where `umap` is installed.
    """
    if len(vectors) < 3:
        return None
    chosen = _drawn(len(vectors), colours, seed)
    points, note = projected(np.asarray(vectors, dtype=np.float64)[chosen], seed=seed)
    unit = float(np.abs(points).max()) / _STEPS or 1.0
    data = {
        "points": packed((points / unit).round(), "int16"),
        "ids": [ids[k] for k in chosen],
        "texts": None if texts is None else [_snippet(texts[k]) for k in chosen],
        "colours": [
            {"named": colour.named, "kind": colour.kind, "values": plain([colour.values[k] for k in chosen])}
            for colour in colours
        ],
    }
    if len(chosen) < len(vectors):
        note += f" Drawn are {len(chosen):,} of {len(vectors):,} texts{', marked ones first' if colours else ''}."
    return CorpusMap(note, data)


def _snippet(text: str) -> str:
    kept = kept_text(" ".join(text.split()), _SNIPPET)
    return kept if isinstance(kept, str) else f"{kept['text']}…"


def _drawn(count: int, colours: Sequence[MapColour], seed: int) -> NDArray[np.int64]:
    """All texts, or MOST_POINTS of them: half of the places for texts that a flag marks, the others at random."""
    if count <= MOST_POINTS:
        return np.arange(count)
    order = np.random.default_rng(seed).permutation(count)
    flagged = np.zeros(count, dtype=bool)
    for colour in colours:
        if colour.kind == "flag":
            flagged |= np.array([bool(value) for value in colour.values])
    marked = order[flagged[order]][: MOST_POINTS // 2]
    others = order[~np.isin(order, marked)][: MOST_POINTS - len(marked)]
    return np.sort(np.concatenate([marked, others]))


def projected(vectors: NDArray[np.float64], *, seed: int = 0) -> tuple[NDArray[np.float64], str]:
    """The vectors in a plane, and what a reader must know of it.

    >>> points, note = projected(np.eye(4))
    >>> points.shape, note.startswith("A projection")
    ((4, 2), True)
    """
    warning = "neighbours here need not be neighbours there, and distances are not the model's."
    here = importlib.util.find_spec("umap") is not None and len(vectors) > 15
    umap = getattr(importlib.import_module("umap"), "UMAP", None) if here else None  # a folder of that name has none
    if umap is not None:
        points = umap(random_state=seed, n_jobs=1, metric="cosine").fit_transform(vectors)
        return np.asarray(points) - np.mean(points, axis=0), f"A projection by UMAP: {warning}"
    centred = vectors - vectors.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((values**2).sum())
    share = float((values[:2] ** 2).sum()) / total if total > 0 else 1.0
    plane = np.zeros((len(vectors), 2))
    plane[:, : min(2, left.shape[1])] = (left * values)[:, :2]
    return plane, f"A projection on the two largest principal components, with {share:.0%} of the variance: {warning}"
