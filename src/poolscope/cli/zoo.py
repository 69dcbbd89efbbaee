"""`poolscope research zoo`: every number and the whole audit on many models, one table and one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.arguments import name_written, put_json, to_folder
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.research.zoo import Zoo

NOTHING_MEASURED = 1
SIDE_BY_SIDE = 2  # models in one table, so that it fits 80 columns


@arguments.encoder_options(without=("prompt", "prompt_name", "role", "revision"))
def zoo(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Hub names, folders, GGUF files, or NAME=SOURCE.")
    ],
    output: Annotated[
        Path, to_folder("Folder of the results; models it holds are not measured again.", "--output", "-o")
    ],
    texts: Annotated[
        str | None, typer.Option(metavar="TEXTS", help="File, folder, hub data set; by default the built-in texts.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=2, metavar="N", help="At most so many texts, at random.")] = 1000,
    seed: arguments.Seed = 0,
    json: arguments.Json = None,
    no_cache: arguments.NoCache = False,
    *,
    options: dict[str, Any],
) -> None:
    """Audit many models on the same texts, with SOCM on three scales and the papers' numbers beside published ones.

    Writes zoo.csv, zoo.md, zoo.json and zoo.html, and the audit of each model. A model that could not be loaded or
    measured stands in the table with the reason. Called again, it goes on with the models that are missing.
    Exit code 1: nothing could be measured.
    """
    from poolscope.research.zoo import zoo as measure

    def say(message: str) -> None:
        if not arguments.is_quiet():
            typer.echo(message, err=True)

    done = measure(_named(models), texts, output=output, limit=limit, seed=seed, cache=not no_cache, say=say, **options)
    screen = arguments.open_screen(json)
    _print(done, screen)
    if json is not None:
        put_json(done.to_dict(), json)
    name_written(screen, json, output)
    if done.measured == 0:
        raise typer.Exit(NOTHING_MEASURED)


def _named(models: list[str]) -> dict[str, str] | list[str]:
    """Models by name where at least one is NAME=SOURCE; the others go by the last part of their source."""
    from poolscope.research.zoo import short_name

    named: dict[str, str] = {}
    for entry in models:
        name, equals, source = entry.partition("=")
        name, source = (name, source) if equals else (short_name(entry), entry)
        if not name or not source or name in named:
            raise InputError(f"models: received {entry!r}; allowed: SOURCE or NAME=SOURCE, every name once.")
        named[name] = source
    return named


def _print(done: Zoo, screen: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from poolscope.research.zoo import COLUMNS, written

    measured = [run for run in done.runs if run["numbers"]]
    for first in range(0, len(measured), SIDE_BY_SIDE):
        shown = measured[first : first + SIDE_BY_SIDE]
        table = Table("", *(run["model"] for run in shown), box=SIMPLE_HEAD, pad_edge=False)
        for name, words in COLUMNS.items():
            numbers = [written(run["numbers"].get(name)) for run in shown]
            if any(numbers):
                table.add_row(words, *numbers)
        screen.print(table)
    for run in done.runs:
        if run["reason"] is not None:
            screen.print(f"{run['model']}: {run['status']}: {run['reason']}")
    screen.print(f"measured: {done.measured} of {len(done.runs)} models; zoo.html has every number and every answer")
