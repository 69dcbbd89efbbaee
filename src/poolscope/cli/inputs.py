"""From what the user named to clouds: stored ones as they are, otherwise texts encoded by a model, with a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from poolscope.cli.arguments import TEXTS
from poolscope.cli.opening import opened_model
from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection, is_index, read_index
from poolscope.encoders import EncoderOptions, Progress, TokenEncoder, pooling_report, truncation_report
from poolscope.encoders.capabilities import vocabulary_of
from poolscope.encoders.named import stored_vocabulary
from poolscope.encoders.pooling import TextPooling, pooling_of
from poolscope.encoders.reports import cloud_notes
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.metrics.base import Metric
from poolscope.results import Result
from poolscope.show.console import Console
from poolscope.show.screen import Screen, is_quiet
from poolscope.stores.cache import cached_clouds, cached_store
from poolscope.stores.store import Store, is_clouds, is_store, open_clouds
from poolscope.stores.writer import texts_for_store
from poolscope.texts import Queries, Texts, read_queries, read_texts
from poolscope.texts.groups import groups_of_ids, tells
from poolscope.texts.queries import id_column_for
from poolscope.texts.sources import open_benchmark

if TYPE_CHECKING:
    from poolscope.clouds.vectors import Vectors
    from poolscope.engines import Engine

# Texts drawn from the embedded corpus when the user names no texts: enough for a picture, done in a minute.
DEFAULT_LIMIT = 500
_BAR = 12  # columns of a bar: the words beside it fit in 80


class Described(NamedTuple):
    """Clouds, the names of their tokens and the label of each text, where these are at hand."""

    clouds: TokenClouds
    vocabulary: Vocabulary | None = None
    labels: Sequence[str] | None = None


class Pooled(NamedTuple):
    """One vector a text, with the names, the texts and the documents that came with them."""

    vectors: Any
    ids: Sequence[str]
    texts: Sequence[str] | None = None
    labels: Sequence[str] | None = None

    @property
    def documents(self) -> Sequence[str] | None:
        """The document of each text: as named, else by ids like doc#3."""
        return self.labels if self.labels is not None and tells(self.labels) else groups_of_ids(self.ids)


