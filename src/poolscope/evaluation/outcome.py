"""The outcome of a search: what one order of the texts gives for each query, and where each relevant text stands.

The order comes as scores of any kind, in blocks of queries, so that no table of all queries by all texts is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers import Array, Index
from poolscope.numbers.ranking import Ranking, checked_judgements, rank_scores

Block = tuple[int, NDArray[Any]]
"""The first query of a block, and the scores of its queries with all texts (queries × texts), higher is better."""


@dataclass(frozen=True, eq=False)
class Judgements:
    """Relevant texts of every query, with their grades.

    `relevant` has a row (query, text) a judgement and `grade` one number above 0 for each. Judgements of one `answer`
    stand for each other: of the chunks of a document that was named, and of equal texts, the best one counts.
    """

    queries: int
    texts: int
    relevant: Index = field(repr=False)
    grade: Array = field(repr=False)
    answer: Index = field(repr=False)

    @classmethod
    def of(
        cls, queries: int, texts: int, relevant: Any, *, grade: Array | None = None, answer: Index | None = None
    ) -> Judgements:
        """The judgements with every row an answer of its own, and of equal grade, unless told otherwise."""
        rows = checked_judgements(relevant, queries, texts)
        number = np.arange(len(rows)) if answer is None else np.unique(answer, return_inverse=True)[1].ravel()
        return cls(queries, texts, rows, np.ones(len(rows)) if grade is None else grade, number)

    @property
    def answers(self) -> int:
        """How many answers there are; each is found or missed as a whole."""
        return int(self.answer.max()) + 1

    @cached_property
    def query(self) -> Index:
        """The query of each answer."""
        query = np.empty(self.answers, np.int64)
        query[self.answer] = self.relevant[:, 0]
        return query

    @cached_property
    def graded(self) -> bool:
        """Do the grades differ?"""
        return bool(np.ptp(self.grade) > 0)

    def outcome(self, blocks: Iterable[Block], *, k: int = 10, first: int = 0) -> Outcome:
        """The outcome of scores that come in blocks of queries; the first `first` texts of each query are kept."""
        depth = min(max(k, first), self.texts)
        top, scores = np.empty((self.queries, depth), np.int64), np.empty((self.queries, depth))
        above, ties = np.empty((2, len(self.relevant)), np.int64)
        for start, block in blocks:
            stop = start + len(block)
            rows = np.flatnonzero((self.relevant[:, 0] >= start) & (self.relevant[:, 0] < stop))
            ranked = rank_scores(block, self.relevant[rows] - [start, 0], k=depth)
            top[start:stop], scores[start:stop] = ranked.top, ranked.scores
            above[rows], ties[rows] = ranked.above, ranked.ties
        return Outcome(self, k, Ranking(top, scores, self.relevant[:, 0], self.relevant[:, 1], above, ties))


@dataclass(frozen=True, eq=False)
class Outcome:
    """One order of the texts for each query, measured. One number a query, unless an answer is named."""

    judgements: Judgements
    k: int
    whole: Ranking = field(repr=False)

    @cached_property
    def _best(self) -> Index:
        """The judgement that ranks first of each answer, in the order of the answers."""
        rows = self.whole.best_of(self.judgements.answer)
        return np.asarray(rows[np.argsort(self.judgements.answer[rows])])

    @cached_property
    def ranking(self) -> Ranking:
        """The ranking of the answers; judgements that stand for another one are in nobody's way."""
        return self.whole.condensed(self._best)

    @cached_property
    def rank(self) -> Array:
        """The rank of each answer, from 1."""
        return self.ranking.rank

    @property
    def text(self) -> Index:
        """The text by which each answer is found first."""
        return self.ranking.document

    @cached_property
    def ndcg(self) -> Array:
        """The nDCG@k."""
        grades = self.judgements.grade[self._best] if self.judgements.graded else None
        return self.ranking.ndcg(self.k, grades=grades)

    @cached_property
    def recall(self) -> Array:
        """The share of the answers in the top k."""
        return self.ranking.recall(self.k)

    @cached_property
    def reciprocal(self) -> Array:
        """1 over the rank of the best answer, 0 beyond k."""
        return self.ranking.mrr(self.k)

    @cached_property
    def found(self) -> Array:
        """1 where an answer is in the top k, 0 where none is, and the chance of it where ties decide."""
        return self.ranking.found(self.k)

    @cached_property
    def best(self) -> Array:
        """The rank of the best answer."""
        return self.ranking.best_rank()

    @property
    def log_rank(self) -> Array:
        """−log₂ of the rank of the best answer: it grows by 1 where the rank is halved."""
        return np.asarray(-np.log2(self.best))
