"""`poolscope inspect`: what a model says of itself and asks for, before it is loaded."""

from __future__ import annotations

from typing import Annotated

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, switch
from poolscope.show.screen import Screen, put_json


def inspect(
    model: Annotated[str, argument("MODEL", "Folder, ONNX or GGUF file, hub name or built-in model.")],
    role: Annotated[str | None, option("query|document", "Role whose route a Router takes.")] = None,
    revision: Annotated[str | None, option("NAME", "Revision of a hub model.")] = None,
    allow_pickle: Annotated[bool, switch("Do not refuse pickled weights.", "--allow-pickle")] = False,
    json: arguments.Json = None,
) -> None:
    """What does a model declare, and where do its files contradict each other?

    Example: poolscope inspect builtin:minilm

    No weights are loaded, and no code of the model runs.

    Exit code 0: nothing to look at. 1: something to look at. 2: poolscope would not open it, or it is no model.
    """
    screen = Screen(json)
    result = poolscope.inspect_model(model, role=role, revision=revision, allow_pickle=allow_pickle)
    for sentence in result.in_words():
        screen.say(sentence)
    screen.print_rows(
        ["topic", "level", "what was seen"],
        ([entry.topic, entry.level, entry.words] for entry in result.entries),
        words=3,
    )
    if json is not None:
        put_json(result.to_dict(), json)
        screen.name_written(json)
    if result.exit_code:
        raise typer.Exit(result.exit_code)
