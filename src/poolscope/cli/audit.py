"""`poolscope audit`: one command, one screen of answers, one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments as given
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.auditing.question import Answer
    from poolscope.auditing.result import Audit

FAIL_ON = ("unchecked", "watch", "repair")
BEYOND = 1  # the exit code where an answer is as serious as --fail-on says


@given.encoder_options()
def audit(
    model: given.ModelOrClouds = given.MODEL,
    texts: given.Texts = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where audit.json, tables and report.html go.")
    ] = Path("poolscope-audit"),
    no_page: Annotated[bool, typer.Option("--no-page", help="No report.html.")] = False,
    no_files: Annotated[bool, typer.Option("--no-files", help="The screen only: nothing is written.")] = False,
    json: given.Json = None,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="unchecked|watch|repair", help="Exit with 1 if an answer is that serious, for CI."),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Vectors of the same texts from your runtime (.npy, .npz, .parquet)."),
    ] = None,
    thresholds: given.ThresholdFile = None,
    threshold: given.ThresholdSettings = None,
    trial: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Texts that trials of repairs encode anew (0: no trials).")
    ] = None,
    column: given.Column = None,
    id_column: given.IdColumn = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the document of each text (guessed from names like doc_id)."),
    ] = None,
    limit: given.Limit = None,
    seed: given.Seed = 0,
    no_cache: given.NoCache = False,
    *,
    options: dict[str, Any],
) -> None:
    """Every question about MODEL on TEXTS, answered with verdicts, numbers, intervals and floors.

    With nothing: the embedded model on 1,000 texts of the embedded corpus. MODEL may be clouds that `poolscope encode`
    wrote; then TEXTS is left out, and what needs the model is not asked.
    """
    from rich.console import Console

    from poolscope.auditing.commands import PIPE, Named
    from poolscope.auditing.groups import group_column
    from poolscope.auditing.thresholds import read_thresholds
    from poolscope.cli.inputs import is_clouds
    from poolscope.cli.outputs import name_written, put_json
    from poolscope.files import check_folder
    from poolscope.texts.plain import asked_encoding

    if fail_on not in (None, *FAIL_ON):
        raise InputError(f"--fail-on: received {fail_on!r}; allowed: {' or '.join(FAIL_ON)}.")
    if not no_files:  # what would stop the writing is said before the work, not after it
        check_folder(output)
    screen = Console(stderr=json == "-", soft_wrap=False)
    limits = read_thresholds(thresholds, threshold or ())
    if group is None and texts is not None:
        group = group_column(texts, (column, id_column))
    reading = {"column": column, "id_column": id_column, "group": group, "limit": limit, "seed": seed}
    settings = {"thresholds": limits, "trial_texts": trial, "cache": not no_cache, "vectors": _vectors(vectors)}
    again = {"trial": trial, "vectors": vectors, "threshold": limits.changed}
    named = Named(
        model,
        None if texts == PIPE else texts or "",
        {**reading, "encoding": asked_encoding()},
        options,
        {name: value for name, value in again.items() if value is not None},
        clouds=is_clouds(model),
    )
    result = _run(model, texts, reading, options, {**settings, "named": named})
    print_audit(result, screen)
    if not no_files:
        result.save(output, page=not no_page)
    if json is not None:
        put_json(result.to_dict(), json)
    if not no_files:
        screen.print(f"page: {output / 'report.html'}" if not no_page else f"folder: {output}", markup=False)
    name_written(screen, json, None if no_files else output / "audit.json")
    if fail_on is not None and any(answer.verdict.at_least(fail_on) for answer in result.answers):  # type: ignore[arg-type]
        screen.print(f"an answer is {fail_on} or worse (--fail-on {fail_on})", style="bold red")
        raise typer.Exit(BEYOND)


def _vectors(path: Path | None) -> Any:
    if path is None:
        return None
    from poolscope.clouds.vectors import read_vectors

    return read_vectors(path).vectors


def _run(
    model: str,
    texts: str | None,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Audit:
    """Read, encode with a bar, and ask; the bar gives way to the name of the question."""
    from poolscope.auditing.run import DEFAULT_TEXTS
    from poolscope.auditing.run import audit as ask
    from poolscope.cli.inputs import is_clouds, read_corpus
    from poolscope.cli.progress import encoding_progress

    if is_clouds(model):
        useless = [name for name, value in {"TEXTS": texts, **reading, **options}.items() if value and name != "seed"]
        if useless:
            raise InputError(
                f"{model} holds ready clouds, so these cannot apply: {', '.join(useless)}. Leave them out, or name a "
                f"model."
            )
        return ask(model, seed=reading["seed"], **settings)
    labelled = {**reading, "label_column": reading["group"]}
    corpus = replace(read_corpus(texts, labelled, default=DEFAULT_TEXTS), source=texts or given.TEXTS)
    groups = corpus.labels if reading["group"] else None  # the embedded corpus has labels of its own
    with encoding_progress(len(corpus)) as progress:
        return ask(model, corpus, groups=groups, seed=reading["seed"], progress=progress, **settings, **options)


def print_audit(result: Audit, screen: Console) -> None:
    """All answers on one screen: level, question, sentence, number with interval and floor."""
    from rich.table import Table
    from rich.text import Text

    from poolscope.cli.inputs import print_notes

    corpus = result.corpus
    screen.print(
        f"{result.model['name']} · {corpus['texts']:,} texts of {corpus['source']} · {corpus['tokens']:,} tokens",
        highlight=False,
        markup=False,
    )
    print_notes(corpus["notes"], screen)
    table = Table(box=None, padding=(0, 1), show_header=False, expand=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for answer in result.answers[:-1]:
        table.add_row(str(answer.number), _level(answer), _words(answer))
    screen.print(table)
    last = result.answers[-1]
    verdict = Text.assemble((f"{last.number} ", ""), _level(last), f"  {last.verdict.sentence}")
    screen.print(verdict)
    if last.action is not None and last.action.command is not None:
        # In one line: a command that is broken in two does not run.
        screen.print(f"   next: {last.action.command}", highlight=False, markup=False, style="bold", soft_wrap=True)


def _level(answer: Answer) -> Any:
    from rich.text import Text

    from poolscope.verdicts import LEVEL_COLOURS

    return Text(answer.verdict.level, style=f"bold {LEVEL_COLOURS[answer.verdict.level]}")


def _words(answer: Answer) -> Any:
    """The title with the number, its interval and its floor; the sentence below."""
    from rich.text import Text

    from poolscope.auditing.result import number_text

    words = Text(answer.title, style="bold")
    if number := number_text(answer.verdict, answer.number_format or ".3g"):
        words.append(f"  {answer.number_name} {number}", style="cyan")
    return words.append(f"\n{answer.verdict.sentence}")
