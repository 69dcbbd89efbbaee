"""What an audit is about: texts encoded by a model, ready clouds, or vectors alone, with where they came from."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.auditing.commands import PIPE
from poolscope.auditing.plan import Whole, is_planned, make_plan, measure_whole, whole_of_store
from poolscope.auditing.progress import ENCODING, OPENING, Watch
from poolscope.auditing.subject import StoredEncoder
from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection, as_collection, is_index
from poolscope.connectors.base import Distance, without_secrets
from poolscope.connectors.collection import array_collection
from poolscope.encoders import EncoderOptions, ModelCard, TokenEncoder, as_encoder
from poolscope.encoders.capabilities import can_encode
from poolscope.encoders.endpoint import as_vector_source, is_vector_source
from poolscope.engines import Engine, encode_with
from poolscope.errors import InputError
from poolscope.stores.cache import cached_clouds, server_vectors
from poolscope.stores.remote import is_remote
from poolscope.stores.store import is_store, open_clouds
from poolscope.stores.writer import encode_to_store
from poolscope.texts import Texts, read_texts
from poolscope.texts.groups import checked_groups, groups_of_ids, tells
from poolscope.texts.records import BUILTIN

# Texts drawn from the built-in corpus when none are named.
DEFAULT_TEXTS = 1000
NEVER = math.inf  # a precision that plans nothing: the answers are about all texts


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
        whole, clouds = whole_of_store(model, clouds, how.precision, engine=how.engine, watch=how.watch)
        notes = () if whole is None else whole.plan.sentences()[:2]
    elif how.precision not in (None, NEVER):
        raise InputError("precision: received with ready clouds; allowed: a model and texts, or a store. Leave it out.")
    return Material(_stored(clouds), clouds, source, notes, whole=whole)


def _planned(encoder: TokenEncoder, corpus: Texts, how: Settings) -> Material:
    """The same of a large corpus: a plan first, then all texts, and the clouds of a draw."""
    how.watch.opened("planning, from a first batch")
    plan = make_plan(encoder, corpus, how.precision, workers=getattr(how.engine, "workers", None) or 1)
    how.watch.planned(plan.sentences())
    how.watch.opened(ENCODING)
    whole, clouds, seconds = measure_whole(
        encoder, corpus, plan, options=how.options, cache=how.stores, watch=how.watch, engine=how.engine
    )
    notes = (*plan.sentences()[:2], *corpus.report.notes())
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
    asked = is_vector_source(model)
    if not asked and not is_index(model):
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
    if asked:
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


def is_clouds(model: Any) -> bool:
    """Is it the name of a cloud file or of a store?"""
    if not isinstance(model, str | os.PathLike):
        return False
    return Path(model).suffix == ".arrow" or is_remote(model) or is_store(model)


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
