"""The command line: each command parses, calls the library, and prints.

`COMMANDS` is the table. A command's module is imported when the command runs, so that `poolscope --help` is quick.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from poolscope import __version__
from poolscope.cli.interrupts import end_interrupted, was_interrupted, watch
from poolscope.cli.needs import CheckedCommand
from poolscope.errors import InputError, PoolscopeError

FAILED = 2

START, LOOK, PREPARE, MORE, HIDDEN = "Start here", "Look closer", "Prepare", "More", ""


@dataclass(frozen=True)
class Row:
    """One command: its name, its module in this package (where a function of its name stands), one line, its panel."""

    name: str
    module: str
    words: str
    panel: str


RESEARCH = (
    Row("correlate", "research", "Do the numbers of audits go with task scores over models?", MORE),
    Row("transport", "research", "How much of the exact transport distance do two moments see?", MORE),
    Row("intervene", "research", "What follows when the means are kept and the clouds are changed?", MORE),
    Row("reproduce", "research", "Published experiments, from data to tables and figures.", MORE),
    Row("zoo", "zoo", "Many models on the same texts: every number, every audit, one page.", MORE),
    Row("evidence", "zoo", "What zoos say of the papers' claims and of the thresholds.", MORE),
)
EARLIER = ("correlate", "transport", "intervene", "reproduce")  # commands that stood beside `audit` once
COMMANDS = (
    Row("audit", "audit", "All questions about a model on your texts; one screen, one page.", START),
    Row("compare", "audit", "Audits of the same texts side by side.", START),
    Row("tune", "tasks", "Which repair helps on your texts, proven on held-out ones, if any.", START),
    Row("runtime", "runtime", "Does a server give the vectors of the model that it is said to run?", START),
    Row("chunk", "prepare", "Cut texts so that a model reads every chunk to its end.", PREPARE),
    Row("encode", "prepare", "Texts into a store of token clouds, which every command reads.", PREPARE),
    Row("verify", "prepare", "Is every byte of what poolscope wrote still as it was written?", PREPARE),
    Row("socm", "socm", "Do the means of texts agree while their token clouds differ?", LOOK),
    Row("length", "length", "Do long texts look alike, do short ones win, is the end still found?", LOOK),
    Row("layers", "layers", "What every layer of a transformer does to the clouds.", LOOK),
    Row("tokens", "tokens", "Norm and variance of token types, layer by layer.", LOOK),
    Row("windows", "windows", "What is lost when tokens are replaced by means of windows.", LOOK),
    Row("pair", "socm", "Two texts: their distances, and their clouds in one picture.", LOOK),
    Row("evaluate", "tasks", "The quality of a model, repaired or not, on a task.", MORE),
    Row("mcp", "mcp", "Tools for assistants: audit a file, check a runtime, explain a pair.", MORE),
    Row("research", "", "The papers' experiments: " + ", ".join(row.name for row in RESEARCH) + ".", MORE),
    *(Row(row.name, row.module, row.words, HIDDEN) for row in RESEARCH if row.name in EARLIER),
)

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
        """Metrics that have no command of their own, from poolscope or from outside, as rows."""
        from poolscope.cli.metric import metric_words

        taken = {row.name for row in self.rows}
        return tuple(Row(name, "metric", words, LOOK) for name, words in metric_words().items() if name not in taken)

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
        print_help(self, ctx)


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


def print_help(group: Commands, ctx: Any) -> None:
    """What a newcomer reads: what it is, how to call it, the main commands first, one line each."""
    rows = [row for row in (*group.rows, *group.extensions()) if row.panel]
    width = max(len(row.name) for row in rows)
    lines = [f"Usage: {ctx.command_path} COMMAND [MODEL] [TEXTS] [OPTIONS]", "", group.help or ""]
    for panel in dict.fromkeys((START, LOOK, PREPARE, MORE)):
        shown = [row for row in rows if row.panel == panel]
        if shown:
            lines += ["", panel, *(f"  {row.name:<{width}}  {row.words}" for row in shown)]
    lines += ["", f"{ctx.command_path} COMMAND --help explains a command."]
    if ctx.parent is None:
        lines += ["poolscope audit, with nothing else, audits the embedded model on the embedded texts."]
        lines += ["", "Options: --version, --install-completion, --help (or -h)"]
    typer.echo("\n".join(lines))


app = typer.Typer(
    name="poolscope",
    cls=Commands,
    help="See what pooling hides: measure, explain and repair collapse in text embeddings.",
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
        from poolscope.numbers.bures.native import route

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


@research_group.callback()
def _research_options() -> None:
    """None of its own."""


def main() -> None:
    """Run the command line. Exit code 2: the input cannot be used, and why; 130: interrupted."""
    watch()
    try:
        app(prog_name="poolscope")
    except BaseException as error:
        if was_interrupted(error):
            end_interrupted()
        if not isinstance(error, PoolscopeError):
            raise
        typer.echo(f"poolscope: {error}", err=True)
        sys.exit(FAILED)
