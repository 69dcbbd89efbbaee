"""`poolscope length`: do long texts look alike, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments as given
from poolscope.cli.outputs import name_written, put_json, to_figure
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.clouds.vectors import Vectors
    from poolscope.metrics.length.report import LengthReport
    from poolscope.texts import Pairs, Texts

# Texts, and pairs for the search, that are drawn from the embedded corpus when the user names none.
DEFAULT_LIMIT = 500
DEFAULT_PAIRS = 300


@given.encoder_options()
def length(
    model: Annotated[
        str,
        typer.Argument(metavar="[MODEL|VECTORS]", help="Model, or a .npy, .npz or .parquet file of pooled vectors."),
    ] = given.MODEL,
    texts: given.Texts = None,
    bins: Annotated[
        str | None, typer.Option(metavar="N|EDGES", help="N quantile bins, or edges: 0,50,100. Default: widths of 50.")
    ] = None,
    min_texts: Annotated[int, typer.Option(min=1, metavar="N", help="Merge bins with fewer texts.")] = 20,
    pairs: Annotated[
        str | None, typer.Option(metavar="FILE", help="Queries with their documents: who wins, and position.")
    ] = None,
    labels: Annotated[bool, typer.Option("--labels", help="Predict the labels of the texts, by length.")] = False,
    probes: Annotated[
        bool, typer.Option("--probes/--no-probes", help="Null models and probes, which encode more inputs.")
    ] = True,
    column: given.Column = None,
    id_column: given.IdColumn = None,
    label_column: given.LabelColumn = None,
    limit: given.Limit = None,
    seed: given.Seed = 0,
    json: given.Json = None,
    figure: Annotated[Path | None, to_figure("Draw everything: .html, .png, .svg.")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Length collapse: similarity by length with floors and intervals, the mechanism, null models and probes.

    With nothing: the embedded model on 500 texts and 300 pairs of the embedded corpus. With a file of VECTORS, which
    needs no model, TEXTS are the texts of the vectors where the file itself holds neither texts nor lengths; without
    TEXTS, the names of columns are those of the file.
    """
    from rich.console import Console

    from poolscope.cli.length_screen import print_report
    from poolscope.clouds.vectors import is_vectors

    screen = Console(stderr=json == "-", soft_wrap=False)
    reading = {"column": column, "id_column": id_column, "label_column": label_column}
    settings: dict[str, Any] = {"bins": parse_bins(bins), "min_texts": min_texts, "seed": seed}
    if is_vectors(model):
        named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        _refuse({"--pairs": pairs, "--limit": limit, "--no-probes": None if probes else True, **named}, model)
        report = _of_vectors(model, texts, labels=labels, reading=reading, settings=settings, screen=screen)
    else:
        corpus, search = _read(texts, pairs, reading=reading, limit=limit, seed=seed, probes=probes)
        report = _of_model(
            model, corpus, search, labels=labels, probes=probes, settings=settings, options=options, screen=screen
        )
    print_report(report, screen)
    _write(report, json, figure)
    name_written(screen, json, figure)


def parse_bins(text: str | None) -> int | list[float] | None:
    """The bins that an option names.

    >>> parse_bins("8"), parse_bins("0,50,100.5"), parse_bins(None)
    (8, [0.0, 50.0, 100.5], None)
    """
    if text is None:
        return None
    try:
        return int(text) if "," not in text else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--bins: received {text!r}; allowed: a number of quantile bins such as 8, or edges such as 0,50,100,200."
        ) from None


def _refuse(useless: Mapping[str, Any], source: str) -> None:
    if names := [name for name, value in useless.items() if value is not None]:
        raise InputError(
            f"{source} holds ready vectors, so these cannot apply: {', '.join(names)}. Leave them out, or name a model."
        )


