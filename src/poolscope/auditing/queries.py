"""The user's own queries: encoded once, ranked over all texts, and the task that every trial then uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.trials import CLOUD_WEIGHT, LEVEL, MIN_QUERIES, MOST_TEXTS, K, Pieces, SearchTask
from poolscope.clouds import TokenClouds
from poolscope.encoders.base import TokenEncoder, resolve_prompt
from poolscope.encoders.capabilities import has, options_of, with_options
from poolscope.evaluation import RetrievalTask
from poolscope.numbers.pooling import make_pooling
from poolscope.numbers.ranking import Ranking, rank_documents
from poolscope.repairs.readings import Reading
from poolscope.repairs.repair_file import Layers, encode_at
from poolscope.repairs.search import gaussian_distances
from poolscope.repairs.temperature.rules import TemperatureRule
from poolscope.texts import JudgedQueries

if TYPE_CHECKING:
    from poolscope.auditing.subject import Subject

UNITS = "of your queries"


def _name(texts: int) -> str:
    return f"your queries among {texts:,} texts"


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryTask(SearchTask):
    """The user's queries and all different texts, whose clouds are at hand: nothing is encoded until a trial asks.

    `texts` are the positions of the documents in the corpus.
    """

    asking: TokenEncoder
    ready: tuple[TokenClouds, TokenClouds] = field(repr=False)
    texts: NDArray[np.int64] = field(repr=False)

    @cached_property
    def sides(self) -> list[Layers]:
        """The clouds of queries and documents, as the model is."""
        return [{-1: clouds} for clouds in self.ready]

    def encode(
        self, rule: TemperatureRule | None, *, reading: Reading | None = None, layers: Sequence[int] = (-1,)
    ) -> list[Layers]:
        """Both sides anew at a temperature, the queries with their own prompt."""
        encoders = zip((self.asking, self.encoder), self.task.sides, strict=True)
        return [encode_at(encoder, side.texts, rule, reading=reading, layers=layers) for encoder, side in encoders]

    @cached_property
    def ranking(self) -> Ranking:
        """The first documents of each query, and the ranks of the relevant ones."""
        return rank_documents(self.vectors[0], self.vectors[1], self.task.relevant, k=K)

    @cached_property
    def best(self) -> NDArray[np.int64]:
        """Rows of the judgements that count: of a document that was named, the chunk that ranks first."""
        answers = self.task.answers
        return np.arange(len(self.task.relevant)) if answers is None else self.ranking.best_of(answers)

    def part(self, queries: NDArray[np.int64], idle: NDArray[np.int64]) -> QueryTask:
        """Some queries, with their relevant documents and those of `idle`."""
        task = self.task.part(queries, idle)
        task = replace(task, name=_name(len(task.documents)))
        kept = np.union1d(self.task.relevant[np.isin(self.task.relevant[:, 0], queries), 1], idle)
        clouds = self.ready[0][queries], self.ready[1][kept]
        vectors = self.vectors[1][kept]
        return replace(self, task=task, ready=clouds, texts=self.texts[kept], learnt_from=vectors)


def query_task(subject: Subject, queries: JudgedQueries) -> QueryTask:
    """The queries over all different texts; a relevant text that repeats an earlier one is found where that is."""
    texts, encoder = subject.distinct, query_encoder(subject.encoder, subject.query_prompt)
    documents = np.searchsorted(texts, subject.first_equal[queries.relevant[:, 1]])
    relevant, grades, answers = _judgements(queries, documents)
    corpus = subject.texts or []
    task = RetrievalTask(
        list(queries.texts),
        [corpus[k] for k in texts],
        relevant,
        name=_name(len(texts)),
        k=K,
        roles=(None, None),
        grades=grades if queries.graded else None,
        answers=answers,
    )
    return QueryTask(
        encoder=subject.encoder,
        asking=encoder,
        task=task,
        pooling=make_pooling(subject.pooling),
        level=LEVEL,
        units=UNITS,
        others=np.zeros((0, subject.vectors.shape[1]), np.float32),
        other_lengths=np.zeros(0, np.int64),
        learnt_from=subject.vectors[texts],
        ready=(encoder.encode(list(queries.texts))[-1], subject.clouds[texts]),
        texts=texts,
    )


def _judgements(
    queries: JudgedQueries, documents: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64] | None]:
    """Each (query, document) once, with its highest grade and its answer: two relevant texts may be equal."""
    pairs = np.stack([queries.relevant[:, 0], documents], axis=1)
    relevant, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    grades = np.zeros(len(relevant))
    np.maximum.at(grades, place.ravel(), queries.grades)
    return relevant, grades, None if queries.answers is None else queries.answers[first]


@dataclass(frozen=True, eq=False)
class Mistakes:
    """Queries that rank a wrong text before a relevant one: positions of the query and of both texts, and cosines.

    `mended`: with the clouds looked at too (d_μ + weight·d_Σ), the relevant text comes first.
    """

    query: NDArray[np.int64]
    relevant: NDArray[np.int64]
    wrong: NDArray[np.int64]
    relevant_cosine: NDArray[np.float64]
    wrong_cosine: NDArray[np.float64]
    mended: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.query)

    @property
    def pairs(self) -> NDArray[np.int64]:
        """(relevant, wrong) of every mistake."""
        return np.stack([self.relevant, self.wrong], axis=1)


def mistakes(task: QueryTask, groups: NDArray[np.int64] | None, *, most: int, seed: int) -> Mistakes:
    """For every query the wrong texts among the first ten that stand before its best relevant one; at most so many.

    Texts of the relevant one's document are no mistakes, where documents are known (`groups`, one number a document of
    the task).
    """
    ranking = task.ranking
    order = np.lexsort((ranking.rank, ranking.query))
    queries, first = np.unique(ranking.query[order], return_index=True)
    best = ranking.document[order[first]]  # of each query the relevant text that ranks first
    asking, searched = (np.asarray(side) for side in task.vectors)
    own = np.einsum("nd,nd->n", asking[queries], searched[best])
    top, scores = ranking.top[queries], ranking.scores[queries]
    keys = queries[:, None] * len(searched) + top
    wrong = (scores > own[:, None]) & ~np.isin(keys, ranking.query * len(searched) + ranking.document)
    if groups is not None:
        wrong &= groups[top] != groups[best][:, None]
    rows, places = np.nonzero(wrong)
    if len(rows) > most:
        drawn = np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))
        rows, places = rows[drawn], places[drawn]
    wrongs = top[rows, places]
    sides = (np.stack([queries[rows], texts], axis=1) for texts in (best[rows], wrongs))
    near = [gaussian_distances(*task.clouds, pairs, weight=CLOUD_WEIGHT) for pairs in sides]
    return Mistakes(
        query=queries[rows],
        relevant=task.texts[best[rows]],
        wrong=task.texts[wrongs],
        relevant_cosine=own[rows].astype(np.float64),
        wrong_cosine=scores[rows, places],
        mended=near[0] < near[1],
    )


def query_pieces(subject: Subject, task: QueryTask) -> Pieces:
    """The queries and all different texts with their whole lengths, as the question of short texts searches them."""
    whole = (subject.clouds.lengths + subject.clouds.truncated)[task.texts]
    return Pieces(task.vectors[0], task.vectors[1], task.task.relevant, whole, 0, counted=task.best)


def on_trial(subject: Subject, task: QueryTask) -> QueryTask:
    """So many queries that their relevant texts can be encoded anew, and texts drawn to fill up their number."""
    random = np.random.default_rng(subject.seed)
    size = min(MOST_TEXTS, len(task.texts) // 2) if subject.trial_texts is None else subject.trial_texts
    relevant = task.task.relevant
    chosen: list[int] = []
    needed: set[int] = set()
    for query in random.permutation(task.task.units).tolist():
        own = set(relevant[relevant[:, 0] == query, 1].tolist())
        if len(chosen) >= MIN_QUERIES and len(needed | own) > size:
            break
        chosen.append(query)
        needed |= own
    idle = np.setdiff1d(np.arange(len(task.texts)), relevant[np.isin(relevant[:, 0], chosen), 1])
    filled = random.permutation(idle)[: max(size - len(needed), 0)]
    return task.part(np.sort(np.array(chosen)), np.sort(filled))


def query_encoder(encoder: TokenEncoder, prompt: str | None) -> TokenEncoder:
    """The encoder as it reads queries: with this prompt, or the one that its model declares for queries.

    A prompt that the caller wrote out for the texts stays for the queries too, unless another is named.
    """
    if not has(encoder, "with_options"):
        return encoder
    options = options_of(encoder)
    if prompt is not None:
        return with_options(encoder, replace(options, prompt=prompt, prompt_name=None, role=None), role="query")
    if options.prompt is not None:
        return with_options(encoder, options, role="query")
    return with_options(encoder, replace(options, prompt_name=None, role="query"), role="query")


def query_notes(subject: Subject, queries: JudgedQueries) -> tuple[str, ...]:
    """How many queries there are, how they were encoded, and what reading them met."""
    count = f"{len(queries):,} queries of {queries.source} with {len(queries.relevant):,} relevant texts"
    prompt = resolve_prompt(subject.card, options_of(query_encoder(subject.encoder, subject.query_prompt)))
    said = f", encoded with the prompt {prompt!r}" if prompt else ""
    return (f"Asked with {count}{said}.", *queries.notes)
