"""Results as JSON, to a file or to the screen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from poolscope.files import write_json

if TYPE_CHECKING:
    from rich.console import Console

SCREEN = "-"


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
