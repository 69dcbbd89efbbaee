"""`audit`: from a model, texts and queries to the misses, their causes and a decision."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.commands import called_as, command_line
from poolscope.auditing.engine import examine
from poolscope.auditing.material import Request, open_search
from poolscope.auditing.precision import precision_notes
from poolscope.auditing.result import Audit
from poolscope.auditing.rule import Rule
from poolscope.auditing.watch import Watch, as_watch
from poolscope.auditing.yardsticks import all_yardsticks, other_model
from poolscope.connectors.base import Distance
from poolscope.encoders import Progress, as_encoder
from poolscope.encoders.door import check_named
from poolscope.engines import Engine, as_engine
from poolscope.errors import InputError
from poolscope.words import logger

MODEL = "builtin:minilm"
_log = logger(__name__)


def audit(
    model: Any = MODEL,
    texts: Any = None,
    *,
    queries: Any = None,
    query_prompt: str | None = None,
    groups: Sequence[Any] | None = None,
    vectors: Any = None,
    reference: Any = None,
    distance: Distance | None = None,
    against: Sequence[Any] = (),
    k: int = 10,
    matters: float = 0.01,
    encode: bool = True,
    seed: int = 0,
    engine: Engine | str | None = None,
    cache: bool = False,
    progress: bool | Progress | Watch | None = None,
    **options: Any,
) -> Audit:
    """Explain the misses of a search: which queries miss, by which cause, and which cure is proven to help.

    Parameters
    ----------
    model
        Anything `as_encoder` takes, or ready clouds (`TokenClouds`, a cloud file or a store; then leave `texts` out).
        Or vectors alone: a matrix (N × d), a data frame with a column of vectors, or what `read_index` reads or gave.
        Or what gives vectors for texts: the address of a server, an `Endpoint`, or an embedding object of LangChain or
        LlamaIndex.
    texts
        Anything `read_texts` takes; by default 1,000 of the built-in corpus. With vectors alone: one text a vector, or
        none.
    queries
        Queries with the ids of the texts that answer them, as `read_queries` takes them: a table, a benchmark folder
        (whose corpus then is the default of `texts`), a dict of queries to ids. Without any, some are made from the
        texts, and the audit says so.
    query_prompt
        What comes before each query; by default the prompt that the model declares for queries.
    groups
        The document of each text, one name a text. By default those of ids like `doc#3`, where there are such.
    vectors
        What your own runtime gave for the same texts (texts × d): compared with what the model gives.
    reference
        With vectors alone and their texts: the model that is said to have made them. It encodes the queries, and a
        sample of the texts again.
    distance
        With vectors alone: what you search by, "cosine", "dot" or "l2", where the source does not say so.
    against
        Other models, tried on the same queries as yardsticks.
    k
        A query is found if a relevant text is in the top k.
    matters
        The gain in nDCG@k that is worth having.
    encode
        False: try no cure that re-encodes texts.
    seed
        Of everything that is drawn.
    engine
        Where texts are encoded: "processes", "ray", or what `make_engine` gave.
    cache
        Keep the tokens of the texts on disk, and take them from there.
    progress
        True: show what is done, in a terminal or a notebook. A function is called after every batch with the number of
        texts and tokens just encoded.
    **options
        Those of the encoder, such as `max_length`, `prompt` or `device`.

    Returns
    -------
    Audit
        What the search finds, one `Finding` a cause, one trial a cure, every miss, and the decision; `save` writes its
        folder with the page.

    Examples
    --------
    >>> texts = [f"text number {k} about subject {k % 7}" for k in range(40)]
    >>> queries = {f"number {k} subject {k % 7}": str(k) for k in range(0, 40, 2)}
    >>> result = audit("builtin:wordllama", texts, queries=queries)
    >>> result.queries, result["truncation"].level
    (20, 'ok')

    """
    rule = Rule(k=_whole("k", k), matters=matters)
    for each in (*against, *(() if reference is None else (reference,))):
        check_named(each)
    watch = as_watch(progress)
    request = Request(
        model=model,
        texts=texts,
        queries=queries,
        query_prompt=query_prompt,
        groups=groups,
        runtime=None if vectors is None else _runtime(vectors),
        reference=reference,
        distance=distance,
        k=rule.k,
        seed=_whole("seed", seed),
        engine=None if engine is None else as_engine(engine),
        cache=cache,
        options=options,
        watch=watch,
    )
    began = time.perf_counter()
    with watch, ExitStack() as opening:
        search, facts, notes = open_search(request)
        if search.collection is not None and search.collection is not model:
            opening.callback(search.collection.close)  # an index answers until it has been measured
        if len(search) and request.runtime is not None and len(request.runtime) != len(search.vectors):
            raise InputError(
                f"vectors: received {len(request.runtime):,} for {len(search.vectors):,} texts; one a text is needed, "
                f"in their order. Encode the same texts."
            )
        opened = time.perf_counter() - began
        _log.debug("reading, opening and encoding: %.2f s", opened)
        others = {row.name: row for row in (other_model(as_encoder(each), str(each)) for each in against)}
        named = called_as()
        found = examine(
            search,
            rule=rule,
            yardsticks={**all_yardsticks(), **others},
            encode=encode,
            watch=watch.opened,
            command="" if named is None else command_line("fix", named.folder),
        )
        in_float = partial(as_encoder, model if reference is None else reference, **{**options, "dtype": "float32"})
        notes = (*notes, *found.notes, *precision_notes(search, options.get("dtype"), in_float))
    corpus = {
        **facts,
        "texts": len(search.vectors),
        "tokens": int(search.lengths.sum()) if search.counts_tokens else None,
        "documents": None if search.documents is None else int(search.documents.max()) + 1,
        "answers": search.judgements.answers if len(search) else 0,
    }
    seconds = {"encoding": round(opened, 3), **found.provenance["seconds"]}
    provenance = {**found.provenance, "seconds": seconds, "called": {} if named is None else named.to_dict()}
    decision = replace(found.decision, self_made=bool(search.self_made))
    return replace(found, corpus=corpus, notes=notes, provenance=provenance, decision=decision)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"{name}: received {value!r}; allowed is a whole number, 0 or more, such as 10.")
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
