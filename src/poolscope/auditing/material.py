"""What an audit is about: texts encoded by a model, ready clouds, or vectors alone, with where they came from."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.auditing.commands import PIPE
from poolscope.auditing.screen import ENCODING, OPENING, Watch, duration
from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection, as_collection, is_index
from poolscope.connectors.base import Distance, without_secrets
from poolscope.connectors.collection import array_collection
from poolscope.encoders import EncoderOptions, ModelCard, TokenEncoder, as_encoder
from poolscope.encoders.base import ArrayEncoder
from poolscope.encoders.capabilities import can_encode
from poolscope.encoders.endpoint import as_vector_source, is_vector_source
from poolscope.encoders.named import stored_vocabulary
from poolscope.encoders.pooling import TextPooling, pooling_of
from poolscope.encoders.reports import TruncationReport
from poolscope.encoders.tokens import Vocabulary
from poolscope.engines import Engine, encode_with, measure_with
from poolscope.errors import InputError
from poolscope.metrics.corpus import CorpusSummary
from poolscope.metrics.length.bins import narrow_edges
from poolscope.metrics.length.profile import LengthProfile
from poolscope.metrics.scores import cone
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.bures.pairs import available_cores
from poolscope.numbers.intervals import Interval
from poolscope.numbers.streaming import marks_of
from poolscope.stores.cache import cached_clouds, cached_store, server_vectors
from poolscope.stores.store import Store, is_clouds, is_store, open_clouds
from poolscope.stores.writer import encode_to_store
from poolscope.texts import Texts, read_texts
from poolscope.texts.groups import checked_groups, groups_of_ids, tells
from poolscope.texts.records import BUILTIN

# Texts drawn from the built-in corpus when none are named.
DEFAULT_TEXTS = 1000
NEVER = math.inf  # a precision that plans nothing: the answers are about all texts


class StoredEncoder(ArrayEncoder):
    """Ready clouds, with what their model declared when it made them."""

    def __init__(self, clouds: TokenClouds, card: ModelCard, options: EncoderOptions) -> None:
        super().__init__(clouds)
        self.card = card
        self.options = options

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """The names of its tokens, where the tokenizer of the model lies here."""
        return stored_vocabulary(self.ready_clouds)


@dataclass(frozen=True)
class Settings:
    """How the texts are encoded."""

    options: Mapping[str, Any]
    seed: int
    cache: bool
    watch: Watch
    engine: Engine | None
    precision: float | None

    @property
    def stores(self) -> bool:
        """Whether clouds are kept in the cache: workers of an engine must find what they write."""
        return self.cache or self.engine is not None


@dataclass(frozen=True)
class Material:
    """What the questions are asked about, and where it came from.

    `notes` is what reading the texts met, `seconds` what opening the model took, and encoding, where nothing came from
    the cache. `whole`: what was measured on all texts, where they are many and the clouds are of a draw. `collection`:
    the vectors, where there are vectors only.
    """

    encoder: TokenEncoder
    clouds: TokenClouds
    source: str
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    whole: Whole | None = None
    collection: Collection | None = None

    def documents(self, groups: Sequence[Any] | None) -> tuple[Sequence[str] | None, bool]:
        """The document of each cloud, by what was named, else by what came with the vectors, else by ids like doc#3;
        and whether it is known by the ids.
        """
        brought = None if self.collection is None else self.collection.groups
        if groups is None and brought is not None and tells(brought):
            groups = brought
        if groups is None:
            return groups_of_ids(brought or ()) or groups_of_ids(self.clouds.ids), True
        if self.whole is None:
            return checked_groups(groups, len(self.clouds)), False
        names = checked_groups(groups, self.whole.plan.texts)
        return [names[k] for k in self.whole.positions], False


def encoded(model: Any, texts: Any, how: Settings) -> Material:
    """The texts in the model; ready clouds as they are; of many texts a draw, and what merges of all."""
    ready, watch = model if isinstance(model, TokenClouds) else _opened(model), how.watch
    if ready is not None and texts is None:
        if how.options:
            raise InputError(
                f"received ready clouds and the options {sorted(how.options)}; clouds are taken as they are. Leave the "
                f"options out, or name a model."
            )
        return _ready(ready, model, how)
    watch.opened("reading the texts")
    corpus = _corpus(texts, how.seed)
    watch.begin(paced_name(model), len(corpus), sum(map(len, corpus.texts)))
    watch.opened(OPENING)
    began = time.perf_counter()
    encoder = as_encoder(model if ready is None else ready, **how.options)
    opening = {OPENING: time.perf_counter() - began}
    if how.precision != NEVER and is_planned(corpus, how.precision) and can_encode(encoder):
        material = _planned(encoder, corpus, how)
        return replace(material, seconds={**opening, **material.seconds})
    watch.opened(ENCODING)
    began = time.perf_counter()
    write = encode_to_store if how.engine is None else partial(encode_with, how.engine)
    settings = EncoderOptions(**how.options)
    reused: list[int] = []

    def progress(count: int, tokens: int) -> None:
        if tokens == 0:
            reused.append(count)
        watch.encoded(count, tokens)

    clouds = cached_clouds(encoder, corpus, options=settings, enabled=how.stores, progress=progress, write=write)
    seconds = opening if reused else {**opening, ENCODING: time.perf_counter() - began}
    return Material(encoder, clouds, corpus.source, tuple(corpus.report.notes()), seconds)


def _ready(clouds: TokenClouds, model: Any, how: Settings) -> Material:
    """Clouds as they are; of a store of many texts, or of vectors with the tokens of some, what merges is of all."""
    source, whole = name_of(model) or "ready clouds", None
    notes: tuple[str, ...] = ()
    if how.precision != NEVER and isinstance(model, str | os.PathLike) and is_store(model):
        whole, clouds = whole_of_store(model, clouds, how)
        notes = () if whole is None else whole.plan.sentences()[:2]
    elif how.precision not in (None, NEVER):
        raise InputError("precision: received with ready clouds; allowed: a model and texts, or a store. Leave it out.")
    return Material(_stored(clouds), clouds, source, notes, whole=whole)


def _planned(encoder: TokenEncoder, corpus: Texts, how: Settings) -> Material:
    """The same of a large corpus: a plan, then one vector of every text, what merges of all, and clouds of a draw."""
    how.watch.opened("planning, from a first batch")
    plan = make_plan(encoder, corpus, how.precision, workers=getattr(how.engine, "workers", None) or 1)
    how.watch.planned(plan.sentences())
    how.watch.opened(ENCODING)
    began = time.perf_counter()
    with _store(encoder, corpus, plan, how) as store:
        seconds = {ENCODING: time.perf_counter() - began}
        how.watch.opened(f"measuring all {len(corpus):,} texts")
        began = time.perf_counter()
        merged = _merged(store, how.engine)
        seconds["all texts"] = time.perf_counter() - began
        clouds, positions = store.clouds(), tuple(store.sampled(corpus.ids))
    notes = (*plan.sentences()[:2], *corpus.report.notes())
    whole = Whole(plan, *merged, positions, own=TextPooling.of(encoder).own)
    return Material(encoder, clouds, corpus.source, notes, seconds, whole)


def vectors_of(
    model: Any,
    texts: Any,
    options: Mapping[str, Any],
    distance: Distance | None,
    reference: Any,
    runtime: Any,
    *,
    cache: bool,
    watch: Watch,
) -> Collection | None:
    """The vectors, where that is what was passed, with the texts beside them; None for a model or clouds."""
    served = is_vector_source(model)
    if not served and not is_index(model):
        for name, value in {"distance": distance, "reference": reference}.items():
            if value is not None:
                raise InputError(f"{name}: received {value!r} with a model; it is for vectors alone. Leave it out.")
        return None
    useless = (sorted(options) if reference is None else []) + ([] if runtime is None else ["vectors"])
    if useless:
        raise InputError(
            f"received vectors and the options {', '.join(useless)}, which are for a model; vectors are taken as they "
            f"are. Leave the options out, or name a model."
        )
    if served:
        return _from_server(model, texts, distance, cache=cache, watch=watch)
    collection = as_collection(model, distance=distance)
    return (
        collection if texts is None else collection.with_texts(texts if isinstance(texts, Texts) else read_texts(texts))
    )


def _from_server(model: Any, texts: Any, distance: Distance | None, *, cache: bool, watch: Watch) -> Collection:
    """The vectors that a server, or an embedding object, gives for the texts."""
    if texts is None:
        raise InputError("texts: received none for a server, which gives vectors for texts only. Name your texts.")
    source, corpus = as_vector_source(model), texts if isinstance(texts, Texts) else read_texts(texts)
    watch.begin(paced_name(model), len(corpus), sum(map(len, corpus)))
    watch.opened(ENCODING)
    vectors = server_vectors(source, list(corpus), keep=cache, progress=watch.encoded)
    notes = (*corpus.report.notes(), "Only pooled vectors can be had here: what needs tokens was not asked.")
    held = array_collection(vectors, texts=list(corpus), ids=corpus.ids, source=source.name, notes=notes, limit=0)
    return held if distance is None else replace(held, distance=distance)


def vectors_alone(collection: Collection) -> Material:
    """Vectors as clouds of one token each, so that whatever asks for the pooled vectors gets them."""
    card = ModelCard(collection.source, "vectors", collection.dimension, pooling=("mean",))
    clouds = TokenClouds.from_matrix(
        collection.vectors,
        np.arange(len(collection) + 1),
        texts=collection.texts,
        ids=collection.ids,
        provenance={"model": card.to_dict(), "options": {}},
    )
    encoder = StoredEncoder(clouds, card, EncoderOptions())
    return Material(encoder, clouds, collection.source, collection.notes, collection=collection)


def _corpus(texts: Any, seed: int) -> Texts:
    if texts is None:
        return read_texts(BUILTIN, limit=DEFAULT_TEXTS, seed=seed)
    return texts if isinstance(texts, Texts) else read_texts(texts)


def _opened(model: Any) -> TokenClouds | None:
    """Clouds, if the name is that of a cloud file or a store."""
    return open_clouds(model) if is_clouds(model) else None


def _stored(clouds: TokenClouds) -> StoredEncoder:
    """Ready clouds behind what their provenance says of their model; a plain card where it says nothing."""
    known = {field.name for field in fields(ModelCard)}
    declared = {name: value for name, value in dict(clouds.provenance.get("model", {})).items() if name in known}
    for name in ("pooling", "after"):
        declared[name] = tuple(declared.get(name, ()))
    card = ModelCard(**{"name": "ready clouds", "kind": "arrays", "dimension": clouds.dimension, **declared})
    options = {name: value for name, value in dict(clouds.provenance.get("options", {})).items() if value is not None}
    return StoredEncoder(clouds, card, EncoderOptions(**{k: v for k, v in options.items() if k in _CONTENT}))


_CONTENT = ("prompt", "prompt_name", "role", "max_length", "dtype", "revision")


def paced_name(model: Any) -> str:
    """The name under which the time that an audit takes is kept: as it was asked for, before anything is opened."""
    name = name_of(model)
    return type(model).__qualname__ if name is None else without_secrets(name)


def name_of(value: Any) -> str | None:
    """The name of a file, a folder or a model; None for what has none, such as an array or the standard input."""
    return os.fspath(value) if isinstance(value, str | os.PathLike) and os.fspath(value) != PIPE else None


# -- a large corpus: what is measured on all texts, what on a draw of them, and what it will cost ---------------------
#
# Everything that merges is measured on all texts, shard by shard: lengths, what was cut, norms, repeated texts, the
# profile by length. Pairs, trials and probes take a draw of the texts, by their ids, so large that intervals have the
# half-width that was asked for. A first batch tells how wide they are and how long it will take.

# From so many texts on an audit is planned without being asked, and the half-width of intervals that it then aims at.
PLANNED_FROM, PRECISION = 20_000, 0.02
# The first batch, the texts of it whose pairs are compared, and the bounds of the draw.
_BATCH, _COMPARED, LEAST, MOST = 256, 100, 1000, 20_000
_MOST_PAIRS = 100_000


@dataclass(frozen=True)
class Plan:
    """What will be done with how many texts, and about how long encoding takes.

    `sample` texts are drawn for pairs, trials and probes, and `pairs` of them are compared at most; `decides` names the
    number whose interval needs most texts (`needed`) for the `precision`, which is `reached` or not. `seconds` is what
    encoding takes, from `batch` texts encoded first; None where all are stored.
    """

    texts: int
    sample: int
    pairs: int
    precision: float
    reached: float
    decides: str
    batch: int
    needed: float
    seconds: float | None = None
    workers: int = 1

    def sentences(self) -> tuple[str, ...]:
        """The plan for people."""
        enough = f"for intervals of ±{self.precision:g} (--precision): {self.decides} needs most"
        if self.reached > self.precision and self.sample < self.texts:
            enough = f"fewer than ±{self.precision:g} needs: {self.decides} will be known to about ±{self.reached:.2g}"
        lines = (
            f"On all {self.texts:,} texts: what was cut off, lengths, norms, repeated texts and the profile by length.",
            f"On {self.sample:,} of them, drawn by their ids: pairs, trials and probes ({enough}).",
        )
        if self.seconds is None:
            return lines
        share = "" if self.workers == 1 else f", shared by {self.workers} workers"
        pace = f"at the pace of a first batch of {self.batch:,}; the questions come on top"
        return (*lines, f"Encoding all takes about {duration(self.seconds)}{share}, {pace}.")

    def to_dict(self) -> dict[str, Any]:
        """For the provenance."""
        return {"texts": self.texts, "sample": self.sample, "pairs": self.pairs, "precision": self.precision}


@dataclass(frozen=True)
class Whole:
    """What was measured on all texts of a planned audit. `own`: are the vectors behind the profile the model's own?"""

    plan: Plan
    corpus: CorpusSummary
    profile: LengthProfile
    positions: tuple[int, ...] = field(repr=False)  # of the drawn texts among all
    own: bool | None = True

    def truncation(self, drawn: TruncationReport) -> TruncationReport:
        """The report on the texts that were drawn, with the counts of all."""
        cut = int(self.corpus.cut_by_length.sum())
        counts: dict[str, Any] = {"texts": self.corpus.texts, "cut_texts": cut, "tokens_kept": self.corpus.tokens}
        return replace(drawn, **counts, tokens_lost=self.corpus.tokens_cut)


