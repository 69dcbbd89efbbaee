"""A paper as data: entries (its numbered figures and tables), and the cells that they are made of.

A cell is one measurement: a kind of measurement × a model × a data set × a setting. Entries share cells, so each is
measured once. What a kind gives are rows of plain numbers, which are kept in a file; drawings and comparisons with the
paper are made from these rows alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from poolscope.encoders.base import EncoderOptions, TokenEncoder
from poolscope.errors import InputError
from poolscope.lab.papers.models import Checkpoint
from poolscope.lab.papers.published import PAPERS, Published, find, published
from poolscope.lab.papers.rewriting import Rewriter
from poolscope.lab.papers.sources import Data, DataSet
from poolscope.numbers.intervals import Estimate

Row = dict[str, Any]
AGREES, DIFFERS, OTHER, NOT_MEASURED = "agrees", "differs", "other model or texts", "not measured"


@dataclass(frozen=True)
class Outcome:
    """Measurement of a cell: rows of plain numbers, longer arrays, and notes."""

    rows: Sequence[Row]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Material:
    """What a kind of measurement works on; `encoder` and `data` are None where the part names none.

    `rewriter`: a language model that shortens texts, where the user named one.
    """

    encoder: TokenEncoder | None
    data: Data | None
    setting: Mapping[str, Any]
    seed: int = 0
    cache: bool = True
    options: EncoderOptions = field(default_factory=EncoderOptions)
    rewriter: Rewriter | None = None

    def model(self) -> TokenEncoder:
        """The encoder, of a kind that works on one."""
        if self.encoder is None:
            raise InputError("this measurement needs a model, and its part names none. Name models in the part.")
        return self.encoder


Kind = Callable[[Material], Outcome]


@dataclass(frozen=True)
class Part:
    """Cells of one kind: every model on every data set in every setting; no models or no data where none is needed.

    `joined`: models that the user adds are measured too.
    """

    kind: str
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    settings: tuple[Mapping[str, Any], ...] = ({},)
    joined: bool = True


@dataclass(frozen=True)
class Cell:
    """One measurement, by names."""

    kind: str
    model: str | None
    data: str | None
    setting: tuple[tuple[str, Any], ...] = ()

    @property
    def words(self) -> str:
        """What it is, on one line."""
        chosen = [f"{name} {value}" for name, value in self.setting if value != ""]
        return " · ".join(word for word in (self.kind, self.model, self.data, *chosen) if word)

    @property
    def place(self) -> Row:
        """The columns that say where its rows come from."""
        return {
            **({} if self.model is None else {"model": self.model}),
            **({} if self.data is None else {"data": self.data}),
            **dict(self.setting),
        }


@dataclass(frozen=True)
class Ours:
    """A measured number that belongs beside the printed cell at (row, column) of the entry.

    `same`: it is of the model and of the texts that the paper names, so it can agree or differ.
    """

    row: str
    column: str
    estimate: Estimate
    same: bool = True

    @classmethod
    def of(cls, measured: Mapping[str, Any], row: str, column: str, value: str, *, scale: float = 1.0) -> Ours:
        """The number `value` of a measured row with its interval, times `scale`."""
        same = bool(measured.get("same_model", True) and measured.get("same_data", True))
        return cls(row, column, row_estimate(measured, value).scaled(scale), same)


@dataclass(frozen=True)
class Entry:
    """One figure or table: its cells, the numbers derived from their rows, its drawing, and its published values.

    `follow` gives further rows from those of all cells and their arrays, such as a correlation over models. `compare`
    says which printed cells the rows belong beside. `draw` gives None where no row has what it shows. `differs`: what
    is done otherwise than in the paper.
    """

    key: str
    title: str
    parts: tuple[Part, ...] = ()
    draw: Callable[[Sequence[Row]], Any] | None = None
    compare: Callable[[Sequence[Row]], Iterable[Ours]] = lambda rows: ()
    follow: Callable[[Sequence[Row], Mapping[Cell, Outcome]], list[Row]] = lambda rows, outcomes: []
    differs: str = ""

    @property
    def printed(self) -> str:
        """The name under which the paper prints it: "Table 1" for the key table-1."""
        kind, _, number = self.key.partition("-")
        return f"{kind.capitalize()} {number}"


@dataclass(frozen=True)
class Paper:
    """A paper: its models, its entries and the kinds of measurement that they ask for."""

    name: str
    title: str
    models: tuple[Checkpoint, ...]
    data: Mapping[str, DataSet]
    kinds: Mapping[str, Kind]
    entries: tuple[Entry, ...]

    @property
    def source(self) -> str:
        """Authors, year and number."""
        return PAPERS[self.name]

    def chosen(
        self, figures: Sequence[str] = (), tables: Sequence[str] = (), parts: Sequence[str] = ()
    ) -> tuple[Entry, ...]:
        """The entries that are asked for; all of them where none is named."""
        wanted = [*(f"figure-{name}" for name in figures), *(f"table-{name}" for name in tables), *parts]
        known = {entry.key: entry for entry in self.entries}
        if unknown := [key for key in wanted if key not in known]:
            raise InputError(f"{self.name}: received {unknown[0]}; known: {', '.join(known)}. Choose among these.")
        return tuple(known[key] for key in wanted) if wanted else self.entries

    def cells(self, entry: Entry, added: Sequence[str] = (), only: Sequence[str] | None = None) -> list[Cell]:
        """Cells of an entry: of its own models, of added models, or of `only` these."""
        cells = []
        for part in entry.parts:
            models: list[str | None] = [None]
            if part.models:
                named = [*part.models, *(name for name in added if part.joined and name not in part.models)]
                models = [name for name in named if only is None or name in only]
            for model in models:
                for data in part.data or (None,):
                    cells += [Cell(part.kind, model, data, tuple(sorted(each.items()))) for each in part.settings]
        return cells


# -- beside what is printed -----------------------------------------------------------------------------------------


def verdict(printed: Published, ours: Estimate) -> str:
    """Does the interval contain what is printed? Without an interval: is it the same number, as far as it is printed?

    >>> from poolscope.numbers.intervals import Interval
    >>> cell = Published("socm", "Table 1", "BERT", "Avg. SOCM", "0.3962", "SOCM", "", "")
    >>> verdict(cell, Estimate(0.41, Interval(0.39, 0.43, 0.95, "", "", "texts"))), verdict(cell, Estimate(0.3963))
    ('agrees', 'differs')
    """
    number = printed.number
    if number is None or ours.value is None:
        return NOT_MEASURED
    low, high = (ours.value, ours.value) if ours.interval is None else (ours.interval.low, ours.interval.high)
    return AGREES if low - printed.half_digit <= number <= high + printed.half_digit else DIFFERS


def concerns(reason: str, row: str, models: Iterable[str]) -> bool:
    """Whether a reason can be that of a printed row: not where it is of one model, and the row of another.

    >>> names = ("E5", "E5 small")
    >>> concerns("not reachable: it (E5)", "E5 +Flow", names), concerns("not reachable: it (E5)", "E5 small", names)
    (True, False)
    >>> concerns("not measured: socm · E5 · wiki: …", "E5 small", names), concerns("… (wiki)", "E5", names)
    (False, True)
    """
    named = [name for name in models if re.search(rf"(\(|· ){re.escape(name)}(\)|:| ·)", reason)]
    own = row.split(" +")[0]
    return not named or own in named or own not in models


def beside(paper: Paper, entry: Entry, rows: Sequence[Row], reasons: Sequence[str]) -> list[Row]:
    """Every printed number of an entry with ours, its interval and whether they agree; the reason where none is.

    `reasons`: why cells of the entry have no numbers. What was measured on other models or texts than the paper's is
    set beside it too, and neither agrees nor differs.
    """
    measured = {(ours.row, ours.column): ours for ours in entry.compare(rows)}
    models = {checkpoint.name for checkpoint in paper.models}
    lines = []
    for printed in published(paper.name):
        if printed.table != entry.printed or printed.number is None:
            continue
        ours = measured.get((printed.row, printed.column))
        line: Row = {"row": printed.row, "column": printed.column, "published": printed.value, "unit": printed.unit}
        if ours is None or ours.estimate.value is None:
            state = next((reason for reason in reasons if concerns(reason, printed.row, models)), NOT_MEASURED)
            line |= {"ours": None, "low": None, "high": None, "state": state}
        else:
            interval = ours.estimate.interval
            line |= {
                "ours": ours.estimate.value,
                "low": None if interval is None else interval.low,
                "high": None if interval is None else interval.high,
                "state": verdict(printed, ours.estimate) if ours.same else OTHER,
            }
        lines.append({**line, "place": printed.place, "note": printed.note})
    return lines


def row_estimate(row: Mapping[str, Any], column: str) -> Estimate:
    """A number of a row with the interval beside it (columns NAME_low and NAME_high), as `cells` writes them."""
    from poolscope.numbers.intervals import LEVEL, Interval

    low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
    interval = None if low is None or high is None else Interval(low, high, LEVEL, "", "", "")
    return Estimate(row.get(column), interval)


def printed_number(paper: str, table: str, row: str, column: str) -> float | None:
    """A printed number, or None where there is none."""
    cell = find(paper, table, row, column)
    return None if cell is None else cell.number
