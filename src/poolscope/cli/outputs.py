"""What commands write: options whose names are checked before the work begins, and results as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from poolscope.files import check_file, check_folder, write_json

if TYPE_CHECKING:
    from rich.console import Console

SCREEN = "-"


def to_file(meaning: str, *names: str, metavar: str = "FILE") -> Any:
    """An option for a file to write; a name that cannot be written is refused before the work."""
    return typer.Option(*names, metavar=metavar, help=meaning, callback=_checked_file)


def to_folder(meaning: str, *names: str) -> Any:
    """An option for a folder to write into, refused in the same way."""
    return typer.Option(*names, metavar="FOLDER", help=meaning, callback=_checked_folder)


def to_figure(meaning: str, *names: str) -> Any:
    """An option for a figure: its name must say a known format, too."""
    return typer.Option(*names, metavar="FILE", help=meaning, callback=_checked_figure)


def to_json(meaning: str) -> Any:
    """An option for JSON, to a file or, with "-", to the screen."""
    return typer.Option(metavar="FILE", help=f"{meaning} (-: to the screen).", callback=_checked_json)


def _checked_file(path: Path | None) -> Path | None:
    if path is not None:
        check_file(path)
    return path


def _checked_folder(path: Path | None) -> Path | None:
    return None if path is None else check_folder(path)


def _checked_figure(path: Path | None) -> Path | None:
    if path is not None:
        from poolscope.charts.files import check_figure_path

        check_figure_path(path)
        check_file(path)
    return path


def _checked_json(target: str | None) -> str | None:
    if target not in (None, SCREEN):
        check_file(target)
    return target


def put_json(content: dict[str, Any], target: str) -> None:
    """Write the content to a file, or to standard output for "-"."""
    if target == SCREEN:
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        write_json(target, content)


def name_written(screen: Console, *paths: object) -> None:
    """Say which files were written; None and the screen are none."""
    for path in paths:
        if path is not None and path != SCREEN:
            screen.print(f"written: {path}", markup=False)
