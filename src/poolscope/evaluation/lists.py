"""Tasks that score lists: candidates of each query to re-rank, summaries of each text, and several sets of one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from poolscope.errors import InputError
from poolscope.evaluation.scores import Evaluation
from poolscope.evaluation.tasks import Side, Task, digest_of
from poolscope.numbers import Array, Index
from poolscope.numbers.learning import STATISTICS
from poolscope.numbers.ranking import rank_documents, unit_rows

Lists = tuple[tuple[str, ...], ...]


def _frozen(lists: Sequence[Sequence[str]]) -> Lists:
    return tuple(tuple(map(str, own)) for own in lists)


def _apart(vectors: ArrayLike, lists: Lists) -> list[Array]:
    """The vectors of each list, of unit length."""
    units = unit_rows(vectors, "vectors").astype(np.float64)
    return np.split(units, np.cumsum([len(own) for own in lists])[:-1])


@dataclass(frozen=True)
class RerankingTask:
    """Order the candidates of each query by cosine; the score is the average precision, its mean is MAP.

    positive, negative: the relevant and the irrelevant candidates of each query. A query without one of either kind is
    left out, since every order of its candidates is worth the same. MRR@k comes along.

    >>> task = RerankingTask(["a tree"], [["an oak"]], [["a stone", "a river"]])
    >>> task.score([[1, 0]], [[1, 1], [1, 0], [0, 1]]).value
    0.5
    """

    queries: Sequence[str]
    positive: Sequence[Sequence[str]] = field(repr=False)
    negative: Sequence[Sequence[str]] = field(repr=False)
    name: str = "reranking"
    k: int = 10
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = list(zip(self.queries, _frozen(self.positive), _frozen(self.negative), strict=True))
        whole = [row for row in rows if row[1] and row[2]]
        if not whole:
            raise InputError(
                f"{self.name}: received {len(rows)} queries, none with a relevant and an irrelevant candidate. "
                f"Pass both."
            )
        if left := len(rows) - len(whole):
            note = f"{left:,} queries without a relevant or an irrelevant candidate left out."
            object.__setattr__(self, "notes", (*self.notes, note))
        for place, column in enumerate(("queries", "positive", "negative")):
            object.__setattr__(self, column, tuple(row[place] for row in whole))

    @property
    def candidates(self) -> Lists:
        """The candidates of each query, the relevant ones first."""
        return tuple((*good, *bad) for good, bad in zip(_frozen(self.positive), _frozen(self.negative), strict=True))

    @property
    def sides(self) -> tuple[Side, ...]:
        """Queries, and all candidates one list after the other."""
        return Side("query", self.queries), Side("document", tuple(chain(*self.candidates)))

    @property
    def units(self) -> int:
        """Number of queries."""
        return len(self.queries)

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """The average precision of each query among its own candidates; equal cosines count by the mean over orders."""
        queries = np.asarray(vectors[0])
        precision, reciprocal, tied = np.empty(self.units), np.empty(self.units), np.empty(self.units, bool)
        for place, candidates in enumerate(_apart(vectors[1], self.candidates)):
            relevant = [(0, k) for k in range(len(self.positive[place]))]
            ranking = rank_documents(queries[place : place + 1], candidates, relevant, k=self.k)
            precision[place], reciprocal[place] = ranking.average_precision()[0], ranking.mrr(self.k)[0]
            tied[place] = ranking.tied[0]
        values: dict[str, Any] = {"others": {f"MRR@{self.k}": reciprocal}, "notes": self.notes, "tied": tied}
        return Evaluation(self.name, "MAP", "queries", precision[:, None], digest=self.digest, **values)

    @cached_property
    def digest(self) -> str:
        """Of queries and candidates."""
        return digest_of([self.queries, *self.positive, *self.negative])

    def take(self, positions: Index) -> Self:
        """Some queries with their candidates."""
        chosen: dict[str, Any] = {
            name: [getattr(self, name)[int(k)] for k in positions] for name in ("queries", "positive", "negative")
        }
        return replace(self, **chosen)


@dataclass(frozen=True)
class SummaryTask:
    """Judge the summaries of each text by the nearest human one; the score is Spearman's ρ with what people said.

    machine: the summaries to judge; gold: what people said of each; human: summaries that people wrote. A summary is
    worth its highest cosine to a human one. Texts of which all summaries were judged alike are left out. A text whose
    summaries all have one cosine scores 0.

    >>> task = SummaryTask([["a", "b", "c"]], [["h"]], [[1, 2, 3]])
    >>> round(task.score([[0, 1], [1, 1], [1, 0]], [[1, 0]]).value, 6)
    1.0
    """

    machine: Sequence[Sequence[str]] = field(repr=False)
    human: Sequence[Sequence[str]] = field(repr=False)
    gold: Sequence[Sequence[float]] = field(repr=False)
    name: str = "summarisation"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        gold = tuple(tuple(float(value) for value in own) for own in self.gold)
        rows = list(zip(_frozen(self.machine), _frozen(self.human), gold, strict=True))
        if odd := [row for row in rows if len(row[0]) != len(row[2]) or not row[1] or not np.isfinite(row[2]).all()]:
            raise InputError(
                f"{self.name}: received {len(odd[0][0])} summaries with {len(odd[0][2])} scores and {len(odd[0][1])} "
                f"human ones for a text; needed: a finite score for each, and a human summary. Leave such texts out."
            )
        judged = [row for row in rows if len(set(row[2])) > 1]
        if not judged:
            raise InputError(
                f"{self.name}: of no text do the scores of its summaries differ. Pass texts where they do."
            )
        if left := len(rows) - len(judged):
            note = f"{left:,} texts of which all summaries have one score left out."
            object.__setattr__(self, "notes", (*self.notes, note))
        for place, column in enumerate(("machine", "human", "gold")):
            object.__setattr__(self, column, tuple(row[place] for row in judged))

    @property
    def sides(self) -> tuple[Side, ...]:
        """The summaries to judge, and the human ones, one text after the other."""
        return tuple(Side(None, tuple(chain(*own))) for own in (_frozen(self.machine), _frozen(self.human)))

    @property
    def units(self) -> int:
        """Number of texts."""
        return len(self.gold)

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """Spearman's ρ for each text."""
        sides = [
            _apart(own, lists) for own, lists in zip(vectors, map(_frozen, (self.machine, self.human)), strict=True)
        ]
        rho = np.zeros((self.units, 1))
        for place, (machine, human) in enumerate(zip(*sides, strict=True)):
            nearest = np.round((machine @ human.T).max(axis=1), 12)
            if np.ptp(nearest) > 0:
                rho[place] = STATISTICS["Spearman"](np.column_stack([nearest, self.gold[place]])[None])
        return Evaluation(self.name, "mean Spearman ρ", "texts", rho, notes=self.notes, digest=self.digest)

    @cached_property
    def digest(self) -> str:
        """Of summaries and scores."""
        return digest_of([*self.machine, *self.human], list(self.gold))

    def take(self, positions: Index) -> Self:
        """Some texts with their summaries."""
        chosen: dict[str, Any] = {
            name: [getattr(self, name)[int(k)] for k in positions] for name in ("machine", "human", "gold")
        }
        return replace(self, **chosen)


