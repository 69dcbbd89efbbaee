"""The arguments that commands share, each with its one line of help."""

from __future__ import annotations

from typing import Annotated

import typer

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
Sample = Annotated[
    int | None, typer.Option("--sample", "--limit", min=0, metavar="N", help="Draw N of the texts (0: all).")
]
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


def parse_layers(given: str | None) -> list[int] | None:
    """Layer numbers from `--layers 0,3,-1`.

    >>> parse_layers("0, 3,-1"), parse_layers(None)
    ([0, 3, -1], None)
    """
    if given is None:
        return None
    try:
        return [int(part) for part in given.split(",")]
    except ValueError:
        raise InputError(
            f"--layers: received {given!r}; allowed: whole numbers with commas, such as 0,3,6 (0: embedding output)."
        ) from None