@dataclass(frozen=True)
class Inputs:
    """The inputs that the user named, from texts to clouds; notes on them go to the screen.

    `model` is a model, or what holds ready clouds. `reading`: column, id_column, label_column, limit (0: all) and seed,
    those that the command has; `options`: those of the encoder that were given. `default`: how many texts of the
    embedded corpus are drawn where none were named. `temperature`: the rule at which the attention of the model runs.
    """

    model: str
    texts: str | None
    reading: Mapping[str, Any]
    options: Mapping[str, Any]
    screen: Screen
    cache: bool = True
    default: int = DEFAULT_LIMIT
    temperature: str | None = None

    def corpus(self, *, keep: frozenset[str] | tuple[str, ...] = (), tell: bool = False) -> Texts:
        """The texts that were named, or some of the embedded corpus; texts of the ids in `keep` are in every draw.

        `tell`: say on the screen what reading met.
        """
        limit = self.reading.get("limit")
        drawn = self.default if self.texts is None and limit is None else limit
        columns = {name: self.reading.get(name) for name in ("column", "id_column", "label_column")}
        seed = self.reading.get("seed", 0)
        corpus = read_texts(self.texts or TEXTS, **columns, limit=drawn or None, seed=seed, keep=keep)
        self.screen.print_notes(corpus.report.notes() if tell else ())
        return corpus

    def whole_corpus(self, place: Path, *, keep: frozenset[str] | tuple[str, ...] = ()) -> Texts:
        """`corpus`; but all texts of a source, which may be too large for memory, are read into a file at `place`."""
        if self.texts is None or self.reading["limit"] or keep:
            return self.corpus(keep=keep)
        columns = {name: self.reading[name] for name in ("column", "id_column", "label_column")}
        return texts_for_store(self.texts, place, **columns)

    def encoder(self) -> TokenEncoder:
        """The model, opened, at the temperature that was named."""
        if self.temperature is None:
            return opened_model(self.model, self.options)
        from poolscope.repairs.temperature.rules import ByRole, rule_from_words
        from poolscope.repairs.temperature.tempscale import run_at

        rule = rule_from_words(self.temperature)
        if isinstance(rule, ByRole) and not self.options.get("role"):
            raise InputError(f"--temperature {self.temperature} differs by role. Say --role query or --role document.")
        encoder = opened_model(self.model, self.options)
        run_at(encoder, rule)
        return encoder

    def described(self) -> Described:
        """The clouds of a store or a cloud file, or of the texts encoded by the model."""
        return self._described()[0]

    def _described(self, *, of_vectors: bool = False) -> tuple[Described, TextPooling]:
        """The clouds, and the pooling of their model; `of_vectors`: notes are about pooled vectors, not clouds."""
        if is_clouds(self.model):
            clouds = self._ready(of_vectors=of_vectors)
            return Described(clouds, stored_vocabulary(clouds)), pooling_of(clouds)
        corpus, encoder = self.corpus(), self.encoder()
        settings = EncoderOptions(**self.options)
        with encoding_progress(len(corpus)) as progress:
            clouds = cached_clouds(encoder, corpus, options=settings, enabled=self.cache, progress=progress)
        pooling = TextPooling.of(encoder)
        report = pooling_report(encoder).notes(vectors=pooling if of_vectors else None)
        notes = [*corpus.report.notes(), *report, *truncation_report(clouds).notes()]
        self._print_origin(clouds, notes, encoder.card.name)
        labels = corpus.labels if self.reading.get("label_column") else None
        return Described(clouds, vocabulary_of(encoder), labels), pooling

    def store(self, engine: Engine) -> str:
        """The place of the store that an engine is to measure: the one that was named, or an entry that it writes."""
        if is_store(self.model):
            self._ready()
            return self.model
        corpus, encoder = self.corpus(tell=True), self.encoder()
        with encoding_progress(len(corpus)) as progress:
            write, settings = partial(service("encoding on an engine"), engine), EncoderOptions(**self.options)
            store = cached_store(encoder, corpus, options=settings, progress=progress, write=write)
        if store is None:
            raise InputError(
                f"{self.model}: cannot be kept in the cache, and an engine measures what is stored. Write a store with "
                f"`poolscope encode MODEL TEXTS -o FOLDER`, and name its folder."
            )
        self.screen.name_origin(f"{encoder.card.name} · {len(corpus):,} texts of {corpus.source}")
        return store.place

    def refuse_with_clouds(self) -> None:
        """Clouds are encoded already: refuse what says how to read and encode texts."""
        named = {"TEXTS": self.texts, "--temperature": self.temperature, **self.reading, **self.options}
        if useless := [name for name, value in named.items() if value and name != "seed"]:
            raise InputError(
                f"{self.model} holds ready clouds, so these cannot apply: {', '.join(useless)}. Leave them out, or "
                f"name a model."
            )

    def _ready(self, *, of_vectors: bool = False) -> TokenClouds:
        """The clouds that the model's name means, as they are."""
        self.refuse_with_clouds()
        clouds = open_clouds(self.model)
        notes = cloud_notes(clouds, vectors=pooling_of(clouds) if of_vectors else None)
        self._print_origin(clouds, notes, self.model)
        return clouds

    def _print_origin(self, clouds: TokenClouds, notes: Sequence[str], name: str) -> None:
        """Print the model, the texts, the number of tokens, and the notes on them."""
        model, texts = (clouds.provenance.get(part) or {} for part in ("model", "texts"))
        source = f" of {texts['source']}" if "source" in texts else ""
        tokens = f"{clouds.lengths.sum():,} tokens"
        self.screen.name_origin(f"{model.get('name', name)} · {len(clouds):,} texts{source} · {tokens}", notes)

    # -- a metric, by what it needs -------------------------------------------------------------------------------

    def measured(
        self, metric: Metric, engine: Engine | None, queries: Queries | None = None
    ) -> tuple[Result, Sequence[str] | None]:
        """The metric, and the ids of the texts: shard by shard of a store, whatever its size, where its parts merge.

        Documents that ids tell are named to metrics that ask for them, and queries are encoded as the model reads them.
        """
        if metric.part is not None and is_store(self.model):
            self.refuse_with_clouds()
            store = open_store(self.model, self.screen)
            with counting_progress("measuring", len(store), "texts") as progress:
                return measure_store(metric, engine, store, progress=progress), None
        if engine is not None:
            raise InputError(
                f"--engine: {metric.name} is measured here in one process; an engine measures a store (`poolscope "
                f"encode -o FOLDER`) with a metric whose parts merge."
            )
        if metric.needs == "vectors":
            pooled = self._vectors()
            options = {"groups": pooled.documents, "seed": self.reading.get("seed", 0)}
            if queries is None:
                return metric(pooled.vectors, **metric.taken(options)), pooled.ids
            asking, relevant = self._asking(queries, pooled)
            options = metric.taken(options, answered=True)
            return metric.of_search(asking, pooled.vectors, relevant, **options), pooled.ids
        if metric.needs == "clouds":
            clouds = self.described().clouds
            return metric(clouds), clouds.ids
        corpus = self.corpus(tell=True)
        return metric(*([] if metric.needs == "texts" else [self.encoder()]), corpus.texts), corpus.ids

    def _asking(self, queries: Queries, pooled: Pooled) -> tuple[Any, Any]:
        """The vectors of the queries that are about these texts, and the pairs with their answers, as in an audit."""
        from poolscope.auditing.search import judgements_of, query_encoder, vectors_of

        encoder = self.encoder()
        documents = (groups_of_ids(pooled.ids), pooled.labels)
        judged = queries.among(pooled.ids, documents=documents, drawn=bool(self.reading["limit"]))
        asking = vectors_of(query_encoder(encoder, None), TextPooling.of(encoder), list(judged.texts))
        return asking, judged.relevant if pooled.texts is None else judgements_of(judged, pooled.texts).relevant

    def _vectors(self) -> Pooled:
        """Vectors as they are stored, or pooled from clouds."""
        if is_index(self.model):
            collection = self._collection()
            return Pooled(collection.vectors, collection.ids, collection.texts, collection.groups)
        if is_store(self.model) and Store.open(self.model).manifest.keep != "tokens":
            self.refuse_with_clouds()  # all texts, not a draw
            stored = open_store(self.model, self.screen).vectors()
            return Pooled(stored.vectors, stored.ids, stored.texts)
        described, pooling = self._described(of_vectors=True)
        clouds = described.clouds
        return Pooled(pooling.pool(clouds), clouds.ids, clouds.texts, described.labels)

    def _collection(self) -> Collection:
        """The vectors of a file or a vector store, which need neither model nor texts."""
        if useless := [name for name, value in {"TEXTS": self.texts, **self.options}.items() if value]:
            raise InputError(
                f"{self.model} holds vectors, so these cannot apply: {', '.join(useless)}. Leave them out."
            )
        columns = {name: self.reading[name] for name in ("column", "id_column", "limit", "seed")}
        collection = read_index(self.model, **columns)
        self.screen.name_origin(repr(collection), collection.notes)
        return collection


