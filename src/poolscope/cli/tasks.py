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
    str | None, typer.Option(metavar="A,B[,C]", help="Columns of a labelled file, in the order of the task.")
]


def load_task(
    name: str, source: str | None, *, columns: str | None, sample: int | None, seed: int, screen: Console
) -> Task:
    """The task; what was noticed while reading texts is printed, and the rest stands in its notes."""
    from poolscope.evaluation import read_task, split_half_task, summary_body_task
    from poolscope.texts import read_texts

    if name not in (*LABEL_FREE, *LABELLED):
        raise InputError(f"--task: received {name!r}; allowed: {', '.join((*LABEL_FREE, *LABELLED))}.")
    if name in LABELLED:
        if source is None:
            raise InputError(f"--task {name}: received no TEXTS; name a file with its labels.")
        task = read_task(name, source, columns=tuple(columns.split(",")) if columns else (), sample=sample, seed=seed)
    elif name == "summary-body":
        if source not in (None, TEXTS):
            raise InputError(f"--task summary-body: received {source!r}; it is made of {TEXTS} alone. Leave TEXTS out.")
        task = summary_body_task(sample=sample, seed=seed)
    else:
        if columns and "," in columns:
            raise InputError(f"--columns: received {columns!r}; {name} reads one column of texts. Name one.")
        try:
            corpus = read_texts(source or TEXTS, column=columns, sample=sample, seed=seed)
        except InputError as error:  # the option has another name in the commands that read no labels
            raise InputError(str(error).replace("--column ", "--columns ")) from None
        print_notes(corpus.report.notes(), screen)
        task = split_half_task(corpus.texts)
    return task


def print_notes(notes: Iterable[str], screen: Console) -> None:
    """What a reader must know, in grey."""
    for note in notes:
        screen.print(f"  {note}", style="dim", highlight=False, markup=False)
