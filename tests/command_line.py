"""Commands through the real parser, as a test calls them."""

from __future__ import annotations

import shlex
from typing import Any

import typer
from typer.testing import CliRunner, Result

from plain_words import number_faults
from poolscope.cli import COMMANDS, GROUPS, app, rows_in
from poolscope.errors import PoolscopeError


def invoke(*arguments: object, width: int | None = None) -> Result:
    """A command and what came of it, on a screen of `width` columns; an error of poolscope is raised.

    Every screen and every error that a test sees keeps the rules on numbers.
    """
    result = CliRunner().invoke(app, list(map(str, arguments)), env=None if width is None else {"COLUMNS": str(width)})
    said = str(result.exception) if isinstance(result.exception, PoolscopeError) else result.output
    faults = number_faults(said)
    assert not faults or ("--json" in arguments and "-" in arguments), faults  # "--json -": numbers for machines
    if isinstance(result.exception, PoolscopeError):
        raise result.exception
    return result


def run(*arguments: object, width: int = 160, expect: int = 0) -> str:
    """What a command prints; it must end with the exit code `expect`."""
    result = invoke(*arguments, width=width)
    assert result.exit_code == expect, result.output
    return result.output


def last_command(printed: str) -> list[str]:
    """The words of the last command on a screen; a long one goes on over lines that end with a backslash."""
    return shlex.split(printed[printed.rindex("\npoolscope ") :].replace("\\\n", ""))


def spelled(name: str) -> list[str]:
    """The words that call a command: behind the name of its group, where it has one."""
    group = next((group for group in GROUPS if name in [row.name for row in rows_in(group)]), None)
    return [name] if group is None else [group, name]


def commands() -> dict[str, Any]:
    """Every command by name, as the application builds it; those of a group by their own names."""
    application = typer.main.get_command(app)
    groups = {name: application.get_command(None, name) for name in GROUPS}
    alone = {row.name: application.get_command(None, row.name) for row in COMMANDS if row.module}
    grouped = [(group, row.name) for name, group in groups.items() for row in rows_in(name)]
    return alone | {name: group.get_command(None, name) for group, name in grouped}
