"""`poolscope shrink`: which smaller vectors are free on these queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import option, to_figure, to_file
from poolscope.errors import InputError
from poolscope.show.screen import Screen

if TYPE_CHECKING:
    from poolscope.evaluation import RetrievalTask


@arguments.encoder_options(without=("role",))
def shrink(
    model: arguments.ModelOrVectors = arguments.MODEL,
    texts: arguments.Texts = None,
    queries: arguments.Queries = None,
    query_columns: arguments.QueryColumns = None,
    column: Annotated[str | None, option("NAME", "Column of the texts.")] = None,
    id_column: arguments.IdColumn = None,
    reference: Annotated[
        str | None, option("MODEL", "Vectors as MODEL: the model that made them. It encodes the queries.")
    ] = None,
    limit: Annotated[int | None, option("N", "Use a random sample of N queries (0: all).", min=0)] = None,
    seed: arguments.Seed = 0,
    matters: Annotated[float, option("X", "Smallest loss in nDCG that is worth avoiding.")] = 0.01,
    candidates: Annotated[int, option("N", "Number of texts that rescoring re-orders.", min=1)] = 50,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write all methods (.parquet or .csv).")] = None,
    figure: Annotated[Path | None, to_figure("Draw quality against bytes: .html, .png, .svg.")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Which smaller vectors are free on your queries: fewer dimensions, float16, int8, binary, with rescoring?

    Example: poolscope shrink sentence-transformers/all-MiniLM-L6-v2 texts.jsonl --queries queries.jsonl

    Without arguments: the built-in model on the built-in manuals and their headings. MODEL may also be vectors in a
    file or a vector store; then --reference names the model that encodes the queries.
    """
    from poolscope.cli.inputs import encoding_progress
    from poolscope.connectors import is_index
    from poolscope.repairs.shrink import gain_text

    screen = Screen(json)
    reading = {"column": column, "id_column": id_column}
    vectors = None
    if is_index(model):
        if reference is None:
            raise InputError(f"{model}: these are vectors. Name the model that made them: --reference MODEL.")
        if limit:
            raise InputError("--limit: this is for a model that encodes the texts. Leave it out for vectors.")
        task, vectors = _stored(model, texts, queries, query_columns, reading)
        model = reference
    else:
        if reference is not None:
            raise InputError("--reference: this is for vectors as MODEL, and a model was named. Leave it out.")
        task = _read(texts, queries, query_columns, {**reading, "limit": limit or None, "seed": seed})
    total = sum(len(side.texts) for side in task.sides[: 1 if vectors is not None else 2])
    with encoding_progress(total) as progress:
        result = poolscope.shrink(
            model,
            task,
            vectors=vectors,
            matters=matters,
            candidates=candidates,
            seed=seed,
            progress=progress,
            **options,
        )
    screen.print_in_words(result)
    screen.print(f"{result.model} · {result.texts:,} texts · {result.queries:,} queries", style="dim")
    screen.print_notes(task.notes)
    rows = [
        (
            step.name,
            f"{step.searched_bytes:,}",
            f"{step.kept_bytes:,}",
            f"{step.trial.after:.3f}",
            gain_text(step.trial),
            step.standing,
        )
        for step in result.steps
    ]
    headings = ("way", "searched", "kept", f"nDCG@{result.k}", "change", "here")
    screen.print_rows(headings, rows, words=1)
    screen.print_notes(result.legend(), indent="")
    screen.put_result(result, json=json, table=table, figure=figure)


def _read(texts: str | None, queries: str | None, columns: str | None, reading: dict[str, Any]) -> RetrievalTask:
    """The queries among the texts; of the manuals their own headings where no others are named."""
    from poolscope.cli.inputs import read_asked
    from poolscope.evaluation import query_task
    from poolscope.texts.records import MANUALS

    if queries is None and texts in (None, MANUALS):
        texts = queries = MANUALS
    if queries is None:
        raise InputError(f"{texts}: what smaller vectors lose shows on queries. Add --queries FILE.")
    read, source, reading["id_column"] = read_asked(queries, columns, texts, reading["id_column"])
    if source is None:
        raise InputError(f"--queries {queries}: no TEXTS. Name the file with the texts that these ids mean.")
    return query_task(source, read, **reading)


def _stored(
    place: str, texts: str | None, queries: str | None, columns: str | None, reading: dict[str, Any]
) -> tuple[RetrievalTask, Any]:
    """The queries among the texts of an index, and the vectors of these texts."""
    from poolscope.cli.inputs import read_asked
    from poolscope.evaluation import query_task

    if queries is None:
        raise InputError(f"{place}: what smaller vectors lose shows on queries. Add --queries FILE.")
    read, source, id_column = read_asked(queries, columns, texts, reading["id_column"])
    own = {"column": reading["column"], "id_column": id_column}
    collection = poolscope.read_index(place, **({} if source is not None else own))
    try:
        if source is not None:
            collection = collection.with_texts(poolscope.read_texts(source, **own))
        if collection.texts is None:
            raise InputError(f"{place}: holds no texts. Name their file as TEXTS.")
        task = query_task({"id": list(collection.ids), "text": list(collection.texts)}, read, id_column="id")
        return task, collection.vectors
    finally:
        collection.close()
