"""The arguments and options that commands share; names of files to write are checked before the work begins."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer

from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.files import check_file, check_folder
from poolscope.show.screen import SCREEN, loudness

if TYPE_CHECKING:
    from poolscope.engines import Engine

# -- arguments and options, each with its one line of help ------------------------------------------------------------


def argument(metavar: str, meaning: str) -> Any:
    """An argument without a name: its placeholder and its meaning."""
    return typer.Argument(metavar=metavar, help=meaning)


def option(metavar: str, meaning: str, *names: str, **limits: Any) -> Any:
    """An option with a value: the placeholder, the meaning, and other names."""
    return typer.Option(*names, metavar=metavar, help=meaning, **limits)


def switch(meaning: str, *names: str) -> Any:
    """An option that is given or not."""
    return typer.Option(*names, help=meaning)


def to_file(meaning: str, *names: str, metavar: str = "FILE") -> Any:
    """An option for a file to write; a name that cannot be written is refused before the work."""
    return option(metavar, meaning, *names, callback=_checked(check_file))


def to_folder(meaning: str, *names: str) -> Any:
    """An option for a folder to write into, refused in the same way."""
    return option("FOLDER", meaning, *names, callback=_checked(check_folder))


def to_figure(meaning: str, *names: str) -> Any:
    """An option for a figure: its name must say a known format, too."""
    return option("FILE", meaning, *names, callback=_checked(_check_figure))


def to_json(meaning: str) -> Any:
    """An option for JSON, to a file or, with "-", to the screen."""
    return option("FILE", f"{meaning} (-: to the screen).", callback=_checked(check_file, SCREEN))


def _checked(check: Callable[[Any], Any], *unchecked: str) -> Callable[[Any], Any]:
    """Callback of an option, which checks the name that the value refers to."""

    def checked(target: Any) -> Any:
        if target is not None and target not in unchecked:
            check(target)
        return target

    return checked


def to_card(meaning: str, *names: str) -> Any:
    """An option for a card: its name must say a known format, too."""
    return option("FILE", meaning, *names, callback=_checked(_check_card))


def _check_card(path: Path) -> None:
    from poolscope.auditing.card import check_card_path

    check_card_path(path)
    check_file(path)


def _check_figure(path: Path) -> None:
    from poolscope.show.charts import check_figure_path

    check_figure_path(path)
    check_file(path)


# -- the arguments that commands share, each with its one line of help ------------------------------------------------

MODEL = "builtin:minilm"
TEXTS = "builtin:docstrings"

Model = Annotated[str, argument("[MODEL]", "Hub name, folder, ONNX file or built-in model.")]
ModelOrClouds = Annotated[str, argument("[MODEL|CLOUDS]", "Model, or clouds that `poolscope encode` wrote.")]
ModelOrVectors = Annotated[str, argument("[MODEL|CLOUDS|VECTORS]", "Model, clouds, or vectors in a file or a store.")]
Texts = Annotated[str | None, argument("[TEXTS]", "File, folder, hub data set, built-in texts, or - (stdin).")]
Limit = Annotated[int | None, option("N", "Use a random sample of N texts (0: all).", min=0)]
Temperature = Annotated[
    str | None, option("TAU|RULE", "Attention at this temperature: 0.8, log:5, yarn:0.01, or query=1,document=0.8.")
]
NoCache = Annotated[bool, switch("Re-encode everything, and store nothing.", "--no-cache")]
Details = Annotated[bool, switch("Show all numbers, and what they mean.", "--details")]

IdColumn = Annotated[str | None, option("NAME", "Column of the ids.")]
Seed = Annotated[int, option("N", "Seed of the random sample.")]

Queries = Annotated[str | None, option("FILE", "Queries with the ids of the texts that answer them, or a BEIR folder.")]
QueryColumns = Annotated[str | None, option("A,B[,C]", "Names of the columns of the query, the ids and the grade.")]

Json = Annotated[str | None, to_json("Write the result as JSON")]


Group = Annotated[str | None, option("COLUMN", "Column of the document of each text (guessed from names like doc_id).")]

# How texts are drawn and which columns are read, which a command takes by `reading_options`.
_READING_OPTIONS: dict[str, Any] = {
    "column": Annotated[str | None, option("NAME", "Column of the texts.")],
    "id_column": IdColumn,
    "label_column": Annotated[str | None, option("NAME", "Column of the labels.")],
    "limit": Limit,
    "seed": Seed,
}

# The options of the encoder, and the encoding of files, which a command takes by `encoder_options`.
_ENCODER_OPTIONS: dict[str, Any] = {
    "max_length": Annotated[int | None, option("TOKENS", "Truncate texts here (default: the model's limit).", min=1)],
    "prompt": Annotated[str | None, option("TEXT", "Prefix of every text.")],
    "prompt_name": Annotated[str | None, option("NAME", "Use a prompt that the model declares, by its name.")],
    "role": Annotated[str | None, option("query|document", "Use the prompt that the model declares for this role.")],
    "dtype": Annotated[str | None, option("NAME", "float32, float16, bfloat16, float64 or int8 (linear layers).")],
    "revision": Annotated[str | None, option("NAME", "Revision of a hub model.")],
    "device": Annotated[str | None, option("NAME", "cpu, cuda, mps, or several: cuda:0,cuda:1.")],
    "batch_tokens": Annotated[int | None, option("TOKENS", "Most tokens in a batch, padding included.", min=1)],
    "trust_remote_code": Annotated[bool, switch("Run Python code that comes with the model.", "--trust-remote-code")],
    "allow_pickle": Annotated[bool, switch("Load pickled weights, which can run code.", "--allow-pickle")],
    "encoding": Annotated[str | None, option("NAME", "Encoding of text files that are not UTF-8, such as cp1252.")],
}

# Where the work is done, which a command takes by `engine_options`.
_ENGINE_OPTIONS: dict[str, Any] = {
    "engine": Annotated[
        str | None, option("local|processes|ray", "Compute here, in several processes, or on Ray.", "--engine")
    ],
    "workers": Annotated[int | None, option("N", "Number of processes or Ray actors.", min=1)],
    "address": Annotated[str | None, option("HOST:PORT", "Ray cluster to join (default: one is started here).")],
}

# How much is said, which every command takes by `loudness_options`.
_LOUDNESS_OPTIONS: dict[str, Any] = {
    "quiet": Annotated[bool, switch("Print errors only; files are still written.", "--quiet", "-q")],
    "verbose": Annotated[bool, switch("Show log messages and timings.", "--verbose", "-v")],
}

_UNSET: dict[type, Any] = {bool: False, int: 0}  # what is not given; of all other types None

Command = Callable[..., None]
Number = TypeVar("Number", int, float)


def loudness_options(command: Command) -> Command:
    """Give a command --quiet and --verbose, which every command has."""

    def run(*, chosen: dict[str, bool], **values: Any) -> None:
        with loudness(**chosen):
            command(**values)

    return gathering(command, "chosen", _LOUDNESS_OPTIONS, run)


def reading_options(*, labels: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of reading texts; it receives them as one dictionary, `reading`, set or not."""
    shared = {name: kind for name, kind in _READING_OPTIONS.items() if labels or name != "label_column"}
    return lambda command: gathering(command, "reading", shared, command)


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

        return gathering(command, "options", shared, run)

    return decorate


