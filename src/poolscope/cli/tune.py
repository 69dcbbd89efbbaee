"""`poolscope tune`: which repair helps, searched on one half of the texts and proved on the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.outputs import name_written, put_json, to_figure, to_file
from poolscope.cli.tasks import Columns, TaskName, load_task, print_notes
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.repairs.tune_result import TuneResult

# Units drawn from the built-in corpus, and from texts of the user; both halves together.
BUILTIN_LIMIT, LIMIT = 400, 1_000
FAMILIES = "temperature,pooling,vectors"


@arguments.encoder_options(without=("role",))
def tune(
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    task: TaskName = "split-half",
    columns: Columns = None,
    temperatures: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Attention temperatures to try (by default the published grid).")
    ] = None,
    families: Annotated[
        str, typer.Option("--search", metavar=FAMILIES, help="What to search: families, or repairs by name.")
    ] = FAMILIES,
    output: Annotated[Path | None, to_file("Write a recommended repair (.safetensors).", "--output", "-o")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace FILE of -o; remove it where nothing is recommended.")
    ] = False,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw the differences: .html, .png, .svg.")] = None,
    limit: arguments.Limit = None,
    seed: arguments.Seed = 0,
    *,
    options: dict[str, Any],
) -> None:
    """Search attention temperatures, poolings and vector repairs on half of the texts; report on the other half.

    A repair is recommended only if the interval on the half that had no part in choosing it excludes no gain. Otherwise
    there is nothing to repair, which is a normal answer. With nothing: the embedded model on the embedded corpus.
    """
    from rich.console import Console

    screen = Console(stderr=json == "-", soft_wrap=False)
    _check_output(output, force=force)
    search = _search(families, temperatures)
    drawn = (BUILTIN_LIMIT if texts in (None, arguments.TEXTS) else LIMIT) if limit is None else limit or None
    loaded = load_task(task, texts, columns=columns, limit=drawn, seed=seed, screen=screen)
    result = _run(model, loaded, search, limit=drawn, seed=seed, options=options)
    print_result(result, screen)
    _write(result, output=output, json=json, figure=figure, screen=screen)


def _check_output(output: Path | None, *, force: bool) -> None:
    if output is not None and output.suffix != ".safetensors":
        raise InputError(f"--output: received {output.name}; a repair is a .safetensors file. Name it so.")
    if output is not None and output.exists() and not force:
        raise InputError(
            f"--output: {output} exists already; where nothing is recommended nothing is written, and it would pass "
            f"for the result of this run. Name another file, or pass --force, which replaces or removes it."
        )


def _search(named: str, temperatures: str | None) -> dict[str, Any]:
    """The arguments of `tune` that say what is searched: whole families, and of others the repairs that are named."""
    from poolscope.extensions import load_extensions
    from poolscope.repairs.registry import FAMILIES as KNOWN
    from poolscope.repairs.registry import REPAIRS

    load_extensions()
    names = dict.fromkeys(part.strip() for part in named.split(","))
    if unknown := [name for name in names if name not in (*KNOWN, *REPAIRS)]:
        raise InputError(
            f"--search: received {', '.join(unknown)}; allowed: {', '.join(KNOWN)}, or some of {', '.join(REPAIRS)}, "
            f"with commas between."
        )
    keywords = {"temperature": "temperatures", "pooling": "poolings", "vectors": "repairs"}
    search: dict[str, Any] = {}
    for family in KNOWN:
        if family not in names:
            rows = [REPAIRS[name] for name in names if name in REPAIRS and REPAIRS[name].family == family]
            search[keywords[family]] = [part for row in rows for part in row.candidates()]
    if "temperature" in names and temperatures is not None:
        search["temperatures"] = _temperatures(temperatures)
    return search


def _temperatures(text: str) -> list[float]:
    from poolscope.repairs.temperature.rules import checked_temperature

    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--temperatures: received {text!r}; allowed: numbers with commas, such as 0.8,0.9.") from None
    return [checked_temperature(tau, subject="--temperatures") for tau in numbers]


def _run(
    model: str, task: Any, search: dict[str, Any], *, limit: int | None, seed: int, options: dict[str, Any]
) -> TuneResult:
    from poolscope.cli.progress import encoding_progress
    from poolscope.repairs.tune import texts_to_encode, tune

    total = texts_to_encode(task, search.get("temperatures"))
    with encoding_progress(total) as progress:
        # The rows were drawn when the file was read; the limit is named again for the record.
        return tune(model, task, limit=limit, seed=seed, progress=progress, **search, **options)


def print_result(result: TuneResult, screen: Console) -> None:
    """The table of candidates, the verdict and its evidence."""
    from rich.table import Table

    chosen = result.chosen_on
    title = f"the half that chose: {len(chosen.observations):,} {chosen.unit}; it compares and proves nothing"
    table = Table("candidate", "", chosen.metric, "difference", "95 % interval", title=title, title_justify="left")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    table.add_row("the model as it is", "", f"{chosen.value:.4f}", "", "", style="bold")
    for row in result.rows():
        interval = "–" if row["low"] is None else f"[{row['low']:+.4f}, {row['high']:+.4f}]"
        numbers = (f"{row['score']:.4f}", f"{row['difference']:+.4f}", interval)
        table.add_row(row["candidate"], row["family"], *numbers, style="bold" if row["selected"] else None)
    screen.print(f"{result.model} · {chosen.task}", highlight=False, markup=False)
    print_notes(result.notes, screen)
    screen.print(table)
    screen.print(f"{result.verdict.level}: {result.verdict.sentence}", highlight=False, markup=False, style="bold")
    for sentence in result.verdict.evidence:
        screen.print(f"  {sentence}", highlight=False, markup=False)


def _write(result: TuneResult, *, output: Path | None, json: str | None, figure: Path | None, screen: Console) -> None:
    written: list[Any] = []
    if output is not None and result.recommendation is None:
        removed = output.exists()
        output.unlink(missing_ok=True)
        older = ", and the older file of that name is removed" if removed else ""
        screen.print(f"{output} is not written{older}: {result.outcome}.", highlight=False, markup=False)
    elif output is not None and result.recommendation is not None:
        result.recommendation.save(output)
        written.append(output)
    if json is not None:
        put_json(result.to_dict(), json)
        written.append(json)
    if figure is not None:
        from poolscope.charts.files import save_figure

        save_figure(result.figure(), figure)
        written.append(figure)
    name_written(screen, *written)
