"""What an audit searches: texts and queries as they were named, encoded by a model, a server, or stored in an index."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.power import reach_sentence
from poolscope.auditing.search import Search, TextVectors, make_search
from poolscope.auditing.selfmade import make_queries
from poolscope.auditing.watch import ENCODING, OPENING, Watch
from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection, as_collection, is_index
from poolscope.connectors.base import Distance
from poolscope.encoders import EncoderOptions, ModelCard, TokenEncoder, as_encoder
from poolscope.encoders.base import ArrayEncoder
from poolscope.encoders.capabilities import has, longest_of, tokenizer_of
from poolscope.encoders.named import stored_vocabulary
from poolscope.encoders.pooling import TextPooling, own_pooling
from poolscope.encoders.sources import as_vector_source, is_vector_source
from poolscope.encoders.tokens import Vocabulary
from poolscope.engines import Engine
from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.stores.cache import cached_clouds
from poolscope.stores.store import is_clouds, open_clouds
from poolscope.stores.writer import encode_to_store
from poolscope.texts import JudgedQueries, ReadReport, Texts, read_queries, read_texts
from poolscope.texts.groups import checked_groups, groups_of_ids, tells
from poolscope.texts.queries import id_column_for
from poolscope.texts.records import BUILTIN
from poolscope.texts.sources import open_benchmark

DEFAULT_TEXTS = 1000
"""Texts drawn from the built-in corpus when none are named."""


@dataclass(frozen=True)
class Request:
    """What was asked for, as `audit` takes it."""

    model: Any
    texts: Any
    queries: Any
    query_prompt: str | None
    groups: Sequence[Any] | None
    runtime: NDArray[Any] | None
    reference: Any
    distance: Distance | None
    k: int
    seed: int
    engine: Engine | None
    cache: bool
    options: Mapping[str, Any]
    watch: Watch


def open_search(request: Request) -> tuple[Search, dict[str, Any], tuple[str, ...]]:
    """Open a request: its search, a description of its texts, and notes from reading them."""
    model = request.model
    if is_vector_source(model):
        return _of_server(request)
    if is_index(model):
        return _of_index(request)
    _refuse_for_models(request)
    if request.texts is None and (isinstance(model, TokenClouds) or is_clouds(model)):
        return _of_clouds(request)
    return _of_model(request)


def _refuse_for_models(request: Request) -> None:
    for name in ("distance", "reference"):
        if (value := getattr(request, name)) is not None:
            raise InputError(f"{name}: received {value!r} with a model; it is for vectors alone. Leave it out.")


# -- a model and texts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inputs:
    """The texts as they are searched, their documents, the queries, and how queries were made."""

    corpus: Texts
    documents: Sequence[str] | None
    queries: JudgedQueries | None
    self_made: str = ""

    def facts(self) -> dict[str, Any]:
        """What is known of the texts and the queries."""
        return {"source": self.corpus.source, "digest": self.corpus.digest, "queries": _facts(self.queries)}

    def notes(self) -> tuple[str, ...]:
        """What reading texts and queries met."""
        return (*self.corpus.report.notes(), *(() if self.queries is None else self.queries.notes))


def _facts(queries: JudgedQueries | None) -> dict[str, Any] | None:
    if queries is None:
        return None
    return {"source": queries.source, "judgements": len(queries.relevant), "digest": queries.digest}


def _announced(request: Request) -> _Inputs:
    """Read texts and queries, and announce the smallest gain that the queries can show, before anything is encoded."""
    inputs = _read(request)
    _announce(request, inputs.queries, inputs.documents)
    return inputs


def _announce(request: Request, queries: JudgedQueries | None, documents: Sequence[str] | None) -> None:
    """Say what the queries can show."""
    if queries is not None:
        request.watch.say(reach_sentence(queries.relevant, documents, k=request.k))


def _read(request: Request) -> _Inputs:
    """Texts and queries; without queries some are made from the texts."""
    if request.queries is not None:
        corpus, queries = read_judged(request.texts, request.queries, request.groups, request.seed)
        return _Inputs(corpus, _documents(corpus.ids, request.groups), queries)
    texts = request.texts
    corpus = read_texts(BUILTIN, limit=DEFAULT_TEXTS, seed=request.seed) if texts is None else as_corpus(texts)
    documents = _documents(corpus.ids, request.groups)
    made = make_queries(list(corpus.texts), seed=request.seed)
    if made is None:
        return _Inputs(corpus, documents, None)
    return _Inputs(replace(corpus, texts=tuple(made.texts)), documents, made.queries, made.kind)


def as_corpus(texts: Any) -> Texts:
    """Anything that `read_texts` takes, read."""
    return texts if isinstance(texts, Texts) else read_texts(texts)


def read_judged(texts: Any, queries: Any, groups: Sequence[Any] | None, seed: int) -> tuple[Texts, JudgedQueries]:
    """The texts, read with the ids that the queries name, and the queries about them."""
    judgements = read_queries(queries)
    benchmark = open_benchmark(queries) if texts is None and isinstance(queries, str | os.PathLike) else None
    texts = texts if benchmark is None else benchmark.folder
    if texts is None:
        texts = read_texts(BUILTIN, limit=DEFAULT_TEXTS, seed=seed, keep=judgements.named)
    if not isinstance(texts, Texts):
        texts = read_texts(texts, id_column=id_column_for(texts, judgements))
    named = None if groups is None else checked_groups(groups, len(texts))
    return texts, judgements.among(
        texts.ids, documents=(groups_of_ids(texts.ids), named), drawn=texts.report.selected is not None
    )


def _documents(ids: Sequence[str], groups: Sequence[Any] | None) -> Sequence[str] | None:
    """The document of each text: as named, else by ids like doc#3."""
    return groups_of_ids(ids) if groups is None else checked_groups(groups, len(ids))


