"""What `tune` and `evaluate` share: from what the user named to a task, and results as JSON on the screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from poolscope.cli.arguments import TEXTS
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.evaluation import Task

LABEL_FREE = ("split-half", "summary-body")
LABELLED = ("sts", "retrieval", "classification", "clustering")

TaskName = Annotated[
    str, typer.Option("--task", metavar="|".join((*LABEL_FREE, *LABELLED)), help="What the vectors must be good for.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--column", metavar="A[,B[,C]]", help="Column of the texts; of a labelled file all, as the task reads."
    ),
]


def load_task(
    name: str, source: str | None, *, columns: str | None, limit: int | None, seed: int, screen: Console
) -> Task:
    """The task; what was noticed while reading texts is printed, and the rest stands in its notes."""
    from poolscope.evaluation import read_task, split_half_task, summary_body_task
    from poolscope.texts import read_texts

    if name not in (*LABEL_FREE, *LABELLED):
        raise InputError(f"--task: received {name!r}; allowed: {', '.join((*LABEL_FREE, *LABELLED))}.")
    if name in LABELLED:
        if source is None:
            raise InputError(f"--task {name}: received no TEXTS; name a file with its labels.")
        task = read_task(name, source, columns=tuple(columns.split(",")) if columns else (), limit=limit, seed=seed)
    elif name == "summary-body":
        if source not in (None, TEXTS):
            raise InputError(f"--task summary-body: received {source!r}; it is made of {TEXTS} alone. Leave TEXTS out.")
        task = summary_body_task(limit=limit, seed=seed)
    else:
        if columns and "," in columns:
            raise InputError(f"--column: received {columns!r}; {name} reads one column of texts. Name one.")
        corpus = read_texts(source or TEXTS, column=columns, limit=limit, seed=seed)
        print_notes(corpus.report.notes(), screen)
        task = split_half_task(corpus.texts)
    return task


def print_notes(notes: Iterable[str], screen: Console) -> None:
    """What a reader must know, in grey."""
    for note in notes:
        screen.print(f"  {note}", style="dim", highlight=False, markup=False)
