"""What every experiment shares: models and texts, why some could not be reached, and the folder of results."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from poolscope.charts import error_bars, save_figure
from poolscope.encoders import as_encoder
from poolscope.encoders.base import EncoderOptions, TokenEncoder
from poolscope.errors import InputError, MissingExtraError, PoolscopeError
from poolscope.files import atomic_folder
from poolscope.numbers.intervals import LEVEL, Estimate, Interval
from poolscope.results import Result, cells, origin, plain, provenance, transient

_PACKAGES = ("poolscope", "numpy", "scipy", "torch", "transformers", "sentence-transformers", "datasets")
P = ParamSpec("P")
T = TypeVar("T")
MEASURED, NOT_REACHED, NOT_MEASURED = "measured", "not reached", "not measured"


def _quiet(message: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Request:
    """What to run. `models` and `texts` map names to where they are loaded from (a hub name, a folder, a file).

    `limit`: texts of each set (queries with their documents where it holds these); None for the published number.
    `options` are those of the encoder, and `say` is told what is being done.
    """

    models: Mapping[str, str]
    texts: Mapping[str, str]
    limit: int | None = None
    seed: int = 0
    options: EncoderOptions = field(default_factory=EncoderOptions)
    cache: bool = True
    say: Callable[[str], None] = _quiet

    def substitutes(self, models: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
        """What was loaded from elsewhere than the published experiment would, for the README."""
        moved = [
            f"The model {name} was loaded from {source}, not from {models[name]}: published values are not its own."
            for name, source in self.models.items()
            if models.get(name, source) != source
        ]
        return moved + [
            f"The set {name} was read from {source}, not from {texts[name]}: published values are of other texts."
            for name, source in self.texts.items()
            if texts[name] != source
        ]

    def measure_each(
        self, missing: str | None, measure: Callable[[str, TokenEncoder], Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """One row a model: its status, the reason for it, and the columns that `measure(name, encoder)` gives.

        `missing`: why the texts could not be read, if so; no model is measured then.
        """
        rows: list[dict[str, Any]] = []

        def handle(name: str, encoder: TokenEncoder | None, reason: str | None) -> None:
            row = {"model": name, "source": self.models[name], **self.texts}
            if encoder is None or missing is not None:
                rows.append({**row, "status": NOT_REACHED, "reason": reason or missing})
                return
            measured, failure = attempt(measure, name, encoder)
            status = NOT_MEASURED if measured is None else MEASURED
            rows.append({**row, **(measured or {}), "status": status, "reason": failure})

        self.each_model(handle)
        return rows

    def each_model(self, handle: Callable[[str, TokenEncoder | None, str | None], None]) -> None:
        """Call `handle(name, encoder, reason)` for each model: the encoder, or the reason why there is none.

        A model is loaded when its turn comes and freed after it: two at once may not fit.
        """
        options = {key: value for key, value in vars(self.options).items() if value not in (None, False)}
        for name, source in self.models.items():
            self.say(f"{name}: loading" + ("" if source == name else f" from {source}"))
            encoder, reason = attempt(as_encoder, source, **options)
            if reason is not None:
                self.say(f"{name}: {NOT_REACHED}: {reason}")
            handle(name, encoder, reason)
            del encoder
            gc.collect()  # a model and its hooks refer to each other


@dataclass(frozen=True, repr=False)
class Reproduction(Result):
    """What came of it: where the folder is, what was found, and one row a model and set with its status."""

    output: str
    runs: tuple[Mapping[str, Any], ...]
    findings: tuple[str, ...] = ()
    drawn: Any = transient()
    provenance: Mapping[str, Any] = origin()

    column_words: ClassVar[Mapping[str, str]] = {
        "set": "set of texts",
        "compatible": "SOCM as published",
        "exact": "SOCM, exact",
        "mean_d_mu": "mean d_μ",
    }

    @property
    def folder(self) -> Path:
        """The folder of tables, figures and the README."""
        return Path(self.output)

    @property
    def measured(self) -> int:
        """How many of the rows have numbers."""
        return sum(run["status"] == MEASURED for run in self.runs)

    @property
    def complete(self) -> bool:
        """Was everything measured?"""
        return self.measured == len(self.runs)

    def headline(self) -> dict[str, Any]:
        """Where, and how much of it was measured."""
        return {"output": self.output, "measured": self.measured, "runs": len(self.runs)}

    def seen(self) -> tuple[str, ...]:
        """How much was measured, what was found, and where it stands."""
        missing = {str(run["model"]): None for run in self.runs if run["status"] != MEASURED}
        left = [f"Without numbers: {', '.join(missing)}; README.md says why."] if missing else []
        told = f"{self.measured:,} of {len(self.runs):,} runs gave numbers"
        return (f"{told}; tables, figures and a README stand in {self.output}.", *self.findings, *left)

    def rows(self) -> list[dict[str, Any]]:
        """One row a model and set: numbers first, then where they came from."""
        names = dict.fromkeys(name for run in self.runs for name in run)
        ordered = sorted(names, key=lambda name: "source" in name or name in ("reason", "revision"))
        return [cells({name: run.get(name) for name in ordered}) for run in self.runs]

    def figure(self) -> Any:
        """The first figure of the experiment (plotly), in the process that drew it; the folder has all of them."""
        if self.drawn is None:
            raise InputError(f"the figures of the experiment stand in {self.output}, as far as they were drawn.")
        return self.drawn


def choose(
    published: Mapping[str, str],
    *,
    only: Sequence[str] = (),
    sources: Mapping[str, str] | None = None,
    what: str,
    add: bool = True,
) -> dict[str, str]:
    """Names and sources: the published ones, or some of them only, and those that `sources` names.

    `sources` says where a name is loaded from; with `add` it may hold further names.
    """
    named = dict(sources or {})
    known = {**published, **(named if add else {})}
    if unknown := [name for name in (*only, *named) if name not in known]:
        raise InputError(f"{what}: received {', '.join(unknown)}; known: {', '.join(known)}. Choose among these.")
    return {name: named.get(name, source) for name, source in known.items() if not only or name in (*only, *named)}


def attempt(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> tuple[T | None, str | None]:
    """What the function returns, or in one line why poolscope refused; other errors pass through."""
    try:
        return function(*arguments, **named), None
    except PoolscopeError as error:
        return None, " ".join(str(error).split())


def parse_named(entries: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=SOURCE` options as a dictionary.

    >>> parse_named(["wiki=texts.txt"], "--texts")
    {'wiki': 'texts.txt'}
    """
    sources = {}
    for entry in entries:
        name, equals, source = entry.partition("=")
        if not (name and equals and source):
            raise InputError(f"{option}: received {entry!r}; allowed: NAME=SOURCE, such as wiki=texts.txt.")
        sources[name] = source
    return sources


