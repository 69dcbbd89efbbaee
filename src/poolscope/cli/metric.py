"""The command of a metric that has none of its own: measured on a model and texts, printed from its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from poolscope.cli import arguments
from poolscope.cli.arguments import put_result, to_figure, to_file
from poolscope.errors import InputError
from poolscope.metrics.base import METRICS, Metric

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.engines import Engine
    from poolscope.results import Result
    from poolscope.stores.store import Store

SHOWN = 20  # rows of the table on the screen


def command(name: str) -> Callable[..., None]:
    """The command that measures the metric of a name."""
    metric = METRICS[name]

    @arguments.encoder_options()
    @arguments.reading_options()
    @arguments.engine_options
    def measure(
        model: arguments.ModelOrClouds = arguments.MODEL,
        texts: arguments.Texts = None,
        json: arguments.Json = None,
        table: Annotated[Path | None, to_file("Write the table: .parquet or .csv.")] = None,
        figure: Annotated[Path | None, to_figure("Draw the figure: .html, .png, .svg.")] = None,
        no_cache: arguments.NoCache = False,
        *,
        where: dict[str, Any],
        reading: dict[str, Any],
        options: dict[str, Any],
    ) -> None:

        screen = arguments.open_screen(json)
        engine = arguments.open_engine(where, options)
        result = _in_parts(metric, model, texts, {**reading, **options}, engine, screen)
        if result is None:
            result = metric(*_inputs(metric, model, texts, reading, options, cache=not no_cache, screen=screen))
        _print(result, screen)
        put_result(result, screen, json=json, table=table, figure=figure)

    measure.__doc__ = f"{metric.words}\n\nWith nothing: the embedded model on some texts of the embedded corpus."
    return measure


def _in_parts(
    metric: Metric,
    model: str,
    texts: str | None,
    useless: Mapping[str, Any],
    engine: Engine | None,
    screen: Console,
) -> Result | None:
    """The metric of a store, shard by shard, whatever its size; None where it is no store, or parts do not merge."""
    from poolscope.cli.inputs import counting_progress, refuse_with_clouds
    from poolscope.stores.store import is_store

    if metric.part is None or not is_store(model):
        if engine is not None:
            raise InputError(
                f"--engine: {metric.name} is measured here in one process; an engine measures a store (`poolscope "
                f"encode -o FOLDER`) with a metric whose parts merge."
            )
        return None
    from poolscope.engines import measure_with

    refuse_with_clouds(model, texts, useless, {})
    store = _opened(model, screen)
    with counting_progress("measuring", len(store), "texts") as progress:
        return measure_with(engine, metric, model, progress=progress)


def _opened(folder: str, screen: Console) -> Store:
    """A store, named on the screen."""
    from poolscope.stores.store import Store

    store = Store.open(folder)
    screen.print(f"{store.card.name} · {len(store):,} texts of {store.manifest.texts['source']}")
    return store


def _inputs(
    metric: Metric,
    model: str,
    texts: str | None,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    cache: bool,
    screen: Console,
) -> tuple[Any, ...]:
    """What the metric needs, made of what the user named."""
    from poolscope.cli.inputs import load_clouds, read_corpus, refuse_with_clouds
    from poolscope.connectors import is_index
    from poolscope.encoders.pooling import pooling_of
    from poolscope.stores.store import Store, is_store

    if metric.needs == "vectors" and is_index(model):
        return (_held(model, texts, reading, options, screen).vectors,)
    if metric.needs == "vectors" and is_store(model) and Store.open(model).manifest.keep != "tokens":
        refuse_with_clouds(model, texts, {**reading, **options}, {})  # all texts, not a draw
        return (_opened(model, screen).vectors().vectors,)
    if metric.needs in ("clouds", "vectors"):
        clouds = load_clouds(model, texts, reading=reading, options=options, cache=cache, screen=screen)
        return (clouds,) if metric.needs == "clouds" else (pooling_of(clouds).pool(clouds),)
    corpus = read_corpus(texts, reading, screen=screen)
    if metric.needs == "texts":
        return (corpus.texts,)
    from poolscope.encoders import as_encoder

    return as_encoder(model, **options), corpus.texts


def _held(
    source: str, texts: str | None, reading: Mapping[str, Any], options: Mapping[str, Any], screen: Console
) -> Any:
    """The vectors of a file or a store, which need neither model nor texts."""
    from poolscope.cli.inputs import print_notes
    from poolscope.connectors import read_index

    useless = [name for name, value in {"TEXTS": texts, **options}.items() if value]
    if useless:
        raise InputError(f"{source} holds vectors, so these cannot apply: {', '.join(useless)}. Leave them out.")
    columns = {name: reading[name] for name in ("column", "id_column", "limit", "seed")}
    collection = read_index(source, **columns)
    screen.print(repr(collection))
    print_notes(collection.notes, screen)
    return collection


def _print(result: Result, screen: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    for name, value in result.headline().items():
        screen.print(f"{name.replace('_', ' ')}: {value}")
    rows = result.to_table()
    if len(rows) < 2:
        return
    names = [name.replace("_", " ") for name in rows.column_names]
    shown = Table(*names, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows.slice(0, SHOWN).to_pylist():
        shown.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    screen.print(shown)
    if len(rows) > SHOWN:
        screen.print(f"{len(rows) - SHOWN:,} more rows: --table writes all of them", style="dim")
