"""Rankings that another search gave, and judgements by id, as TREC keeps them in files: `read_run`, `read_qrels`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poolscope.errors import InputError, shorten
from poolscope.files import atomic_file, is_file
from poolscope.texts.plain import lines
from poolscope.texts.queries import Queries
from poolscope.texts.records import scrub

Rankings = Mapping[str, Mapping[str, float]]
_RUN, _QRELS = "qid Q0 docid rank score tag", "qid iteration docid grade"


@dataclass(frozen=True, eq=False)
class Run:
    """What a search gave: for each query, by id, the texts that it returned with their scores."""

    scores: Rankings = field(repr=False)
    source: str = "memory"

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def depth(self) -> int:
        """The most texts that a query got."""
        return max(map(len, self.scores.values()), default=0)

    def save(self, path: str | os.PathLike[str], *, tag: str = "poolscope") -> None:
        """Write a run file of TREC: the best text first, equal scores by id."""
        with atomic_file(path) as stream:
            for query, scores in self.scores.items():
                order = sorted(scores, key=lambda text: (-scores[text], text))
                for rank, text in enumerate(order, 1):
                    parts = (_word(query), "Q0", _word(text), str(rank), repr(float(scores[text])), _word(tag))
                    stream.write((" ".join(parts) + "\n").encode())


def read_run(source: Any) -> Run:
    """Read the rankings of any search: a run file of TREC, a dictionary, or scored documents.

    Parameters
    ----------
    source
        A file whose lines hold `qid Q0 docid rank score tag`; a dictionary of queries to texts with scores, as
        pytrec_eval, ranx and BEIR keep it; or objects with `query_id`, `doc_id` and `score`, as ir-measures has them.

    Returns
    -------
    Run
        The scores by query and text. Scores order the texts, as in trec_eval; the ranks of the file do not count.

    Examples
    --------
    >>> run = read_run({"q1": {"a": 2.0, "b": 1.5}, "q2": {"b": 3}})
    >>> len(run), run.depth
    (2, 2)

    """
    if isinstance(source, Run):
        return source
    if isinstance(source, Mapping):
        return Run(_checked(_pairs_of(source), "memory"))
    if isinstance(source, str | os.PathLike):
        name = Path(source).name
        rows = ((query, text, score) for query, _, text, _, score, _ in _words(source, _RUN))
        return Run(_checked(rows, name), name)
    return Run(_checked(_attributes(source, "score"), "memory"))


def read_qrels(source: Any) -> Queries:
    """Read judgements that name queries by id: a qrels file of TREC, a dictionary, or objects; also whole queries.

    Where a source holds the words of the queries too, such as a BEIR folder, `read_queries` reads it. Without them a
    query is named by its id.

    >>> judged = read_qrels({"q1": {"a": 1, "b": 0}})
    >>> judged.ids, judged.named
    (('q1',), ('a',))
    """
    from poolscope.texts.queries import read_queries

    if isinstance(source, Queries):
        return source
    if isinstance(source, str | os.PathLike):
        if not _is_qrels(source):
            return read_queries(source)
        rows: Iterable[tuple[Any, Any, Any]] = ((q, t, grade) for q, _, t, grade in _words(source, _QRELS))
        name = Path(source).name
    elif isinstance(source, Mapping):
        rows, name = _pairs_of(source), "memory"
    else:
        rows, name = _attributes(source, "relevance"), "memory"
    judged = _checked(rows, name)
    return read_queries(({query: query for query in judged}, judged))


def write_qrels(queries: Queries, path: str | os.PathLike[str]) -> None:
    """Write judgements as a qrels file of TREC; a grade there is a whole number."""
    with atomic_file(path) as stream:
        for query, text, grade in zip(queries.query.tolist(), queries.named, queries.grade.tolist(), strict=True):
            if not float(grade).is_integer():
                raise InputError(f"grade: received {grade} for {shorten(text)}; a qrels file holds whole numbers.")
            stream.write(f"{_word(queries.ids[query])} 0 {_word(text)} {int(grade)}\n".encode())


def run_of(retriever: Any, queries: Queries, *, k: int = 100) -> Run:
    """Ask a retriever every query, and keep its rankings.

    Parameters
    ----------
    retriever
        One of LangChain or LlamaIndex, or any function from a query to ids or documents. A document has an id; where it
        has none, its metadata do.
    queries
        What `read_queries` gives.
    k
        How many texts of each query are kept.

    Returns
    -------
    Run
        The rankings; scores only keep the order.

    Examples
    --------
    >>> from poolscope.texts.queries import read_queries
    >>> run = run_of(lambda query: ["b", "a"], read_queries({"query": ["one?"], "relevant": ["a"]}))
    >>> run.scores
    {'0': {'b': 2.0, 'a': 1.0}}

    """
    ask = next((getattr(retriever, name) for name in ("invoke", "retrieve") if hasattr(retriever, name)), retriever)
    if not callable(ask):
        raise InputError(
            f"retriever: received {type(retriever).__name__}; allowed: a function, or one with invoke or retrieve."
        )
    scores: dict[str, dict[str, float]] = {}
    for own, query in zip(queries.ids, queries.texts, strict=True):
        answers = list(ask(query))[:k]
        names = [_name_of(answer) for answer in answers]
        scores[own] = {}
        for place, name in enumerate(names):  # of a text that came back twice the first place counts
            scores[own].setdefault(name, float(len(answers) - place))
    return Run(scores, type(retriever).__name__)


def _name_of(answer: Any) -> str:
    """The id of what a retriever gives."""
    document = getattr(answer, "node", answer)
    if isinstance(document, str):
        return document
    metadata = next((getattr(document, name) for name in ("metadata", "meta") if hasattr(document, name)), None) or {}
    for name in ("id", "id_", "node_id"):
        for value in (getattr(document, name, None), metadata.get(name)):
            if value is not None:
                return str(value)
    raise InputError(f"retriever: received {shorten(answer)} without an id. Give every document an id.")


def _is_qrels(path: str | os.PathLike[str]) -> bool:
    """Does a file hold four columns without a header, the last a whole number?"""
    place = Path(path)
    if not is_file(place) or place.suffix in (".parquet", ".arrow", ".feather", ".json", ".jsonl"):
        return False
    first = next((line.split() for line in lines(place, None) if line.strip()), [])
    return len(first) == 4 and first[3].lstrip("-").isdigit()


def _words(path: str | os.PathLike[str], form: str) -> Iterator[list[str]]:
    """The columns of each line of a file of TREC."""
    columns = len(form.split())
    if not is_file(Path(path)):
        raise InputError(f"{path}: there is no such file. Check the spelling.")
    for number, line in enumerate(lines(Path(path), None), 1):
        words = line.split()
        if words and len(words) != columns:
            raise InputError(
                f"{Path(path).name}: line {number} has {len(words)} columns; needed are {columns}: {form}."
            )
        if words:
            yield words


def _pairs_of(source: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for query, texts in source.items():
        if not isinstance(texts, Mapping):
            raise InputError(
                f"received {shorten(texts)} for the query {shorten(query)}; allowed: texts with numbers, as in "
                f"{{'q1': {{'text1': 2.5}}}}."
            )
        for text, value in texts.items():
            yield query, text, value


def _attributes(source: Any, number: str) -> Iterator[tuple[Any, Any, Any]]:
    try:
        for row in source:
            yield row.query_id, row.doc_id, getattr(row, number)
    except (AttributeError, TypeError) as error:
        raise InputError(
            f"received {shorten(source)}; allowed: a file of TREC, a dictionary, or objects with query_id, doc_id and "
            f"{number}."
        ) from error


def _checked(rows: Iterable[tuple[Any, Any, Any]], name: str) -> dict[str, dict[str, float]]:
    """Numbers by query and text; each pair once, each number finite."""
    checked: dict[str, dict[str, float]] = {}
    for query, text, value in rows:
        own, other = scrub(str(query)), scrub(str(text))
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(f"{name}: query {shorten(own)}, text {shorten(other)}: {shorten(value)} is no number.")
        if checked.setdefault(own, {}).setdefault(other, number) != number:
            raise InputError(f"{name}: query {shorten(own)} has the text {shorten(other)} twice. Keep one.")
    if not checked:
        raise InputError(f"{name}: received no query; needed: at least one.")
    return checked


def _word(name: str) -> str:
    """A name as one word, as files of TREC need it."""
    if not name or name.split() != [name]:
        raise InputError(f"received the id {shorten(name)}; a file of TREC holds ids without blanks. Rename it.")
    return name
