"""`poolscope chunk`: texts into chunks that fit a model, in a file that the other commands read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.outputs import name_written, put_json, to_file

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.chunks import Chunks

_PLACES = {
    "blank line": "at a blank line",
    "line": "at the end of a line",
    "sentence": "at the end of a sentence",
    "blank": "at a blank",
    "word": "inside a word",
}


@arguments.encoder_options()
def chunk(
    output: Annotated[Path, to_file("The chunks: .jsonl or .parquet.", "--output", "-o")],
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most tokens a chunk. Default: what the model takes.")
    ] = None,
    overlap: Annotated[
        int, typer.Option(min=0, metavar="K", help="Begin with up to K tokens of the chunk before.")
    ] = 0,
    column: arguments.Column = None,
    id_column: arguments.IdColumn = None,
    label_column: arguments.LabelColumn = None,
    limit: arguments.Limit = None,
    seed: arguments.Seed = 0,
    json: arguments.Json = None,
    *,
    options: dict[str, Any],
) -> None:
    """Split TEXTS so that MODEL reads every chunk to its end; texts that fit stay as they are.

    Cuts are at blank lines, else at ends of lines, of sentences, at blanks, and inside a word only if it alone is too
    long. The special tokens of the model and the prompt are counted. With no TEXTS: some of the embedded corpus.
    """
    from rich.console import Console

    from poolscope.auditing.commands import Named
    from poolscope.auditing.run import DEFAULT_TEXTS
    from poolscope.chunks import chunk_texts
    from poolscope.chunks.chunking import check_chunk_file
    from poolscope.cli.inputs import read_corpus
    from poolscope.cli.progress import counting_progress

    check_chunk_file(output, source=texts)  # before the work, not after it
    screen = Console(stderr=json == "-", highlight=False, markup=False, soft_wrap=True)
    reading = {
        "column": column,
        "id_column": id_column,
        "label_column": label_column,
        "limit": limit,
        "seed": seed,
    }
    corpus = read_corpus(texts, reading, default=DEFAULT_TEXTS)  # by default those that the audit is about
    with counting_progress("splitting", len(corpus), "texts") as progress:
        chunks = chunk_texts(model, corpus, tokens=tokens, overlap=overlap, progress=progress, **options)
    chunks.save(output)
    _print_summary(chunks, [*corpus.report.notes(), *chunks.notes()], screen)
    if json is not None:
        put_json(chunks.to_dict(), json)
    name_written(screen, output, json)
    following = Named(model, str(output), {"id_column": "id"}, options).command("audit")  # by the same encoder
    screen.print(f"next: {following}", style="bold")


def _print_summary(chunks: Chunks, notes: list[str], screen: Console) -> None:
    counts = chunks.to_dict()
    screen.print(f"{chunks.model['name']} · {counts['texts']:,} texts of {chunks.source}")
    for note in notes:
        screen.print(f"  {note}", style="dim")
    added = f", {chunks.added} of them special tokens and prompt" if chunks.added else ""
    repeated = f"; up to {chunks.overlap} repeat the chunk before" if chunks.overlap else ""
    screen.print(f"at most {chunks.limit:,} tokens a chunk{added}{repeated}")
    screen.print(
        f"{counts['texts']:,} texts → {counts['chunks']:,} chunks: {counts['split']:,} were split, "
        f"{counts['texts'] - counts['split']:,} fit as they are"
    )
    lengths = counts["tokens"]
    screen.print(
        f"tokens a chunk: shortest {lengths['shortest']:,}, median {lengths['median']:,.0f}, "
        f"longest {lengths['longest']:,}"
    )
    made = [f"{count:,} {_PLACES[kind]}" for kind, count in chunks.cuts.items() if count or kind == "word"]
    screen.print(f"cuts: {', '.join(made)}")