def measure_store(
    metric: Metric,
    engine: Engine | None,
    store: Store,
    *,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Result:
    """A metric of a finished store, shard by shard: in this process, or on an engine."""
    if engine is not None:
        result: Result = service("metric on an engine")(engine, metric, store.place, progress=progress, **options)
        return result

    def reported() -> Iterator[TokenClouds | Vectors]:
        for shard in store.shards(pooled=metric.needs == "vectors"):
            yield shard
            if progress is not None:
                progress(len(shard))

    return metric.in_parts(reported(), **options)


def open_store(folder: str, screen: Screen) -> Store:
    """A store, named on the screen, with a note where its vectors are not the model's own."""
    store = Store.open(folder)
    origin = f"{store.card.name} · {len(store):,} texts of {store.manifest.texts['source']}"
    screen.name_origin(origin, store.vector_notes())
    return store


def read_asked(
    queries: str | None, columns: str | None, texts: str | None, id_column: str | None
) -> tuple[Queries | None, str | None, str | None]:
    """The queries, the texts that they are about (of their benchmark, where none were named) and the column of ids."""
    if queries is None:
        if columns is not None:
            raise InputError(f"--query-columns: received {columns!r} without --queries. Name the file of the queries.")
        return None, texts, id_column
    judged = read_queries(queries, columns=tuple(columns.split(",")) if columns else ())
    benchmark = open_benchmark(queries) if texts is None else None
    texts = texts if benchmark is None else benchmark.folder
    return judged, texts, id_column or (None if texts is None else id_column_for(texts, judged))


# -- bars: how much, how fast, how long to go -------------------------------------------------------------------------


class _Left(ProgressColumn):
    """About how long to go: a number as soon as there is one, and words until then."""

    def render(self, task: Task) -> Text:
        """The time left; where the end is not known, the time gone."""
        from poolscope.auditing.watch import duration

        if task.total is None:
            return Text(f"{duration(task.elapsed or 0)} gone")
        return Text(
            "measuring the pace" if task.time_remaining is None else f"about {duration(task.time_remaining)} left"
        )


def _bar(name: str, state: str, console: Console | None = None) -> Bar:
    """A bar on standard error that gives way to what follows, and is not drawn where that is no terminal."""
    screen = console or Console(stderr=True, quiet=is_quiet())
    columns = (TextColumn(name), BarColumn(_BAR), TextColumn(state), _Left())
    return Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal or is_quiet())


@contextmanager
def encoding_progress(total: int, *, console: Console | None = None) -> Iterator[Progress]:
    """Show a bar for `total` texts on standard error while the body runs; yields what to call after a batch.

    A call with 0 tokens reports texts that needed no encoding: they move the bar and leave the speed alone.
    """
    state = "{task.completed:,.0f} of {task.total:,} texts{task.fields[speed]} ·"
    with _bar("encoding", state, console) as bar:
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
    with _bar(name, "{task.fields[state]}") as bar:
        task = bar.add_task(name, total=total, state="")
        began, done = time.perf_counter(), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            rate = done / (time.perf_counter() - began)
            of = "" if total is None else f" of {total:,}"
            bar.update(task, advance=count, state=f"{done:,}{of} {unit} · {rate:,.0f} {unit}/s")

        yield advance
