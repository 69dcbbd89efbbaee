"""The tasks: which texts to encode, and what their vectors are worth. Every task can be cut in two disjoint halves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError
from poolscope.evaluate.probes import cluster, cross_validated
from poolscope.evaluate.scores import Evaluation
from poolscope.ranking import Ranking, rank_documents, unit_rows

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class Side(NamedTuple):
    """Texts to be encoded alike: as queries, as documents, or (None) without a role."""

    role: str | None
    texts: Sequence[str]


@runtime_checkable
class Task(Protocol):
    """What can be evaluated: texts by side, a score for their vectors, and a way to take some of its units."""

    @property
    def name(self) -> str:
        """What the task is called in tables."""
        ...

    @property
    def sides(self) -> tuple[Side, ...]:
        """The texts to encode; `score` takes the vectors of each side in this order."""
        ...

    @property
    def units(self) -> int:
        """How many queries, pairs or texts the score is made of."""
        ...

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """The evaluation of the vectors of each side."""
        ...

    def take(self, positions: Index) -> Self:
        """The task on some of its units only."""
        ...


def halve(task: Task, *, seed: int = 0) -> tuple[Task, Task]:
    """Two tasks on disjoint halves of the units, drawn at random: one to choose on, one to report on.

    Documents that are relevant to no query are dealt out between the halves; `shared_texts` counts what both hold.
    """
    if task.units < 4:
        raise InputError(
            f"{task.name}: received {task.units} units; two halves need at least 4. Pass more texts, longer ones, or "
            f"more labelled rows."
        )
    random = np.random.default_rng(seed)
    first, second = _dealt(random.permutation(task.units))
    if isinstance(task, RetrievalTask):
        idle = _dealt(random.permutation(task.idle))
        return task.part(first, idle[0]), task.part(second, idle[1])
    return task.take(first), task.take(second)


def shared_texts(first: Task, second: Task) -> int:
    """How many distinct texts stand in both tasks."""
    texts = [{text for side in task.sides for text in side.texts} for task in (first, second)]
    return len(texts[0] & texts[1])


def _dealt(shuffled: Index) -> tuple[Index, Index]:
    middle = len(shuffled) // 2
    return np.sort(shuffled[:middle]), np.sort(shuffled[middle:])


@dataclass(frozen=True)
class RetrievalTask:
    """Find the relevant documents of each query among all documents, by cosine; the score is nDCG@k.

    relevant: judgements (query, document), positions from 0, relevance yes or no. `roles` are those of queries and
    documents; (None, None) where both are texts of one kind. MRR@k and recall@k come along.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    relevant: Index = field(repr=False)
    name: str = "retrieval"
    k: int = 10
    roles: tuple[str | None, str | None] = ("query", "document")
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        judged = np.unique(self.relevant[:, 0]) if len(self.relevant) else np.zeros(0, np.int64)
        if len(judged) != len(self.queries):
            raise InputError(
                f"{self.name}: received {len(self.queries)} queries of which {len(judged)} have a relevant document; "
                f"every query needs one. Leave the others out."
            )

    @property
    def sides(self) -> tuple[Side, ...]:
        """Queries and documents."""
        return Side(self.roles[0], self.queries), Side(self.roles[1], self.documents)

    @property
    def units(self) -> int:
        """Number of queries."""
        return len(self.queries)

    def rank(self, queries: ArrayLike, documents: ArrayLike, *, k: int | None = None) -> Ranking:
        """The nearest documents of each query, with the ranks of the relevant ones."""
        return rank_documents(queries, documents, self.relevant, k=k or self.k)

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """nDCG@k of each query."""
        queries, documents = vectors
        return self.evaluation(self.rank(queries, documents))

    def evaluation(self, ranking: Ranking) -> Evaluation:
        """The scores of a ranking, by cosine or re-ranked."""
        others = {f"MRR@{self.k}": ranking.mrr(self.k), f"recall@{self.k}": ranking.recall(self.k)}
        scores = ranking.ndcg(self.k)[:, None]
        return Evaluation(self.name, f"nDCG@{self.k}", "queries", scores, others=others, notes=self.notes)

    @property
    def idle(self) -> Index:
        """The documents that are relevant to no query."""
        return np.setdiff1d(np.arange(len(self.documents)), self.relevant[:, 1])

    def take(self, positions: Index) -> Self:
        """Some queries, with their relevant documents and all that are relevant to no query."""
        return self.part(positions, self.idle)

    def part(self, positions: Index, idle: Index) -> Self:
        """Some queries, with their relevant documents and those of `idle`."""
        kept = np.isin(self.relevant[:, 0], positions)
        documents = np.union1d(self.relevant[kept, 1], idle)
        relevant = np.stack(
            [np.searchsorted(positions, self.relevant[kept, 0]), np.searchsorted(documents, self.relevant[kept, 1])], 1
        )
        return replace(
            self,
            queries=[self.queries[k] for k in positions],
            documents=[self.documents[k] for k in documents],
            relevant=relevant,
        )


