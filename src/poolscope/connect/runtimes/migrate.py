"""Before a switch: do two stores or servers hold the same vectors, neighbours, and answers to the queries?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolscope.auditing.power import shown_sentence
from poolscope.auditing.words import fill
from poolscope.connect.runtimes.rows import RowMatches, match_rows
from poolscope.connect.runtimes.seal import vectors_from
from poolscope.connectors import Collection, as_collection, is_index
from poolscope.errors import InputError, whole_number
from poolscope.evaluation import query_task
from poolscope.evaluation.outcome import Judgements
from poolscope.evaluation.paired import Attempt, CureTrial, run_trials
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import numbered_by_words
from poolscope.results import Result, origin, provenance
from poolscope.texts import read_texts

_BLOCK = 512
_TEXTS = "{common:count text} are in both; {lost:count} only in the old, {added:count} only in the new."
_VECTORS = "Equal vectors: {same:percent}."
_OTHER = "The vectors have other dimensions: {old:count} before, {new:count} after."
_EXPLAINED = "The others are {explained}."
_NEIGHBOURS = "Equal neighbours among the top {k:count}: {shared:percent}."
_ANSWERS = (
    "Answers: nDCG@{k:count} {before:score} → {after:score}, {gain:signed} {gain:interval} on {queries:count query}."
)
_WORSE = "That is worse beyond chance: do not switch yet."
_CHANCE = "That may be chance."
MIGRATE_WORDS = (_TEXTS, _VECTORS, _OTHER, _EXPLAINED, _NEIGHBOURS, _ANSWERS, _WORSE, _CHANCE)


@dataclass(frozen=True, repr=False, kw_only=True)
class Migration(Result):
    """Two stores or servers on the texts that both have.

    `same` is the share of equal vectors (None where the dimensions differ), `neighbours` the mean share of the top k
    neighbours of a text that both agree on, `answers` the change on the queries (None without queries).
    """

    old: str
    new: str
    common: int
    lost: int
    added: int
    k: int
    dimensions: tuple[int, int]
    same: Estimate | None
    neighbours: Estimate
    answers: CureTrial | None
    match: RowMatches | None
    provenance: Mapping[str, Any] = origin()

    @property
    def worse(self) -> bool:
        """Are texts lost, or are the answers worse beyond chance?"""
        around = None if self.answers is None else self.answers.gain.interval
        return self.lost > 0 or (around is not None and around.high < 0)

    def headline(self) -> dict[str, Any]:
        """Texts, equal vectors, equal neighbours."""
        return {"texts": self.common, "same": self.same, "neighbours": self.neighbours, "worse": self.worse}

    def in_words(self) -> tuple[str, ...]:
        """What would change, in words."""
        values: dict[str, Any] = {
            "common": self.common,
            "lost": self.lost,
            "added": self.added,
            "k": self.k,
            "shared": self.neighbours,
            "old": self.dimensions[0],
            "new": self.dimensions[1],
            "same": self.same,
        }
        sentences = [fill(_TEXTS, values), fill(_OTHER if self.same is None else _VECTORS, values)]
        if self.match is not None and self.match.explained:
            sentences.append(fill(_EXPLAINED, {"explained": self.match.explained}))
        sentences.append(fill(_NEIGHBOURS, values))
        trial = self.answers
        if trial is not None:
            numbers = {"before": trial.before, "after": trial.after, "gain": trial.gain, "queries": trial.queries}
            sentences.append(fill(_ANSWERS, {"k": self.k, **numbers}))
            around = trial.gain.interval
            if around is not None and around.high < 0:
                sentences.append(_WORSE)
            elif around is None or around.low <= 0:
                sentences += [_CHANCE, shown_sentence(trial.queries, trial.smallest)]
        return tuple(sentences)


def migrate(
    old: Any,
    new: Any,
    texts: Any = None,
    *,
    queries: Any = None,
    old_model: Any = None,
    new_model: Any = None,
    k: int = 10,
    seed: int = 0,
) -> Migration:
    """Compare two stores or servers before a switch: same vectors, same neighbours, same answers to the queries?

    Parameters
    ----------
    old, new
        Vectors in files or stores, joined by id; or addresses of servers and models, which are asked for `texts`.
    texts
        The texts, where neither side holds them.
    queries
        Queries with the ids of the texts that answer them.
    old_model, new_model
        What encodes the queries of a store; a server or a model does so itself. `new_model` is by default `old_model`.
    k
        How many neighbours, and how deep answers count.
    seed
        Of the sign flips behind the interval.

    Returns
    -------
    Migration
        Equal vectors, equal neighbours, and the change on the queries.

    Examples
    --------
    >>> from poolscope.connectors.collection import array_collection
    >>> table = np.random.default_rng(0).standard_normal((20, 4))
    >>> side = array_collection(table, texts=[f"text {n}" for n in range(20)])
    >>> found = migrate(side, side)
    >>> found.same.value, found.neighbours.value
    (1.0, 1.0)

    """
    whole_number(k, "k")
    corpus = None if texts is None else read_texts(texts)
    stores = [_opened(side, corpus) if is_index(side) else None for side in (old, new)]
    with_texts = next((store for store in stores if store is not None and store.texts is not None), None)
    if corpus is not None:
        ids, words = list(corpus.ids), list(corpus.texts)
    elif with_texts is not None:
        ids, words = list(with_texts.ids), list(with_texts.texts or ())
    else:
        ids, words = (list(stores[0].ids), []) if all(stores) and stores[0] is not None else ([], [])
    if not ids or (not words and (queries is not None or not all(stores))):
        raise InputError("migrate: the texts are not known. Name their file as TEXTS.")
    places = [{name: n for n, name in enumerate(ids if store is None else store.ids)} for store in stores]
    common = [name for name in ids if all(name in place for place in places)]
    if len(common) < 2:
        raise InputError(f"the two sides have {len(common)} ids in common; needed: 2 or more. Check their ids.")
    text_of = dict(zip(ids, words, strict=False))
    names, tables = [], []
    for side, store, place in zip((old, new), stores, places, strict=True):
        if store is None:
            name, table = vectors_from(side, [text_of[each] for each in common], None, {})
        else:
            name, table = store.source, np.asarray(store.vectors)[[place[each] for each in common]]
        names.append(name)
        tables.append(np.asarray(table, dtype=np.float64))
    sizes = (tables[0].shape[1], tables[1].shape[1])
    match = match_rows(tables[1], tables[0]) if sizes[0] == sizes[1] else None
    units = [unit_rows(table, "vectors").astype(np.float64) for table in tables]
    depth = min(k, len(common) - 1)
    first = [_neighbours(table, depth) for table in units]
    shared = np.array(
        [len(set(one) & set(two)) / depth for one, two in zip(*map(np.ndarray.tolist, first), strict=True)]
    )
    answers = None
    if queries is not None:
        makers = [
            side if store is None else model
            for side, store, model in zip((old, new), stores, (old_model, new_model or old_model), strict=True)
        ]
        answers = _answers(common, [text_of[each] for each in common], queries, makers, units, k=k, seed=seed)
    return Migration(
        old=names[0],
        new=names[1],
        common=len(common),
        lost=len(set(places[0]) - set(places[1])),
        added=len(set(places[1]) - set(places[0])),
        k=k,
        dimensions=sizes,
        same=None if match is None else match.own,
        neighbours=share_estimate(shared, each="texts"),
        answers=answers,
        match=match,
        provenance=provenance(settings={"k": k, "seed": seed}),
    )


def _opened(side: Any, corpus: Any) -> Collection:
    store = as_collection(side, limit=0) if isinstance(side, str | os.PathLike) else as_collection(side)
    store.close()
    return store if store.texts is not None or corpus is None else store.with_texts(corpus)


def _neighbours(table: Array, k: int) -> Index:
    """The k nearest other rows of each row."""
    nearest = np.empty((len(table), k), np.int64)
    for start in range(0, len(table), _BLOCK):
        scores = table[start : start + _BLOCK] @ table.T
        scores[np.arange(len(scores)), start + np.arange(len(scores))] = -np.inf
        nearest[start : start + _BLOCK] = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return nearest


def _answers(
    ids: Sequence[str],
    texts: Sequence[str],
    queries: Any,
    makers: Sequence[Any],
    tables: Sequence[Array],
    *,
    k: int,
    seed: int,
) -> CureTrial:
    """The same queries on both sides, each encoded by the model of its side."""
    if any(maker is None for maker in makers):
        raise InputError("migrate: a store does not encode queries. Name the model that does: --old-model MODEL.")
    task = query_task({"id": list(ids), "text": list(texts)}, queries, k=k, id_column="id")
    judged = Judgements.of(task.units, len(texts), task.relevant, grade=task.grades, answer=task.answers)
    outcomes = []
    for maker, table in zip(makers, tables, strict=True):
        vectors = unit_rows(vectors_from(maker, list(task.queries), None, {}, role="query")[1], "vectors of queries")
        if vectors.shape[1] != table.shape[1]:
            raise InputError(
                f"queries have dimension {vectors.shape[1]} and texts {table.shape[1]}. Name each side's own model: "
                f"--old-model, --new-model."
            )
        outcomes.append(judged.outcome([(0, vectors @ table.T)], k=k))
    of = numbered_by_words(task.query_units.of, task.queries, seed=seed)
    return run_trials([Attempt("new", outcomes[0], outcomes[1])], of, unit=task.query_units.name, seed=seed)[0]
