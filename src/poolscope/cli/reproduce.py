"""`poolscope research reproduce`: published experiments from data to tables and figures, in one folder."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.outputs import to_folder
from poolscope.errors import InputError

EXPERIMENTS = ("socm-paper", "length-collapse", "norm-variance")
NOTHING_MEASURED = 1


@arguments.encoder_options(without=("max_length", "prompt", "prompt_name", "role", "revision"))
def reproduce(
    experiment: Annotated[
        str, typer.Argument(metavar="EXPERIMENT", help="socm-paper, length-collapse, norm-variance.")
    ],
    output: Annotated[Path, to_folder("Where to write; not yet there.", "--output", "-o")],
    models: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this model of the paper (repeatable).")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SOURCE", help="Load a model from elsewhere, or add one (repeatable)."),
    ] = None,
    sets: Annotated[list[str] | None, typer.Option(metavar="SET", help="Only this set of texts (repeatable).")] = None,
    texts: Annotated[
        list[str] | None, typer.Option(metavar="SET=SOURCE", help="Read a set from elsewhere (repeatable).")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Texts (or queries) of each set, not the published number."),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(metavar="TABLE|FOLDER", help="socm-paper: scores of the models, to correlate with.")
    ] = None,
    taus: Annotated[
        str | None, typer.Option(metavar="0.8,0.9", help="length-collapse: temperatures, not the published grid.")
    ] = None,
    seed: arguments.Seed = 0,
    no_cache: arguments.NoCache = False,
    *,
    options: dict[str, Any],
) -> None:
    """Run a published experiment as far as models and texts can be reached.

    socm-paper: SOCM of 12 models on the sets wiki, marco and hard, exact and published values side by side.
    length-collapse: the sets texts and pairs by length and temperature. norm-variance: norm and variance of the tokens
    of the set texts. What cannot be reached stands in the tables with the reason; exit code 1: nothing could be.
    """
    from poolscope.encoders.base import EncoderOptions
    from poolscope.research.reproduce.experiment import Request, choose, parse_named

    further = _further(experiment, scores, taus)
    chosen = import_module(f"poolscope.research.reproduce.{experiment.replace('-', '_')}")
    request = Request(
        models=choose(chosen.MODELS, only=models or (), sources=parse_named(model or (), "--model"), what="models"),
        texts=choose(
            chosen.TEXTS, only=sets or (), sources=parse_named(texts or (), "--texts"), what="sets", add=False
        ),
        limit=limit,
        seed=seed,
        options=EncoderOptions(**options),
        cache=not no_cache,
        say=lambda message: typer.echo(message, err=True),
    )
    done = chosen.run(output, request, command=shlex.join(["poolscope", *sys.argv[1:]]), **further)
    typer.echo(f"measured: {done.measured} of {len(done.runs)}" + ("" if done.complete else "; README.md says why"))
    typer.echo(f"written: {done.folder}")
    if done.measured == 0:
        raise typer.Exit(NOTHING_MEASURED)


def _further(experiment: str, scores: Path | None, taus: str | None) -> dict[str, Any]:
    """The options that only one experiment has."""
    if experiment not in EXPERIMENTS:
        raise InputError(f"EXPERIMENT: received {experiment!r}; allowed: {', '.join(EXPERIMENTS)}.")
    for option, value, owner in (("--scores", scores, "socm-paper"), ("--taus", taus, "length-collapse")):
        if value is not None and experiment != owner:
            raise InputError(f"{option}: received for {experiment}; it belongs to {owner}. Leave it out.")
    if scores is not None:
        return {"scores": scores}
    if taus is None:
        return {}
    try:
        return {"temperatures": [float(part) for part in taus.split(",")]}
    except ValueError:
        raise InputError(f"--taus: received {taus!r}; allowed: numbers with commas, such as 0.8,0.9.") from None
