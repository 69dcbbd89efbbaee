"""Tasks from local files: which columns each kind reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from poolscope.errors import InputError
from poolscope.evaluation.labelled_tasks import ClassificationTask, ClusteringTask
from poolscope.evaluation.tasks import RetrievalTask, SimilarityTask, Task
from poolscope.texts import Texts, read_pairs, read_texts
from poolscope.texts.records import BUILTIN
from poolscope.texts.sources import open_table


def read_task(
    kind: str, source: object, *, columns: tuple[str, ...] = (), sample: int | None = None, seed: int = 0
) -> Task:
    """A labelled task from any table that `read_texts` reads.

    | kind           | columns by default               | a row is                                             |
    |----------------|----------------------------------|------------------------------------------------------|
    | sts            | sentence1, sentence2, score      | two texts and how alike they are, on any scale       |
    | retrieval      | query, document (and a third)    | a relevant pair; a third column says with 0 it is not |
    | classification | text, label                      | a text and its label                                 |
    | clustering     | text, label                      | a text and its label                                 |

    `columns` names others, in this order. `sample` draws that many rows.

    >>> table = {"sentence1": ["a", "b"], "sentence2": ["a", "c"], "score": [5, 0]}
    >>> read_task("sts", table).units
    2
    """
    if kind not in KINDS:
        raise InputError(f"task: received {kind!r}; allowed: {', '.join(KINDS)}. Ask for one of these.")
    return KINDS[kind](source, columns, {"sample": sample, "seed": seed})


def _similarity(source: object, columns: tuple[str, ...], drawn: Mapping[str, Any]) -> Task:
    first, second, score = _named(source, columns, ("sentence1", "sentence2", "score"), kind="sts")
    pairs = read_pairs(source, query_column=first, document_column=second, label_column=score, **drawn)
    i, j = pairs.index.T
    gold = np.zeros(0) if pairs.labels is None else pairs.labels
    notes = () if pairs.report is None else tuple(pairs.report.notes("pair"))
    return SimilarityTask([pairs.queries[k] for k in i], [pairs.documents[k] for k in j], gold, name="sts", notes=notes)


def _retrieval(source: object, columns: tuple[str, ...], drawn: Mapping[str, Any]) -> Task:
    usual = ("query", "document", "relevance") if len(columns) == 3 else ("query", "document")
    query, document, *judged = _named(source, columns, usual, kind="retrieval")
    pairs = read_pairs(
        source, query_column=query, document_column=document, label_column=judged[0] if judged else None, **drawn
    )
    relevant = pairs.index if pairs.labels is None else pairs.index[pairs.labels > 0]
    kept, positions = np.unique(relevant[:, 0], return_inverse=True)
    notes = [] if pairs.report is None else pairs.report.notes("pair")
    if idle := len(pairs.queries) - len(kept):
        notes.append(f"{idle:,} queries without a relevant document left out; their documents stay.")
    return RetrievalTask(
        [pairs.queries[k] for k in kept],
        pairs.documents,
        np.unique(np.stack([positions, relevant[:, 1]], axis=1), axis=0),
        notes=tuple(notes),
    )


def _labelled(source: object, columns: tuple[str, ...], drawn: Mapping[str, Any], kind: str) -> tuple[Any, ...]:
    text, label = _named(source, columns, ("text", "label"), kind=kind)
    texts: Texts = read_texts(source, column=text, label_column=label, **drawn)
    return texts.texts, texts.labels, tuple(texts.report.notes())


def _classification(source: object, columns: tuple[str, ...], drawn: Mapping[str, Any]) -> Task:
    texts, labels, notes = _labelled(source, columns, drawn, "classification")
    return ClassificationTask(texts, labels, seed=drawn["seed"], notes=notes)


def _clustering(source: object, columns: tuple[str, ...], drawn: Mapping[str, Any]) -> Task:
    texts, labels, notes = _labelled(source, columns, drawn, "clustering")
    return ClusteringTask(texts, labels, seed=drawn["seed"], notes=notes)


def _named(source: object, columns: tuple[str, ...], usual: tuple[str, ...], *, kind: str) -> tuple[str, ...]:
    """The columns to read, by name or the usual ones; an error says how to name others."""
    if len(columns) not in (0, len(usual)):
        third = " and, third, relevance" if kind == "retrieval" else ""
        raise InputError(
            f"{kind}: received the columns {columns}; needed: {len(usual)}, for {', '.join(usual)}{third}."
        )
    names = columns or usual
    if isinstance(source, str) and source == BUILTIN:
        return names
    table = open_table(source)
    if missing := [name for name in names if name not in table.kinds]:
        raise InputError(
            f"{table.name}: there is no column '{missing[0]}'; the columns are {table.listing()}. Name those for "
            f"{', '.join(usual)}, in this order: --columns {','.join('ABC'[: len(usual)])} (in Python columns=(…))."
        )
    return names


KINDS: Mapping[str, Callable[[object, tuple[str, ...], Mapping[str, Any]], Task]] = {
    "sts": _similarity,
    "retrieval": _retrieval,
    "classification": _classification,
    "clustering": _clustering,
}
