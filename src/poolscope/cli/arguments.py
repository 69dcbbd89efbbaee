"""The arguments that commands share, and what commands write: names are checked before the work begins."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.errors import InputError
from poolscope.files import check_file, check_folder, write_json
from poolscope.lines import command_lines, wrapped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column as TableColumn
    from rich.table import Table

    from poolscope.engines import Engine
    from poolscope.results import Result
    from poolscope.verdicts import Verdict


SCREEN = "-"

# -- how much is said -------------------------------------------------------------------------------------------------

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


def is_quiet() -> bool:
    """Was --quiet given? Then nothing is said but errors and what goes to standard output by name."""
    return _QUIET.get()


@contextmanager
def _loudness(*, quiet: bool, verbose: bool) -> Iterator[None]:
    """Set how much is said while the body runs; --verbose tells at the end what it took."""
    if quiet and verbose:
        raise InputError("received --quiet and --verbose; allowed is one of them. Leave one out.")
    logger, token = logging.getLogger("poolscope"), _QUIET.set(quiet)
    level = logger.level
    logger.setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else level)
    handler = logging.StreamHandler() if verbose else None
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    try:
        with _spent() if verbose else _nothing():
            yield
    finally:
        _QUIET.reset(token)
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _spent() -> Iterator[None]:
    """Say afterwards how long it took, how much memory, and by which route distances are computed."""
    import time

    began = time.perf_counter()
    yield
    from poolscope.numbers.bures.native import route

    said = [f"{time.perf_counter() - began:.1f} s", f"distances of token clouds: {route()}"]
    try:
        import resource
        import sys

        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        said.insert(1, f"at most {peak / 2**20:,.0f} MiB of memory")
    except ImportError:  # Windows has no such record
        pass
    typer.echo(" · ".join(said), err=True)


def loudness_options(command: Command) -> Command:
    """Give a command --quiet and --verbose, which every command has."""

    def run(*, loudness: dict[str, bool], **values: Any) -> None:
        with _loudness(**loudness):
            command(**values)

    return _gathering(command, "loudness", {"quiet": Quiet, "verbose": Verbose}, run)


# -- what is written --------------------------------------------------------------------------------------------------


def to_file(meaning: str, *names: str, metavar: str = "FILE") -> Any:
    """An option for a file to write; a name that cannot be written is refused before the work."""
    return typer.Option(*names, metavar=metavar, help=meaning, callback=_checked_file)


def to_folder(meaning: str, *names: str) -> Any:
    """An option for a folder to write into, refused in the same way."""
    return typer.Option(*names, metavar="FOLDER", help=meaning, callback=_checked_folder)


def to_figure(meaning: str, *names: str) -> Any:
    """An option for a figure: its name must say a known format, too."""
    return typer.Option(*names, metavar="FILE", help=meaning, callback=_checked_figure)


def to_json(meaning: str) -> Any:
    """An option for JSON, to a file or, with "-", to the screen."""
    return typer.Option(metavar="FILE", help=f"{meaning} (-: to the screen).", callback=_checked_json)


def _checked_file(path: Path | None) -> Path | None:
    if path is not None:
        check_file(path)
    return path


def _checked_folder(path: Path | None) -> Path | None:
    return None if path is None else check_folder(path)


def _checked_figure(path: Path | None) -> Path | None:
    if path is not None:
        from poolscope.charts import check_figure_path

        check_figure_path(path)
        check_file(path)
    return path


def _checked_json(target: str | None) -> str | None:
    if target not in (None, SCREEN):
        check_file(target)
    return target


def open_screen(json: str | None = None, *, soft_wrap: bool = False) -> Console:
    """Where a command prints, which is standard error while JSON goes to standard output.

    What stands in brackets is text, never a colour, and what stands between colons is no picture: names of models, of
    files and of texts may hold both.
    """
    from rich.console import Console

    looks: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    return Console(stderr=json == SCREEN, soft_wrap=soft_wrap, quiet=is_quiet(), **looks)


def put_json(content: dict[str, Any], target: str) -> None:
    """Write the content to a file, or to standard output for "-"."""
    if target == SCREEN:
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        write_json(target, content)


def name_written(screen: Console, *paths: object) -> None:
    """Say which files were written; None and the screen are none."""
    for path in paths:
        if path is not None and path != SCREEN:
            screen.print(f"written: {path}", soft_wrap=True)  # a path that is broken in two cannot be copied


def print_seen(result: Result, screen: Console) -> None:
    """What the numbers say in plain words."""
    for sentence in result.seen():
        screen.print(wrapped(sentence, screen.width), soft_wrap=True)


def name_next(screen: Console, command: str) -> None:
    """Say which command comes next: alone in its lines, so that it can be copied."""
    screen.print("Next", style="bold")
    screen.print(command_lines(command, screen.width), soft_wrap=True)


def put_result(
    result: Result, screen: Console, *, json: str | None, figure: Path | None, table: Path | None = None
) -> None:
    """Write a result as JSON, as a table and as a figure where a name says so, and name what was written."""
    if json is not None:
        put_json(result.to_dict(), json)
    if table is not None:
        result.save(table)
    if figure is not None:
        from poolscope.charts import save_figure

        save_figure(result.figure(), figure)
    name_written(screen, json, table, figure)


# -- the arguments that commands share, each with its one line of help ------------------------------------------------

MODEL = "builtin:minilm"
TEXTS = "builtin:docstrings"

Model = Annotated[str, typer.Argument(metavar="[MODEL]", help="Hub name, folder, ONNX file or built-in model.")]
ModelOrClouds = Annotated[
    str, typer.Argument(metavar="[MODEL|CLOUDS]", help="Model, or clouds that `poolscope encode` wrote.")
]
ModelOrVectors = Annotated[
    str, typer.Argument(metavar="[MODEL|CLOUDS|VECTORS]", help="Model, clouds, or vectors in a file or a store.")
]
Texts = Annotated[
    str | None, typer.Argument(metavar="[TEXTS]", help="File, folder, hub data set, built-in texts, or - (stdin).")
]
Limit = Annotated[int | None, typer.Option(min=0, metavar="N", help="Draw N of the texts (0: all).")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Encode again, and keep nothing.")]

Column = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the texts.")]
IdColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the ids.")]
LabelColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the labels.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the draw.")]

Prompt = Annotated[str | None, typer.Option(metavar="TEXT", help="Prefix of every text.")]
PromptName = Annotated[str | None, typer.Option(metavar="NAME", help="A prompt that the model declares.")]
Role = Annotated[
    str | None,
    typer.Option(
        metavar="query|document",
        help="Take the prompt that the model declares for this role.",
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(min=1, metavar="TOKENS", help="Cut texts here, not where the model says."),
]
Dtype = Annotated[str | None, typer.Option(metavar="NAME", help="float32, float16, bfloat16 or float64.")]
Revision = Annotated[str | None, typer.Option(metavar="NAME", help="Revision of a hub model.")]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="cpu, cuda, mps, or several: cuda:0,cuda:1."),
]
BatchTokens = Annotated[int | None, typer.Option(min=1, metavar="TOKENS", help="Largest batch, padding included.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the code that the model brings.")]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Load weights of a kind that can run code.")]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Encoding of the files of texts, such as cp1252, not UTF-8."),
]

Queries = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Queries with the ids of the texts that answer them, or a BEIR folder."),
]
QueryColumns = Annotated[
    str | None,
    typer.Option(metavar="A,B[,C]", help="Columns of the query, of the ids and of the grade, with other names."),
]

Json = Annotated[str | None, to_json("Write the result as JSON")]

EngineName = Annotated[
    str | None, typer.Option("--engine", metavar="local|processes|ray", help="Where the shards are computed.")
]
Workers = Annotated[int | None, typer.Option(min=1, metavar="N", help="How many processes, or actors of Ray.")]
Address = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The Ray cluster; without it, one made here.")]

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Say nothing but errors; files are written."),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Say what is logged, and what it took."),
]

ThresholdFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Thresholds: a .toml or .json file of names and numbers.")
]
ThresholdSettings = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set one threshold; may be repeated.")
]

Group = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of the document of each text (guessed from names like doc_id)."),
]

# How texts are drawn and which columns are read, which a command takes by `reading_options`.
_READING_OPTIONS: dict[str, Any] = {
    "column": Column,
    "id_column": IdColumn,
    "label_column": LabelColumn,
    "limit": Limit,
    "seed": Seed,
}

# The options of the encoder, and the encoding of files, which a command takes by `encoder_options`.
_ENCODER_OPTIONS: dict[str, Any] = {
    "max_length": MaxLength,
    "prompt": Prompt,
    "prompt_name": PromptName,
    "role": Role,
    "dtype": Dtype,
    "revision": Revision,
    "device": Device,
    "batch_tokens": BatchTokens,
    "trust_remote_code": TrustRemoteCode,
    "allow_pickle": AllowPickle,
    "encoding": Encoding,
}

# Where the work is done, which a command takes by `engine_options`.
_ENGINE_OPTIONS: dict[str, Any] = {"engine": EngineName, "workers": Workers, "address": Address}

_UNSET: dict[Any, Any] = {
    TrustRemoteCode: False,
    AllowPickle: False,
    Quiet: False,
    Verbose: False,
    Seed: 0,
}  # of all others: None

Command = Callable[..., None]


def reading_options(*, labels: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of reading texts; it receives them as one dictionary, `reading`, set or not."""
    shared = {name: kind for name, kind in _READING_OPTIONS.items() if labels or kind is not LabelColumn}
    return lambda command: _gathering(command, "reading", shared, command)