def is_planned(texts: Sized, precision: float | None) -> bool:
    """Is the audit of these texts planned: was that asked for, or are there many?"""
    if precision is not None and not (isinstance(precision, int | float) and 0 < precision < 1):
        raise InputError(
            f"precision: received {precision!r}; allowed: a half-width of intervals between 0 and 1, such as 0.02."
        )
    return len(texts) > LEAST and (precision is not None or len(texts) > PLANNED_FROM)


def make_plan(encoder: TokenEncoder, texts: Texts, precision: float | None, *, workers: int = 1) -> Plan:
    """The plan, from a first batch of the texts that would be drawn."""
    drawn = np.sort(np.argsort(marks_of(texts.ids), kind="stable")[:_BATCH])
    batch = [texts.texts[int(k)] for k in drawn]
    began, spent = time.perf_counter(), time.process_time()
    clouds = encoder.encode(batch)[-1]
    gone, spent = time.perf_counter() - began, time.process_time() - spent
    # Workers share the cores, so that each is slower than this process where that used several at once.
    cores = workers * max(1, available_cores() // workers)
    seconds = max(gone / workers, spent / cores) * sum(map(len, texts.texts)) / max(sum(map(len, batch)), 1)
    plan = _plan(clouds, len(texts), precision, TextPooling.of(encoder))
    return replace(plan, seconds=seconds, workers=workers)


def _plan(batch: TokenClouds, texts: int, precision: float | None, pooling: TextPooling | None = None) -> Plan:
    """The plan for so many texts of which some were drawn and encoded; those that are stored cost nothing more."""
    wanted = PRECISION if precision is None else precision
    needed, pairs = _needed(batch, wanted, pooling or pooling_of(batch))
    decides = max(needed, key=lambda name: needed[name])
    sample = min(max(math.ceil(needed[decides] / 100) * 100, LEAST), MOST, texts)
    reached = wanted * math.sqrt(needed[decides] / sample)
    return Plan(texts, sample, pairs, wanted, reached, decides, len(batch), needed[decides])


def _needed(clouds: TokenClouds, precision: float, pooling: TextPooling) -> tuple[dict[str, float], int]:
    """How many texts each kind of number needs for its interval, and how many pairs; half-widths go as 1/√n."""
    needed = {"a share of the texts": (1.96 * 0.5 / precision) ** 2}
    mean_cosine = cone(pooling.pool(clouds)).mean_cosine.interval
    compared = socm(clouds[:_COMPARED])
    for name, interval, count in (
        ("the mean cosine", mean_cosine, len(clouds)),
        ("the mean SOCM", compared.interval, min(len(clouds), _COMPARED)),
    ):
        needed[name] = 0.0 if interval is None else count * (_half(interval) / precision) ** 2
    spread = 0.0 if compared.pairs is None else float(compared.pairs.socm.std())
    return needed, min(math.ceil((1.96 * spread / precision) ** 2), _MOST_PAIRS)


def _half(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


def whole_of_store(
    folder: str | os.PathLike[str], clouds: TokenClouds, how: Settings
) -> tuple[Whole | None, TokenClouds]:
    """What merges of a store, and the clouds of a draw; None, and all, of few texts where nothing was asked for."""
    store, precision = Store.open(folder), how.precision
    if store.manifest.keep == "tokens":
        if not is_planned(clouds, precision):
            return None, clouds
        order = np.argsort(marks_of(clouds.ids), kind="stable")
        plan = _plan(clouds[np.sort(order[:_BATCH])], len(clouds), precision)
        positions = np.sort(order[: plan.sample])
        clouds = clouds.select(positions)
    else:
        plan = replace(_plan(clouds[:_BATCH], len(store), precision), sample=len(clouds))
        plan = replace(plan, reached=plan.precision * math.sqrt(plan.needed / max(len(clouds), 1)))
        positions = np.arange(len(clouds))
    how.watch.planned(plan.sentences())
    how.watch.opened(f"measuring all {len(store):,} texts")
    return Whole(plan, *_merged(store, how.engine), tuple(positions.tolist()), own=store.own_vectors), clouds


def _merged(store: Store, engine: Engine | None) -> tuple[CorpusSummary, LengthProfile]:
    """What is measured on all texts."""
    corpus = measure_with(engine, "corpus", store.place)
    if not isinstance(corpus, CorpusSummary):
        raise TypeError(f"the summary of a corpus was expected, not {type(corpus).__name__}")
    profile = measure_with(engine, "profile", store.place, bins=narrow_edges(*corpus.counted_lengths))
    if not isinstance(profile, LengthProfile):
        raise TypeError(f"a profile by length was expected, not {type(profile).__name__}")
    return corpus, profile


@contextmanager
def _store(encoder: TokenEncoder, texts: Texts, plan: Plan, how: Settings) -> Iterator[Store]:
    """A store of one vector a text: an entry of the cache, or else one that is gone afterwards."""
    write: Callable[..., Store] = partial(encode_with, how.engine)
    choices: dict[str, Any] = {"options": EncoderOptions(**how.options), "progress": how.watch.encoded}
    # Means stand for vectors that cannot be computed here, as everywhere in the audit, which says so.
    keep = "moments" if TextPooling.of(encoder).own is False else "vectors"
    choices |= {"keep": keep, "keep_tokens": plan.sample}
    kept = cached_store(encoder, texts, write=write, **choices) if how.stores else None
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:  # what is mapped stays readable when the files are gone
        yield write(encoder, texts, Path(folder) / "store", **choices)
