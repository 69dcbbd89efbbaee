"""`poolscope compare`: audits of the same corpus beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.audit.compare import Comparison
    from poolscope.audit.differences import DifferenceRow


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("compare")(compare)


def compare(
    audits: Annotated[
        list[Path], typer.Argument(metavar="AUDIT...", help="Folders that `poolscope audit --output` wrote.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write comparison.json and comparison.html.")
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="With --output: no comparison.html.")] = False,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the comparison as JSON (-: to the screen).")
    ] = None,
) -> None:
    """Two or more audits of the same texts: levels, numbers, and differences to the first with their intervals."""
    from rich.console import Console

    from poolscope.audit.compare import compare as compare_audits
    from poolscope.cli.outputs import name_written, put_json

    screen = Console(stderr=json == "-", soft_wrap=False)
    result = compare_audits(*audits)
    _print(result, screen)
    if json is not None:
        put_json(result.to_dict(), json)
    if output is not None:
        result.save(output, page=not no_page)
    name_written(screen, json, output)


def _print(result: Comparison, screen: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from poolscope.audit.questions import QUESTIONS
    from poolscope.cli.audit import LEVEL_STYLES

    levels = Table("", *result.names, title="levels", title_justify="left")
    rows = result.table()
    for question in QUESTIONS:
        answers = [row for row in rows if row["number"] == question.number]
        cells = [Text(row["level"], style=LEVEL_STYLES[row["level"]]) for row in answers]
        levels.add_row(f"{question.number}. {question.title}", *cells)
    screen.print(levels)
    title = f"differences to {result.names[0]}"
    differences = Table("number", "audit", "first", "its own", "difference", "95 % interval", title=title)
    differences.title_justify = "left"
    for row in result.differences:
        differences.add_row(*_cells(row))
    screen.print(differences)


def _cells(row: DifferenceRow) -> list[str]:
    interval = row.how if row.interval is None else f"[{row.interval.low:+.4f}, {row.interval.high:+.4f}] {row.how}"
    return [
        row.number,
        row.second,
        f"{row.first_value:.4f}",
        f"{row.second_value:.4f}",
        f"{row.difference:+.4f}",
        interval,
    ]
