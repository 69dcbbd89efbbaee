"""`poolscope migrate`: two stores or servers before a switch."""

from __future__ import annotations

from typing import Annotated

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option
from poolscope.errors import InputError
from poolscope.show.screen import Screen


def migrate(
    old: Annotated[str, argument("OLD", "The store, server or model in use.")],
    new: Annotated[str, argument("NEW", "The store, server or model that will replace it.")],
    texts: arguments.Texts = None,
    queries: arguments.Queries = None,
    old_model: Annotated[str | None, option("MODEL", "If OLD is a store: the model that encodes its queries.")] = None,
    new_model: Annotated[str | None, option("MODEL", "If NEW is a store: the same (default: --old-model).")] = None,
    top: Annotated[int, option("K", "Compare the K nearest neighbours and the top K answers.", min=1)] = 10,
    fail_on: Annotated[
        str | None, option("worse", "For CI: exit with 1 if texts are lost or answers are worse.")
    ] = None,
    json: arguments.Json = None,
) -> None:
    """Same vectors, same neighbours, same answers? Two stores or servers before a switch.

    Example: poolscope migrate old.parquet qdrant://localhost:6333/new --queries queries.jsonl --old-model MODEL
    """
    if fail_on not in (None, "worse"):
        raise InputError(f"--fail-on {fail_on} is not known. Choose worse.")
    screen = Screen(json)
    result = poolscope.migrate(old, new, texts, queries=queries, old_model=old_model, new_model=new_model, k=top)
    screen.print_in_words(result)
    screen.say(f"{result.old} → {result.new}", style="dim")
    screen.put_result(result, json=json)
    if fail_on is not None and result.worse:
        raise typer.Exit(1)