def encoder_options(*, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Give a command the options of the encoder; it receives those that were set as one dictionary, `options`.

    `--encoding` comes with them and is no one's argument: it holds for all that the command reads.
    """
    shared = {name: kind for name, kind in _ENCODER_OPTIONS.items() if name not in without}

    def decorate(command: Command) -> Command:
        def run(*, options: dict[str, Any], **values: Any) -> None:
            encoding = options.pop("encoding", None)
            # An empty prompt is a choice too: it overrules the one that a model declares as its default.
            chosen = {name: value for name, value in options.items() if value is not None and value is not False}
            if encoding is None:
                command(**values, options=chosen)
                return
            from poolscope.texts.plain import default_encoding  # with the command's own imports, not at start-up

            with default_encoding(encoding):
                command(**values, options=chosen)

        return _gathering(command, "options", shared, run)

    return decorate


def engine_options(command: Command) -> Command:
    """Give a command --engine, --workers and --address; it receives them as one dictionary, `where`."""
    return _gathering(command, "where", _ENGINE_OPTIONS, command)


def open_engine(where: dict[str, Any], options: dict[str, Any]) -> Engine | None:
    """The engine that was asked for, with a graphics device for every actor where the device is one; None for none."""
    if not any(where.values()):
        return None
    from poolscope.engines import make_engine

    gpus = 1.0 if str(options.get("device", "")).startswith("cuda") else 0.0
    name = where["engine"] or ("ray" if where["address"] else "processes")
    return make_engine(name, workers=where["workers"], address=where["address"], gpus=gpus)


def _gathering(command: Command, name: str, shared: dict[str, Any], run: Command) -> Command:
    """`run` with the signature of `command`, in which the shared options stand for the dictionary of that name."""
    signature = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [part.replace(kind=kind) for part in signature.parameters.values() if part.name != name]
    parameters += [
        inspect.Parameter(option, kind, default=_UNSET.get(annotation), annotation=annotation)
        for option, annotation in shared.items()
    ]

    @functools.wraps(command)
    def gathering(**values: Any) -> None:
        run(**{name: {option: values.pop(option) for option in shared}, **values})

    gathering.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    gathering.__annotations__ = {part.name: part.annotation for part in parameters}
    return gathering


def parse_layers(text: str | None) -> list[int] | None:
    """Layer numbers from `--layers 0,3,-1`.

    >>> parse_layers("0, 3,-1"), parse_layers(None)
    ([0, 3, -1], None)
    """
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--layers: received {text!r}; allowed: whole numbers with commas, such as 0,3,6 (0: embedding output)."
        ) from None


def parse_part(text: str | None) -> tuple[int, int] | None:
    """Part K of N from `--shard K/N`.

    >>> parse_part("3/16"), parse_part(None)
    ((3, 16), None)
    """
    if text is None:
        return None
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise InputError(f"--shard: received {text!r}; allowed: K/N with K from 1 to N, such as 3/16.")
    return int(number), int(of)


# -- tables: what does not fit is left out whole, and named, instead of cut inside a number ---------------------------


def print_table(table: Table, screen: Console, *, whole: str = "--json FILE has all of them") -> None:
    """Print a table; of one that is wider than the screen the last columns are left out, and `whole` says where."""
    left_out = _fit(table, screen)
    screen.print(table)
    if left_out:
        columns = f"1 column is left out here ({left_out[0]})"
        if len(left_out) > 1:
            columns = f"{len(left_out)} columns are left out here ({', '.join(left_out)})"
        screen.print(wrapped(f"{columns}: {whole}", screen.width), style="dim", soft_wrap=True)


def print_verdict(verdict: Verdict, screen: Console, *, name: str = "") -> None:
    """The level in its colour, after the `name` of what it is about, and the sentence."""
    from rich.text import Text

    from poolscope.verdicts import LEVEL_COLOURS

    head = f"{name}: {verdict.level}" if name else verdict.level
    told = Text(wrapped(f"{head}  {verdict.sentence}", screen.width))
    told.stylize(f"bold {LEVEL_COLOURS[verdict.level]}", 0, len(head))
    screen.print(told)


def _fit(table: Table, screen: Console) -> list[str]:
    """Take columns off the right end until no word and no number is broken; the headings of these."""
    sides = table.padding[1] + table.padding[3]  # between columns, and one column of the box
    edges = 2 if table.box is not None and table.show_edge else 0
    if _room(table, [_whole(column) for column in table.columns], sides, edges) <= screen.width:
        return []
    left_out: list[str] = []
    widths = [_narrowest(column) for column in table.columns]
    while len(widths) > 2 and _room(table, widths, sides, edges) > screen.width:
        widths.pop()
        left_out.insert(0, str(table.columns.pop().header))
    for column, width in zip(table.columns, widths, strict=True):
        if _is_unbroken(column):  # headings may stand in several lines
            column.width, column.no_wrap = width, False
        else:
            column.min_width = width
    return left_out


def _room(table: Table, widths: list[int], sides: int, edges: int) -> int:
    return sum(widths) + len(widths) * (sides + (table.box is not None)) + edges


def _whole(column: TableColumn) -> int:
    return max(len(line) for cell in (column.header, *column.cells) for line in (str(cell).splitlines() or [""]))


def _narrowest(column: TableColumn) -> int:
    """Numbers, and what is not to be wrapped, stay whole; words are parted from each other."""
    words = [word for cell in (column.header, *column.cells) for word in str(cell).split()]
    longest = max(map(len, words), default=0)
    return max(longest, *(len(str(cell)) for cell in column.cells)) if _is_unbroken(column) else longest


def _is_unbroken(column: TableColumn) -> bool:
    return column.justify == "right" or column.no_wrap
