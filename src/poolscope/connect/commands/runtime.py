"""`poolscope runtime` asks a server whether it gives the vectors of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, to_file
from poolscope.errors import InputError
from poolscope.show.screen import Screen, open_table

if TYPE_CHECKING:
    from poolscope.connect.runtimes.check import RuntimeCheck

_CAUSES = 5  # that are shown


@arguments.encoder_options(without=("device", "batch_tokens"))
@arguments.reading_options()
def runtime(
    url: Annotated[str, argument("URL", "Server: /v1/embeddings (OpenAI), /embed (TEI) or /api/embed (Ollama).")],
    texts: arguments.Texts = None,
    reference: Annotated[
        str, option("MODEL", "The model that the server should run: hub name, folder, ONNX or GGUF file.")
    ] = arguments.MODEL,
    server_model: Annotated[str | None, option("NAME", "The server's name for the model.", "--model")] = None,
    protocol: Annotated[
        str | None, option("openai|tei|ollama", "The server's protocol, if the address does not show it.")
    ] = None,
    key_variable: Annotated[str, option("NAME", "Environment variable that holds the key.")] = "POOLSCOPE_API_KEY",
    served: Annotated[
        Path | None, option("PATH", "File or folder that the server loads; its settings are compared too.")
    ] = None,
    dimensions: Annotated[int | None, option("N", "Ask the server for vectors of N dimensions.", min=1)] = None,
    batch: Annotated[int, option("N", "Texts per request.", min=1)] = 16,
    concurrency: Annotated[int, option("N", "Requests at the same time.", min=1)] = 4,
    retries: Annotated[int, option("N", "Retries of a failed request.", min=0)] = 4,
    timeout: Annotated[float, option("SECONDS", "Time limit of a request.", min=0.1)] = 60.0,
    fail_on: Annotated[str, option("never|fix", "For CI: exit with 1 if the server is wrong.")] = "fix",
    details: arguments.Details = False,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write all causes (.parquet or .csv).")] = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Does a server give the vectors of a model, and if not, what does it do instead?

    Example: poolscope runtime http://localhost:8080/embed --reference intfloat/e5-small-v2

    Every likely mistake is reproduced with the reference model: pooling, prompt, truncation, padding, special tokens,
    missing modules, dimensions, rounding, order. TEXTS are sent in addition to the built-in probes. A key is read from
    an environment variable and never stored.
    """
    from poolscope.cli.inputs import Inputs, counting_progress
    from poolscope.connect.runtimes.check import MOST_TEXTS

    if fail_on not in ("never", "fix"):
        raise InputError(f"--fail-on {fail_on} is not known. Choose never or fix.")
    screen = Screen(json, details=details)
    corpus = None
    if texts is not None:
        reading = {**reading, "limit": reading["limit"] or MOST_TEXTS}
        corpus = Inputs(reference, texts, reading, options, screen).corpus(tell=True)
    settings = {"protocol": protocol, "key_variable": key_variable, "batch": batch, "concurrency": concurrency}
    more = {"retries": retries, "timeout": timeout, "dimensions": dimensions}
    with counting_progress("asking and comparing", None, "texts") as advance:
        result = poolscope.check_runtime(
            url,
            reference,
            corpus,
            model=server_model,
            served=served,
            endpoint={**settings, **more},
            progress=lambda count, _: advance(count),
            **options,
        )
    _print_check(result, screen)
    screen.put_result(result, json=json, table=table)
    if fail_on != "never" and result.level == "fix":
        raise typer.Exit(1)


def _print_check(result: RuntimeCheck, screen: Screen) -> None:
    """The server's behaviour in words, and the causes that explain it best; with details all of them, and the notes."""
    from poolscope.show.verdicts import LEVEL_COLOURS

    match = result.match
    for place, sentence in enumerate(result.in_words()):
        screen.say(sentence, style=LEVEL_COLOURS[result.level] if place == 0 else None)
    screen.say(
        f"{result.runtime['url']} beside {match.model} · {match.texts} probes of dimension {match.dimension} · "
        f"{result.requests} requests in {result.seconds:.1f} s",
        style="dim",
    )
    causes = open_table("what it would be", "cosine", "lowest", "texts explained", words=4)
    others = match.others if screen.details else match.others[:_CAUSES]
    for test in sorted((match.own, *others), key=lambda test: -test.mean):
        value = "" if test.cosine.value is None else f"{test.mean:.4f}"
        causes.add_row(test.name, value, f"{test.least:.4f}", f"{test.share:.0%} of {test.texts}")
    screen.print_table(causes)
    declared = [f"Declared otherwise: {row}." for row in result.declared if row.differs]
    refused = [f"{result.refused} probes are refused as too long."] if result.refused else []
    screen.print_notes([*declared, *refused], indent="")
    if screen.shows_details():
        screen.print_notes([f"An empty text: {result.empty}.", *result.notes], indent="")
