"""Adaptive pooling beside other ways to spend the same storage on documents, by the queries of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress
from poolscope.errors import InputError, whole_number
from poolscope.evaluation import Difference, Evaluation, RetrievalTask, compare_scores
from poolscope.evaluation.run import for_role
from poolscope.numbers import Array
from poolscope.numbers.pooling import MeanPooling, Pooling, SecondOrderPooling
from poolscope.numbers.ranking import rank_scores, unit_rows
from poolscope.repairs.adaptive import PARTS, AdaptivePooling, SeveralVectors, owned_rows
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import dots_figure


@dataclass(frozen=True)
class StoredWay:
    """One way to keep the documents: how many numbers a document takes, its score, and the paired differences.

    `gain` is against one mean a document, `against_adaptive` against adaptive spans of the same storage (None for
    itself and for one mean).
    """

    name: str
    numbers: float
    score: float
    gain: Difference | None
    against_adaptive: Difference | None


@dataclass(frozen=True, repr=False, kw_only=True)
class StorageComparison(Result):
    """Ways to keep documents in the same storage, by the queries of a task; `ways` has one row each."""

    model: str
    task: str
    budget: float
    documents: int
    queries: int
    ways: tuple[StoredWay, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def in_words(self) -> tuple[str, ...]:
        """Whether any way finds more than one mean a text."""
        better = [way.name for way in self.ways if way.gain is not None and way.gain.proves_gain]
        found = (
            f"{' and '.join(better)} {'finds' if len(better) == 1 else 'find'} more" if better else "no way finds more"
        )
        return (f"In the storage of {self.budget:g} vectors a text, {found} than one mean beyond chance.",)

    def figure(self) -> Any:
        """What each way gains over one mean a text, with the paired intervals."""
        gains = {way.name: way.gain.change for way in self.ways if way.gain is not None}
        title = f"What {self.budget:g} vectors a text gain over one mean"
        return dots_figure(gains, title=title, across="gain over one mean", reference=0.0)

    def rows(self) -> list[dict[str, Any]]:
        """One row a way."""
        return [
            cells({"way": way.name, "numbers": way.numbers, "score": way.score})
            | cells({} if way.gain is None else {"gain": way.gain.change})
            | cells({} if way.against_adaptive is None else {"against_adaptive": way.against_adaptive.change})
            for way in self.ways
        ]


def compare_storage(
    model: Any, task: RetrievalTask, *, budget: int = 2, progress: Progress | None = None, **options: Any
) -> StorageComparison:
    """Adaptive pooling beside other ways to spend the same storage on documents, by the queries of a task.

    Parameters
    ----------
    model
        A model as `as_encoder` takes it; its tokens are averaged.
    task : RetrievalTask
        Queries with their relevant documents. Nothing is chosen by them, so all of them are held out.
    budget : int
        Vectors a document, 2 or more.
    progress : callable, optional
        Called with texts and tokens while encoding.
    **options
        Those of `as_encoder`.

    Returns
    -------
    StorageComparison
        One mean a document (the baseline), adaptive spans and clusters, late chunking (equal spans after one pass),
        smaller chunks (each encoded by itself), second-order pooling.

    Examples
    --------
    >>> letters = lambda texts: [[[float(c == letter) + 0.1 for letter in "abcd"] for c in text] for text in texts]
    >>> task = RetrievalTask(["aa", "dd"], ["a a a b b b", "c c c d d d"], [(0, 0), (1, 1)])
    >>> [way.name for way in compare_storage(letters, task).ways][:4]
    ['one mean', 'adaptive spans, 2 a text', 'adaptive clusters, 2 a text', 'late chunking']

    """
    budget = whole_number(budget, "budget", least=2, most=1000)
    if not isinstance(task, RetrievalTask):
        raise InputError(f"task: received a {type(task).__name__}; needed: a RetrievalTask, since texts are searched.")
    encoder = as_encoder(model, **options)
    sides = [for_role(encoder, side.role).encode(list(side.texts), progress=progress)[-1] for side in task.sides]
    queries, documents = sides
    means = [MeanPooling().transform(side) for side in sides]
    chunks, counts = _smaller(task.documents, budget)
    smaller = for_role(encoder, task.sides[1].role).encode(chunks, progress=progress)[-1]
    sketch = _second_order(budget, documents.dimension).fit(documents)
    adaptive = [AdaptivePooling(budget, most=4 * budget, parts=parts) for parts in PARTS]
    several = {
        **{way.label: way.transform(documents) for way in adaptive},
        "late chunking": _late_chunks(documents, budget),
        "smaller chunks": owned_rows(MeanPooling().transform(smaller), counts, documents.ids),
    }
    ways = {"one mean": (1.0, _cosines(*means))}
    ways |= {name: (len(vectors.vectors) / len(vectors), vectors.scores(means[0])) for name, vectors in several.items()}
    moments = [sketch.transform(side) for side in sides]
    ways[sketch.label] = (moments[1].shape[1] / documents.dimension, _cosines(*moments))
    scores = {name: task.evaluation(rank_scores(table, task.relevant, k=task.k)) for name, (_, table) in ways.items()}
    first, best = (scores[name] for name in ("one mean", next(iter(several))))
    return StorageComparison(
        model=encoder.card.name,
        task=task.name,
        budget=float(budget),
        documents=len(documents),
        queries=len(queries),
        ways=tuple(
            StoredWay(
                name,
                size * documents.dimension,
                scores[name].value,
                _change(first, scores[name]),
                None if name == "one mean" else _change(best, scores[name]),
            )
            for name, (size, _) in ways.items()
        ),
        provenance=provenance(documents, settings={"budget": budget, "task": task.name}),
    )


def _cosines(queries: Array, documents: Array) -> Array:
    return np.asarray(unit_rows(queries, "queries") @ unit_rows(documents, "documents").T, dtype=np.float64)


def _change(before: Evaluation, after: Evaluation) -> Difference | None:
    return None if before is after else compare_scores(before, after)


def _second_order(budget: int, dimension: int) -> Pooling:
    """The rank whose sketch takes as many numbers as the further vectors: r(r + 1)/2 + 1 ≤ (budget − 1)·d."""
    rank = int((np.sqrt(8 * ((budget - 1) * dimension - 1) + 1) - 1) / 2)
    return SecondOrderPooling(rank=max(1, min(rank, dimension)))


def _late_chunks(clouds: TokenClouds, budget: int) -> SeveralVectors:
    """Means of spans of equal length, all tokens having seen the whole text."""
    rows, counts = [], []
    for cloud in clouds:
        bounds = np.unique(np.linspace(0, len(cloud), min(budget, len(cloud)) + 1).round().astype(int))
        rows += [np.asarray(cloud[start:stop], dtype=np.float64).mean(axis=0) for start, stop in pairwise(bounds)]
        counts.append(len(bounds) - 1)
    return owned_rows(np.stack(rows), counts, clouds.ids)


def _smaller(texts: Sequence[str], budget: int) -> tuple[list[str], list[int]]:
    """Each text cut into as many pieces of about equally many words; a text of fewer words into single ones."""
    chunks: list[str] = []
    counts = []
    for text in texts:
        words = text.split()
        bounds = np.unique(np.linspace(0, len(words), max(1, min(budget, len(words))) + 1).round().astype(int))
        pieces = [" ".join(words[start:stop]) for start, stop in pairwise(bounds)] or [text]
        chunks += pieces
        counts.append(len(pieces))
    return chunks, counts
