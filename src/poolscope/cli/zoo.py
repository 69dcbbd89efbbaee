"""`poolscope research zoo`: every number and the whole audit on many models, one table and one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.arguments import option, switch, to_folder
from poolscope.cli.screen import Screen, is_quiet, open_table, put_json
from poolscope.errors import InputError

if TYPE_CHECKING:
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
    texts: Annotated[str | None, option("TEXTS", "File, folder, hub data set; by default the built-in texts.")] = None,
    queries: Annotated[
        str | None,
        option("FILE", "Queries with the ids of the texts that answer them; builtin:docstrings, builtin:manuals."),
    ] = None,
    limit: Annotated[int | None, option("N", "At most so many texts, at random.", min=2)] = 1000,
    seed: arguments.Seed = 0,
    no_audit: Annotated[bool, switch("Numbers only: a fraction of the time.", "--no-audit")] = False,
    parts: Annotated[
        str | None, option("LIST", "Measure only these: clouds, profile, search, tokens, layers, length.")
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
        if not is_quiet():
            typer.echo(message, err=True)

    chosen = None if parts is None else [part.strip() for part in parts.split(",")]
    switches = {"audits": not no_audit, "parts": chosen, "cache": not no_cache}
    settings: dict[str, Any] = {"queries": queries, "limit": limit, "seed": seed, **switches, **options}
    done = measure(_named(models), texts, output=output, say=say, **settings)
    screen = Screen(json)
    _print(done, screen)
    if json is not None:
        put_json(done.to_dict(), json)
    screen.name_written(json, output)
    if done.measured == 0:
        raise typer.Exit(NOTHING_MEASURED)
    screen.name_next(shlex.join(["poolscope", "research", "evidence", str(output), "-o", f"{output}-evidence"]))


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


def _print(done: Zoo, screen: Screen) -> None:
    from poolscope.research.zoo.numbers import COLUMNS
    from poolscope.research.zoo.run import written

    screen.print_seen(done)
    measured = [run for run in done.runs if run["numbers"]]
    together = max((screen.width - _WORDS) // _NUMBERS, 1)
    for first in range(0, len(measured), together):
        shown = measured[first : first + together]
        table = open_table("", words=1)
        for run in shown:
            table.add_column(run["model"], justify="right", overflow="fold")
        for name, words in COLUMNS.items():
            numbers = [written(run["numbers"].get(name)) for run in shown]
            if any(numbers):
                table.add_row(words, *numbers)
        screen.print_table(table)
    for run in done.runs:
        if run["reason"] is not None:
            reason = f"{run['model']}: {run['status']}: {run['reason']}"
            screen.say(reason, hanging="  ")


def evidence(
    folders: Annotated[list[Path], typer.Argument(metavar="ZOO...", help="Folders of `research zoo`, one a corpus.")],
    output: Annotated[Path, to_folder("Folder for tables and figures.", "--output", "-o")],
    child: Annotated[
        list[str] | None, option("PARENT=CHILD", "A model and what was trained from it (repeatable).")
    ] = None,
    pages: Annotated[Path | None, option("FOLDER", "Put the tables between the marks of these Markdown pages.")] = None,
    pictures: Annotated[bool, switch("Figures as .svg, by a browser, not as .html.", "--pictures")] = False,
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
    screen = Screen(json)
    _print_claims(result, screen)
    if json is not None:
        put_json(result.to_dict(), json)
    screen.name_written(json, output, *changed)


def _print_claims(result: Evidence, screen: Screen) -> None:
    """How the tests came out, claim by claim: what is claimed, and a line a test and corpus."""
    from poolscope.research.zoo.evidence import CLAIMS

    screen.print_seen(result)
    for claim in CLAIMS:
        if rows := [row for row in result.tests if row.claim == claim.key]:
            screen.print(f"\n{claim.title}", style="bold")
            screen.say(claim.words)
            for row in rows:
                told = f"{row.reading}: {row.words} ({row.corpus})"
                screen.say(told, "  ", hanging="  ")
