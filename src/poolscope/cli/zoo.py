"""`poolscope research zoo`: every number and the whole audit on many models, one table and one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.arguments import name_next, name_written, print_seen, print_table, put_json, to_folder
from poolscope.errors import InputError
from poolscope.lines import wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.research.zoo.evidence import Evidence
    from poolscope.research.zoo.run import Zoo

NOTHING_MEASURED = 1
_WORDS, _NUMBERS = 24, 28  # columns that what is measured takes at least, and a number with its interval


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
    queries: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Queries with the ids of the texts that answer them; builtin:docstrings, builtin:manuals.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=2, metavar="N", help="At most so many texts, at random.")] = 1000,
    seed: arguments.Seed = 0,
    no_audit: Annotated[bool, typer.Option("--no-audit", help="Numbers only: a fraction of the time.")] = False,
    parts: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Measure only these: clouds, profile, search, tokens, layers, length."),
    ] = None,
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
    from poolscope.research.zoo.run import zoo as measure

    def say(message: str) -> None:
        if not arguments.is_quiet():
            typer.echo(message, err=True)

    chosen = None if parts is None else [part.strip() for part in parts.split(",")]
    switches = {"audits": not no_audit, "parts": chosen, "cache": not no_cache}
    settings: dict[str, Any] = {"queries": queries, "limit": limit, "seed": seed, **switches, **options}
    done = measure(_named(models), texts, output=output, say=say, **settings)
    screen = arguments.open_screen(json)
    _print(done, screen)
    if json is not None:
        put_json(done.to_dict(), json)
    name_written(screen, json, output)
    if done.measured == 0:
        raise typer.Exit(NOTHING_MEASURED)
    name_next(screen, shlex.join(["poolscope", "research", "evidence", str(output), "-o", f"{output}-evidence"]))


def _named(models: list[str]) -> dict[str, str] | list[str]:
    """Models by name where at least one is NAME=SOURCE; the others go by the last part of their source."""
    from poolscope.research.zoo.run import short_name

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

    from poolscope.research.zoo.numbers import COLUMNS
    from poolscope.research.zoo.run import written

    print_seen(done, screen)
    measured = [run for run in done.runs if run["numbers"]]
    together = max((screen.width - _WORDS) // _NUMBERS, 1)
    for first in range(0, len(measured), together):
        shown = measured[first : first + together]
        table = Table("", *(run["model"] for run in shown), box=SIMPLE_HEAD, pad_edge=False)
        for column in table.columns[1:]:
            column.justify, column.overflow = "right", "fold"
        for name, words in COLUMNS.items():
            numbers = [written(run["numbers"].get(name)) for run in shown]
            if any(numbers):
                table.add_row(words, *numbers)
        print_table(table, screen)
    for run in done.runs:
        if run["reason"] is not None:
            reason = f"{run['model']}: {run['status']}: {run['reason']}"
            screen.print(wrapped(reason, screen.width, hanging="  "), soft_wrap=True)


def evidence(
    folders: Annotated[list[Path], typer.Argument(metavar="ZOO...", help="Folders of `research zoo`, one a corpus.")],
    output: Annotated[Path, to_folder("Folder for tables and figures.", "--output", "-o")],
    child: Annotated[
        list[str] | None,
        typer.Option(metavar="PARENT=CHILD", help="A model and what was trained from it (repeatable)."),
    ] = None,
    pages: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Put the tables between the marks of these Markdown pages.")
    ] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Figures as .svg, by a browser, not as .html.")] = False,
    seed: arguments.Seed = 0,
    json: arguments.Json = None,
) -> None:
    """What the models of zoos say of the papers' claims, and which level each threshold gives them.

    Writes evidence.md, evidence.json, evidence.csv and a figure a claim. A page of --pages takes a table where it has
    the lines `<!-- begin NAME -->` and `<!-- end NAME -->`: NAME is `zoo CORPUS`, `claim KEY` or `thresholds`.
    """
    from poolscope.research.reproduce.experiment import parse_named
    from poolscope.research.zoo.evidence import evidence as measure
    from poolscope.research.zoo.pages import put_into_pages, save_evidence

    result = measure(folders, children=parse_named(child or [], "--child"), seed=seed)
    save_evidence(result, output, ending=".svg" if pictures else ".html")
    changed = [] if pages is None else put_into_pages(result, pages)
    screen = arguments.open_screen(json)
    _print_claims(result, screen)
    if json is not None:
        put_json(result.to_dict(), json)
    name_written(screen, json, output, *changed)


def _print_claims(result: Evidence, screen: Console) -> None:
    """How the tests came out, claim by claim: what is claimed, and a line a test and corpus."""
    from poolscope.research.zoo.evidence import CLAIMS

    print_seen(result, screen)
    for claim in CLAIMS:
        if rows := [row for row in result.tests if row.claim == claim.key]:
            screen.print(f"\n{claim.title}", style="bold")
            screen.print(wrapped(claim.words, screen.width), soft_wrap=True)
            for row in rows:
                told = f"{row.reading}: {row.words} ({row.corpus})"
                screen.print(wrapped(told, screen.width, "  ", hanging="  "), soft_wrap=True)
