"""`poolscope runtime`: does a server give the vectors of the model that it is said to run?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.arguments import option, to_file
from poolscope.cli.screen import Screen, open_table
from poolscope.errors import InputError

if TYPE_CHECKING:
    from poolscope.auditing.judges import RuntimeCheck

FAIL_ON = ("never", "unchecked", "watch", "repair")
BEYOND = 1
_CAUSES = 5


@arguments.encoder_options(without=("device", "batch_tokens"))
@arguments.reading_options()
def runtime(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Server: /v1/embeddings (OpenAI), /embed (TEI) or /api/embed (Ollama).")
    ],
    texts: arguments.Texts = None,
    reference: Annotated[
        str, option("MODEL", "What it is said to run: hub name, folder, ONNX or GGUF file.")
    ] = arguments.MODEL,
    server_model: Annotated[str | None, option("NAME", "The server's name for the model.", "--model")] = None,
    protocol: Annotated[
        str | None, option("openai|tei|ollama", "How it is spoken to, where the address does not tell.")
    ] = None,
    key_variable: Annotated[str, option("NAME", "Environment variable that holds the key.")] = "POOLSCOPE_API_KEY",
    served: Annotated[
        Path | None, option("PATH", "File or folder that it loads, to compare what that declares.")
    ] = None,
    dimensions: Annotated[int | None, option("N", "Ask for so many dimensions.", min=1)] = None,
    batch: Annotated[int, option("N", "Texts of a request.", min=1)] = 16,
    concurrency: Annotated[int, option("N", "Requests at a time.", min=1)] = 4,
    retries: Annotated[int, option("N", "How often a failed request is tried again.", min=0)] = 4,
    timeout: Annotated[float, option("SECONDS", "Time limit of a request.", min=0.1)] = 60.0,
    fail_on: Annotated[
        str, option("never|unchecked|watch|repair", "Exit with 1 if the verdict is that serious.")
    ] = "repair",
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write all causes (.parquet or .csv).")] = None,
    thresholds: arguments.ThresholdFile = None,
    threshold: arguments.ThresholdSettings = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Send probes to the server at URL, and say whether its vectors are those of MODEL; if not, what it does instead.

    Each cause is computed from MODEL: pooling, prompt, truncation, padding, special tokens, missing modules,
    dimensions, rounding, order. TEXTS are sent beside the built-in probes. A key is read from an environment variable
    and kept nowhere.
    """
    from poolscope.auditing.judges import MOST_TEXTS, check_runtime
    from poolscope.auditing.question import read_thresholds
    from poolscope.cli.inputs import Inputs, counting_progress

    if fail_on not in FAIL_ON:
        raise InputError(f"--fail-on: received {fail_on!r}; allowed: {', '.join(FAIL_ON)}.")
    screen = Screen(json)
    limits = read_thresholds(thresholds, threshold or ())
    corpus = None
    if texts is not None:
        reading = {**reading, "limit": reading["limit"] or MOST_TEXTS}
        corpus = Inputs(reference, texts, reading, options, screen).corpus(tell=True)
    settings = {"protocol": protocol, "key_variable": key_variable, "batch": batch, "concurrency": concurrency}
    more = {"retries": retries, "timeout": timeout, "dimensions": dimensions}
    with counting_progress("asking", None, "texts") as advance:
        result = check_runtime(
            url,
            reference,
            corpus,
            model=server_model,
            served=served,
            thresholds=limits,
            endpoint={**settings, **more},
            progress=lambda count, _: advance(count),
            **options,
        )
    _print(result, screen)
    screen.put_result(result, json=json, table=table)
    if fail_on != "never" and result.verdict.at_least(fail_on):  # type: ignore[arg-type]
        screen.print(f"the verdict is {fail_on} or worse (--fail-on {fail_on})", style="red")
        raise typer.Exit(BEYOND)


def _print(result: RuntimeCheck, screen: Screen) -> None:
    """One screen: the verdict, the causes that explain best, and what was seen besides."""
    match, verdict = result.match, result.verdict
    screen.print_verdict(verdict)
    told = (
        f"{result.runtime['url']} beside {match.model} · {match.texts} probes of dimension {match.dimension} · "
        f"{result.requests} requests in {result.seconds:.1f} s"
    )
    screen.say(told)
    causes = open_table("what it would be", "cosine", "lowest", "texts explained", words=4)
    for test in sorted((match.own, *match.others[:_CAUSES]), key=lambda test: -test.mean):
        value = "" if test.cosine.value is None else f"{test.mean:.4f}"
        causes.add_row(test.name, value, f"{test.least:.4f}", f"{test.share:.0%} of {test.texts}")
    screen.print_table(causes)
    screen.print_notes(verdict.evidence)
    if verdict.level != "ok":
        screen.print("Next", style="bold")
        screen.say(f"{result.step} ({result.cost})")
