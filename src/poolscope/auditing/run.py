"""`audit`: a model and texts in, answers out. The texts are encoded once; every question asks the same clouds."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.asking import query_notes
from poolscope.auditing.commands import PIPE, Named
from poolscope.auditing.plan import Whole, is_planned, make_plan, measure_whole, whole_of_store
from poolscope.auditing.progress import ENCODING, Pace, Watch, as_watch
from poolscope.auditing.question import QUESTIONS, Answer, Question
from poolscope.auditing.result import Audit
from poolscope.auditing.subject import StoredEncoder, Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection, as_collection, is_index
from poolscope.connectors.base import Distance, without_secrets
from poolscope.connectors.collection import array_collection
from poolscope.encoders import EncoderOptions, ModelCard, Progress, TokenEncoder, as_encoder
from poolscope.encoders.capabilities import can_encode
from poolscope.encoders.objects import as_vector_source, is_vector_source
from poolscope.engines import Engine, as_engine, encode_with
from poolscope.errors import InputError
from poolscope.results import provenance
from poolscope.stores.answers import server_vectors
from poolscope.stores.cache import cached_clouds
from poolscope.stores.remote import is_remote
from poolscope.stores.store import is_store, open_clouds
from poolscope.stores.writer import encode_to_store
from poolscope.texts import JudgedQueries, Texts, read_queries, read_texts
from poolscope.texts.benchmarks import open_benchmark
from poolscope.texts.groups import checked_groups, groups_of_ids, tells
from poolscope.texts.queries import id_column_for
from poolscope.texts.records import BUILTIN

MODEL = "builtin:minilm"
# Texts drawn from the built-in corpus when none are named.
DEFAULT_TEXTS = 1000


def audit(
    model: Any = MODEL,
    texts: Any = None,
    *,
    thresholds: Mapping[str, float] | None = None,
    groups: Sequence[Any] | None = None,
    queries: Any = None,
    query_prompt: str | None = None,
    vectors: Any = None,
    distance: Distance | None = None,
    reference: Any = None,
    trial_texts: int | None = None,
    seed: int = 0,
    precision: float | None = None,
    engine: Engine | str | None = None,
    cache: bool = False,
    progress: bool | Progress | Watch | None = None,
    asked: Callable[[Question], None] | None = None,
    answered: Callable[[Answer], None] | None = None,
    named: Named | None = None,
    **options: Any,
) -> Audit:
    """Ask every question about a model on a corpus: each answer has a verdict, a number, its interval and its floor.

    Parameters
    ----------
    model
        Anything `as_encoder` takes, or ready clouds (`TokenClouds`, a cloud file or a store; then leave `texts` out).
        Or vectors alone: a matrix (N × d), a data frame with a column of vectors, or what `read_index` reads or gave.
        Or what gives vectors for texts: the address of a server, an `Endpoint`, or an embedding object of LangChain or
        LlamaIndex; everything that vectors allow is then answered.
    texts
        Anything `read_texts` takes; by default 1,000 of the built-in corpus. With vectors alone: one text a vector, or
        none.
    thresholds
        Thresholds that are set anew, by name.
    groups
        The document of each text, one name a text: texts of one document are not taken as unrelated. By default those
        of ids like `doc#3`, where there are such.
    queries
        Queries with the ids of the texts that answer them, as `read_queries` takes them: a table, a benchmark folder
        (whose corpus then is the default of `texts`), a dict of queries to ids. Trials and answers use them; without
        any, trials ask for halves of texts with the other halves.
    query_prompt
        What stands before each query; by default the prompt that the model declares for queries.
    vectors
        What your own runtime gave for the same texts (texts × d): the question of the pooling then names what it did.
    distance
        With vectors alone: what you search by, "cosine", "dot" or "l2", where the source does not say so.
    reference
        With vectors alone and their texts: the model that is said to have made them. A sample is encoded again.
    trial_texts
        How many texts trials encode anew; by default a sixth, 60 to 400 (of a static table half, up to 1,000). 0: no
        trials.
    seed
        Of everything that is drawn.
    precision
        The half-width that intervals are to have, such as 0.02. What merges (what was cut, lengths, norms, repeated
        texts, the profile by length) is then measured on all texts, and pairs, trials and probes on as many as that
        needs. More than 20,000 texts are planned so without being asked, for 0.02.
    engine
        Where texts are encoded and what merges is measured: "processes", "ray", or what `make_engine` gave. The clouds
        are then kept in the cache, which every worker must see.
    cache
        Keep the clouds on disk, and take them from there.
    progress
        True: show the phases, the answers as they come and the time left, in a terminal, a script or a notebook. A
        function is called after every batch with the number of texts and tokens just encoded.
    asked, answered
        Called before every question, and after it with its answer.
    named
        How the command line called all this, for the commands that answers suggest.
    **options
        Those of the encoder, such as `max_length`, `prompt` or `device`.

    Returns
    -------
    Audit
        One `Answer` a question, by key and in order; `save` writes its folder with the page.

    Examples
    --------
    >>> texts = [f"text number {k} about subject {k % 7}" for k in range(40)]
    >>> result = audit("builtin:wordllama", texts, trial_texts=0)
    >>> result["position"].verdict.level, len(result.answers) == len(result.verdicts)
    ('unchecked', True)

    """
    limits = thresholds if isinstance(thresholds, Thresholds) else Thresholds(thresholds)
    seed = _whole("seed", seed)
    trial_texts = None if trial_texts is None else _whole("trial_texts", trial_texts)
    runtime = None if vectors is None else _runtime(vectors)
    watch = as_watch(progress, asked, answered)
    encoding: dict[str, float] = {}
    whole: Whole | None = None
    runs = None if engine is None else as_engine(engine)
    if precision is not None and (queries is not None or runtime is not None):
        raise InputError("precision: received with queries or vectors, which are about all texts. Leave out one.")
    corpus, judged = (texts, None) if queries is None else _judged(model, texts, queries, groups, seed)
    with watch if is_vector_source(model) else nullcontext():
        collection = _collection(model, texts, options, distance, reference, runtime, cache=cache, watch=watch)
    if collection is not None:
        encoder, clouds, source, notes = _vectors_alone(collection)
        groups = groups or _telling(collection.groups)
    else:
        with watch:
            plans = queries is None and runtime is None
            settings = _Settings(options, seed, cache, watch, runs, precision if plans else _NEVER)
            encoder, clouds, source, notes, encoding, whole = _material(model, corpus, settings)
    if whole is not None and groups is not None:
        named_groups = checked_groups(groups, whole.plan.texts)
        groups = [named_groups[k] for k in whole.positions]
    documents = groups_of_ids(list(clouds.ids)) if groups is None else checked_groups(groups, len(clouds))
    column = None if named is None else named.reading.get("group")
    subject = Subject(
        clouds=clouds,
        documents=None if documents is None else tuple(documents),
        encoder=encoder,
        thresholds=limits,
        source=source,
        notes=(*notes, *_group_notes(documents, column, ids=groups is None)),
        runtime=runtime,
        queries=judged,
        query_prompt=query_prompt,
        trial_texts=trial_texts,
        seed=seed,
        collection=collection,
        whole=whole,
        reference=None if reference is None else as_encoder(reference, **options),
        named=named
        or _named(model, texts, {"seed": seed}, options, {"trial": trial_texts, "threshold": limits.changed}, queries),
    )
    if subject.queries is not None:
        subject = replace(subject, notes=(*subject.notes, *query_notes(subject, subject.queries)))
    try:
        with watch:
            result = ask(subject, seconds=encoding, watch=watch)
    finally:
        if collection is not None and not isinstance(model, Collection):
            collection.close()
    if cache and subject.texts is not None:
        characters = sum(map(len, subject.texts))
        Pace.keep(subject.card.name, len(subject), characters, result.provenance["seconds"])
    return result


def _judged(
    model: Any, texts: Any, queries: Any, groups: Sequence[Any] | None, seed: int
) -> tuple[Texts, JudgedQueries]:
    """The texts, read with the ids that the queries name, and the queries about them: before anything is encoded."""
    only_vectors = is_index(model) or is_vector_source(model)
    if only_vectors or (texts is None and (isinstance(model, TokenClouds) or _is_clouds(model))):
        raise InputError(
            "queries: received some together with ready clouds or vectors, and no model to encode the queries with. "
            "Name the model and its texts."
        )
    asked = read_queries(queries)
    benchmark = open_benchmark(queries) if texts is None and isinstance(queries, str | os.PathLike) else None
    texts = texts if benchmark is None else benchmark.folder
    if texts is None:
        texts = read_texts(BUILTIN, limit=DEFAULT_TEXTS, seed=seed, keep=asked.named)
    if not isinstance(texts, Texts):
        texts = read_texts(texts, id_column=id_column_for(texts, asked))
    named = None if groups is None else checked_groups(groups, len(texts))
    return texts, asked.among(
        texts.ids, documents=(groups_of_ids(texts.ids), named), drawn=texts.report.selected is not None
    )


def _group_notes(documents: Sequence[str] | None, column: str | None, *, ids: bool) -> tuple[str, ...]:
    """How many documents there are, and how that is known."""
    if documents is None:
        return ()
    how = f" by column '{column}' (--group names another)" if column else " by their ids (doc#3)" if ids else ""
    return (f"The texts come from {len(set(documents)):,} documents{how}.",)


def ask(subject: Subject, *, seconds: Mapping[str, float] | None = None, watch: Watch | None = None) -> Audit:
    """Every question of the table, in order."""
    watch = watch or Watch()
    answers: list[Answer] = []
    times = dict(seconds or {})
    questions = [each for each in QUESTIONS.values() if each.applies is None or each.applies(subject)]
    watch.expect([question.key for question in questions])
    for question in questions:
        watch.asking(question)
        began = time.perf_counter()
        answers.append(question.ask(subject, answers))
        times[question.key] = time.perf_counter() - began
        watch.answered(answers[-1])
    settings: dict[str, Any] = {"seed": subject.seed, "trial_texts": subject.trial_texts, "pooling": subject.pooling}
    if subject.whole is not None:
        settings["plan"] = subject.whole.plan.to_dict()
    if subject.queries is not None:
        settings |= {"queries": subject.queries.digest, "query_prompt": subject.query_prompt}
    origin = provenance(subject.clouds, settings={**settings, "thresholds_changed": subject.thresholds.changed})
    return Audit(
        model=subject.card.to_dict(),
        corpus=subject.corpus(),
        answers=tuple(answers),
        thresholds=dict(subject.thresholds),
        provenance={**origin, "seconds": {name: round(value, 3) for name, value in times.items()}},
        subject=subject,
    )


_NEVER = math.inf  # a precision that plans nothing: the answers are about all texts


@dataclass(frozen=True)
class _Settings:
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


_Material = tuple[TokenEncoder, TokenClouds, str, tuple[str, ...], dict[str, float], "Whole | None"]


def _material(model: Any, texts: Any, how: _Settings) -> _Material:
    """The encoder, the clouds, where the texts came from, what reading them met, the seconds that encoding took, and
    what was measured on all texts, where they are many and the clouds are of a draw.
    """
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
    watch.opened("opening the model")
    encoder = as_encoder(model if ready is None else ready, **how.options)
    if how.precision != _NEVER and is_planned(corpus, how.precision) and can_encode(encoder):
        return _planned(encoder, corpus, how)
    watch.begin(encoder.card.name, len(corpus), sum(map(len, corpus.texts)))
    began = time.perf_counter()
    write = encode_to_store if how.engine is None else partial(encode_with, how.engine)
    settings = EncoderOptions(**how.options)
    clouds = cached_clouds(encoder, corpus, options=settings, enabled=how.stores, progress=watch.encoded, write=write)
    seconds = {ENCODING: time.perf_counter() - began}
    return encoder, clouds, corpus.source, tuple(corpus.report.notes()), seconds, None


def _ready(clouds: TokenClouds, model: Any, how: _Settings) -> _Material:
    """Clouds as they are; of a store of many texts, or of vectors with the tokens of some, what merges is of all."""
    source, whole = _name(model) or "ready clouds", None
    notes: tuple[str, ...] = ()
    if how.precision != _NEVER and isinstance(model, str | os.PathLike) and is_store(model):
        whole, clouds = whole_of_store(model, clouds, how.precision, engine=how.engine, watch=how.watch)
        notes = () if whole is None else whole.plan.sentences()[:2]
    elif how.precision not in (None, _NEVER):
        raise InputError("precision: received with ready clouds; allowed: a model and texts, or a store. Leave it out.")
    return _stored(clouds), clouds, source, notes, {}, whole


def _planned(encoder: TokenEncoder, corpus: Texts, how: _Settings) -> _Material:
    """The same of a large corpus: a plan first, then all texts, and the clouds of a draw."""
    how.watch.opened("planning, from a first batch")
    plan = make_plan(encoder, corpus, how.precision, workers=getattr(how.engine, "workers", None) or 1)
    how.watch.planned(plan.sentences())
    how.watch.begin(encoder.card.name, len(corpus), sum(map(len, corpus.texts)))
    whole, clouds, seconds = measure_whole(
        encoder, corpus, plan, options=how.options, cache=how.stores, watch=how.watch, engine=how.engine
    )
    notes = (*plan.sentences()[:2], *corpus.report.notes())
    return encoder, clouds, corpus.source, notes, seconds, whole


def _collection(
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
    watch.opened(ENCODING)
    watch.begin(source.name, len(corpus), sum(map(len, corpus)))
    vectors = server_vectors(source, list(corpus), keep=cache, progress=watch.encoded)
    notes = (*corpus.report.notes(), "Only pooled vectors can be had from a server: what needs tokens was not asked.")
    held = array_collection(vectors, texts=list(corpus), ids=corpus.ids, source=source.name, notes=notes, limit=0)
    return held if distance is None else replace(held, distance=distance)


def _vectors_alone(collection: Collection) -> tuple[TokenEncoder, TokenClouds, str, tuple[str, ...]]:
    """Vectors as clouds of one token each, so that whatever asks for the pooled vectors gets them."""
    card = ModelCard(collection.source, "vectors", collection.dimension, pooling=("mean",))
    clouds = TokenClouds.from_matrix(
        collection.vectors,
        np.arange(len(collection) + 1),
        texts=collection.texts,
        ids=collection.ids,
        provenance={"model": card.to_dict(), "options": {}},
    )
    return StoredEncoder(clouds, card, EncoderOptions()), clouds, collection.source, collection.notes


def _telling(groups: Sequence[str] | None) -> Sequence[str] | None:
    """Groups of a source, where some vectors share one and not all."""
    return groups if groups is not None and tells(groups) else None


def _corpus(texts: Any, seed: int) -> Texts:
    if texts is None:
        return read_texts(BUILTIN, limit=DEFAULT_TEXTS, seed=seed)
    return texts if isinstance(texts, Texts) else read_texts(texts)


def _opened(model: Any) -> TokenClouds | None:
    """Clouds, if the name is that of a cloud file or a store."""
    return open_clouds(model) if _is_clouds(model) else None


def _is_clouds(model: Any) -> bool:
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


def _named(model: Any, texts: Any, reading: Any, options: Any, settings: Any, queries: Any) -> Named:
    """How a call in Python is repeated; of `Texts` nobody knows how they were read."""
    vectors = is_index(model) or is_vector_source(model)
    clouds = vectors or (texts is None and (isinstance(model, TokenClouds) or _is_clouds(model)))
    name = _name(model)
    name = without_secrets(name) if name is not None and vectors else name
    asked = "" if queries is None else _name(queries)
    source = "" if texts is None else _name(texts)
    return Named(name, source, reading, options, settings, clouds=clouds, queries=asked, python=True)


def _name(value: Any) -> str | None:
    return os.fspath(value) if isinstance(value, str | os.PathLike) and os.fspath(value) != PIPE else None


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"{name}: received {value!r}; allowed is a whole number, 0 or more. Pass one, such as 40.")
    return int(value)


def _runtime(vectors: Any) -> NDArray[Any]:
    """Vectors of a runtime as a table of numbers; how many and how long they must be is known after encoding."""
    try:
        table = np.asarray(vectors)
    except ValueError:  # rows of different lengths
        table = np.empty(0, dtype=object)
    if table.ndim != 2 or not table.size or table.dtype.kind not in "fiu":
        shape = "rows of different lengths" if table.dtype == object else f"{table.dtype} of shape {table.shape}"
        raise InputError(
            f"vectors: received {shape}; allowed is a table of numbers, one row a text (texts × dimensions). Stack the "
            f"vectors of your runtime in the order of the texts."
        )
    return table