def _of_model(request: Request) -> tuple[Search, dict[str, Any], tuple[str, ...]]:
    watch = request.watch
    watch.opened("reading the texts")
    inputs = _announced(request)
    corpus = inputs.corpus
    watch.begin(len(corpus), sum(map(len, corpus.texts)))
    watch.opened(OPENING)
    encoder = as_encoder(request.model, **request.options)
    if encoder.card.keeps_tokens:
        own_pooling(encoder)  # which refuses it: a search by means of its tokens is one that nobody runs
    watch.opened(ENCODING)
    search = make_search(
        encoder,
        list(corpus.texts),
        inputs.queries,
        encoded=_encoded(encoder, corpus, request),
        documents=inputs.documents,
        query_prompt=request.query_prompt,
        runtime=request.runtime,
        self_made=inputs.self_made,
        text_ids=corpus.ids,
        k=request.k,
        seed=request.seed,
    )
    pooling = TextPooling.of(encoder)
    notes = (*inputs.notes(), *(pooling.notes if pooling.own is False else ()), *_unheld(search))
    return search, inputs.facts(), notes


def _unheld(search: Search) -> tuple[str, ...]:
    """What it means that the tokens of the texts were not held."""
    if search.tokens is not None or not len(search):
        return ()
    size = int(search.lengths.sum()) * int(search.vectors.shape[1]) * 4 / 2**30
    return (
        f"The tokens of all texts take {size:,.1f} GiB, too much to hold. What needs tokens was tried on the first "
        f"{search.candidates} texts of each query.",
    )


def _encoded(encoder: TokenEncoder, corpus: Texts, request: Request) -> TextVectors:
    """The texts in the model: from the cache or an engine where one is used, else in memory block by block."""
    if not request.cache and request.engine is None:
        return TextVectors.encode(encoder, corpus.texts, request.watch.encoded)
    engine = request.engine
    write = encode_to_store if engine is None else partial(service("encoding on an engine"), engine)
    options = EncoderOptions(**request.options)
    clouds = cached_clouds(encoder, corpus, options=options, progress=request.watch.encoded, write=write)
    return TextVectors.of_clouds(clouds, TextPooling.of(encoder))


