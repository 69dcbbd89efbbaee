"""`poolscope compare`: audits of the same corpus beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from poolscope.cli import arguments
from poolscope.cli.outputs import name_written, put_json, to_folder

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from poolscope.auditing.compare import Comparison, DifferenceRow


def compare(
    audits: Annotated[
        list[Path], typer.Argument(metavar="AUDIT...", help="Folders that `poolscope audit --output` wrote.")
    ],
    output: Annotated[Path | None, to_folder("Write comparison.json and comparison.html.", "--output", "-o")] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="With --output: no comparison.html.")] = False,
    json: arguments.Json = None,
) -> None:
    """Two or more audits of the same texts: levels, numbers, and differences to the first with their intervals."""
    from rich.console import Console

    from poolscope.auditing.compare import compare as compare_audits

    screen = Console(stderr=json == "-", soft_wrap=False)
    result = compare_audits(*audits)
    _print(result, screen)
    if json is not None:
        put_json(result.to_dict(), json)
    if output is not None:
        result.save(output, page=not no_page)
    name_written(screen, json, output)


def _print(result: Comparison, screen: Console) -> None:
    from poolscope.auditing.compare import LETTERS

    marks = {name: LETTERS[k] if k < len(LETTERS) else name for k, name in enumerate(result.names)}
    ways = list(dict.fromkeys(row.how for row in result.differences))
    _print_audits(result, marks, screen)
    _print_levels(result, marks, screen)
    for name in result.names[1:]:
        screen.print(_differences([row for row in result.differences if row.second == name], marks, ways))
    for number, way in enumerate(ways, 1):
        screen.print(f"how {number}: {way}", style="dim")


def _print_audits(result: Comparison, marks: Mapping[str, str], screen: Console) -> None:
    """A letter for each audit, and below it what tells it apart."""
    from rich.padding import Padding

    facts = result.facts
    told = [name for name in facts if name == "folder" or name.startswith(("setting ", "threshold ", "encoded "))]
    for place, (name, mark) in enumerate(marks.items()):
        screen.print(f"{mark}  [bold]{escape(name)}[/bold]")
        notes = [f"{fact} {facts[fact][place]}" for fact in told if facts[fact][place] is not None]
        if notes:
            screen.print(Padding(escape(", ".join(notes)), (0, 0, 0, 3)), style="dim")
    screen.print()


def _print_levels(result: Comparison, marks: Mapping[str, str], screen: Console) -> None:
    """Questions × audits: the level and the number, marked where the audits measured different things."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from poolscope.auditing.compare import common_number
    from poolscope.verdicts import LEVEL_COLOURS

    levels = Table("", *marks.values(), box=SIMPLE_HEAD, pad_edge=False, title="levels and numbers")
    levels.title_justify = "left"
    marked = False
    for key in result.keys:
        answers = {name: audit[key] for name, audit in result.records.items() if key in audit}
        other = common_number([row for row in result.answers if row["key"] == key]) is None
        marked |= other
        cells = []
        for name in marks:
            if name not in answers:
                cells.append(Text("not asked"))
                continue
            verdict, form = answers[name].verdict, answers[name].number_format or ".3g"
            value = "" if verdict.value is None else f" {verdict.value:{form}}"
            cells.append(Text.assemble((verdict.level, f"bold {LEVEL_COLOURS[verdict.level]}"), value))
        levels.add_row(f"{next(iter(answers.values())).heading}{' †' if other else ''}", *cells)
    screen.print(levels)
    if marked:
        screen.print("†: not the same number in all audits; --json and the page name each", style="dim")


def _differences(rows: Sequence[DifferenceRow], marks: Mapping[str, str], ways: Sequence[str]) -> Table:
    """One audit minus the first; how each interval was found is a number that is explained once."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from poolscope.auditing.compare import excludes_zero

    first, second = (marks[name] for name in (rows[0].first, rows[0].second)) if rows else ("first", "second")
    title = f"{second} minus {first} (*: the interval excludes 0)"
    table = Table("number", first, second, "difference", "95 % interval", "how", box=SIMPLE_HEAD, title=title)
    table.title_justify, table.pad_edge = "left", False
    for column in table.columns:
        column.no_wrap = True
        column.justify = "left" if column is table.columns[0] else "right"
    for row in rows:
        interval = "" if row.interval is None else f"[{row.interval.low:+.4f}, {row.interval.high:+.4f}]"
        mark = "*" if excludes_zero(row.interval) else " "
        values = (f"{row.first_value:.4f}", f"{row.second_value:.4f}", f"{row.difference:+.4f}{mark}")
        table.add_row(row.number, *values, escape(interval), str(ways.index(row.how) + 1))
    return table