# -- the folder ---------------------------------------------------------------------------------------------------


class ReproductionFolder:
    """Collects files in a hidden folder beside `target`, which becomes `target` when the body ends without an error.

    A body that raises leaves nothing behind; a process that is killed leaves the hidden folder only, and the next that
    writes `target` removes it.
    """

    def __init__(self, target: str | os.PathLike[str]) -> None:
        self.target = Path(target)
        if self.target.exists() and (not self.target.is_dir() or any(self.target.iterdir())):
            raise InputError(
                f"{self.target}: received a place that is not empty; nothing is overwritten. Name another."
            )
        self._atomic = atomic_folder(self.target)
        self.files: dict[str, list[str]] = {}  # by what they hold
        self.notes: list[str] = []
        self.drawn: Any = None  # the first figure

    def __enter__(self) -> Self:
        self._work = self._atomic.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._atomic.__exit__(kind, error, trace)

    def table(self, name: str, rows: Sequence[Mapping[str, Any]], meaning: str) -> None:
        """Write rows as CSV and Parquet; a row may lack columns. No rows, no files."""
        if rows:
            columns = dict.fromkeys(column for row in rows for column in row)
            self.arrow(
                name, pa.table({column: [plain(row.get(column)) for row in rows] for column in columns}), meaning
            )

    def arrow(self, name: str, table: pa.Table, meaning: str, *, csv: bool = True) -> None:
        """Write an Arrow table as Parquet, and as CSV unless it is a long one."""
        pq.write_table(table, self._place(f"{name}.parquet", meaning))
        if csv:
            pa.csv.write_csv(table, self._place(f"{name}.csv", meaning))

    def figure(self, name: str, meaning: str, draw: Callable[..., Any], *results: Any) -> None:
        """Draw results as SVG; as a page where no browser can draw it; noted and left out without plotly."""
        try:
            drawn = draw(*results)
        except MissingExtraError as error:
            self.notes.append(f"The figure {name} was not drawn: {error}")
            return
        self.drawn = self.drawn or drawn
        try:
            save_figure(drawn, self._work / f"{name}.svg")
            self.files.setdefault(meaning, []).append(f"{name}.svg")
        except MissingExtraError:
            save_figure(drawn, self._place(f"{name}.html", meaning))
            self.notes.append(f"The figure {name} is an HTML page, since no browser was found to draw the SVG.")

    def readme(self, title: str, *, about: str, runs: Sequence[Mapping[str, Any]], command: str) -> None:
        """Say what was run and what was not, what the files hold, how to run it again, with which versions."""
        lines = [
            f"# {title}",
            "",
            about.strip(),
            "",
            "## What was run",
            "",
            *markdown_table(map(_one_status, runs)),
            "",
        ]
        if self.notes:
            lines += ["## What to know", "", *(f"- {note}" for note in self.notes), ""]
        lines += ["## Files", "", *(f"- `{'`, `'.join(files)}`: {key}" for key, files in self.files.items()), ""]
        lines += ["## Again", "", "```", command, "```", ""]
        lines += ["## Versions", "", *(f"- {name} {version}" for name, version in versions().items()), ""]
        (self._work / "README.md").write_text("\n".join(lines), encoding="utf-8")

    def result(self, request: Request, runs: Sequence[Mapping[str, Any]], findings: Iterable[str] = ()) -> Reproduction:
        """What came of a request, once the folder is whole."""
        settings = {name: getattr(request, name) for name in ("models", "texts", "limit", "seed")}
        made = provenance(settings=settings)
        return Reproduction(str(self.target), tuple(runs), tuple(findings), self.drawn, provenance=made)

    def _place(self, file: str, meaning: str) -> Path:
        self.files.setdefault(meaning, []).append(file)
        return self._work / file


