"""Tasks: the texts to encode and the score of their vectors. Every task can be cut in two disjoint halves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from poolscope.encoders.base import check_texts
from poolscope.errors import InputError, whole_number
from poolscope.evaluation.scores import Evaluation
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Units, answers, chosen_units, query_units
from poolscope.numbers.learning import (
    MOST_ITERATIONS,
    STATISTICS,
    average_precision,
    cluster,
    logistic_regression,
    macro_f1,
    mini_batch_clusters,
    predict_unseen,
)
from poolscope.numbers.ranking import Ranking, checked_judgements, rank_documents, unit_rows
from poolscope.numbers.streaming import marks_of, shuffled_order
from poolscope.texts import as_texts
from poolscope.texts.groups import checked_groups, first_of_equal
from poolscope.texts.records import add_strings

_SPLITS = 20  # random splits into halves: 95 % intervals from them held the truth in 94 to 96 % of simulations


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


def shuffled(task: Task, *, seed: int) -> Task:
    """The task in an order given by its words and the seed, so that a draw does not depend on the order of a file.

    A task of one's own whose sides are not one text a unit is shuffled by the places of its units.
    """
    if isinstance(task, RetrievalTask):
        return task.shuffled(seed)
    sides = [side.texts for side in task.sides if len(side.texts) == task.units]
    words = ("\n".join(texts[k] for texts in sides) or str(k) for k in range(task.units))
    return task.take(shuffled_order(words, seed=seed))


def halve(task: Task, *, seed: int = 0) -> tuple[Task, Task]:
    """Two tasks on disjoint halves of the units, drawn by their words and the seed: to choose on, and to report on.

    Documents that are relevant to no query are dealt out between the halves; `shared_texts` counts what both hold. The
    queries of one document are in one half.
    """
    if task.units < 4:
        raise InputError(
            f"{task.name}: received {task.units} units; two halves need at least 4. Pass more texts, longer ones, or "
            f"more labelled rows."
        )
    task = shuffled(task, seed=whole_number(seed, "seed", least=0))
    first, second = _dealt(np.arange(task.units))
    if isinstance(task, RetrievalTask):
        if task.unit_documents:
            first, second = _dealt_whole(chosen_units(task.units, task.unit_documents))
        idle = _dealt(task.idle)
        return task.part(first, idle[0]), task.part(second, idle[1])
    return task.take(first), task.take(second)


def shared_texts(first: Task, second: Task) -> int:
    """How many distinct texts stand in both tasks."""
    texts = [{text for side in task.sides for text in side.texts} for task in (first, second)]
    return len(texts[0] & texts[1])


def digest_of(texts: Iterable[Sequence[str]], *judgements: Any) -> str:
    """SHA-256 of lists of texts and of what is known of them: two evaluations are paired only if it agrees."""
    digest = hashlib.sha256()
    for side in texts:
        digest.update(f"{len(side)}\n".encode())
        add_strings(digest, *side)
    for part in judgements:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return digest.hexdigest()


def _take_texts(task: Any, *names: str) -> None:
    """Keep the texts that were passed under these names as sequences that are checked, whatever held them."""
    for name in names:
        texts = as_texts(getattr(task, name))
        check_texts(texts)
        object.__setattr__(task, name, texts)


def _dealt(positions: Index) -> tuple[Index, Index]:
    middle = len(positions) // 2
    return positions[:middle], positions[middle:]


def _dealt_whole(units: Units) -> tuple[Index, Index]:
    """The positions of the first units that hold half of all values, and those of the others."""
    until = np.cumsum(units.sizes) - units.sizes / 2
    first = until[units.of] < len(units.of) / 2
    return np.flatnonzero(first), np.flatnonzero(~first)


@dataclass(frozen=True)
class RetrievalTask:
    """Find the relevant documents of each query among all documents, by cosine; the score is nDCG@k.

    relevant: judgements (query, document), positions from 0, relevance yes or no unless `grades` has a number above 0
    for each. `roles` are those of queries and documents; (None, None) where both are texts of one kind. MRR@k,
    recall@k, precision@k, MAP and found@k come along. `both_ways`: query k and document k, which then belong to each
    other alone, change places too, and the score of k is the mean of both. `answers`: one number a judgement; of those
    that share one, as the chunks of a document that was named do, the best counts, and the others are in nobody's way.
    `groups`: the document that each of `documents` is a chunk of, where known. Queries that share a relevant document,
    or a group of these, are one unit of the interval, also where others link them.

    Equal scores count by the mean over their orders (`Ranking`). Documents with the words of a relevant one are
    relevant too and share its answer, with the highest grade among them, so that merging copies changes no score
    unless they are wrong.

    >>> task = RetrievalTask(["a tree"], ["an oak", "an oak", "a stone"], [(0, 0)])
    >>> task.score([[1, 0]], [[1, 0.1], [1, 0.1], [0, 1]]).value
    1.0
    """

    queries: Sequence[str]
    documents: Sequence[str]
    relevant: Index = field(repr=False)
    name: str = "retrieval"
    k: int = 10
    roles: tuple[str | None, str | None] = ("query", "document")
    notes: tuple[str, ...] = ()
    grades: Array | None = field(default=None, repr=False)
    both_ways: bool = False
    answers: Index | None = field(default=None, repr=False)
    groups: Sequence[Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _take_texts(self, "queries", "documents")
        if self.groups is not None:
            object.__setattr__(self, "groups", checked_groups(self.groups, len(self.documents)))
        judgements = checked_judgements(self.relevant, len(self.queries), len(self.documents))
        object.__setattr__(self, "relevant", judgements)
        if self.grades is not None and (self.grades.shape != (len(judgements),) or not (self.grades > 0).all()):
            raise InputError(
                f"{self.name}: received grades of shape {self.grades.shape} for {len(judgements)} judgements; needed: "
                f"a number above 0 for each. Leave out what is not relevant."
            )
        if self.answers is not None and self.answers.shape != (len(judgements),):
            raise InputError(
                f"{self.name}: received answers of shape {self.answers.shape} for {len(judgements)} judgements; "
                f"needed: a number for each."
            )
        self._include_copies()
        judged = np.unique(self.relevant[:, 0])
        if len(judged) != len(self.queries):
            raise InputError(
                f"{self.name}: received {len(self.queries)} queries of which {len(judged)} have a relevant document; "
                f"every query needs one. Leave the others out."
            )

    def _include_copies(self) -> None:
        """Judge the copies of judged documents alike: relevant, of one grade, one answer for all."""
        first = first_of_equal(self.documents)
        judged = np.unique(self.relevant[:, 1])
        copied = np.isin(first, first[judged])
        if copied.sum() == len(np.unique(first[judged])):
            return
        words = np.stack([self.relevant[:, 0], first[self.relevant[:, 1]]], axis=1)
        pairs, position, of_judgement = np.unique(words, axis=0, return_index=True, return_inverse=True)
        copies = np.flatnonzero(copied)
        copies = copies[np.argsort(first[copies], kind="stable")]
        start, stop = (np.searchsorted(first[copies], pairs[:, 1], side=side) for side in ("left", "right"))
        of_pair = np.repeat(np.arange(len(pairs)), stop - start)
        documents = np.concatenate([copies[a:b] for a, b in zip(start, stop, strict=True)])
        relevant = np.stack([pairs[of_pair, 0], documents], axis=1)
        order = np.lexsort(relevant.T[::-1])
        object.__setattr__(self, "relevant", relevant[order])
        answers = np.arange(len(pairs)) if self.answers is None else self.answers[position]
        object.__setattr__(self, "answers", answers[of_pair][order])
        if self.grades is not None:
            grades = np.zeros(len(pairs))
            np.maximum.at(grades, of_judgement.ravel(), self.grades)
            object.__setattr__(self, "grades", grades[of_pair][order])

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

    def ways(self, queries: Any, documents: Any) -> list[tuple[Any, Any]]:
        """Who asks whom: queries the documents, and these the queries, where it goes both ways."""
        return [(queries, documents), (documents, queries)] if self.both_ways else [(queries, documents)]

    def mean_of(self, evaluations: Sequence[Evaluation]) -> Evaluation:
        """One evaluation of all ways."""
        return evaluations[0].averaged(evaluations[1]) if self.both_ways else evaluations[0]

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """nDCG@k of each query."""
        queries, documents = (np.asarray(side) for side in vectors)
        return self.mean_of([self.evaluation(self.rank(*way)) for way in self.ways(queries, documents)])

    def evaluation(self, ranking: Ranking) -> Evaluation:
        """The scores of a ranking of `relevant`: by cosine, by other scores, or re-ranked."""
        ranking, grades = self.answered(ranking)
        others = {
            f"MRR@{self.k}": ranking.mrr(self.k),
            f"recall@{self.k}": ranking.recall(self.k),
            f"precision@{self.k}": ranking.precision(self.k),
            "MAP": ranking.average_precision(),
            f"found@{self.k}": ranking.found(self.k),
        }
        scores = ranking.ndcg(self.k, grades=grades)[:, None]
        return Evaluation(
            self.name,
            f"nDCG@{self.k}",
            "queries",
            scores,
            others=others,
            notes=self.notes,
            searched=len(self.documents),
            digest=self.digest,
            names=self.names,
            tied=ranking.tied,
            draws=self.query_units,
        )

    def answered(self, ranking: Ranking) -> tuple[Ranking, Array | None]:
        """The ranking with one judgement an answer, the best one, and the grades of these judgements."""
        if self.answers is None:
            return ranking, self.grades
        best = ranking.best_of(self.answers)
        return ranking.condensed(best), None if self.grades is None else self.grades[best]

    @cached_property
    def query_units(self) -> Units:
        """The unit of each query in intervals: those that share a relevant document, or its group, are one."""
        return query_units(self.relevant, self.groups)

    @cached_property
    def unit_documents(self) -> tuple[str, ...]:
        """The document of each query, () where documents are not known: that of the text that answers it.

        Of several texts the one with the smallest mark decides, so that it is no matter of order.
        """
        if self.groups is None:
            return ()
        _, texts = answers(self.relevant, marks_of(self.documents)[self.relevant[:, 1]])
        return tuple(self.groups[k] for k in texts.tolist())

    def folds(self, count: int, *, seed: int = 0) -> Index:
        """The fold of each query, drawn by its words and the seed; queries of one document are in one fold."""
        order = shuffled_order(self.queries, seed=seed)
        documents = [self.unit_documents[k] for k in order] if self.unit_documents else None
        folds = np.empty(self.units, dtype=np.int64)
        folds[order] = chosen_units(self.units, documents).of % count
        return folds

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A short digest of each query: scores of two models are paired only where they asked the same."""
        return tuple(hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()[:16] for query in self.queries)

    @cached_property
    def digest(self) -> str:
        """Of queries, documents and judgements."""
        judged, order = np.unique(self.relevant, axis=0, return_index=True)
        further = [part[order] for part in (self.grades, self.answers) if part is not None]
        return digest_of([self.queries, self.documents], judged, *further)

    @property
    def idle(self) -> Index:
        """The documents that are relevant to no query."""
        return np.setdiff1d(np.arange(len(self.documents)), self.relevant[:, 1])

    def take(self, positions: Index) -> Self:
        """Some queries, with their relevant documents and all that are relevant to no query."""
        return self.part(positions, self.idle)

    def part(self, positions: Index, idle: Index) -> Self:
        """Some queries, with their relevant documents and those of `idle`."""
        positions = np.unique(np.asarray(positions, dtype=np.int64))
        judged = np.isin(self.relevant[:, 0], positions)
        return self._arranged(positions, np.union1d(self.relevant[judged, 1], idle))

    def shuffled(self, seed: int) -> Self:
        """Queries by the marks of their words; documents by the first query that they answer, then by their own."""
        marks = marks_of(self.documents, seed=seed)
        answers = np.zeros(self.units, dtype=np.int64)  # equal queries are told apart by what answers them
        np.add.at(answers, self.relevant[:, 0], marks[self.relevant[:, 1]])
        queries = np.lexsort((answers, marks_of(self.queries, seed=seed)))
        first = np.full(len(self.documents), self.units)
        np.minimum.at(first, self.relevant[:, 1], np.argsort(queries)[self.relevant[:, 0]])
        return self._arranged(queries, np.lexsort((marks, first)))

    def _arranged(self, queries: Index, documents: Index) -> Self:
        """Arrange queries and documents in this order; documents that answer a query are always included."""
        places = [np.full(len(side), -1) for side in (self.queries, self.documents)]
        for place, positions in zip(places, (queries, documents), strict=True):
            place[positions] = np.arange(len(positions))
        relevant = np.stack([place[self.relevant[:, k]] for k, place in enumerate(places)], axis=1)
        rows = np.lexsort(relevant.T[::-1])
        rows = rows[relevant[rows, 0] >= 0]
        return replace(
            self,
            queries=[self.queries[k] for k in queries],
            documents=[self.documents[k] for k in documents],
            relevant=relevant[rows],
            grades=None if self.grades is None else self.grades[rows],
            answers=None if self.answers is None else self.answers[rows],
            groups=None if self.groups is None else [self.groups[k] for k in documents],
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
        _take_texts(self, "first", "second")
        try:
            gold = np.asarray(self.gold, dtype=np.float64)
        except (TypeError, ValueError):
            gold = np.full(1, np.nan)
        if gold.ndim != 1 or not np.isfinite(gold).all():
            raise InputError(
                f"{self.name}: received gold scores that are not one finite number a pair; leave out the pairs without "
                f"a score, or correct them."
            )
        object.__setattr__(self, "gold", gold)
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
        return Evaluation(
            self.name, "Spearman ρ", "pairs", observed, statistic="Spearman", notes=self.notes, digest=self.digest
        )

    @cached_property
    def digest(self) -> str:
        """Of the pairs and their scores."""
        return digest_of([self.first, self.second], self.gold)

    def take(self, positions: Index) -> Self:
        """Some pairs."""
        positions = np.asarray(positions, dtype=np.int64)
        return replace(
            self,
            first=[self.first[k] for k in positions],
            second=[self.second[k] for k in positions],
            gold=self.gold[positions],
        )


# -- texts with one label each -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LabelledTask:
    """Texts with one label each, at least two labels, each on at least two texts."""

    texts: Sequence[str]
    labels: Sequence[str] = field(repr=False)
    name: str
    seed: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _take_texts(self, "texts")
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

    @cached_property
    def digest(self) -> str:
        """Of texts and labels."""
        return digest_of([self.texts, [str(label) for label in self.labels]], self.seed)

    @property
    def codes(self) -> Index:
        """The labels as whole numbers from 0."""
        return np.unique(np.asarray(self.labels, dtype=str), return_inverse=True)[1].astype(np.int64)

    @property
    def order(self) -> Index:
        """The texts by the marks of their words: folds and first centres that are drawn so are no matter of place."""
        return shuffled_order(self.texts, seed=self.seed)

    def take(self, positions: Index) -> Self:
        """The task of the texts at these positions; a label of one text alone is left out, with a note."""
        positions = np.asarray(positions, dtype=np.int64)
        labels = np.asarray(self.labels, dtype=str)[positions]
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        usable = positions[counts[inverse] > 1]
        lonely = len(positions) - len(usable)
        note = (f"{lonely} texts alone with their label left out.",) if lonely else ()
        return replace(
            self,
            texts=[self.texts[k] for k in usable],
            labels=[self.labels[k] for k in usable],
            notes=(*self.notes, *note),
        )


@dataclass(frozen=True)
class ClassificationTask(_LabelledTask):
    """Accuracy of a logistic regression on the vectors, cross-validated: every text is predicted once, unseen.

    The mean F1 over labels comes along, and for two labels the average precision of the second. `trained`: the first so
    many texts train, and only the others are predicted, in place of folds. `steps` bounds those of a fit.
    """

    name: str = "classification"
    folds: int = 5
    trained: int | None = None
    steps: int = MOST_ITERATIONS

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """1 for each text whose label is predicted, else 0."""
        table, codes = unit_rows(vectors[0], "vectors").astype(np.float64), self.codes
        if self.trained is None:
            shares = np.empty((len(codes), int(codes.max()) + 1))
            order = self.order
            way: dict[str, Any] = {"folds": self.folds, "seed": self.seed, "most_steps": self.steps}
            shares[order] = predict_unseen(table[order], codes[order], **way).shares
        else:
            fit = logistic_regression(table[: self.trained], codes[: self.trained], most_steps=self.steps)
            codes, shares = codes[self.trained :], fit.shares(table[self.trained :])
        predicted = shares.argmax(axis=1)
        others = {"macro F1": np.array([macro_f1(codes, predicted)])}
        if shares.shape[1] == 2:
            others["average precision"] = np.array([average_precision(codes, shares[:, 1])])
        correct = (predicted == codes).astype(np.float64)[:, None]
        return Evaluation(self.name, "accuracy", "texts", correct, others=others, notes=self.notes, digest=self.digest)

    def take(self, positions: Index) -> Self:
        """Some texts; of a set that is cut in two for training, refused."""
        if self.trained is not None:
            raise InputError(
                f"{self.name}: its training texts are fixed, so no part of it can be taken. Leave out trained."
            )
        return super().take(positions)


@dataclass(frozen=True)
class ClusteringTask(_LabelledTask):
    """The v-measure of k-means with as many clusters as there are labels: the mean over some starts.

    `batch`: one start in mini-batches of that size, for sets too large for whole rounds; it has no interval.
    """

    name: str = "clustering"
    starts: int = 10
    batch: int | None = None

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """The mean v-measure of labels and clusters; its interval holds other texts and other starts of k-means."""
        order = self.order
        table, codes = unit_rows(vectors[0], "vectors").astype(np.float64)[order], self.codes[order]
        kinds = int(codes.max()) + 1
        if self.batch is None:
            clusters = cluster(table, kinds, starts=self.starts, seed=self.seed)
            contrasts = _split_contrasts(table, codes, starts=self.starts, seed=self.seed)
        else:
            clusters, contrasts = mini_batch_clusters(table, kinds, batch=self.batch, seed=self.seed)[:, None], None
        return Evaluation(
            self.name,
            "v-measure",
            "texts",
            np.column_stack([codes, clusters]).astype(np.float64)[np.argsort(order)],
            statistic="v-measure",
            notes=self.notes,
            contrasts=contrasts,
            digest=self.digest,
        )


def _split_contrasts(vectors: Array, labels: Index, *, starts: int, seed: int) -> Array | None:
    """Half the difference of the v-measure between two random halves of the vectors, for every split.

    Each half is clustered anew, with half the starts: the mean of both halves then has as many starts as the whole, and
    the contrasts hold what other texts and other starts would change. None where a half cannot be clustered.
    """
    random = np.random.default_rng([seed, 2])
    contrasts = []
    for _ in range(_SPLITS):
        order = random.permutation(len(labels))
        middle = len(labels) // 2
        values = []
        for half in (order[:middle], order[middle:]):
            kinds = np.unique(labels[half], return_inverse=True)[1]
            try:
                clusters = cluster(vectors[half], int(kinds.max()) + 1, starts=max(1, starts // 2), seed=seed)
            except InputError:
                return None
            observed = np.column_stack([kinds, clusters]).astype(np.float64)
            values.append(float(STATISTICS["v-measure"](observed[None])[0]))
        contrasts.append((values[0] - values[1]) / 2)
    return np.array(contrasts)
