"""`audit`: a model and texts in, answers out. The texts are encoded once; every question asks the same clouds."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.commands import Named, called_as
from poolscope.auditing.material import (
    DEFAULT_TEXTS,
    NEVER,
    Settings,
    encoded,
    name_of,
    paced_name,
    vectors_alone,
    vectors_of,
)
from poolscope.auditing.question import QUESTIONS, Answer, Thresholds
from poolscope.auditing.result import Audit
from poolscope.auditing.screen import Pace, Watch, as_watch
from poolscope.auditing.searches import query_notes
from poolscope.auditing.subject import Subject
from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection, is_index
from poolscope.connectors.base import Distance, without_secrets
from poolscope.encoders import Progress, as_encoder
from poolscope.encoders.endpoint import is_vector_source
from poolscope.engines import Engine, as_engine
from poolscope.errors import InputError, refuse_renamed
from poolscope.results import provenance
from poolscope.stores.store import is_clouds
from poolscope.texts import JudgedQueries, Texts, read_queries, read_texts
from poolscope.texts.groups import checked_groups, groups_of_ids
from poolscope.texts.queries import id_column_for
from poolscope.texts.records import BUILTIN
from poolscope.texts.sources import open_benchmark

MODEL = "builtin:minilm"


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
        function is called after every batch with the number of texts and tokens just encoded; a `Watch`
        (`poolscope.auditing.screen`) is told of every phase, question and answer.
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
    refuse_renamed("audit", options, asked="progress", answered="progress")
    limits = thresholds if isinstance(thresholds, Thresholds) else Thresholds(thresholds)
    seed = _whole("seed", seed)
    trial_texts = None if trial_texts is None else _whole("trial_texts", trial_texts)
    runtime = None if vectors is None else _runtime(vectors)
    watch = as_watch(progress)
    if precision is not None and (queries is not None or runtime is not None):
        raise InputError("precision: received with queries or vectors, which are about all texts. Leave out one.")
    corpus, judged = (texts, None) if queries is None else _judged(model, texts, queries, groups, seed)
    with watch if is_vector_source(model) else nullcontext():
        collection = vectors_of(model, texts, options, distance, reference, runtime, cache=cache, watch=watch)
    if collection is not None:
        material = vectors_alone(collection)
    else:
        plans = queries is None and runtime is None
        runs = None if engine is None else as_engine(engine)
        with watch:
            material = encoded(
                model, corpus, Settings(options, seed, cache, watch, runs, precision if plans else NEVER)
            )
    documents, by_ids = material.documents(groups)
    named = called_as()
    column = None if named is None else named.reading.get("group")
    subject = Subject(
        clouds=material.clouds,
        documents=None if documents is None else tuple(documents),
        encoder=material.encoder,
        thresholds=limits,
        source=material.source,
        notes=(*material.notes, *_group_notes(documents, column, ids=by_ids)),
        runtime=runtime,
        queries=judged,
        query_prompt=query_prompt,
        trial_texts=trial_texts,
        seed=seed,
        collection=collection,
        whole=material.whole,
        reference=None if reference is None else as_encoder(reference, **options),
        named=named
        or _named(model, texts, {"seed": seed}, options, {"trial": trial_texts, "threshold": limits.changed}, queries),
    )
    if subject.queries is not None:
        subject = replace(subject, notes=(*subject.notes, *query_notes(subject, subject.queries)))
    if subject.text_pooling.own is False:  # beside the texts too: it is true of most answers
        subject = replace(subject, notes=(*subject.notes, *subject.text_pooling.notes))
    try:
        with watch:
            result = ask(subject, seconds=material.seconds, watch=watch, paced=paced_name(model))
    finally:
        if collection is not None and not isinstance(model, Collection):
            collection.close()
    if cache and subject.texts is not None:
        characters = sum(map(len, subject.texts))
        Pace.keep(paced_name(model), len(subject), characters, result.provenance["seconds"])
    return result


def _judged(
    model: Any, texts: Any, queries: Any, groups: Sequence[Any] | None, seed: int
) -> tuple[Texts, JudgedQueries]:
    """The texts, read with the ids that the queries name, and the queries about them: before anything is encoded."""
    if _is_encoded(model, texts):
        raise InputError(
            "queries: received some together with ready clouds or vectors, and no model to encode the queries with. "
            "Name the model and its texts."
        )
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


def _group_notes(documents: Sequence[str] | None, column: str | None, *, ids: bool) -> tuple[str, ...]:
    """How many documents there are, and how that is known."""
    if documents is None:
        return ()
    how = f" by column '{column}' (--group names another)" if column else " by their ids (doc#3)" if ids else ""
    count = len(set(documents))
    return (f"The texts come from {'one document' if count == 1 else f'{count:,} documents'}{how}.",)


def ask(subject: Subject, *, seconds: Mapping[str, float], watch: Watch, paced: str) -> Audit:
    """Every question of the table, in order; `paced` is the name under which its time is kept."""
    answers: list[Answer] = []
    times = dict(seconds)
    questions = [each for each in QUESTIONS.values() if each.applies is None or each.applies(subject)]
    watch.expect([question.key for question in questions], paced, len(subject))
    for question in questions:
        watch.asking(question)
        began = time.perf_counter()
        answers.append(question.ask(subject, answers))
        times[question.key] = time.perf_counter() - began
        watch.answered(answers[-1])
    settings: dict[str, Any] = {"seed": subject.seed, "trial_texts": subject.trial_texts, "pooling": subject.pooling}
    settings["own_vectors"] = subject.text_pooling.own
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


def _named(model: Any, texts: Any, reading: Any, options: Any, settings: Any, queries: Any) -> Named:
    """How a call in Python is repeated; of `Texts` nobody knows how they were read."""
    name = name_of(model)
    name = without_secrets(name) if name is not None and (is_index(model) or is_vector_source(model)) else name
    file = "" if queries is None else name_of(queries)
    source = "" if texts is None else name_of(texts)
    clouds = _is_encoded(model, texts)
    return Named(name, source, reading, options, settings, clouds=clouds, queries=file, python=True)


def _is_encoded(model: Any, texts: Any) -> bool:
    """Are there ready clouds or vectors, and no model that could encode other texts?"""
    if is_index(model) or is_vector_source(model):
        return True
    return texts is None and (isinstance(model, TokenClouds) or is_clouds(model))


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
