"""The one runner of the papers: measure the cells that are missing, then write every entry from what is kept.

A cell is kept in a file of its own as soon as it is measured, under a digest of everything that it depends on. A run
that was stopped goes on with the first cell that is missing. Cells of one model follow each other: it is loaded once.
"""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.digests import check_seal, digest_of, sealed
from poolscope.encoders import as_encoder
from poolscope.encoders.base import EncoderOptions, TokenEncoder
from poolscope.errors import InputError, MissingExtraError, PoolscopeError, reading, require
from poolscope.files import held_folder, in_plain_words
from poolscope.folder import Folder
from poolscope.lab.papers.cell import AGREES, DIFFERS, Cell, Entry, Material, Outcome, Paper, Row, beside
from poolscope.lab.papers.models import Checkpoint
from poolscope.lab.papers.positions import spread_positions
from poolscope.lab.papers.rewriting import Rewriter
from poolscope.lab.papers.sources import Data, Found, Places, hub_out_of_reach
from poolscope.results import Result, cells, origin, plain, provenance, write_csv
from poolscope.show.charts import figure_bytes
from poolscope.texts.plain import refuse_packed_arrays

CELLS, NUMBERS, BESIDE, README = "cells", "numbers.csv", "published.csv", "README.md"
_SCRIPT = "plotly.min.js"
_UNKNOWN = Checkpoint("", "")
_UNNAMED = re.compile(r"[^\w.=-]+")


def _quiet(message: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, repr=False)
class PaperRun(Result):
    """What came of a run: one row an entry, with how many of its cells have numbers and how many of them agree."""

    paper: str
    output: str
    entries: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = origin()

    @property
    def measured(self) -> int:
        """How many entries have numbers."""
        return sum(entry["measured"] > 0 for entry in self.entries)

    def headline(self) -> dict[str, Any]:
        """The paper, and how many of its entries have numbers."""
        return {"paper": self.paper, "entries": len(self.entries), "measured": self.measured}

    def in_words(self) -> tuple[str, ...]:
        """How much has numbers, how much of it agrees, and where it is."""
        total = {name: sum(entry[name] for entry in self.entries) for name in (AGREES, DIFFERS, "printed")}
        sentences = [f"{self.measured} of {len(self.entries)} figures and tables have numbers, in {self.output}."]
        if total["printed"]:
            sentences.append(
                f"Of {total['printed']:,} printed numbers {total[AGREES]} agree and {total[DIFFERS]} differ; "
                f"the others were not measured."
            )
        return (*sentences, *(f"{reason}." for reason in self.missing[:3]))

    def rows(self) -> list[dict[str, Any]]:
        """One row an entry."""
        return [dict(entry) for entry in self.entries]

    def figure(self) -> Any:
        """The folder has one drawing an entry."""
        raise InputError(f"every figure and table has its own drawing, below {self.output}.")


# Raised when a kind gives other numbers than before, so that cells of earlier versions are measured again.
_MEASURED = 2


