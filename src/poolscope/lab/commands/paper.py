"""`poolscope lab paper`: a paper, figure by figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, switch, to_folder
from poolscope.errors import InputError, did_you_mean
from poolscope.show.screen import Screen, tell

if TYPE_CHECKING:
    from poolscope.lab.papers.runner import PaperRun

NOTHING_MEASURED = 1
COVERAGE = "coverage"


@arguments.encoder_options(without=("max_length", "prompt", "prompt_name", "role", "revision", "encoding"))
def paper(
    name: Annotated[
        str, argument("PAPER", "socm, length-collapse or norm-variance; coverage: what of them can be run here.")
    ],
    output: Annotated[
        Path | None, to_folder("Folder for the results; what is already there is not measured again.", "--output", "-o")
    ] = None,
    figure: Annotated[list[str] | None, option("N", "Make only this figure, such as 4 or 1a; may be repeated.")] = None,
    table: Annotated[list[str] | None, option("N", "Make only this table; may be repeated.")] = None,
    part: Annotated[
        list[str] | None, option("NAME", "Make only this other part, such as appendix-j; may be repeated.")
    ] = None,
    models: Annotated[
        list[str] | None, option("NAME[=SOURCE]", "Use only this model, or one of your own; may be repeated.")
    ] = None,
    texts: Annotated[list[str] | None, option("SET=SOURCE", "Read a data set from elsewhere; may be repeated.")] = None,
    files: Annotated[Path | None, option("FOLDER", "Folder with copies of models and data sets.")] = None,
    limit: Annotated[int | None, option("N", "Use N texts or queries of each data set.", min=2)] = None,
    pictures: Annotated[bool, switch("Draw .svg files, by a browser, instead of pages.", "--pictures")] = False,
    rewriter: Annotated[
        str | None, option("MODEL@URL", "Language model (OpenAI-compatible) that shortens texts for figure 1b.")
    ] = None,
    seed: arguments.Seed = 0,
    details: arguments.Details = False,
    json: arguments.Json = None,
    no_cache: arguments.NoCache = False,
    *,
    options: dict[str, Any],
) -> None:
    """What does a paper print, and what do your models give?

    Example: poolscope lab paper socm --figure 3 --models mine=builtin:minilm -o socm

    Writes one folder per figure or table: a drawing, and our numbers beside the printed ones (agrees or differs). If
    a data set or model is missing, it says what to fetch, from where and to where. The same command resumes a stopped
    run. Exit code 1: no numbers. `poolscope lab paper coverage` checks the list of what of the papers can be run; with
    -o it writes coverage.md.
    """
    if name == COVERAGE:
        _check_coverage(output, Screen(json))
        return
    from poolscope.lab.papers.catalogue import PAPERS

    if name not in PAPERS:
        raise InputError(f"{name} is no paper here. Choose {', '.join(PAPERS)}.{did_you_mean(name, PAPERS)}")
    if output is None:
        raise InputError("no folder was named. Say where the results go: -o FOLDER.")
    named: dict[str, str | None] = {}
    for entry in models or ():
        key, equals, source = entry.partition("=")
        named[key] = source if equals else None
    done = poolscope.paper(
        name,
        output,
        figures=figure or (),
        tables=table or (),
        parts=part or (),
        models=named,
        texts=_sources(texts or ()),
        files=files,
        limit=limit,
        seed=seed,
        cache=not no_cache,
        pictures=pictures,
        say=tell,
        rewriter=rewriter,
        **options,
    )
    screen = Screen(json, details=details)
    _print_entries(done, screen)
    screen.put_result(done, json=json)
    screen.name_written(output)
    if done.measured == 0:
        raise typer.Exit(NOTHING_MEASURED)


def _check_coverage(output: Path | None, screen: Screen) -> None:
    """Print the grades of all items and what is wrong with the table; with a folder, write the page into it."""
    from poolscope.files import folder_to_write
    from poolscope.lab.papers import coverage

    listed = coverage.items()
    faults = coverage.missing_proofs(listed)
    rows = coverage.counts(listed)
    screen.print_rows(tuple(rows[0]), [tuple(row.values()) for row in rows], title="before → now")
    for fault in faults:
        screen.say(fault, style="red")
    if output is not None:
        with folder_to_write(output) as folder:
            folder.write_text(coverage.PAGE, coverage.page(listed))
        screen.name_written(output / coverage.PAGE)
    if faults:
        raise typer.Exit(NOTHING_MEASURED)


def _sources(entries: Any) -> dict[str, str]:
    """`SET=SOURCE` as a dictionary.

    >>> _sources(["wiki=texts.txt"])
    {'wiki': 'texts.txt'}
    """
    sources = {}
    for entry in entries:
        name, equals, source = entry.partition("=")
        if not (name and equals and source):
            raise InputError(f"--texts {entry} is not known. Write SET=SOURCE, such as wiki=texts.txt.")
        sources[name] = source
    return sources


def _print_entries(done: PaperRun, screen: Screen) -> None:
    screen.print_in_words(done)
    rows = [
        (row["entry"], row["title"], f"{row['measured']}/{row['cells']}", str(row["agrees"]), str(row["differs"]))
        for row in done.entries
    ]
    screen.print_rows(("entry", "what", "cells", "agree", "differ"), rows, words=2)
    if screen.shows_details():
        screen.print_notes((f"{reason}." for reason in done.missing), indent="")
