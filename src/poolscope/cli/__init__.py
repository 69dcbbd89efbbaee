"""The command line: each command parses, calls the library, and prints.

`COMMANDS` is the table. A command's module is imported when the command runs, and the parser (`cli.application`) when
there is something to parse: `poolscope --help` and `--version` are answered from here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poolscope import __version__
from poolscope.extensions import rows_of

FAILED = 2
PURPOSE = "Find out why your embedding search misses things, what to fix first, and whether the fix helps."

PANELS = START, LOOK, VECTORS, PREPARE, WATCH, MORE = (
    "Start here",
    "Look closer",
    "Vectors",
    "Prepare",
    "Watch",
    "More",
)
_NAMES = 15  # columns of the names of panels


@dataclass(frozen=True)
class Row:
    """One command: its name, the module where a function of its name stands, one line, its panel in the help.

    `group` is the word before its name (`poolscope lab …`); a group itself is a row without a module.
    """

    name: str
    module: str
    words: str
    panel: str
    group: str = ""


_OWN = (
    Row("audit", "poolscope.cli.audit", "Which queries miss, why, and what is proven to help.", START),
    Row("fix", "poolscope.cli.audit", "Carry out the cure of an audit, and show before and after.", START),
    Row("compare", "poolscope.cli.audit", "Does another audit find more, on the same queries?", START),
    Row("tune", "poolscope.cli.tasks", "Which repair helps on your texts, if any? Proven on held-out queries.", START),
    Row("cost", "poolscope.cli.cost", "What does averaging cost your search? All tokens answer, too.", START),
    Row("shrink", "poolscope.cli.shrink", "Which smaller vectors are free on your queries?", PREPARE),
    Row("misses", "poolscope.cli.misses", "What any search misses, from its run file alone.", WATCH),
    Row("inspect", "poolscope.cli.inspect", "What a model declares and asks for, before it is loaded.", PREPARE),
    Row("chunk", "poolscope.cli.prepare", "Cut texts so that a model reads every chunk to its end.", PREPARE),
    Row("encode", "poolscope.cli.prepare", "Texts into a store of token clouds, which every command reads.", PREPARE),
    Row("verify", "poolscope.cli.prepare", "Is every byte of what poolscope wrote still as it was written?", PREPARE),
    Row("socm", "poolscope.cli.socm", "Do the means of texts agree while their token clouds differ?", LOOK),
    Row("pair", "poolscope.cli.socm", "Two texts: their distances, and their clouds in one picture.", LOOK),
    Row("calibrate", "poolscope.cli.audit", "How often is the audit wrong? Worlds from your texts answer.", MORE),
    Row("evaluate", "poolscope.cli.tasks", "The quality of a model, repaired or not, on a task.", MORE),
)
METRIC = "poolscope.cli.metric"  # makes the command of a metric that has none of its own
_ALL = (*_OWN, *(Row(*row) for row in rows_of("COMMANDS")))
GROUPS = {"lab": "The experiments of the papers, on your models and texts."}


def rows_in(group: str) -> tuple[Row, ...]:
    """The commands of a group; those of "" stand beside `audit`."""
    return tuple(row for row in _ALL if row.group == group)


COMMANDS = (
    *rows_in(""),
    *(Row(name, "", "Papers: " + ", ".join(row.name for row in rows_in(name)) + ".", MORE) for name in GROUPS),
)


def extension_rows() -> tuple[Row, ...]:
    """Metrics that no command of the table prints, from poolscope or from outside, as rows."""
    from poolscope.extensions import load_extensions
    from poolscope.metrics.base import METRICS

    load_extensions()
    taken = {row.name for row in COMMANDS}
    return tuple(
        Row(name, METRIC, each.words, VECTORS if each.needs == "vectors" else LOOK)
        for name, each in METRICS.items()
        if name not in taken and not each.command
    )


def help_page(rows: Sequence[Row], purpose: str, path: str = "poolscope") -> str:
    """The first help screen: the commands to start with, one line each, then the names of the others by group."""
    from shutil import get_terminal_size

    from poolscope.show.lines import wrapped

    columns = get_terminal_size().columns
    first = [row for row in rows if row.panel == START] or list(rows)
    hanging = max(len(row.name) for row in first) + 4
    title = START if path == "poolscope" else "Commands"
    lines = [f"Usage: {path} COMMAND [MODEL] [TEXTS] [OPTIONS]", "", wrapped(purpose, columns), "", title]
    for row in first:
        lines.append(f"  {row.name}".ljust(hanging) + wrapped(row.words, columns, " " * hanging)[hanging:])
    others = {row.panel: [each.name for each in rows if each.panel == row.panel] for row in rows if row not in first}
    lines += ["", "Other commands"] if others else []
    for panel in (panel for panel in PANELS if panel in others):
        lines.append(f"  {panel}".ljust(_NAMES) + wrapped(", ".join(others[panel]), columns, " " * _NAMES)[_NAMES:])
    lines += ["", f"{path} COMMAND --help says what a command answers, with an example."]
    if path == "poolscope":
        lines.append(wrapped("poolscope audit without arguments audits the built-in model and texts.", columns))
        lines += ["", "Options: --version, --install-completion, --help (or -h)"]
    return "\n".join(lines)


def version_lines() -> str:
    """The version, and how distances are computed."""
    from poolscope.numbers.bures.native import route

    return f"poolscope {__version__}\ndistances of token clouds: {route()}"


def main() -> None:
    """Run the command line. Exit code 2: the input cannot be used, and why; 130: interrupted."""
    from poolscope.errors import PoolscopeError, not_permitted
    from poolscope.words import guard_streams

    guard_streams()
    try:
        match sys.argv[1:]:
            case ["--help" | "-h"]:
                print(help_page((*COMMANDS, *extension_rows()), PURPOSE), flush=True)
            case ["--version"]:
                print(version_lines(), flush=True)
            case _:
                from poolscope.cli.application import run

                run()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except PoolscopeError as error:
        print(_lines(f"poolscope: {error}"), file=sys.stderr)
        sys.exit(FAILED)
    except OSError as error:
        if error.filename is None:  # of no file: not what somebody named
            raise
        print(_lines(f"poolscope: {not_permitted(error.filename, error)}"), file=sys.stderr)
        sys.exit(FAILED)
    except MemoryError:
        print(
            _lines("poolscope: There is not enough memory for this input. Use fewer texts, such as with --limit 1000."),
            file=sys.stderr,
        )
        sys.exit(FAILED)


def _lines(message: str) -> str:
    """A message for a terminal, broken between words; for files and pipes it stays one line."""
    if not sys.stderr.isatty():
        return message
    from shutil import get_terminal_size

    from poolscope.show.lines import wrapped

    return wrapped(message, get_terminal_size().columns)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'poolscope.cli' has no attribute {name!r}")
    from poolscope.cli.application import app

    return app
