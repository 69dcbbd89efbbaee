"""From what the user named to clouds: stored ones as they are, otherwise texts encoded by a model, with a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from poolscope.cli.arguments import TEXTS, is_quiet
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.lines import wrapped
from poolscope.stores.remote import is_remote
from poolscope.stores.store import is_store, open_clouds

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.encoders.base import Progress
    from poolscope.encoders.tokens import Vocabulary
    from poolscope.engines import Engine
    from poolscope.texts import Queries, Texts

# Texts drawn from the embedded corpus when the user names no texts: enough for a picture, done in a minute.
DEFAULT_LIMIT = 500
_BAR = 12  # columns of a bar: the words beside it fit in 80


class Described(NamedTuple):
    """Clouds, the names of their tokens and the label of each text, where these are at hand."""

    clouds: TokenClouds
    vocabulary: Vocabulary | None = None
    labels: Sequence[str] | None = None


def load_described(
    source: str,
    texts: str | None,
    *,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    cache: bool,
    screen: Console,
) -> Described:
    """Clouds of `source` (a store or a cloud file), or of `texts` encoded by the model that `source` names.

    With what is known of their tokens and texts. reading: column, id_column, label_column, limit, seed; options: those
    of the encoder that were given. What the user should know (texts dropped, truncation, unusual pooling) is printed.
    """
    if not is_clouds(source):
        return _encode(source, texts, reading, options, cache=cache, screen=screen)
    refuse_with_clouds(source, texts, reading, options)
    from poolscope.encoders.named import stored_vocabulary
    from poolscope.encoders.reports import cloud_notes

    clouds = open_clouds(source)
    _print_origin(clouds, cloud_notes(clouds), screen, name=source)
    return Described(clouds, stored_vocabulary(clouds))


def store_for(
    engine: Engine,
    source: str,
    texts: str | None,
    *,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    screen: Console,
) -> str:
    """The place of the store that an engine is to measure: the one that was named, or an entry that it writes."""
    from functools import partial

    from poolscope.encoders import EncoderOptions, as_encoder
    from poolscope.encoders.reports import cloud_notes
    from poolscope.engines import encode_with
    from poolscope.stores.cache import cached_store

    if is_store(source):
        refuse_with_clouds(source, texts, reading, options)
        clouds = open_clouds(source)
        _print_origin(clouds, cloud_notes(clouds), screen, name=source)
        return source
    corpus, encoder = read_corpus(texts, reading, screen=screen), as_encoder(source, **options)
    with encoding_progress(len(corpus)) as progress:
        write = partial(encode_with, engine)
        store = cached_store(encoder, corpus, options=EncoderOptions(**options), progress=progress, write=write)
    if store is None:
        raise InputError(
            f"{source}: cannot be kept in the cache, and an engine measures what is stored. Write a store with "
            f"`poolscope encode MODEL TEXTS -o FOLDER`, and name its folder."
        )
    screen.print(f"{encoder.card.name} · {len(corpus):,} texts of {corpus.source}")
    return store.place


def refuse_with_clouds(source: str, texts: str | None, reading: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Clouds are encoded already: refuse what says how to read and encode texts."""
    useless = [name for name, value in {"TEXTS": texts, **reading, **options}.items() if value and name != "seed"]
    if useless:
        raise InputError(
            f"{source} holds ready clouds, so these cannot apply: {', '.join(useless)}. Leave them out, or name a "
            f"model."
        )


def read_asked(
    queries: str | None, columns: str | None, texts: str | None, id_column: str | None
) -> tuple[Queries | None, str | None, str | None]:
    """The queries, the texts that they are about (of their benchmark, where none were named) and the column of ids."""
    from poolscope.texts import read_queries
    from poolscope.texts.queries import id_column_for
    from poolscope.texts.sources import open_benchmark

    if queries is None:
        if columns is not None:
            raise InputError(f"--query-columns: received {columns!r} without --queries. Name the file of the queries.")
        return None, texts, id_column
    judged = read_queries(queries, columns=tuple(columns.split(",")) if columns else ())
    benchmark = open_benchmark(queries) if texts is None else None
    texts = texts if benchmark is None else benchmark.folder
    return judged, texts, id_column or (None if texts is None else id_column_for(texts, judged))


