"""`poolscope chunk` and `poolscope encode`: texts into chunks that fit a model, texts into a store of token clouds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, switch, to_file
from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.show.screen import Screen, put_json

if TYPE_CHECKING:
    from poolscope.chunks import Chunks
    from poolscope.stores.store import Store

# -- chunk ------------------------------------------------------------------------------------------------------------

_PLACES = {
    "blank line": "at an empty line",
    "line": "at the end of a line",
    "sentence": "at the end of a sentence",
    "blank": "at a space",
    "word": "inside a word",
}


@arguments.encoder_options()
@arguments.reading_options(labels=True)
def chunk(
    output: Annotated[Path, to_file("The chunks: .jsonl or .parquet.", "--output", "-o")],
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    tokens: Annotated[int | None, option("N", "Most tokens in a chunk (default: the model's limit).", min=1)] = None,
    overlap: Annotated[int, option("K", "Repeat up to K tokens from the end of the previous chunk.", min=0)] = 0,
    details: arguments.Details = False,
    json: arguments.Json = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """How must texts be split, so that a model reads them to the end? Texts that fit stay as they are.

    Example: poolscope chunk builtin:minilm texts.jsonl -o chunks.jsonl

    Texts are split at empty lines if possible, then at ends of lines, ends of sentences and spaces. A word is split
    only if it is too long by itself. Special tokens and the prompt are counted. Without TEXTS: a sample of the built-in
    texts.
    """
    from poolscope.auditing.commands import command_line
    from poolscope.auditing.material import DEFAULT_TEXTS
    from poolscope.chunks.chunking import check_chunk_file
    from poolscope.cli.inputs import Inputs, counting_progress
    from poolscope.texts.groups import group_column
    from poolscope.texts.sources import other_columns

    check_chunk_file(output, source=texts)  # before the work, not after it
    screen = Screen(json, soft_wrap=True, seen_first=True, details=details)
    inputs = Inputs(model, texts, reading, options, screen, default=DEFAULT_TEXTS)  # those that the audit is about
    corpus = inputs.corpus()
    with counting_progress("splitting", len(corpus), "texts") as progress:
        chunks = poolscope.chunk_texts(model, corpus, tokens=tokens, overlap=overlap, progress=progress, **options)
    taken = (reading["label_column"],)
    columns = other_columns(texts, corpus, id_column=reading["id_column"], taken=taken) if texts is not None else {}
    chunks = chunks.with_columns(columns, group_column(texts, (corpus.column, reading["id_column"])))
    chunks.save(output)
    _print_chunks(chunks, [*corpus.report.notes(), *chunks.notes()], screen)
    if json is not None:
        put_json(chunks.to_dict(), json)
    screen.name_written(output, json)
    screen.name_next(command_line("audit", model, str(output), id_column="id", **options))  # by the same encoder


def _print_chunks(chunks: Chunks, notes: list[str], screen: Screen) -> None:
    """Print how many texts were split and where; with details the lengths of the chunks and the tokens they share."""
    counts = chunks.to_dict()
    texts, split = counts["texts"], counts["split"]
    if split:
        screen.say(
            f"{split:,} of {texts:,} texts are longer than {chunks.limit:,} tokens. After splitting there are "
            f"{counts['chunks']:,} chunks."
        )
    else:
        screen.say(f"All {texts:,} texts fit into {chunks.limit:,} tokens and stay as they are.")
    screen.name_origin(f"{chunks.model['name']} · {texts:,} texts of {chunks.source}", notes)
    screen.release()
    made = [(kind, count) for kind, count in chunks.cuts.items() if count or kind == "word"]
    if split:
        rows = ((_PLACES[kind], f"{count:,}") for kind, count in made)
        screen.print_rows(("where texts are split", "splits"), rows, words=1, show_edge=False)
    if screen.shows_details():
        lengths = counts["tokens"]
        numbers = [
            (f"tokens of the {name} chunk", f"{lengths[name]:,.0f}") for name in ("shortest", "median", "longest")
        ]
        numbers += [
            ("special tokens and prompt", f"{chunks.added:,}"),
            ("repeated from the previous chunk", f"{chunks.overlap:,}"),
        ]
        screen.print_numbers([*numbers, ("texts that fit as they are", f"{texts - split:,}")])


# -- encode -----------------------------------------------------------------------------------------------------------


@arguments.encoder_options()
@arguments.reading_options(labels=True)
@arguments.engine_options
def encode(
    output: Annotated[Path, option("FOLDER", "Folder of the store, or s3://bucket/place.", "--output", "-o")],
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    layers: Annotated[
        str | None, option("0,3,6", "Layers to keep (0: embedding output), the pooled layer by default.")
    ] = None,
    shard_texts: Annotated[int | None, option("N", "Most texts in each file of the store.", min=1)] = None,
    keep: Annotated[
        str, option("tokens|moments|vectors", "Keep all tokens, or one vector per text, which is far smaller.")
    ] = "tokens",
    keep_tokens: Annotated[int, option("N", "With moments or vectors: also keep the tokens of N texts.", min=0)] = 0,
    shard: Annotated[str | None, option("K/N", "Do part K of N; other processes or machines do the rest.")] = None,
    overwrite: Annotated[bool, switch("Replace a store that was made with other options.", "--overwrite")] = False,
    details: arguments.Details = False,
    json: arguments.Json = None,
    *,
    where: dict[str, Any],
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Encode once, use often: a store of token vectors that every command reads.

    Example: poolscope encode builtin:minilm texts.jsonl -o store

    The other commands take the store in place of MODEL and TEXTS. An interrupted run is continued by the same
    command, and a finished store is recognised. Without TEXTS: a sample of the built-in texts.
    """
    # Imported here: these bring torch or take time, and `poolscope --help` needs none of them.
    from poolscope.cli.inputs import Inputs, encoding_progress
    from poolscope.encoders import EncoderOptions
    from poolscope.stores.writer import encode_to_store

    settings = EncoderOptions(**options)
    chosen, part = arguments.parse_layers(layers), arguments.parse_part(shard)
    runs = arguments.open_engine(where, options)
    if runs is not None and part is not None:
        raise InputError("received --shard and an engine; a part is done by this process. Leave out one of the two.")
    inputs = Inputs(model, texts, reading, options, Screen(json, soft_wrap=True, seen_first=True, details=details))
    corpus, encoder = inputs.whole_corpus(output), inputs.encoder()
    with encoding_progress(len(corpus)) as progress:
        choices: dict[str, Any] = {"options": settings, "layers": chosen, "shard_texts": shard_texts}
        choices |= {"keep": keep, "keep_tokens": keep_tokens, "overwrite": overwrite, "progress": progress}
        if runs is None or part is not None:
            store = encode_to_store(encoder, corpus, output, part=part, **choices)
        else:
            store = service("encoding on an engine")(runs, encoder, corpus, output, **choices)
    if not store.manifest.complete:
        stored = f"{store.stored():,} of {len(store):,} texts are stored"
        typer.echo(f"{output}: this part is done, {stored}; the process that writes the last shard finishes the store.")
        return
    notes = [*store.notes(), *corpus.report.notes(), *poolscope.pooling_report(encoder).notes()]
    _print_store(store, notes, inputs.screen)
    if json is not None:
        content = {"folder": store.place, "model": store.card.to_dict(), "texts": store.manifest.texts}
        put_json({**content, "layers": list(store.manifest.keys), "notes": notes}, json)


