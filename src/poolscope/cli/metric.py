"""The command of a metric that has none of its own: measured on a model and texts, printed from its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from poolscope.cli import arguments
from poolscope.cli.arguments import print_table, put_result, to_figure, to_file
from poolscope.errors import InputError
from poolscope.lines import short, wrapped
from poolscope.metrics.base import METRICS, Metric

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.engines import Engine
    from poolscope.results import Result
    from poolscope.stores.store import Store

_PLACES = ("position", "nearest")  # columns that count texts: the screen names these
_ID = 28  # letters of an id


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
        ids = None
        if result is None:
            inputs, ids = _inputs(metric, model, texts, reading, options, cache=not no_cache, screen=screen)
            result = metric(*inputs)
        _print(result, screen, ids)
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
) -> tuple[tuple[Any, ...], Sequence[str]]:
    """What the metric needs, made of what the user named, and the ids of the texts."""
    from poolscope.cli.inputs import load_described, read_corpus, refuse_with_clouds
    from poolscope.connectors import is_index
    from poolscope.encoders.pooling import pooling_of
    from poolscope.stores.store import Store, is_store

    if metric.needs == "vectors" and is_index(model):
        held = _held(model, texts, reading, options, screen)
        return (held.vectors,), held.ids
    if metric.needs == "vectors" and is_store(model) and Store.open(model).manifest.keep != "tokens":
        refuse_with_clouds(model, texts, {**reading, **options}, {})  # all texts, not a draw
        kept = _opened(model, screen).vectors()
        return (kept.vectors,), kept.ids
    if metric.needs in ("clouds", "vectors"):
        clouds = load_described(model, texts, reading=reading, options=options, cache=cache, screen=screen).clouds
        return (clouds if metric.needs == "clouds" else pooling_of(clouds).pool(clouds),), clouds.ids
    corpus = read_corpus(texts, reading, screen=screen)
    if metric.needs == "texts":
        return (corpus.texts,), corpus.ids
    from poolscope.encoders import as_encoder

    return (as_encoder(model, **options), corpus.texts), corpus.ids


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


def _print(result: Result, screen: Console, ids: Sequence[str] | None) -> None:
    """What is seen in words, the numbers below each other, and the first rows of the table, texts by their ids."""
    import pyarrow as pa
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from poolscope.views import heading, shown_columns

    for sentence in result.seen():
        screen.print(wrapped(sentence, screen.width))
    told = result.told()
    width = max(len(words) for words, _ in told) if told else 0
    for words, number in told:
        screen.print(wrapped(f"{words:<{width}}  {number}", screen.width, hanging=" " * (width + 2)), soft_wrap=True)
    rows = result.to_table()
    if len(rows) < 2:
        return
    kept = min(result.shown_rows, len(rows))
    if kept:
        names = shown_columns(rows)
        shown = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in names:
            numeric = pa.types.is_floating(rows[name].type) or pa.types.is_integer(rows[name].type)
            shown.add_column(
                "text" if name == "position" else heading(name, result.column_words),
                justify="right" if numeric and name not in _PLACES else "left",
            )
        for row in rows.slice(0, kept).to_pylist():
            shown.add_row(*(_cell(name, row[name], ids) for name in names))
        print_table(shown, screen, whole="--table FILE has all of them")
    if len(rows) > kept:
        count, more = len(rows) - kept, "more " if kept else ""
        screen.print(f"{count:,} {more}row{'' if count == 1 else 's'}: --table writes all of them", style="dim")


def _cell(name: str, value: Any, ids: Sequence[str] | None) -> str:
    if name in _PLACES and ids is not None and isinstance(value, int) and 0 <= value < len(ids):
        return short(ids[value], _ID)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
