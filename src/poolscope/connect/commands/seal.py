"""`poolscope seal` writes what an index or a server is; `poolscope check` says whether it still is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, to_file
from poolscope.show.screen import Screen


def seal(
    source: Annotated[str, argument("INDEX", "Vectors in a file or a store, the address of a server, or a model.")],
    texts: arguments.Texts = None,
    output: Annotated[Path, to_file("File for the seal.", "--output", "-o")] = Path("index.seal"),
    reference: Annotated[
        str | None, option("MODEL", "The model that made the vectors. The seal then recognises its other poolings too.")
    ] = None,
    canaries: Annotated[int, option("N", "Number of canary texts that the seal keeps with their vectors.", min=1)] = 32,
    server_model: Annotated[str | None, option("NAME", "The server's name for the model.", "--model")] = None,
    json: arguments.Json = None,
) -> None:
    """Write a small file by which an index or a server is recognised in seconds.

    Example: poolscope seal vectors.parquet --reference intfloat/e5-small-v2 -o index.seal

    The seal holds canary texts in plain words. Do not publish it if your texts are secret.
    """
    screen = Screen(json)
    endpoint = {} if server_model is None else {"model": server_model}
    made = poolscope.seal(source, texts, reference=reference, count=canaries, endpoint=endpoint)
    made.save(output)
    named = made.model.get("name") or "model not named (--reference)"
    screen.say(f"Sealed {len(made.texts)} canary texts of dimension {made.dimension}.", style="bold")
    screen.say(f"{made.source} · {named}", style="dim")
    screen.name_written(output)
    if json is not None:
        from poolscope.show.screen import put_json

        put_json({"source": made.source, "model": dict(made.model), "canaries": len(made.texts)}, json)


def check(
    sealed: Annotated[Path, argument("SEAL", "The file that `poolscope seal` wrote.")],
    target: Annotated[str | None, argument("[URL|STORE]", "What to check (default: what your own seal names).")] = None,
    texts: arguments.Texts = None,
    server_model: Annotated[str | None, option("NAME", "The server's name for the model.", "--model")] = None,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write one row per canary (.parquet, .csv).", "--table")] = None,
) -> None:
    """Is a server or an index still what was sealed?

    Example: poolscope check index.seal http://localhost:8080/v1/embeddings

    Exit codes: 0 same, 3 drifted, 4 other pooling, 5 other model, 6 rows that hold the vectors of other texts.
    """
    screen = Screen(json)
    endpoint = {} if server_model is None else {"model": server_model}
    result = poolscope.check(sealed, target, texts, endpoint=endpoint)
    for place, sentence in enumerate(result.in_words()):
        screen.say(sentence, style=("bold green" if result.state == "same" else "bold red") if place == 0 else None)
    screen.say(f"{result.source} · exit code {result.exit_code}", style="dim")
    screen.put_result(result, json=json, table=table)
    if result.exit_code:
        raise typer.Exit(result.exit_code)