# -- ready clouds -----------------------------------------------------------------------------------------------------


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


def _of_clouds(request: Request) -> tuple[Search, dict[str, Any], tuple[str, ...]]:
    """Clouds as they are: no query can be encoded, so that symptoms are all there is."""
    if request.queries is not None:
        raise InputError(
            "queries: received some with ready clouds, and no model to encode the queries with. Name the model and its "
            "texts: poolscope audit MODEL TEXTS --queries FILE."
        )
    if request.options:
        raise InputError(
            f"received ready clouds and the options {sorted(request.options)}; clouds are taken as they are. Leave the "
            f"options out, or name a model."
        )
    model = request.model
    clouds = model if isinstance(model, TokenClouds) else open_clouds(model)
    if clouds is None:
        raise InputError(f"{model}: no clouds are here. Name a file or a store that `poolscope encode` wrote.")
    encoder = _stored(clouds)
    texts = [] if clouds.texts is None else list(clouds.texts)
    search = make_search(
        encoder,
        texts,
        None,
        encoded=TextVectors.of_clouds(clouds, TextPooling.of(encoder)),
        documents=_documents(clouds.ids, request.groups),
        runtime=request.runtime,
        text_ids=list(clouds.ids),
        k=request.k,
        seed=request.seed,
    )
    return search, {"source": name_of(model) or "ready clouds", "digest": None, "queries": None}, ()


_CONTENT = ("prompt", "prompt_name", "role", "max_length", "dtype", "revision")


def _stored(clouds: TokenClouds) -> StoredEncoder:
    """Ready clouds behind what their provenance says of their model; a plain card where it says nothing."""
    known = {field.name for field in fields(ModelCard)}
    declared = {name: value for name, value in dict(clouds.provenance.get("model", {})).items() if name in known}
    for name in ("pooling", "after"):
        declared[name] = tuple(declared.get(name, ()))
    card = ModelCard(**{"name": "ready clouds", "kind": "arrays", "dimension": clouds.dimension, **declared})
    options = {name: value for name, value in dict(clouds.provenance.get("options", {})).items() if value is not None}
    return StoredEncoder(clouds, card, EncoderOptions(**{k: v for k, v in options.items() if k in _CONTENT}))


# -- vectors: of a server, or of an index -----------------------------------------------------------------------------


def _of_server(request: Request) -> tuple[Search, dict[str, Any], tuple[str, ...]]:
    """The vectors that a server, or an embedding object, gives for texts and queries."""
    if request.texts is None and request.queries is None:
        raise InputError("texts: received none for a server, which gives vectors for texts only. Name your texts.")
    inputs = _announced(request)
    source, corpus = as_vector_source(request.model), inputs.corpus
    request.watch.begin(len(corpus), sum(map(len, corpus.texts)))
    request.watch.opened(ENCODING)
    progress = request.watch.encoded
    vectors = source.vectors(corpus.texts, keep=request.cache, progress=progress)
    queries = None
    if inputs.queries is not None:
        prompt = request.query_prompt or ""
        queries = source.vectors([prompt + text for text in inputs.queries.texts], keep=request.cache)
    search = _of_vectors(
        request, vectors, list(corpus.texts), corpus.ids, inputs.documents, source.name, inputs.queries, queries
    )
    notes = (*inputs.notes(), "A server gives pooled vectors only: what needs tokens was not looked at.")
    return replace(search, self_made=inputs.self_made), inputs.facts(), notes


