"""The commands of the table as an application of typer: parsed, checked, and run."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from poolscope.cli import COMMANDS, PURPOSE, RESEARCH, Row, extension_rows, help_page, version_lines
from poolscope.cli.needs import CheckedCommand
from poolscope.errors import InputError
from poolscope.locks import what_is_kept

# Options that have been renamed: under their old names they say what they are called now.
RENAMED = {"--sample": "--limit", "--columns": "--column"}
RENAMED_IN = {"socm": {"--sample": "--pairs"}}


class Command(CheckedCommand):
    """A command that knows the earlier names of its options, and which extras its arguments call for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option under an earlier name, and say its present one."""
        known = {name for parameter in self.params for name in parameter.opts}
        for argument in args:
            option = argument.partition("=")[0]
            now = RENAMED_IN.get(self.name or "", {}).get(option) or RENAMED.get(option)
            if now in known and option not in known:
                raise InputError(f"{option}: this option of `poolscope {self.name}` is called {now} now. Write {now}.")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The first line of the help, which stands above an error too."""
        from poolscope.cli.help import usage_pieces

        return usage_pieces(self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Its options in groups."""
        from shutil import get_terminal_size

        from poolscope.cli.help import command_help

        typer.echo(command_help(self, ctx, get_terminal_size().columns))


class Commands(TyperGroup):
    """The commands of the table and of extensions, each imported when it is used."""

    rows: tuple[Row, ...] = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands that the help shows."""
        return [row.name for row in (*self.rows, *self.extensions()) if row.panel]

    def extensions(self) -> tuple[Row, ...]:
        """Metrics that have no command of their own."""
        return extension_rows()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None for an unknown one."""
        row = next((row for row in self.rows if row.name == cmd_name), None)
        row = row or next((row for row in self.extensions() if row.name == cmd_name), None)
        if row is None:
            return None
        if row.name == "research":
            return typer.main.get_command(research_group)
        return _built(row)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of the table; no command is imported for it."""
        typer.echo(help_page((*self.rows, *self.extensions()), self.help or "", ctx.command_path))


class ResearchCommands(Commands):
    """The commands of `poolscope research`."""

    rows = RESEARCH

    def extensions(self) -> tuple[Row, ...]:
        """None: metrics are not research."""
        return ()


def _built(row: Row) -> Any:
    """The command of a row, from the function of its name in its module."""
    from importlib import import_module

    module = import_module(f"poolscope.cli.{row.module}")
    from poolscope.cli.arguments import loudness_options

    function = loudness_options(module.command(row.name) if row.module == "metric" else getattr(module, row.name))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(row.name, cls=Command, hidden=not row.panel)(function)
    return typer.main.get_command(single)


app = typer.Typer(
    name="poolscope",
    cls=Commands,
    help=PURPOSE,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
research_group = typer.Typer(  # not `research`: the module of that name would be bound over it
    name="research",
    cls=ResearchCommands,
    help="The experiments of the papers, on your models and texts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_lines())
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


@research_group.callback()
def _research_options() -> None:
    """None of its own."""


def run() -> None:
    """Parse the command line and run it; Ctrl-C says what was kept."""
    watch()
    try:
        app(prog_name="poolscope")
    except BaseException as error:
        if was_interrupted(error):
            end_interrupted()
        raise


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------

# Ctrl-C: the work stops where it is, or is ended a second later, and what was kept is said.
#
# Python raises KeyboardInterrupt between two of its own steps. A model or a kernel may be far from the next one, and
# threads that work are waited for. Since every file is whole or absent at any moment, and a folder is replaced in one
# step, nothing is lost if the process ends at once: so a thread watches for the signal and ends it after a moment.

INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended
SECONDS = 1.0  # for what is under way to come to its own end

_came = threading.Event()
_saying = threading.Lock()


def watch() -> None:
    """Begin to watch for Ctrl-C in this process; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        return
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_wait, args=(reads, writes), name="ctrl-c", daemon=True).start()


def _wait(reads: socket.socket, writes: socket.socket) -> None:
    """Wait for the signal, then for the end; `writes` is held so that it stays open."""
    while signal.SIGINT not in reads.recv(1):
        pass
    _came.set()
    reads.settimeout(SECONDS)
    began = time.monotonic()
    with suppress(TimeoutError):
        while signal.SIGINT not in reads.recv(1) and time.monotonic() < began + SECONDS:
            pass
    end_interrupted()


def was_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C ended the command, whatever became of it on its way up: click makes an exit of it."""
    code = error.code if isinstance(error, SystemExit) else None
    return _came.is_set() or isinstance(error, KeyboardInterrupt) or code == INTERRUPTED


def end_interrupted() -> NoReturn:
    """Say that the command was stopped, what was kept and how to go on; then end, without waiting for threads."""
    with _saying:  # whoever comes second waits for the end
        kept = " ".join(what_is_kept()) or "Nothing was kept: the same command begins anew."
        shown = "\N{ESCAPE}[?25h" if sys.stderr.isatty() else ""  # the cursor, which a bar has hidden
        with suppress(OSError, ValueError):
            print(f"{shown}\npoolscope: interrupted. {kept} No file is half written.", file=sys.stderr, flush=True)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(INTERRUPTED)
