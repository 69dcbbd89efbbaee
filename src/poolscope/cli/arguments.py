"""The arguments that commands share, each with its one line of help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from poolscope.cli.outputs import to_json
from poolscope.errors import InputError

MODEL = "builtin:minilm"
TEXTS = "builtin:docstrings"

Model = Annotated[str, typer.Argument(metavar="[MODEL]", help="Hub name, folder, ONNX file or built-in model.")]
ModelOrClouds = Annotated[
    str, typer.Argument(metavar="[MODEL|CLOUDS]", help="Model, or clouds that `poolscope encode` wrote.")
]
Texts = Annotated[
    str | None, typer.Argument(metavar="[TEXTS]", help="File, folder, hub data set, built-in texts, or - (stdin).")
]
Limit = Annotated[int | None, typer.Option(min=0, metavar="N", help="Draw N of the texts (0: all).")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Encode again, and keep nothing.")]

Column = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the texts.")]
IdColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the ids.")]
LabelColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the labels.")]
Seed = Annotated[int, typer.Option(help="Seed of the draw.")]

Prompt = Annotated[str | None, typer.Option(help="Prefix of every text.")]
PromptName = Annotated[str | None, typer.Option(metavar="NAME", help="A prompt that the model declares.")]
Role = Annotated[
    str | None, typer.Option(metavar="query|document", help="Take the prompt that the model declares for this role.")
]
MaxLength = Annotated[
    int | None, typer.Option(min=1, metavar="TOKENS", help="Cut texts here, not where the model says.")
]
Dtype = Annotated[str | None, typer.Option(metavar="NAME", help="float32, float16, bfloat16 or float64.")]
Revision = Annotated[str | None, typer.Option(metavar="NAME", help="Revision of a hub model.")]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda, mps, or several: cuda:0,cuda:1.")]
BatchTokens = Annotated[int | None, typer.Option(min=1, metavar="TOKENS", help="Largest batch, padding included.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the code that the model brings.")]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Load weights of a kind that can run code.")]
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="Encoding of the files of texts, such as cp1252, not UTF-8.")
]

Json = Annotated[str | None, to_json("Write the result as JSON")]

ThresholdFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Thresholds: a .toml or .json file of names and numbers.")
]
ThresholdSettings = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set one threshold; may be repeated.")
]

# The options of the encoder, and how texts are read, which a command takes by `encoder_options`.
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

Command = Callable[..., None]


def encoder_options(*, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Give a command the options of the encoder; it receives those that were set as one dictionary, `options`.

    `--encoding` comes with them and is no one's argument: it holds for all that the command reads.
    """
    shared = {name: kind for name, kind in _ENCODER_OPTIONS.items() if name not in without}

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.name != "options"
        ]
        for name, kind in shared.items():
            unset = False if kind in (TrustRemoteCode, AllowPickle) else None
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=unset, annotation=kind))

        @functools.wraps(command)
        def run(**values: Any) -> None:
            received = {name: values.pop(name) for name in shared}
            encoding = received.pop("encoding", None)
            # An empty prompt is a choice too: it overrules the one that a model declares as its default.
            options = {name: value for name, value in received.items() if value is not None and value is not False}
            if encoding is None:
                command(**values, options=options)
                return
            from poolscope.texts.plain import default_encoding  # with the command's own imports, not at start-up

            with default_encoding(encoding):
                command(**values, options=options)

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


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