def engine_options(command: Command) -> Command:
    """Give a command --engine, --workers and --address; it receives them as one dictionary, `where`."""
    return gathering(command, "where", _ENGINE_OPTIONS, command)


def open_engine(where: dict[str, Any], options: dict[str, Any], temperature: str | None = None) -> Engine | None:
    """The engine that was asked for, with a graphics device for every actor where the device is one; None for none."""
    if not any(where.values()):
        return None
    if temperature is not None:
        raise InputError(f"--temperature {temperature}: workers of an engine run without it. Leave out one of the two.")

    gpus = 1.0 if str(options.get("device", "")).startswith("cuda") else 0.0
    name = where["engine"] or ("ray" if where["address"] else "processes")
    engine: Engine = service("engine")(name, workers=where["workers"], address=where["address"], gpus=gpus)
    return engine


def gathering(
    command: Command, name: str, shared: dict[str, Any], run: Command, defaults: Mapping[str, Any] | None = None
) -> Command:
    """`run` with the signature of `command`, in which the shared options stand for the dictionary of that name."""
    signature = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [part.replace(kind=kind) for part in signature.parameters.values() if part.name != name]
    parameters += [
        inspect.Parameter(
            option,
            kind,
            default=(defaults or {}).get(option, _UNSET.get(get_args(annotation)[0])),
            annotation=annotation,
        )
        for option, annotation in shared.items()
    ]

    @functools.wraps(command)
    def gathered(**values: Any) -> None:
        run(**{name: {option: values.pop(option) for option in shared}, **values})

    gathered.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    gathered.__annotations__ = {part.name: part.annotation for part in parameters}
    return gathered


def received(options: Mapping[str, Any]) -> list[str]:
    """Options and arguments that were passed, spelt as on the command line.

    >>> received({"TEXTS": "a.txt", "max_length": 64, "prompt": None})
    ['TEXTS', '--max-length']
    """
    given = [name for name, value in options.items() if value is not None]
    return [name if name.isupper() else f"--{name.replace('_', '-')}" for name in given]


def parse_numbers(text: str, option: str, kind: Callable[[str], Number], example: str) -> list[Number]:
    """Numbers with commas between, each read by `kind`.

    >>> parse_numbers("0.8,1", "--taus", float, "0.8,0.9")
    [0.8, 1.0]
    """
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option}: received {text!r}; allowed: {numbers} with commas, such as {example}.") from None


def parse_layers(text: str | None) -> list[int] | None:
    """Layer numbers from `--layers 0,3,-1`.

    >>> parse_layers("0, 3,-1"), parse_layers(None)
    ([0, 3, -1], None)
    """
    return None if text is None else parse_numbers(text, "--layers", int, "0,3,6 (0: embedding output)")


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
