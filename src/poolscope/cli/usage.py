"""Errors of the parser in the form of all others: what was typed, what is allowed, what to type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer

from poolscope.errors import InputError, did_you_mean

UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy of it that typer brings


def refused(error: Any, command: Any, path: str, typed: Sequence[str]) -> InputError:
    """The error of a command, called `path`, for the words behind it; a request for help stays as it is."""
    if type(error).__name__ == "NoArgsIsHelpError":
        raise error
    part = getattr(error, "param", None)
    if option := getattr(error, "option_name", None):
        options = [name for each in command.params for name in each.opts if name.startswith("--")]
        if option in (name for each in command.params for name in (*each.opts, *each.secondary_opts)):
            return InputError(f"{option} needs a value. See `{path} --help`.")
        return InputError(f"{option} is no option of `{path}`.{did_you_mean(option, options)} See `{path} --help`.")
    if part is None:
        message = error.format_message().rstrip(".")
        if extra := re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", message.replace("(s)", "s")):
            message = f"{extra[1]}: `{path}` takes no more words here; put quotes around a value with spaces"
        return InputError(f"{message}. See `{path} --help`.")
    name = spelled(part)
    if type(error).__name__ == "MissingParameter":
        return InputError(f"{name} is missing. {_example(command) or f'See `{path} --help`.'}")
    value = _value(part, typed)
    return InputError(f"{name}{value} is not allowed. Use {_allowed(part) or f'a value as in `{path} --help`'}.")


def spelled(part: Any) -> str:
    """An option by its longest name, an argument by the first word of its placeholder."""
    if part.param_type_name == "option":
        return str(max(part.opts, key=len))
    return str(part.metavar or part.name.upper()).strip("[].").partition("|")[0]


def _value(part: Any, typed: Sequence[str]) -> str:
    """The value as it was typed behind an option, with a space before it; nothing where it is not to be found."""
    for place, word in enumerate(typed):
        name, sign, value = word.partition("=")
        if name in part.opts:
            return f" {value if sign else typed[place + 1]}" if sign or place + 1 < len(typed) else ""
    return ""


def _allowed(part: Any) -> str:
    """The numbers that an option takes, in words; nothing for an option without numbers.

    Where they are kept depends on the version of typer.
    """
    holder = getattr(part, "type", part)
    kind = str(getattr(getattr(part, "type_descriptor", None), "annotation", getattr(holder, "name", "")))
    if "int" not in kind and "float" not in kind:
        return ""
    low, high = getattr(holder, "min", None), getattr(holder, "max", None)
    number = "a whole number" if "int" in kind else "a number"
    if low is not None and high is not None:
        return f"{number} from {low:g} to {high:g}"
    return number if low is None else f"{number} of {low:g} or more"


def _example(command: Any) -> str:
    """The example of the help of a command, as a sentence."""
    paragraphs = (" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    example = next((part for part in paragraphs if part.startswith("Example: ")), "")
    return f"For example: {example.removeprefix('Example: ')}" if example else ""


def nearest_command(name: str, names: Sequence[str], path: str) -> InputError:
    """The error for a command that there is not."""
    return InputError(f"`{path}` has no command '{name}'.{did_you_mean(name, names)} `{path} --help` lists all.")