def _of_vectors(
    path: str,
    texts: str | None,
    *,
    labels: bool,
    reading: Mapping[str, Any],
    settings: Mapping[str, Any],
    screen: Console,
) -> LengthReport:
    from poolscope.clouds.vectors import WORDS, read_vectors
    from poolscope.metrics.length.labels import labels_by_length
    from poolscope.metrics.length.profile import length_profile
    from poolscope.metrics.length.report import LengthReport
    from poolscope.texts import read_texts

    corpus = None if texts is None else read_texts(texts, **reading)
    held = _held(path, corpus) if corpus is not None else read_vectors(path, **reading)
    if held.lengths is None:
        raise InputError(
            f"{path}: received vectors without texts or lengths; one of them is needed. Name the texts as the second "
            f"argument, or save an array 'lengths' beside the vectors."
        )
    names = held.labels or (None if corpus is None else corpus.labels)
    if corpus is not None and held.unit != WORDS and not (labels and held.labels is None):
        raise InputError(f"{path} holds lengths of its own, so TEXTS ({corpus.source}) cannot apply. Leave them out.")
    if labels and names is None:
        raise InputError(f"--labels: {path} holds no labels. Save them beside the vectors, or name --label-column.")
    screen.print(f"{held} · lengths in {held.unit}", highlight=False, markup=False)
    profile = length_profile(held.vectors, held.lengths, unit=held.unit, **settings)
    found = labels_by_length(held.vectors, held.lengths, names, **settings) if labels and names else None
    note = "Vectors alone: whether plain averaging explains a rise takes the model (poolscope length MODEL TEXTS)."
    return LengthReport(profile=profile, labels=found, notes=(note,))


def _held(path: str, corpus: Texts) -> Vectors:
    """The vectors with the texts beside them; where their numbers differ, what was left out in reading is said."""
    from poolscope.clouds.vectors import read_vectors

    try:
        return read_vectors(path, texts=corpus.texts)
    except InputError as error:
        raise InputError(
            " ".join([str(error), *(f"{corpus.source}: {note}" for note in corpus.report.notes())])
        ) from error


def _read(
    texts: str | None, pairs: str | None, *, reading: Mapping[str, Any], limit: int | None, seed: int, probes: bool
) -> tuple[Texts, Pairs | None]:
    from poolscope.texts import read_pairs, read_texts

    drawn = DEFAULT_LIMIT if texts is None and limit is None else limit
    corpus = read_texts(texts or given.TEXTS, **reading, sample=drawn or None, seed=seed)
    if pairs is not None:
        return corpus, read_pairs(pairs, sample=DEFAULT_PAIRS if pairs == given.TEXTS else None, seed=seed)
    if texts is None and probes:
        return corpus, read_pairs(given.TEXTS, sample=DEFAULT_PAIRS, seed=seed)
    return corpus, None


def _of_model(
    model: str,
    corpus: Texts,
    pairs: Pairs | None,
    *,
    labels: bool,
    probes: bool,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    screen: Console,
) -> LengthReport:
    from poolscope.cli.progress import counting_progress
    from poolscope.metrics.length.report import length_report

    if labels and corpus.labels is None:
        raise InputError(f"--labels: {corpus.source} has no labels. Name their column with --label-column.")
    for note in corpus.report.notes():
        screen.print(f"  {note}", style="dim", highlight=False, markup=False)
    with counting_progress("encoding", None, "tokens") as advance:
        report = length_report(
            model,
            corpus.texts,
            labels=corpus.labels if labels else None,
            pairs=pairs,
            probes=probes,
            progress=lambda texts, tokens: advance(tokens),
            **settings,
            **options,
        )
    name = "" if report.model is None else report.model["name"]
    screen.print(f"{name} · {len(corpus):,} texts of {corpus.source}", highlight=False, markup=False)
    return report


def _write(report: LengthReport, json: str | None, figure: Path | None) -> None:
    if json is not None:
        put_json(report.to_dict(), json)
    if figure is not None:
        from poolscope.charts.files import save_figure
        from poolscope.metrics.length.figure import length_sheet

        save_figure(length_sheet(report), figure)
