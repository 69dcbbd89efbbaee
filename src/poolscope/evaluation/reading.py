"""Tasks from files with labels, and from texts alone.

Tasks without labels screen repairs of one model; they do not tell which of two models is better.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import check_texts
from poolscope.errors import InputError, did_you_mean
from poolscope.evaluation.lists import RerankingTask, SummaryTask
from poolscope.evaluation.tasks import ClassificationTask, ClusteringTask, RetrievalTask, SimilarityTask, Task
from poolscope.texts import Texts, as_texts, read_pairs, read_queries, read_texts
from poolscope.texts.groups import groups_of_ids
from poolscope.texts.queries import id_column_for
from poolscope.texts.records import BUILTIN, MANUALS
from poolscope.texts.sources import open_table

# Words that a text needs to be cut in two.
MIN_WORDS = 8
LIST_COLUMNS = {
    RerankingTask.name: ("query", "positive", "negative"),
    SummaryTask.name: ("machine_summaries", "human_summaries", "relevance"),
}


def read_task(
    kind: str, source: object, *, columns: tuple[str, ...] = (), limit: int | None = None, seed: int = 0
) -> Task:
    """A labelled task from any table that `read_texts` reads.

    | kind           | columns by default               | a row is                                             |
    |----------------|----------------------------------|------------------------------------------------------|
    | sts            | sentence1, sentence2, score      | two texts and how alike they are, on any scale       |
    | retrieval      | query, document (and a third)    | a relevant pair; a third column says with 0 it is not |
    | classification | text, label                      | a text and its label                                 |
    | clustering     | text, label                      | a text and its label                                 |
    | reranking      | query, positive, negative        | a query, and lists of its candidates                 |
    | summarisation  | machine_summaries, human_summaries, relevance | lists of summaries, and a score a machine one |

    `columns` names others, in this order. `limit` draws that many rows (texts or pairs).

    >>> table = {"sentence1": ["a", "b"], "sentence2": ["a", "c"], "score": [5, 0]}
    >>> read_task("sts", table).units
    2
    """
    if kind not in KINDS:
        raise InputError(
            f"task: received {kind!r}; allowed: {', '.join(KINDS)}. Ask for one of these.{did_you_mean(kind, KINDS)}"
        )
    return KINDS[kind](source, columns, {"limit": limit, "seed": seed})


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
    answered, positions = np.unique(relevant[:, 0], return_inverse=True)
    notes = [] if pairs.report is None else pairs.report.notes("pair")
    if idle := len(pairs.queries) - len(answered):
        notes.append(f"{idle:,} queries without a relevant document left out; their documents stay.")
    return RetrievalTask(
        [pairs.queries[k] for k in answered],
        pairs.documents,
        np.unique(np.stack([positions, relevant[:, 1]], axis=1), axis=0),
        notes=tuple(notes),
    )


def _labelled(
    kind: type[ClassificationTask | ClusteringTask], source: object, columns: tuple[str, ...], drawn: Mapping[str, Any]
) -> Task:
    text, label = _named(source, columns, ("text", "label"), kind=kind.name)
    texts: Any = read_texts(source, column=text, label_column=label, **drawn)
    return kind(texts.texts, texts.labels, seed=drawn["seed"], notes=tuple(texts.report.notes()))


def _lists(
    kind: type[RerankingTask | SummaryTask], source: object, columns: tuple[str, ...], drawn: Mapping[str, Any]
) -> Task:
    named = _named(source, columns, LIST_COLUMNS[kind.name], kind=kind.name)
    first, second, third = zip(*drawn_rows(open_table(source).rows(named), **drawn), strict=True)
    return kind(first, second, third)


def drawn_rows(rows: Iterable[tuple[Any, ...]], *, limit: int | None, seed: int) -> list[tuple[Any, ...]]:
    """All rows, or so many of them, drawn by the seed and in their own order."""
    listed = list(rows)
    if limit is None or len(listed) <= limit:
        return listed
    return [listed[k] for k in np.sort(np.random.default_rng(seed).permutation(len(listed))[:limit])]


def _named(source: object, columns: tuple[str, ...], usual: tuple[str, ...], *, kind: str) -> tuple[str, ...]:
    """The columns to read, by name or the usual ones; an error says how to name others."""
    if len(columns) not in (0, len(usual)):
        third = " and, third, relevance" if kind == "retrieval" else ""
        raise InputError(
            f"{kind}: received the columns {columns}; needed: {len(usual)}, for {', '.join(usual)}{third}."
        )
    names = columns or usual
    if isinstance(source, str) and source in (BUILTIN, MANUALS):
        return names
    table = open_table(source)
    if missing := [name for name in names if name not in table.kinds]:
        raise InputError(
            f"{table.name}: there is no column '{missing[0]}'; the columns are {table.listing()}. Name those for "
            f"{', '.join(usual)}, in this order: --column {','.join('ABC'[: len(usual)])} (in Python columns=(…))."
        )
    return names


KINDS: Mapping[str, Callable[[object, tuple[str, ...], Mapping[str, Any]], Task]] = {
    "sts": _similarity,
    "retrieval": _retrieval,
    "classification": partial(_labelled, ClassificationTask),
    "clustering": partial(_labelled, ClusteringTask),
    "reranking": partial(_lists, RerankingTask),
    "summarisation": partial(_lists, SummaryTask),
}


def query_task(
    texts: object, queries: object, *, limit: int | None = None, seed: int = 0, k: int = 10, **reading: Any
) -> RetrievalTask:
    """The task of queries that name the texts which answer them; both as `read_texts` and `read_queries` take them.

    `limit` draws that many queries, and as many texts that answer none of them, to search among; `reading` are the
    arguments of `read_texts`.

    >>> query_task({"id": ["a", "b"], "text": ["It purrs.", "It barks."]}, {"what is a cat?": ["a"]}).relevant.tolist()
    [[0, 0]]
    """
    known = read_queries(queries)
    if not isinstance(texts, Texts):
        reading["id_column"] = reading.get("id_column") or id_column_for(texts, known)
        texts = read_texts(texts, **reading)
    judged = known.among(texts.ids, documents=[groups_of_ids(texts.ids)], drawn=texts.report.selected is not None)
    task = RetrievalTask(
        judged.texts,
        texts.texts,
        judged.relevant,
        name="your queries",
        k=k,
        notes=(*texts.report.notes(), *judged.notes),
        grades=judged.grades if judged.graded else None,
        answers=judged.answers,
        groups=groups_of_ids(texts.ids),
    )
    if limit is None or max(task.units, len(task.idle)) <= limit:
        return task
    task = task.shuffled(seed)
    task = task.part(np.arange(task.units)[:limit], task.idle[:limit])
    note = f"{task.units:,} queries among {len(task.documents):,} of {len(texts):,} texts are looked at."
    return replace(task, notes=(*task.notes, note))


# -- from texts alone --------------------------------------------------------------------------------------------------


class Halves(NamedTuple):
    """First halves as queries, second halves as documents, and who belongs to whom: (k, k) for every k."""

    queries: list[str]
    documents: list[str]
    relevant: NDArray[np.int64]


def split_half(texts: Sequence[str], *, min_words: int = MIN_WORDS) -> Halves:
    """Cut each text in the middle, between words; its first half shall find its second half.

    Left out are texts of fewer than `min_words` words, and those that share a half with another text, which no model
    could tell apart; how many is the difference of the lengths.

    >>> split_half(["a b c d e f g h", "short", "i j k l m n o p q"]).documents
    ['e f g h', 'm n o p q']
    """
    texts = as_texts(texts)
    alone = [halves for halves in cut_texts(texts, min_words=min_words) if halves is not None]
    if len(alone) < 2:
        raise InputError(
            f"received {len(texts)} texts of which {len(alone)} can be cut into halves of their own; needed: at least "
            f"2 different texts of {min_words} words or more. Pass longer texts, or pairs of a query and a document."
        )
    positions = np.arange(len(alone))
    return Halves([start for start, _ in alone], [end for _, end in alone], np.stack([positions, positions], axis=1))


def cut_texts(texts: Sequence[str], *, min_words: int = MIN_WORDS) -> list[tuple[str, str] | None]:
    """Both halves of each text; None for those that `split_half` leaves out."""
    cut = [_cut(text, min_words) for text in texts]
    starts, ends = (Counter(halves[side] for halves in cut if halves is not None) for side in (0, 1))
    return [None if halves is None or starts[halves[0]] + ends[halves[1]] > 2 else halves for halves in cut]


def _cut(text: str, min_words: int) -> tuple[str, str] | None:
    words = [match.start() for match in re.finditer(r"\S+", text)]
    if len(words) < max(min_words, 2):
        return None
    middle = words[len(words) // 2]
    return text[:middle].strip(), text[middle:].strip()


def split_half_task(texts: Sequence[str], *, min_words: int = MIN_WORDS, k: int = 10) -> RetrievalTask:
    """Split-half self-retrieval as a task: the first half of each text is to find the second.

    Parameters
    ----------
    texts : sequence of str
        Your own texts; no labels are needed.
    min_words : int
        Shorter texts are left out; the notes of the task count them.
    k : int
        Of nDCG@k.

    Returns
    -------
    RetrievalTask
        For `evaluate` and `tune`.

    Examples
    --------
    >>> task = split_half_task(["one two three four five six seven eight", "nine ten eleven twelve and so on again"])
    >>> task.queries[0], task.documents[0]
    ('one two three four', 'five six seven eight')

    """
    texts = check_texts(texts)
    halves = split_half(texts, min_words=min_words)
    left_out = len(texts) - len(halves.queries)
    note = (
        f"{left_out:,} of {len(texts):,} texts left out: shorter than {min_words} words, or a half shared with another."
    )
    return RetrievalTask(*halves, name="split-half", k=k, roles=(None, None), notes=(note,) if left_out else ())


def summary_body_task(*, limit: int | None = None, seed: int = 0, k: int = 10) -> RetrievalTask:
    """Summary → body of the docstrings of the built-in corpus: the first paragraph finds the rest."""
    pairs = read_pairs(BUILTIN, limit=limit, seed=seed)
    return RetrievalTask(pairs.queries, pairs.documents, pairs.index, name="summary-body", k=k)