@dataclass(frozen=True)
class SeveralSets:
    """Several sets of one task; the score is the mean of their scores, and a set is a unit.

    >>> from poolscope.evaluation import ClusteringTask
    >>> one = ClusteringTask(["a", "b", "c", "d"], [0, 0, 1, 1])
    >>> SeveralSets([one, one]).score([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]] * 2).value
    1.0
    """

    tasks: Sequence[Task]

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError("received no set; needed: one or more. Pass a list of sets.")
        object.__setattr__(self, "tasks", tuple(self.tasks))

    @property
    def name(self) -> str:
        """That of the first set."""
        return self.tasks[0].name

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of all sets, one set after the other."""
        by_side = zip(*(task.sides for task in self.tasks), strict=True)
        return tuple(Side(own[0].role, tuple(chain(*(side.texts for side in own)))) for own in by_side)

    @property
    def units(self) -> int:
        """Number of sets."""
        return len(self.tasks)

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """The score of each set."""
        ends = [np.cumsum([len(task.sides[k].texts) for task in self.tasks])[:-1] for k in range(len(vectors))]
        parts = [np.split(np.asarray(side), end) for side, end in zip(vectors, ends, strict=True)]
        scored = [task.score(*own) for task, own in zip(self.tasks, zip(*parts, strict=True), strict=True)]
        values = np.array([[each.value] for each in scored])
        notes = tuple(dict.fromkeys(note for each in scored for note in each.notes))
        return Evaluation(self.name, scored[0].metric, "sets", values, notes=notes, digest=self.digest)

    @cached_property
    def digest(self) -> str:
        """Of all texts."""
        return digest_of([side.texts for task in self.tasks for side in task.sides])

    def take(self, positions: Index) -> Self:
        """Some sets."""
        return replace(self, tasks=[self.tasks[int(k)] for k in positions])