@dataclass
class Runner:
    """A paper on its way into a folder."""

    paper: Paper
    folder: Folder
    places: Places
    limit: int | None = None
    seed: int = 0
    options: EncoderOptions = field(default_factory=EncoderOptions)
    cache: bool = True
    pictures: bool = False
    say: Callable[[str], None] = _quiet
    rewriter: Rewriter | None = None

    def __post_init__(self) -> None:
        self._known = {checkpoint.name: checkpoint for checkpoint in self.paper.models}
        self._encoder: tuple[str, TokenEncoder] | None = None
        self._data: dict[str, Data] = {}
        self._found: dict[tuple[str, str], Found] = {}
        self._seconds: dict[str, list[float]] = {}
        self._unusable: dict[str, PoolscopeError] = {}  # models that cannot be loaded: asked once, said once

    # -- cells ------------------------------------------------------------------------------------------------------

    def outcomes(self, wanted: Sequence[Cell]) -> tuple[dict[Cell, Outcome], dict[Cell, str]]:
        """Outcome of every cell, or the reason why it has none; cells that are kept are not measured again."""
        order = {model: place for place, model in enumerate(dict.fromkeys(cell.model for cell in wanted))}
        ordered = sorted(dict.fromkeys(wanted), key=lambda cell: order[cell.model])
        done: dict[Cell, Outcome] = {}
        reasons: dict[Cell, str] = {}
        open_cells = []
        for cell in ordered:
            if reason := self._missing(cell):
                reasons[cell] = reason
            elif (stored := self.stored_outcome(cell)) is not None:
                done[cell] = stored
            else:
                open_cells.append(cell)
        self._announce(len(ordered), len(done), len(open_cells), reasons)
        told = set()
        for number, cell in enumerate(open_cells):
            self.say(f"{number + 1} of {len(open_cells)}: {cell.words}{self._left(open_cells[number:])}")
            began = time.perf_counter()
            try:
                done[cell] = self._measure(cell)
            except PoolscopeError as error:
                why = " ".join(str(error).split())
                reasons[cell] = f"not measured: {cell.words}: {why}"
                self.say("not measured, as before" if why in told else reasons[cell])
                told.add(why)
                continue
            self._seconds.setdefault(cell.kind, []).append(time.perf_counter() - began)
            self._keep(cell, done[cell])
        self._encoder = None
        return done, reasons

    def _announce(self, total: int, stored: int, left: int, reasons: Mapping[Cell, str]) -> None:
        if reasons:
            out = hub_out_of_reach()
            why = "" if out is None else f" The hub cannot be asked: {out}."
            self.say(f"{len(reasons)} of {total} cells need what is not here.{why}")
        self.say(f"{total} cells: {stored} kept, {left} to measure.")

    def _left(self, cells: Sequence[Cell]) -> str:
        """How long the cells from here on will take, by what cells of their kind took in this run."""
        known = [np.mean(self._seconds[cell.kind]) for cell in cells if cell.kind in self._seconds]
        if not known:
            return ""
        seconds = float(np.mean(known)) * len(cells)
        return f" · about {seconds:.0f} s left" if seconds < 100 else f" · about {seconds / 60:.0f} min left"

    def _missing(self, cell: Cell) -> str | None:
        """Why a cell cannot be measured, before anything is loaded."""
        missing = [found for found in self._sources(cell).values() if found.missing]
        return f"{missing[0].missing} ({missing[0].name})" if missing else None

    def _sources(self, cell: Cell) -> dict[str, Found]:
        """Where the model and the data of a cell are found."""
        sources = {}
        for what, name in (("model", cell.model), ("data", cell.data)):
            if name is None:
                continue
            if (what, name) not in self._found:
                self._found[what, name] = (
                    self.places.model(self._known.get(name, Checkpoint(name, "")))
                    if what == "model"
                    else self.places.data(self.paper.data[name])
                )
            sources[what] = self._found[what, name]
        return sources

    def _measure(self, cell: Cell) -> Outcome:
        material = Material(
            None if cell.model is None else self._load(cell.model),
            None if cell.data is None else self._read(cell.data),
            dict(cell.setting),
            self.seed,
            self.cache,
            self.options,
            self.rewriter,
        )
        outcome = self.paper.kinds[cell.kind](material)
        return Outcome([_plain_row(row) for row in outcome.rows], outcome.arrays, outcome.notes)

    def _load(self, name: str) -> TokenEncoder:
        """The model; the one before it is freed, since two at once may not fit."""
        if name in self._unusable:
            raise self._unusable[name]
        if self._encoder is None or self._encoder[0] != name:
            self._encoder = None
            gc.collect()  # a model and its hooks refer to each other
            found = self._found["model", name]
            options = {key: value for key, value in vars(self.options).items() if value not in (None, False)}
            try:
                self._encoder = name, as_encoder(found.source, **options)
                if found.same and (factor := self._known.get(name, _UNKNOWN).spread) > 1:
                    spread_positions(self._encoder[1], factor)
            except PoolscopeError as error:
                self._unusable[name] = type(error)(f"{error} {found.advice}".strip())
                raise self._unusable[name] from error
        return self._encoder[1]

    def _read(self, name: str) -> Data:
        if name not in self._data:
            source = self._found["data", name].source
            self._data[name] = self.paper.data[name].read(source, limit=self.limit, seed=self.seed)
        return self._data[name]

    # -- what is kept -----------------------------------------------------------------------------------------------

    def _identity(self, cell: Cell) -> Row:
        """Everything that the numbers of a cell depend on."""
        identity = {
            "measured": _MEASURED,
            "kind": cell.kind,
            "setting": dict(cell.setting),
            "sources": [[found.name, *_fingerprint(found.source)] for found in self._sources(cell).values()],
            "limit": self.limit,
            "seed": self.seed,
            "options": plain(self.options.content()),
            **({} if self.rewriter is None else {"rewriter": vars(self.rewriter)}),
        }
        return dict(json.loads(json.dumps(identity)))

    def file_of(self, cell: Cell) -> str:
        """The file of a cell; its name can be read, and its digest tells apart what the name does not."""
        words = _UNNAMED.sub("-", "-".join(word for word in (cell.kind, cell.model, cell.data) if word))
        digest = digest_of(json.dumps(self._identity(cell), sort_keys=True).encode(), size=6)
        return f"{CELLS}/{words[:80]}-{digest}"

    def stored_outcome(self, cell: Cell) -> Outcome | None:
        """Outcome of an earlier run; a torn or damaged file counts as absent."""
        file = self.file_of(cell)
        path, again = self.folder.path / f"{file}.json", "It is measured again."
        try:
            with reading(path, again):
                content = check_seal(json.loads(self.folder.read(f"{file}.json")), path, again)
                if content["for"] != self._identity(cell):
                    return None
                arrays = {}
                if content["arrays"]:
                    with self.folder.reading(f"{file}.npz") as stream:
                        refuse_packed_arrays(path.with_suffix(".npz"), stream)
                        stream.seek(0)
                        with np.load(stream, allow_pickle=False) as archive:
                            arrays = {name: archive[name] for name in content["arrays"]}
                rows = [dict(row) for row in content["rows"]]
                return Outcome(rows, arrays, tuple(str(note) for note in content["notes"]))
        except (PoolscopeError, FileNotFoundError):
            return None

    def _keep(self, cell: Cell, outcome: Outcome) -> None:
        """Write a cell: the arrays first, so that a cell whose JSON is there is whole."""
        file = self.file_of(cell)
        with in_plain_words(self.folder.path):
            if outcome.arrays:
                with self.folder.file(f"{file}.npz") as stream:
                    np.savez(stream, allow_pickle=False, **outcome.arrays)
            content = {"rows": list(outcome.rows), "arrays": sorted(outcome.arrays), "notes": list(outcome.notes)}
            self.folder.write_json(f"{file}.json", sealed({"for": self._identity(cell), **content}))

    # -- entries ----------------------------------------------------------------------------------------------------

    def write(
        self, entry: Entry, wanted: Sequence[Cell], done: Mapping[Cell, Outcome], reasons: Mapping[Cell, str]
    ) -> Row:
        """One folder for an entry: numbers, what is printed beside them, and the drawing."""
        own = {cell: done[cell] for cell in wanted if cell in done}
        rows = [self._described(cell, row) for cell, outcome in own.items() for row in outcome.rows]
        rows += entry.follow(rows, own)
        why = list(dict.fromkeys(reasons[cell] for cell in wanted if cell in reasons))
        lines = beside(self.paper, entry, rows, why)
        self._write_csv(f"{entry.key}/{NUMBERS}", rows)
        self._write_csv(f"{entry.key}/{BESIDE}", lines)
        drawn, note = self._draw(entry, rows)
        notes = [*dict.fromkeys(note for outcome in own.values() for note in outcome.notes), *([note] if note else [])]
        states = [line["state"] for line in lines]
        return {
            "entry": entry.key,
            "title": entry.title,
            "cells": len(wanted),
            "measured": len(own),
            "printed": len(lines),
            AGREES: states.count(AGREES),
            DIFFERS: states.count(DIFFERS),
            "figure": drawn,
            "otherwise": entry.differs,
            "notes": notes,
            "missing": why,
        }

    def _described(self, cell: Cell, row: Row) -> Row:
        same = {f"same_{what}": found.same for what, found in self._sources(cell).items()}
        return {**cell.place, **row, **same}

    def _draw(self, entry: Entry, rows: Sequence[Row]) -> tuple[str, str]:
        """The name of the drawing, and a note where it could not be drawn as asked."""
        for stale in self.folder.match(f"{entry.key}/figure.*"):
            self.folder.remove(stale)
        if entry.draw is None or not rows:
            return "", ""
        note = ""
        try:
            figure = entry.draw(rows)
            if figure is None:  # no row has what it shows
                return "", ""
            if self.pictures:
                try:
                    self.folder.write(f"{entry.key}/figure.svg", figure_bytes(figure, "figure.svg"))
                    return f"{entry.key}/figure.svg", ""
                except MissingExtraError as error:
                    note = str(error)
            script = require("plotly.offline", "report").get_plotlyjs()
        except MissingExtraError as error:
            return "", f"Not drawn: {error}"
        if not self._holds(_SCRIPT, script.encode()):  # a folder of others may bring a script of its own
            self.folder.write_text(_SCRIPT, script)
        page = figure.to_html(include_plotlyjs=f"../{_SCRIPT}", full_html=True, div_id=entry.key)
        self.folder.write_text(f"{entry.key}/figure.html", page)
        return f"{entry.key}/figure.html", note

    def _holds(self, name: str, content: bytes) -> bool:
        """Does a file of the folder hold exactly this?"""
        try:
            return self.folder.read(name) == content
        except (PoolscopeError, OSError):
            return False

    def _write_csv(self, name: str, rows: Sequence[Row]) -> None:
        columns = dict.fromkeys(name for row in rows for name in row)
        table = pa.table({name: _column(rows, name) for name in columns})
        with self.folder.file(name) as stream:
            write_csv(table, stream)