def _print_store(store: Store, notes: list[str], screen: Screen) -> None:
    """What a store holds, and its next command; one of a vector a text is not read for it."""
    from rich.filesize import decimal

    from poolscope.encoders.reports import unknown_notes

    manifest = store.manifest
    numbers = [("files", f"{len(manifest.shard_sizes):,}"), ("kept of each text", manifest.keep)]
    what = f"{len(store):,} texts of {manifest.texts['source']}"
    if manifest.keep == "tokens":
        clouds = store.clouds(manifest.keys[0])  # texts, lengths and truncation are the same in every layer
        what += f" · {clouds.lengths.sum():,} tokens"
        unknown = unknown_notes(clouds) if store.reused else ()  # those who encode have logged it
        notes = [*notes, *poolscope.truncation_report(clouds).notes(), *unknown]
        layers = "the pooled one" if manifest.layers is None else ", ".join(map(str, manifest.keys))
        numbers += [("dimension", f"{clouds.dimension:,}"), ("numbers", str(clouds.dtype)), ("layers", layers)]
        following = "socm"
    else:
        if (sample := manifest.sample) is not None:
            notes = [*notes, f"The tokens of {sample['texts']:,} texts, drawn by their ids, are stored too."]
        following = "length"
    stored = f"Stored {len(store):,} texts in {store.place}: {decimal(store.size())}."
    screen.print(stored, soft_wrap=True)  # a path is copied whole
    screen.name_origin(f"{store.card.name} · {what}", notes)
    screen.release()
    if screen.shows_details():
        screen.print_numbers(numbers)
    screen.name_next(f"poolscope {following} {shlex.quote(store.place)}")


# -- verify -----------------------------------------------------------------------------------------------------------


def verify(
    path: Annotated[Path, argument("PATH", "A file or folder that poolscope wrote.")],
    json: arguments.Json = None,
) -> None:
    """Is every byte of PATH still as it was written?

    Example: poolscope verify store

    Prints one line per file. Exit code 1: a file is damaged or missing.

    Stores, cloud files, states of token statistics, repairs, audits, comparisons and saved results carry digests.
    Other files are reported as `unchecked`.
    """
    screen = Screen(json, soft_wrap=True)
    checked = poolscope.verify(path)
    screen.print(checked.in_words()[0])
    for file in sorted(checked.files, key=lambda file: file.state == "ok"):  # what is wrong stands first
        screen.say(f"{file.state:<9}  {file.name}  {file.words}", hanging=" " * 11)
    if json is not None:
        put_json(checked.to_dict(), json)
    if not checked.is_right:
        raise typer.Exit(1)