def _of_index(request: Request) -> tuple[Search, dict[str, Any], tuple[str, ...]]:
    """The vectors of a file or a vector store; with a reference and queries, the search that users of it get."""
    collection = as_collection(request.model, distance=request.distance)
    if request.texts is not None:
        collection = collection.with_texts(as_corpus(request.texts))
    if request.runtime is not None:
        raise InputError("vectors: received together with vectors as the model. Leave --vectors out.")
    if request.options and request.reference is None:
        raise InputError(
            f"received vectors and the options {sorted(request.options)}, which are for a model. Leave them out, or "
            f"name the model with --reference."
        )
    queries = None
    if request.queries is not None:
        if request.reference is None:
            raise InputError(
                "queries: received some with vectors, and no model to encode them with. Name it with --reference MODEL."
            )
        if collection.texts is None:
            raise InputError(
                f"queries: received some with {collection.source}, which holds no texts. Name the file of the texts "
                f"beside it: poolscope audit VECTORS TEXTS --reference MODEL --queries FILE."
            )
        queries = read_queries(request.queries).among(
            collection.ids, documents=(groups_of_ids(collection.ids), collection.groups), drawn=False
        )
    brought = collection.groups if collection.groups is not None and tells(collection.groups) else None
    documents = _documents(collection.ids, request.groups) if brought is None else brought
    _announce(request, queries, documents)
    texts = [] if collection.texts is None else list(collection.texts)
    search = _of_vectors(
        request, collection.vectors, texts, collection.ids, documents, collection.source, queries, None, collection
    )
    digest = None if collection.texts is None else _digest(texts, collection.ids)
    return search, {"source": collection.source, "digest": digest, "queries": _facts(queries)}, collection.notes


def _digest(texts: Sequence[str], ids: Sequence[str]) -> str:
    """Digest of the texts, by which other texts are told apart."""
    return Texts(tuple(ids), tuple(texts), None, "", ReadReport(read=len(texts), kept=len(texts))).digest


def _of_vectors(
    request: Request,
    vectors: NDArray[Any],
    texts: list[str],
    ids: Sequence[str],
    documents: Sequence[str] | None,
    source: str,
    queries: JudgedQueries | None,
    query_vectors: NDArray[Any] | None,
    collection: Collection | None = None,
) -> Search:
    """A search by vectors at hand; a reference encodes queries, counts tokens, and tries cures."""
    vectors = np.asarray(vectors)
    if request.reference is not None:
        encoder = as_encoder(request.reference, **request.options)
        lengths, truncated = _token_counts(encoder, texts, len(vectors))
    else:
        clouds = TokenClouds.from_matrix(vectors, np.arange(len(vectors) + 1), ids=tuple(ids), provenance={})
        card = ModelCard(source, "vectors", int(vectors.shape[1]), pooling=("mean",))
        encoder = StoredEncoder(clouds, card, EncoderOptions())
        lengths, truncated = np.array([len(text.split()) for text in texts]), np.zeros(len(vectors), np.int64)
        lengths = lengths if len(texts) else np.zeros(len(vectors), np.int64)
    return make_search(
        encoder,
        texts,
        queries,
        encoded=TextVectors(vectors, lengths, truncated),
        query_vectors=query_vectors,
        documents=documents,
        query_prompt=request.query_prompt,
        runtime=vectors if request.reference is not None else None,
        collection=collection,
        text_ids=list(ids),
        k=request.k,
        seed=request.seed,
    )


def _token_counts(encoder: TokenEncoder, texts: Sequence[str], count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The tokens that the model reads of each text, and those that it does not."""
    if not has(encoder, "tokenize") or not len(texts):
        words = np.array([len(text.split()) for text in texts]) if len(texts) else np.zeros(count, np.int64)
        return words, np.zeros(count, np.int64)
    tokens = tokenizer_of(encoder).tokenize(list(texts), longest_of(encoder))
    return np.asarray(tokens.lengths), np.asarray(tokens.cut)


def name_of(value: Any) -> str | None:
    """The name of a file, a folder or a model; None for an array or the standard input."""
    return os.fspath(value) if isinstance(value, str | os.PathLike) and os.fspath(value) != "-" else None