def run_paper(
    paper: Paper,
    output: Any,
    *,
    figures: Sequence[str] = (),
    tables: Sequence[str] = (),
    parts: Sequence[str] = (),
    models: Mapping[str, str | None] | None = None,
    places: Places | None = None,
    limit: int | None = None,
    seed: int = 0,
    options: EncoderOptions | None = None,
    cache: bool = True,
    pictures: bool = False,
    say: Callable[[str], None] | None = None,
    rewriter: Rewriter | None = None,
) -> PaperRun:
    """Measure what can be reached of a paper and write one folder: an entry a figure or table, cells, a README.

    `models`: only these, by name; those that the paper does not name are added to every entry. See `Places` for where
    models and texts are looked for. Called again with the same folder, it goes on with the cells that are missing.
    """
    entries = paper.chosen(figures, tables, parts)
    named = list(models or ())
    added = [name for name in named if name not in {checkpoint.name for checkpoint in paper.models}]
    wanted = {entry.key: paper.cells(entry, added, named or None) for entry in entries}
    with held_folder(output) as folder:
        runner = Runner(
            paper,
            folder,
            places or Places(),
            limit=limit,
            seed=seed,
            options=options or EncoderOptions(),
            cache=cache,
            pictures=pictures,
            say=say or _quiet,
            rewriter=rewriter,
        )
        done, reasons = runner.outcomes([cell for cells in wanted.values() for cell in cells])
        with in_plain_words(folder.path):
            written = [runner.write(entry, wanted[entry.key], done, reasons) for entry in entries]
            folder.write_text(README, _readme(paper, written))
    settings = {"figures": list(figures), "tables": list(tables), "models": named, "limit": limit, "seed": seed}
    made = provenance(settings=settings)
    del made["clouds"]
    missing = tuple(dict.fromkeys(reasons.values()))
    return PaperRun(paper.name, str(output), tuple(written), missing, provenance=made)


