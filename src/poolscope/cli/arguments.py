"""The arguments and options that commands share; names of files to write are checked before the work begins."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import poolscope
from poolscope.cli.screen import SCREEN, loudness
from poolscope.errors import InputError
from poolscope.files import check_file, check_folder

if TYPE_CHECKING:
    from poolscope.engines import Engine

# -- arguments and options, each with its one line of help ------------------------------------------------------------


def argument(metavar: str, meaning: str) -> Any:
    """An argument that has no name: what stands for it, and what it means."""
    return typer.Argument(metavar=metavar, help=meaning)


def option(metavar: str, meaning: str, *names: str, **limits: Any) -> Any:
    """An option that takes a value: what stands for the value, what it means, and its names if it has others."""
    return typer.Option(*names, metavar=metavar, help=meaning, **limits)


def switch(meaning: str, *names: str) -> Any:
    """An option that is given or not."""
    return typer.Option(*names, help=meaning)


def to_file(meaning: str, *names: str, metavar: str = "FILE") -> Any:
    """An option for a file to write; a name that cannot be written is refused before the work."""
    return option(metavar, meaning, *names, callback=_checked_file)


def to_folder(meaning: str, *names: str) -> Any:
    """An option for a folder to write into, refused in the same way."""
    return option("FOLDER", meaning, *names, callback=_checked_folder)


def to_figure(meaning: str, *names: str) -> Any:
    """An option for a figure: its name must say a known format, too."""
    return option("FILE", meaning, *names, callback=_checked_figure)


def to_json(meaning: str) -> Any:
    """An option for JSON, to a file or, with "-", to the screen."""
    return option("FILE", f"{meaning} (-: to the screen).", callback=_checked_json)


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


# -- the arguments that commands share, each with its one line of help ------------------------------------------------

MODEL = "builtin:minilm"
TEXTS = "builtin:docstrings"

Model = Annotated[str, argument("[MODEL]", "Hub name, folder, ONNX file or built-in model.")]
ModelOrClouds = Annotated[str, argument("[MODEL|CLOUDS]", "Model, or clouds that `poolscope encode` wrote.")]
ModelOrVectors = Annotated[str, argument("[MODEL|CLOUDS|VECTORS]", "Model, clouds, or vectors in a file or a store.")]
Texts = Annotated[str | None, argument("[TEXTS]", "File, folder, hub data set, built-in texts, or - (stdin).")]
Limit = Annotated[int | None, option("N", "Draw N of the texts (0: all).", min=0)]
NoCache = Annotated[bool, switch("Encode again, and keep nothing.", "--no-cache")]

Column = Annotated[str | None, option("NAME", "Column of the texts.")]
IdColumn = Annotated[str | None, option("NAME", "Column of the ids.")]
LabelColumn = Annotated[str | None, option("NAME", "Column of the labels.")]
Seed = Annotated[int, option("N", "Seed of the draw.")]

Prompt = Annotated[str | None, option("TEXT", "Prefix of every text.")]
PromptName = Annotated[str | None, option("NAME", "A prompt that the model declares.")]
Role = Annotated[str | None, option("query|document", "Take the prompt that the model declares for this role.")]
MaxLength = Annotated[int | None, option("TOKENS", "Cut texts here, not where the model says.", min=1)]
Dtype = Annotated[str | None, option("NAME", "float32, float16, bfloat16 or float64.")]
Revision = Annotated[str | None, option("NAME", "Revision of a hub model.")]
Device = Annotated[str | None, option("NAME", "cpu, cuda, mps, or several: cuda:0,cuda:1.")]
BatchTokens = Annotated[int | None, option("TOKENS", "Largest batch, padding included.", min=1)]
TrustRemoteCode = Annotated[bool, switch("Run the code that the model brings.", "--trust-remote-code")]
AllowPickle = Annotated[bool, switch("Load weights of a kind that can run code.", "--allow-pickle")]
Encoding = Annotated[str | None, option("NAME", "Encoding of the files of texts, such as cp1252, not UTF-8.")]

Queries = Annotated[str | None, option("FILE", "Queries with the ids of the texts that answer them, or a BEIR folder.")]
QueryColumns = Annotated[
    str | None, option("A,B[,C]", "Columns of the query, of the ids and of the grade, with other names.")
]

Json = Annotated[str | None, to_json("Write the result as JSON")]

EngineName = Annotated[str | None, option("local|processes|ray", "Where the shards are computed.", "--engine")]
Workers = Annotated[int | None, option("N", "How many processes, or actors of Ray.", min=1)]
Address = Annotated[str | None, option("HOST:PORT", "The Ray cluster; without it, one made here.")]

Quiet = Annotated[bool, switch("Say nothing but errors; files are written.", "--quiet", "-q")]
Verbose = Annotated[bool, switch("Say what is logged, and what it took.", "--verbose", "-v")]

ThresholdFile = Annotated[Path | None, option("FILE", "Thresholds: a .toml or .json file of names and numbers.")]
ThresholdSettings = Annotated[list[str] | None, option("NAME=VALUE", "Set one threshold; may be repeated.")]

Group = Annotated[str | None, option("COLUMN", "Column of the document of each text (guessed from names like doc_id).")]

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


def loudness_options(command: Command) -> Command:
    """Give a command --quiet and --verbose, which every command has."""

    def run(*, chosen: dict[str, bool], **values: Any) -> None:
        with loudness(**chosen):
            command(**values)

    return gathering(command, "chosen", {"quiet": Quiet, "verbose": Verbose}, run)


def reading_options(*, labels: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of reading texts; it receives them as one dictionary, `reading`, set or not."""
    shared = {name: kind for name, kind in _READING_OPTIONS.items() if labels or kind is not LabelColumn}
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


def open_engine(where: dict[str, Any], options: dict[str, Any]) -> Engine | None:
    """The engine that was asked for, with a graphics device for every actor where the device is one; None for none."""
    if not any(where.values()):
        return None

    gpus = 1.0 if str(options.get("device", "")).startswith("cuda") else 0.0
    name = where["engine"] or ("ray" if where["address"] else "processes")
    return poolscope.make_engine(name, workers=where["workers"], address=where["address"], gpus=gpus)


def gathering(
    command: Command, name: str, shared: dict[str, Any], run: Command, defaults: Mapping[str, Any] | None = None
) -> Command:
    """`run` with the signature of `command`, in which the shared options stand for the dictionary of that name."""
    signature = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [part.replace(kind=kind) for part in signature.parameters.values() if part.name != name]
    parameters += [
        inspect.Parameter(
            option, kind, default=(defaults or {}).get(option, _UNSET.get(annotation)), annotation=annotation
        )
        for option, annotation in shared.items()
    ]

    @functools.wraps(command)
    def gathered(**values: Any) -> None:
        run(**{name: {option: values.pop(option) for option in shared}, **values})

    gathered.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    gathered.__annotations__ = {part.name: part.annotation for part in parameters}
    return gathered


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