def read_corpus(
    texts: str | None,
    reading: Mapping[str, Any],
    *,
    default: int = DEFAULT_LIMIT,
    keep: Collection[str] = (),
    screen: Console | None = None,
) -> Texts:
    """The texts that the user named, or `default` of the embedded corpus; `screen` is told what reading met.

    reading: column, id_column, label_column, limit (0: all) and seed, those that the command has. Texts of the ids in
    `keep` are in every draw.
    """
    from poolscope.texts import read_texts

    limit = reading.get("limit")
    drawn = default if texts is None and limit is None else limit
    columns = {name: reading.get(name) for name in ("column", "id_column", "label_column")}
    corpus = read_texts(texts or TEXTS, **columns, limit=drawn or None, seed=reading.get("seed", 0), keep=keep)
    if screen is not None:
        print_notes(corpus.report.notes(), screen)
    return corpus


def print_notes(notes: Sequence[str], screen: Console) -> None:
    """What the user should know, in small letters below what it is about."""
    for note in notes:
        screen.print(wrapped(note, screen.width, "  "), style="dim", soft_wrap=True)


def is_clouds(source: str) -> bool:
    """Does the name mean a store or a cloud file, not a model? An address in an object store is no model's."""
    return is_remote(source) or is_store(source) or Path(source).suffix == ".arrow"


def _encode(
    model: str,
    texts: str | None,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    cache: bool,
    screen: Console,
) -> Described:
    from poolscope.encoders import EncoderOptions, as_encoder, pooling_report, truncation_report
    from poolscope.encoders.capabilities import vocabulary_of
    from poolscope.stores.cache import cached_clouds

    corpus = read_corpus(texts, reading)
    encoder = as_encoder(model, **options)
    with encoding_progress(len(corpus)) as progress:
        clouds = cached_clouds(encoder, corpus, options=EncoderOptions(**options), enabled=cache, progress=progress)
    notes = [*corpus.report.notes(), *pooling_report(encoder).notes(), *truncation_report(clouds).notes()]
    _print_origin(clouds, notes, screen, name=encoder.card.name)
    return Described(clouds, vocabulary_of(encoder), corpus.labels if reading.get("label_column") else None)


def _print_origin(clouds: TokenClouds, notes: Sequence[str], screen: Console, *, name: str) -> None:
    """Which model, which texts, how many tokens; and what the user should know of them."""
    model, texts = (clouds.provenance.get(part) or {} for part in ("model", "texts"))
    source = f" of {texts['source']}" if "source" in texts else ""
    line = f"{model.get('name', name)} · {len(clouds):,} texts{source} · {clouds.lengths.sum():,} tokens"
    screen.print(wrapped(line, screen.width), soft_wrap=True)
    print_notes(notes, screen)


# -- bars: how much, how fast, how long to go -------------------------------------------------------------------------


class _Left(ProgressColumn):
    """About how long to go: a number as soon as there is one, and words until then."""

    def render(self, task: Task) -> Text:
        """The time left; where the end is not known, the time gone."""
        from poolscope.auditing.screen import duration

        if task.total is None:
            return Text(f"{duration(task.elapsed or 0)} gone")
        return Text(
            "measuring the pace" if task.time_remaining is None else f"about {duration(task.time_remaining)} left"
        )


@contextmanager
def encoding_progress(total: int, *, console: Console | None = None) -> Iterator[Progress]:
    """Show a bar for `total` texts on standard error while the body runs; yields what to call after a batch.

    A call with 0 tokens reports texts that needed no encoding: they move the bar and leave the speed alone.
    Nothing is drawn where standard error is not a terminal.
    """
    screen = console or Console(stderr=True, emoji=False, quiet=is_quiet())
    columns = (
        TextColumn("encoding"),
        BarColumn(_BAR),
        TextColumn("{task.completed:,.0f} of {task.total:,} texts{task.fields[speed]} ·"),
        _Left(),
    )
    with Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal or is_quiet()) as bar:
        task = bar.add_task("encoding", total=total, speed="")
        began, tokens_done = time.perf_counter(), 0

        def advance(texts: int, tokens: int) -> None:
            nonlocal tokens_done
            if tokens == 0:
                bar.reset(task, completed=texts)
                return
            tokens_done += tokens
            bar.update(task, advance=texts, speed=f" · {tokens_done / (time.perf_counter() - began):,.0f} tokens/s")

        yield advance


@contextmanager
def counting_progress(name: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a bar for `total` items (None: not known); yields what to call with the number just done."""
    screen = Console(stderr=True, emoji=False, quiet=is_quiet())
    columns = (TextColumn(name), BarColumn(_BAR), TextColumn("{task.fields[state]}"), _Left())
    with Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal or is_quiet()) as bar:
        task = bar.add_task(name, total=total, state="")
        began, done = time.perf_counter(), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            rate = done / (time.perf_counter() - began)
            of = "" if total is None else f" of {total:,}"
            bar.update(task, advance=count, state=f"{done:,}{of} {unit} · {rate:,.0f} {unit}/s")

        yield advance
