"""The help of a command: what it is for, then its options in groups, one line each where that fits."""

from __future__ import annotations

import inspect
from typing import Any

from poolscope.lines import wrapped

# The groups of options by their names in the order of the help; all other options stand first, as the command's own.
GROUPS = {
    "Which pairs": ("against", "pairs", "neighbours", "all_pairs", "worst_only"),
    "How it is computed": ("scale", "a", "b", "eps"),
    "Queries": ("queries", "query_columns", "query_prompt"),
    "Vectors and servers": (
        *("vectors", "vector_column", "distance", "reference", "server_model", "key_variable", "protocol", "served"),
        *("dimensions", "batch", "concurrency", "retries", "timeout"),
    ),
    "Verdicts": ("thresholds", "threshold", "trial", "precision", "fail_on", "fail_above"),
    "Where it is computed": ("engine", "workers", "address", "shard"),
    "Texts": ("column", "columns", "id_column", "label_column", "group", "limit", "seed", "encoding"),
    "Model": (
        *("max_length", "prompt", "prompt_name", "role", "dtype", "revision", "device", "batch_tokens"),
        *("trust_remote_code", "allow_pickle", "no_cache"),
    ),
    "Output": (
        *("output", "json", "table", "parquet", "figure", "state", "no_page", "no_files", "details"),
        *("quiet", "verbose", "help"),
    ),
}
OWN = "Options"
_WIDEST = 100
_NAMES = 28  # columns of the names of options; a longer name has a line of its own


def command_help(command: Any, ctx: Any, width: int) -> str:
    """The help as plain text of at most `width` columns."""
    width = min(width, _WIDEST)
    arguments = [part for part in command.params if part.param_type_name == "argument"]
    options = [part for part in command.get_params(ctx) if part.param_type_name == "option" and not part.hidden]
    usage = " ".join([ctx.command_path, *usage_pieces(command, ctx)])
    parts = [wrapped(f"Usage: {usage}", width), "", _prose(command.help or "", width)]
    if arguments:
        parts += ["", "Arguments", *(_row(_argument(part), _meaning(part), width) for part in arguments)]
    for group in (OWN, *GROUPS):
        rows = [_row(_names(part), _meaning(part), width) for part in options if _group(part) == group]
        if rows:
            parts += ["", group, *rows]
    return "\n".join(parts)


def usage_pieces(command: Any, ctx: Any) -> list[str]:
    """What stands behind the name of a command in its first line: arguments, options that must be there, the others."""
    parts = command.get_params(ctx)
    arguments = [_argument(part) for part in parts if part.param_type_name == "argument"]
    needed = [_usage(part) for part in parts if part.param_type_name == "option" and part.required]
    return [*arguments, *needed, "[OPTIONS]"]


def _prose(text: str, width: int) -> str:
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(wrapped(" ".join(paragraph.split()), width) for paragraph in paragraphs)


def _argument(part: Any) -> str:
    name = part.metavar or part.name.upper()
    return name if part.required or name.startswith("[") else f"[{name}]"


def _group(part: Any) -> str:
    return next((group for group, names in GROUPS.items() if part.name in names), OWN)


def _usage(part: Any) -> str:
    """An option that must be there, as the first line shows it."""
    return f"{max(part.opts, key=len)} {part.metavar or 'VALUE'}"


def _names(part: Any) -> str:
    """`-o, --output FOLDER`; a switch takes nothing."""
    spelled = ", ".join(sorted((*part.opts, *part.secondary_opts), key=len))
    if getattr(part, "is_flag", False):
        return spelled
    return f"{spelled} {part.metavar or 'VALUE'}"


def _meaning(part: Any) -> str:
    default = part.default
    shown = default not in (None, False, "") and not callable(default) and not getattr(part, "is_flag", False)
    needed = " (required)" if part.param_type_name == "option" and part.required else ""
    return f"{part.help or ''}{f' (default: {default})' if shown else ''}{needed}"


def _row(names: str, meaning: str, width: int) -> str:
    indent = " " * _NAMES
    text = wrapped(meaning, width, indent)
    if len(names) + 4 > _NAMES:  # a list of choices that is wider than the screen is broken between them
        shown = (
            wrapped(names.replace("|", "| "), width, "  ", hanging="    ") if len(names) + 2 > width else f"  {names}"
        )
        return f"{shown.replace('| ', '|')}\n{text}"
    return f"  {names:<{_NAMES - 2}}{text[_NAMES:]}"