def _plain_row(row: Mapping[str, Any]) -> Row:
    """A row in the types of JSON: an estimate becomes three columns, what is not finite becomes nothing."""
    flat = plain(cells(row))
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value for name, value in flat.items()
    }


def _fingerprint(source: str | None) -> list[Any]:
    """What tells a local source from another of the same name: its files' sizes and the time of the last change."""
    if source is None or not Path(source).exists():
        return [source]
    path = Path(source)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    stats = [file.stat() for file in files]
    return [source, sum(stat.st_size for stat in stats), max((stat.st_mtime_ns for stat in stats), default=0)]


def _column(rows: Sequence[Row], name: str) -> pa.Array:
    """A column: words where it holds more than one type, or a list."""
    values = [row.get(name) for row in rows]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pa.array(values, pa.float64() if float in kinds else None)
    if len(kinds) == 1 and not kinds & {list, dict}:
        return pa.array(values)
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _readme(paper: Paper, written: Sequence[Row]) -> str:
    lines = [f"# {paper.title}", "", f"{paper.source}.", "", "| entry | what | cells | agree | differ | drawing |"]
    lines.append("|---|---|---|---|---|---|")
    for row in written:
        drawing = f"[{row['figure']}]({row['figure']})" if row["figure"] else ""
        counted = f"{row['measured']} of {row['cells']}"
        lines.append(f"| {row['entry']} | {row['title']} | {counted} | {row[AGREES]} | {row[DIFFERS]} | {drawing} |")
    for row in written:
        if row["otherwise"] or row["notes"] or row["missing"]:
            lines += ["", f"## {row['entry']}", ""]
            lines += [f"- Otherwise than in the paper: {row['otherwise']}"] * bool(row["otherwise"])
            lines += [f"- {line}" for line in (*row["notes"], *row["missing"])]
    return "\n".join(lines) + "\n"
