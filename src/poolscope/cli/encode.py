"""`poolscope encode`: texts into a store of token clouds, to be continued after any interruption."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.progress import encoding_progress

if TYPE_CHECKING:
    from poolscope.stores.store import Store

INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended


@arguments.encoder_options()
def encode(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the store.")],
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    column: arguments.Column = None,
    id_column: arguments.IdColumn = None,
    label_column: arguments.LabelColumn = None,
    limit: arguments.Limit = None,
    seed: arguments.Seed = 0,
    layers: Annotated[
        str | None, typer.Option(metavar="0,3,6", help="Layers to keep (0: embedding output), not the pooled one only.")
    ] = None,
    shard_texts: Annotated[int | None, typer.Option(min=1, help="Most texts in one file of the store.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store of other choices.")] = False,
    *,
    options: dict[str, Any],
) -> None:
    """Encode TEXTS with MODEL into a store of token clouds.

    The other commands take the store in place of MODEL and TEXTS. An interrupted run is continued by the same
    command, and a finished store is recognised. With no TEXTS: some of the embedded corpus.
    """
    # Imported here: these bring torch or take time, and `poolscope --help` needs none of them.
    from poolscope.cli.inputs import read_corpus
    from poolscope.encoders import EncoderOptions, as_encoder, pooling_report
    from poolscope.stores.writer import encode_to_store

    settings = EncoderOptions(**options)
    chosen = arguments.parse_layers(layers)
    reading = {
        "column": column,
        "id_column": id_column,
        "label_column": label_column,
        "limit": limit,
        "seed": seed,
    }
    try:
        corpus = read_corpus(texts, reading)
        encoder = as_encoder(model, **options)
        with encoding_progress(len(corpus)) as progress:
            store = encode_to_store(
                encoder,
                corpus,
                output,
                options=settings,
                layers=chosen,
                shard_texts=shard_texts,
                overwrite=overwrite,
                progress=progress,
            )
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. The same command goes on where this one stopped ({output}).", err=True)
        raise typer.Exit(INTERRUPTED) from None
    notes = [*store.notes(), *corpus.report.notes(), *pooling_report(encoder).notes()]
    _print_summary(store, notes)


def _print_summary(store: Store, notes: list[str]) -> None:
    from rich.console import Console
    from rich.filesize import decimal

    from poolscope.encoders.reports import truncation_report, unknown_notes

    screen = Console(highlight=False, markup=False, soft_wrap=True)
    layers = store.manifest.keys
    clouds = store.clouds(layers[0])  # texts, lengths and truncation are the same in every layer
    size = sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())
    screen.print(
        f"{store.card.name} · {len(clouds):,} texts of {store.manifest.texts['source']} · "
        f"{clouds.lengths.sum():,} tokens · dimension {clouds.dimension} · {clouds.dtype}"
    )
    unknown = unknown_notes(clouds) if store.reused else ()  # those who encode have logged it
    for note in [*notes, *truncation_report(clouds).notes(), *unknown]:
        screen.print(f"  {note}", style="dim")
    kept = "" if store.manifest.layers is None else f", layers {', '.join(map(str, layers))}"
    shards = len(store.manifest.shard_sizes)
    screen.print(f"stored: {store.folder} ({decimal(size)} in {shards:,} shard{'s' * (shards > 1)}{kept})")
    screen.print(f"next:   poolscope socm {shlex.quote(str(store.folder))}")