@dataclass(frozen=True)
class SimilarityTask:
    """Semantic textual similarity: Spearman's ρ between the cosines of pairs and their gold scores."""

    first: Sequence[str]
    second: Sequence[str]
    gold: Array = field(repr=False)
    name: str = "similarity"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.first) == len(self.second) == len(self.gold) or len(np.unique(self.gold)) < 2:
            raise InputError(
                f"{self.name}: received {len(self.first)} and {len(self.second)} texts with {len(self.gold)} scores, "
                f"{len(np.unique(self.gold))} of them distinct; needed: as many of each, and scores that differ."
            )

    @property
    def sides(self) -> tuple[Side, ...]:
        """The first and the second text of every pair."""
        return Side(None, self.first), Side(None, self.second)

    @property
    def units(self) -> int:
        """Number of pairs."""
        return len(self.gold)

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """Spearman's ρ over pairs."""
        first, second = (unit_rows(side, "vectors").astype(np.float64) for side in vectors)
        cosines = (first * second).sum(axis=1)
        if np.ptp(cosines) == 0:
            raise InputError(
                f"{self.name}: all {len(cosines)} pairs have the cosine {cosines[0]:.4f}, so there is no order to "
                f"compare with the scores. Check that the vectors belong to the texts."
            )
        observed = np.stack([cosines, self.gold], axis=1)
        return Evaluation(self.name, "Spearman ρ", "pairs", observed, statistic="Spearman", notes=self.notes)

    def take(self, positions: Index) -> Self:
        """Some pairs."""
        return replace(
            self,
            first=[self.first[k] for k in positions],
            second=[self.second[k] for k in positions],
            gold=self.gold[positions],
        )


@dataclass(frozen=True)
class _LabelledTask:
    """Texts with one label each, at least two labels, each on at least two texts."""

    texts: Sequence[str]
    labels: Sequence[str] = field(repr=False)
    name: str
    seed: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds, counts = np.unique(np.asarray(self.labels, dtype=str), return_counts=True)
        if len(self.texts) != len(self.labels) or len(kinds) < 2 or counts.min() < 2:
            raise InputError(
                f"{self.name}: received {len(self.texts)} texts with {len(self.labels)} labels, {len(kinds)} distinct, "
                f"the rarest on {counts.min() if len(counts) else 0}; needed: one label a text, two labels or more, "
                f"each on two texts or more. Leave rare labels out."
            )

    @property
    def sides(self) -> tuple[Side, ...]:
        """All texts."""
        return (Side(None, self.texts),)

    @property
    def units(self) -> int:
        """Number of texts."""
        return len(self.texts)

    @property
    def codes(self) -> Index:
        """The labels as whole numbers from 0."""
        return np.unique(np.asarray(self.labels, dtype=str), return_inverse=True)[1].astype(np.int64)

    def take(self, positions: Index) -> Self:
        """Some texts; a label that is left on one text alone is left out, and the notes say so."""
        labels = np.asarray(self.labels, dtype=str)[positions]
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        kept = positions[counts[inverse] > 1]
        lonely = len(positions) - len(kept)
        note = (f"{lonely} texts alone with their label left out.",) if lonely else ()
        return replace(
            self,
            texts=[self.texts[k] for k in kept],
            labels=[self.labels[k] for k in kept],
            notes=(*self.notes, *note),
        )


@dataclass(frozen=True)
class ClassificationTask(_LabelledTask):
    """Accuracy of a logistic regression on the vectors, cross-validated: every text is predicted once, unseen."""

    name: str = "classification"
    folds: int = 5

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """1 for each text whose label is predicted, else 0."""
        table = unit_rows(vectors[0], "vectors").astype(np.float64)
        predicted = cross_validated(table, self.codes, folds=self.folds, seed=self.seed)
        correct = (predicted == self.codes).astype(np.float64)[:, None]
        return Evaluation(self.name, "accuracy", "texts", correct, notes=self.notes)


@dataclass(frozen=True)
class ClusteringTask(_LabelledTask):
    """The v-measure of k-means with as many clusters as there are labels."""

    name: str = "clustering"
    restarts: int = 10

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """The v-measure of labels and clusters; its interval resamples texts and keeps the clusters."""
        table = unit_rows(vectors[0], "vectors").astype(np.float64)
        codes = self.codes
        found = cluster(table, int(codes.max()) + 1, restarts=self.restarts, seed=self.seed)
        observed = np.stack([codes, found], axis=1).astype(np.float64)
        return Evaluation(self.name, "v-measure", "texts", observed, statistic="v-measure", notes=self.notes)
