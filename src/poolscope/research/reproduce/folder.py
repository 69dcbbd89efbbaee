"""The folder of a reproduction: tables, figures and a README, whole or not at all."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from poolscope.charts.files import save_figure
from poolscope.errors import InputError, MissingExtraError
from poolscope.results import plain

_PACKAGES = ("poolscope", "numpy", "scipy", "torch", "transformers", "sentence-transformers", "datasets")


class ReproductionFolder:
    """Collects files in a hidden folder beside `target`, which becomes `target` when the body ends without an error.

    A body that raises leaves nothing behind; a process that is killed leaves the hidden folder only.
    """

    def __init__(self, target: str | os.PathLike[str]) -> None:
        self.target = Path(target)
        if self.target.exists() and (not self.target.is_dir() or any(self.target.iterdir())):
            raise InputError(
                f"{self.target}: received a place that is not empty; nothing is overwritten. Name another."
            )
        self._work = self.target.with_name(f".{self.target.name}.{os.getpid()}.tmp")
        self.files: dict[str, list[str]] = {}  # by what they hold
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._work.replace(self.target)
        else:
            shutil.rmtree(self._work)

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
        lines += ["## Files", "", *(f"- {_code(self.files[key])}: {key}" for key in self.files), ""]
        lines += ["## Again", "", "```", command, "```", ""]
        lines += ["## Versions", "", *(f"- {name} {version}" for name, version in versions().items()), ""]
        (self._work / "README.md").write_text("\n".join(lines), encoding="utf-8")

    def _place(self, file: str, meaning: str) -> Path:
        self.files.setdefault(meaning, []).append(file)
        return self._work / file


def versions() -> dict[str, str]:
    """Python and the packages behind the numbers, as far as they are installed."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


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


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split()).replace("|", "\\|")
