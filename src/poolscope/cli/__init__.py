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
from poolscope.cli.needs import CheckedCommand
from poolscope.errors import PoolscopeError

FAILED, INTERRUPTED = 2, 130

app = typer.Typer(
    name="poolscope",
    help="See what pooling hides: measure, explain and repair collapse in text embeddings.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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
for registered in app.registered_commands:
    registered.cls = CheckedCommand


def _print_version(wanted: bool) -> None:
    if wanted:
        from poolscope.bures.native import route

        typer.echo(f"poolscope {__version__}\ndistances of token clouds: {route()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version, and how distances are computed.",
        ),
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line. Exit code 2: the input cannot be used, and why; 130: interrupted."""
    try:
        app(prog_name="poolscope")
    except PoolscopeError as error:
        typer.echo(f"poolscope: {error}", err=True)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        typer.echo("poolscope: interrupted", err=True)
        sys.exit(INTERRUPTED)