def versions() -> dict[str, str]:
    """Python and the packages behind the numbers, as far as they are installed."""
    known = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            known[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return known


def markdown_table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    r"""The lines of a Markdown table, numbers to four digits.

    >>> print("\n".join(markdown_table([{"a": 1, "b": 0.12345}, {"b": None}])))
    | a | b |
    |---|---|
    | 1 | 0.1235 |
    |  |  |
    """
    listed = list(rows)
    columns = list(dict.fromkeys(column for row in listed for column in row))
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*lines, *(f"| {' | '.join(_cell(row.get(column)) for column in columns)} |" for row in listed)]


def _one_status(run: Mapping[str, Any]) -> dict[str, Any]:
    """Status and reason in one cell, at the end."""
    others = {name: value for name, value in run.items() if name not in ("status", "reason")}
    return {**others, "status": run["status"] if not run.get("reason") else f"{run['status']}: {run['reason']}"}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split()).replace("|", "\\|")


def interval_bars(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The interval of a column as error bars; none where there is no interval."""
    ends = [[row.get(f"{name}{part}") for part in ("", "_low", "_high")] for row in rows]
    known = [
        Estimate(value, None if low is None or high is None else Interval(low, high, LEVEL, "", ""))
        for value, low, high in ends
    ]
    return error_bars(known)
