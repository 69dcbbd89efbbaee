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

FAILED = 2
PURPOSE = "See what pooling hides: measure, explain and repair collapse in text embeddings."

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
    Row("zoo", "research", "Many models on the same texts: every number, every audit, one page.", MORE),
    Row("evidence", "research", "What zoos say of the papers' claims and of the thresholds.", MORE),
)
EARLIER = ("correlate", "transport", "intervene", "reproduce")  # commands that stood beside `audit` once
COMMANDS = (
    Row("audit", "audit", "All questions about a model on your texts; one screen, one page.", START),
    Row("compare", "audit", "Audits of the same texts side by side.", START),
    Row("tune", "tasks", "Which repair helps on your texts, proven on held-out ones, if any.", START),
    Row("runtime", "audit", "Does a server give the vectors of the model that it is said to run?", START),
    Row("chunk", "prepare", "Cut texts so that a model reads every chunk to its end.", PREPARE),
    Row("encode", "prepare", "Texts into a store of token clouds, which every command reads.", PREPARE),
    Row("verify", "prepare", "Is every byte of what poolscope wrote still as it was written?", PREPARE),
    Row("socm", "socm", "Do the means of texts agree while their token clouds differ?", LOOK),
    Row("length", "length", "Do long texts look alike, do short ones win, is the end still found?", LOOK),
    Row("layers", "layers", "What every layer of a transformer does to the clouds.", LOOK),
    Row("tokens", "tokens", "Norm and variance of token types, layer by layer.", LOOK),
    Row("windows", "layers", "What is lost when tokens are replaced by means of windows.", LOOK),
    Row("pair", "socm", "Two texts: their distances, and their clouds in one picture.", LOOK),
    Row("evaluate", "tasks", "The quality of a model, repaired or not, on a task.", MORE),
    Row("mcp", "mcp", "Tools for assistants: audit a file, check a runtime, explain a pair.", MORE),
    Row("research", "", "Papers: " + ", ".join(row.name for row in RESEARCH) + ".", MORE),
    *(Row(row.name, row.module, row.words, HIDDEN) for row in RESEARCH if row.name in EARLIER),
)


def extension_rows() -> tuple[Row, ...]:
    """Metrics that have no command of their own, from poolscope or from outside, as rows."""
    from poolscope.extensions import load_extensions
    from poolscope.metrics.base import METRICS

    load_extensions()
    taken = {row.name for row in COMMANDS}
    return tuple(Row(name, "metric", each.words, LOOK) for name, each in METRICS.items() if name not in taken)


def help_page(rows: Sequence[Row], purpose: str, path: str = "poolscope") -> str:
    """What a newcomer reads: what it is, how to call it, the main commands first, one line each."""
    from shutil import get_terminal_size

    from poolscope.lines import wrapped

    columns, rows = get_terminal_size().columns, [row for row in rows if row.panel]
    hanging = max(len(row.name) for row in rows) + 4
    lines = [f"Usage: {path} COMMAND [MODEL] [TEXTS] [OPTIONS]", "", wrapped(purpose, columns)]
    for panel in (START, LOOK, PREPARE, MORE):
        shown = [row for row in rows if row.panel == panel]
        lines += ["", panel] if shown else []
        for row in shown:
            name = f"  {row.name}".ljust(hanging)
            lines.append(name + wrapped(row.words, columns, " " * hanging)[hanging:])
    lines += ["", f"{path} COMMAND --help explains a command."]
    if path == "poolscope":
        lines.append(wrapped("poolscope audit alone audits the embedded model on the embedded texts.", columns))
        lines += ["", "Options: --version, --install-completion, --help (or -h)"]
    return "\n".join(lines)


def version_lines() -> str:
    """The version, and how distances are computed."""
    from poolscope.numbers.bures.native import route

    return f"poolscope {__version__}\ndistances of token clouds: {route()}"


def main() -> None:
    """Run the command line. Exit code 2: the input cannot be used, and why; 130: interrupted."""
    from poolscope.errors import PoolscopeError, not_permitted

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
    except PermissionError as error:
        print(_lines(f"poolscope: {not_permitted(error.filename, error)}"), file=sys.stderr)
        sys.exit(FAILED)


def _lines(message: str) -> str:
    """A message for a terminal, broken between words; for files and pipes it stays one line."""
    if not sys.stderr.isatty():
        return message
    from shutil import get_terminal_size

    from poolscope.lines import wrapped

    return "\n".join(wrapped(line, get_terminal_size().columns) for line in message.splitlines())


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'poolscope.cli' has no attribute {name!r}")
    from poolscope.cli.application import app

    return app
