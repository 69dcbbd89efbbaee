"""The command line: each command parses, calls the library, and prints. No heavy import until a command runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from poolscope import __version__
from poolscope.cli import (
    audit,
    chunk,
    compare,
    correlate,
    encode,
    evaluate,
    intervene,
    layers,
    length,
    pair,
    reproduce,
    socm,
    tokens,
    transport,
    tune,
)
from poolscope.errors import PoolscopeError

FAILED, INTERRUPTED = 2, 130

app = typer.Typer(
    name="poolscope",
    help="See what pooling hides: measure, explain and repair collapse in text embeddings.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_COMMANDS = (
    audit,
    compare,
    socm,
    encode,
    chunk,
    tokens,
    layers,
    length,
    pair,
    correlate,
    intervene,
    transport,
    reproduce,
    tune,
    evaluate,
)
for command in _COMMANDS:
    command.register(app)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"poolscope {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line. Exit code 2: the input cannot be used, and why; 130: interrupted."""
    try:
        app()
    except PoolscopeError as error:
        typer.echo(f"poolscope: {error}", err=True)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        typer.echo("poolscope: interrupted", err=True)
        sys.exit(INTERRUPTED)
