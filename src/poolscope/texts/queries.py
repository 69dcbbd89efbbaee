"""Queries and the texts that answer them, by id: from a table, from memory, or from a benchmark folder (BEIR, mteb)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError, shorten
from poolscope.texts.corpus import heading_pairs
from poolscope.texts.groups import CHUNK_IDS, groups_of_ids
from poolscope.texts.records import MANUALS, Pairs, is_missing, row_place, scrub, shows_nothing
from poolscope.texts.sources import Benchmark, open_benchmark, open_table
from poolscope.texts.tables import Table, is_table, memory_table

# Names of columns, the most telling first.
QUERY = ("query", "question", "query_text", "text")
RELEVANT = (
    *("relevant", "relevant_ids", "relevant_id", "chunk_ids", "chunk_id", "document_ids", "document_id"),
    *("doc_ids", "doc_id", "corpus_ids", "corpus_id", "corpus-id", "positive_ids", "ids"),
)
GRADE = ("grade", "grades", "relevance", "score")
QUERY_ID = ("query_id", "query-id", "qid", "_id", "id")
_DOCUMENT_IDS = ("doc_id", "docid", "document_id")  # where each document is one text, and several chunks otherwise


class _Row(NamedTuple):
    """One row of a source: a query, the ids of what answers it (none: nobody said), each with its grade."""

    place: str
    query_id: str | None
    query: Any
    relevant: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries, each distinct one once, and judgements: `query` (a position), `named` (the id of a text) and `grade`.

    Grades are above 0, as only what is relevant is kept. `notes` count what was merged or left out.

    >>> asked = read_queries({"query": ["how to stop?", "how to go?"], "relevant": [["a", "b"], ["c"]]})
    >>> asked.texts, asked.named, asked.query.tolist()
    (('how to stop?', 'how to go?'), ('a', 'b', 'c'), [0, 0, 1])
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    query: NDArray[np.int64]
    named: tuple[str, ...]
    grade: NDArray[np.float64]
    source: str = "memory"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Queries({len(self):,} queries from {self.source}, {len(self.named):,} judgements)"

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of queries and judgements, which tells two files apart."""
        judged = zip(self.query.tolist(), self.named, self.grade.tolist(), strict=True)
        content = json.dumps([list(self.texts), sorted(judged)], ensure_ascii=False)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()

    def among(
        self, ids: Sequence[str], *, documents: Sequence[Sequence[str] | None] = (), drawn: bool = False
    ) -> JudgedQueries:
        """The queries with positions among the texts of these ids.

        An id that names no text but a document is answered by any of its texts, of which the best counts: `documents`
        holds one or more lists of their names, one a text. What names neither is left out and counted; where no id is
        known at all, that is an error. `drawn`: the texts are a draw of a larger corpus, which explains ids that are
        not there.
        """
        if len(ids) == 0:
            raise InputError(f"{self.source}: received no ids of texts; needed: at least one. Pass those of the texts.")
        places = {name: [position] for position, name in enumerate(ids)}
        whole: dict[str, list[int]] = {}
        for names in documents:
            for position, name in enumerate(names or ()):
                whole.setdefault(name, []).append(position)
        members = [places.get(name) or whole.get(name, []) for name in self.named]
        unknown = [name for name, texts in zip(self.named, members, strict=True) if not texts]
        if len(unknown) == len(self.named):
            raise InputError(
                f"{self.source}: none of the {len(set(self.named)):,} ids that queries name is that of a text; they "
                f"begin with {shorten(self.named[0])}, those of {len(ids):,} texts with {shorten(ids[0])}. Name the "
                f"column of the ids of the texts (--id-column) or of their documents (--group); `poolscope chunk` "
                f"gives chunks ids of their own, and queries may name the document that a chunk comes from."
            )
        rows = [
            (query, text, grade, answer)
            for answer, (query, texts, grade) in enumerate(
                zip(self.query.tolist(), members, self.grade.tolist(), strict=True)
            )
            for text in texts
        ]
        answered = sorted({row[0] for row in rows})
        renumbered = {query: position for position, query in enumerate(answered)}
        grades: dict[tuple[int, int], float] = {}
        answers: dict[tuple[int, int], int] = {}
        for query, text, grade, answer in rows:  # a text may be named by its id and by that of its document
            key = (renumbered[query], text)
            grades[key] = max(grade, grades.get(key, 0.0))
            if len(members[answer]) == 1 or key not in answers:  # a text's own id says more than its document's
                answers[key] = answer
        shared = len(set(answers.values())) < len(answers)
        by_document = sum(1 for name in self.named if name not in places and name in whole)
        return JudgedQueries(
            ids=tuple(self.ids[query] for query in answered),
            texts=tuple(self.texts[query] for query in answered),
            relevant=np.array(list(grades), dtype=np.int64).reshape(-1, 2),
            grades=np.array(list(grades.values())),
            source=self.source,
            digest=self.digest,
            answers=np.array(list(answers.values()), dtype=np.int64) if shared else None,
            notes=(*self.notes, *_binding_notes(unknown, by_document, len(self) - len(answered), drawn=drawn)),
        )


def _binding_notes(unknown: Sequence[str], by_document: int, lost: int, *, drawn: bool) -> Iterator[str]:
    if by_document:
        yield f"Queries: {by_document:,} judgements name a document: any of its texts answers, and the best one counts."
    if unknown:
        why = "the texts are a draw" if drawn else f"the first is {shorten(unknown[0])}"
        yield f"Queries: {len(unknown):,} judgements name an id that no text here has, and are left out ({why})."
    if lost:
        yield f"Queries: {lost:,} are left without a relevant text by that, and are left out."


@dataclass(frozen=True, eq=False)
class JudgedQueries:
    """Queries about texts at hand: `relevant` has a row (query, text) a judgement, `grades` one number for each.

    `answers`, one number a row: rows that share one are the texts of a document that was named, of which the best
    counts. None where every row stands for itself.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    relevant: NDArray[np.int64]
    grades: NDArray[np.float64]
    source: str
    digest: str
    notes: tuple[str, ...] = ()
    answers: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def graded(self) -> bool:
        """Do the grades differ?"""
        return bool(np.ptp(self.grades) > 0)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_queries(source: Any, *, columns: Sequence[str] = (), encoding: str | None = None) -> Queries:
    """Read queries with the ids of the texts that answer them.

    Parameters
    ----------
    source
        A table (a path to `.jsonl`, `.csv`, `.tsv`, `.parquet`, …, a data frame, an Arrow table, a dict of lists),
        a row a query or a row a judgement: the query in a column such as `query`, the ids in one such as `relevant` or
        `chunk_id` (one, or a list; in `.csv` a list as JSON), a grade in `grade` or `score`. A benchmark folder with
        corpus, queries and qrels as BEIR and mteb keep them (`FOLDER:dev` for another split than test);
        `"builtin:manuals"`, whose headings ask for its passages. A dict of
        queries to ids, or to ids with grades; or the two dicts (queries, qrels) that BEIR and mteb give.
    columns
        The columns of the query, of the ids and, third, of the grade, where they have other names.
    encoding
        That of the files, UTF-8 unless another one is named.

    Returns
    -------
    Queries
        Each distinct query once. A grade of 0 or less says that a text is not relevant. What is left out is counted in
        `notes`; one pair with two grades is an error.

    Examples
    --------
    >>> asked = read_queries({"what is a cat?": ["c1", "c2"], "what is a dog?": {"d1": 2, "c1": 0}})
    >>> len(asked), asked.named, asked.grade.tolist()
    (2, ('c1', 'c2', 'd1'), [1.0, 1.0, 2.0])

    """
    if isinstance(source, Queries):
        return source
    _refuse_other_columns(() if columns is None else columns)
    if isinstance(source, str) and source == MANUALS:
        return _gathered(_pair_rows(heading_pairs()), source)
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(part, Mapping) for part in source):
        return _gathered(_judged_rows(*source), "memory")
    if isinstance(source, Mapping) and not _is_columns(source, columns):
        rows = (_Row(str(number), None, query, _ids(ids, 1.0, f"query {shorten(query)}"))
                for number, (query, ids) in enumerate(source.items()))  # fmt: skip
        return _gathered(rows, "memory")
    if isinstance(source, list) and source and all(isinstance(row, Mapping) for row in source):
        names = dict.fromkeys(name for row in source for name in row)
        source = {name: [row.get(name) for row in source] for name in names}
    benchmark = open_benchmark(source, encoding=encoding) if isinstance(source, str | os.PathLike) else None
    if benchmark is not None:
        return _gathered(_judged_rows(*_parts(benchmark)), benchmark.name)
    table = memory_table(source) if is_table(source) else open_table(source, encoding=encoding)
    return _gathered(_table_rows(table, columns), table.name)


def _pair_rows(pairs: Pairs) -> Iterator[_Row]:
    """A row a pair, with the id of its document."""
    for query, document in pairs.index.tolist():
        text = pairs.queries.texts[query]
        yield _Row(pairs.queries.source, pairs.queries.ids[query], text, ((pairs.documents.ids[document], 1.0),))


def _is_columns(source: Mapping[Any, Any], columns: Sequence[str]) -> bool:
    """Is a dict a table, or does it lead from queries to ids?"""
    names = {str(name).casefold() for name in source}
    return bool(columns) or (bool(names & set(QUERY)) and bool(names & {*RELEVANT, *QUERY_ID}))


def _table_rows(table: Table, columns: Sequence[str]) -> Iterator[_Row]:
    """The rows of a table, whatever its columns are called."""
    query, relevant, grade = _columns(table, columns)
    query_id = _column(table, QUERY_ID, taken={query, relevant, grade})
    names = [name for name in (query, relevant, grade, query_id) if name is not None]
    for number, values in enumerate(table.rows(names)):
        row: dict[str | None, Any] = dict(zip(names, values, strict=True))
        place = f"{table.name}: {row_place(number)}"
        name = row.get(query_id)
        ids = _ids(row[relevant], 1.0 if grade is None else row[grade], place)
        yield _Row(place, None if is_missing(name) or name == "" else str(name), row[query], ids)


def _refuse_other_columns(columns: Any) -> None:
    names: Sequence[Any] = columns if isinstance(columns, Sequence) and not isinstance(columns, str | bytes) else [None]
    if not all(isinstance(name, str) for name in names):
        raise InputError(
            f"queries: received the columns {shorten(columns)}; needed: a list of the names of two or three columns, "
            f"those of the query, of the ids and, third, of the grade."
        )
    if len(names) not in (0, 2, 3) or len(set(names)) != len(names):
        raise InputError(
            f"queries: received the columns {', '.join(names)}; needed: those of the query, of the ids and, "
            f"third, of the grade, each another one."
        )


def _columns(table: Table, columns: Sequence[str]) -> tuple[str, str, str | None]:
    table.require_columns()
    if columns:
        for name in columns:
            table.require(name, "--query-columns QUERY,RELEVANT[,GRADE] instead of")
        return columns[0], columns[1], columns[2] if len(columns) == 3 else None
    relevant = _column(table, RELEVANT)
    # `id`, where another column holds the ids of the queries, or where a column can only be that of queries: beside
    # `text` it would be the id of the text, as in a corpus that was named by mistake.
    if relevant is None and _column(table, (*QUERY[:-1], *QUERY_ID[:-1])) is not None:
        relevant = _column(table, QUERY_ID[-1:])
    query = _column(table, QUERY, taken={relevant})
    if query is None or relevant is None:
        lacking, names = ("the queries", QUERY) if query is None else ("the ids of relevant texts", RELEVANT)
        raise InputError(
            f"{table.name}: it is not clear which column holds {lacking}; the columns are {table.listing()}, "
            f"looked for were {', '.join(names)}. Say which: --query-columns QUERY,RELEVANT[,GRADE], or columns=(…)."
        )
    return query, relevant, _column(table, GRADE, taken={query, relevant})


def _column(table: Table, names: Sequence[str], *, taken: Collection[str | None] = ()) -> str | None:
    """The first column of these names, however they are written."""
    known = {name.casefold(): name for name in reversed(list(table.kinds)) if name not in taken}
    return next((known[name] for name in names if name in known), None)


def _parts(benchmark: Benchmark) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The queries of a benchmark by id, and its judgements by query."""
    queries, qrels = benchmark.queries, benchmark.qrels
    own, text = _needed(queries, ("_id", "id", "query-id", "query_id")), _needed(queries, ("text", "query"))
    texts: dict[str, Any] = {}
    for number, (name, query) in enumerate(queries.rows([own, text]), start=1):
        if is_missing(name) and is_missing(query):  # an empty line
            continue
        if texts.setdefault(_benchmark_id(name, f"{queries.name}: row {number}"), query) != query:
            raise InputError(
                f"{queries.name}: two queries of different texts share the id {shorten(name)}; an id names one query. "
                f"Give each its own."
            )
    query_column, text_column = (
        _needed(qrels, ("query-id", "query_id", "qid")),
        _needed(qrels, ("corpus-id", "corpus_id", "doc_id")),
    )
    grade = _column(qrels, GRADE)
    judged: dict[str, dict[str, Any]] = {}
    columns = [query_column, text_column, *([] if grade is None else [grade])]
    for number, row in enumerate(qrels.rows(columns), start=1):
        if all(is_missing(each) for each in row):  # an empty line
            continue
        one, other = (_benchmark_id(each, f"{qrels.name}: row {number}") for each in row[:2])
        value = 1.0 if grade is None else row[2]
        if isinstance(value, float):
            value = _grade(value, f"{qrels.name}: query {shorten(one)}")
        if judged.setdefault(one, {}).setdefault(other, value) != value:
            raise _two_grades(qrels.name, one, other)
    return texts, judged


def _benchmark_id(value: Any, place: str) -> str:
    if is_missing(value) or value == "":
        raise InputError(f"{place} has no id ({shorten(value)}); needed: one in every row. Fill it in.")
    return str(value)


def _needed(table: Table, names: Sequence[str]) -> str:
    name = _column(table, names)
    if name is None:
        raise InputError(
            f"{table.name}: there is no column {' or '.join(map(repr, names))}; the columns are {table.listing()}. "
            f"Name them as BEIR does: _id and text of queries, query-id, corpus-id and score of judgements."
        )
    return name


def _judged_rows(texts: Mapping[Any, Any], judged: Mapping[Any, Any]) -> Iterator[_Row]:
    """Rows from queries by id and their judgements; a judged query without a text is an error."""
    for name, ids in judged.items():
        if name not in texts:
            raise InputError(
                f"queries: the judgements name the query {shorten(name)}, which is not among the {len(texts):,} "
                f"queries. Pass the queries that were judged."
            )
        yield _Row(f"query {name}", str(name), texts[name], _ids(ids, 1.0, f"query {name}"))
    for name, query in texts.items():
        if name not in judged:
            yield _Row(f"query {name}", str(name), query, ())


# -- one cell ---------------------------------------------------------------------------------------------------------


def _ids(value: Any, grade: Any, place: str) -> tuple[tuple[str, float], ...]:
    """The ids of a cell, each with its grade: one id, a list of ids, ids with grades, or none."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except ValueError:  # an id that begins so
            value = [value]
        except RecursionError as error:
            raise InputError(
                f"{place} holds {shorten(value)}, nested too deep to read; allowed: one list of ids. Write that."
            ) from error
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if is_missing(value) or (isinstance(value, str) and not value):
        return ()
    if isinstance(value, Mapping):  # of a table, a record that lacks a key has None there
        known = {name: each for name, each in value.items() if each is not None}
        return tuple((_id(name, place), _own_grade(each, name, place)) for name, each in known.items())
    ids = list(value) if isinstance(value, list | tuple) else [value]
    grades = grade.tolist() if isinstance(grade, np.ndarray) else grade
    grades = list(grades) if isinstance(grades, list | tuple) else [grades] * len(ids)
    if len(grades) != len(ids):
        raise InputError(f"{place} has {len(ids)} ids and {len(grades)} grades; needed: one for each, or one for all.")
    return tuple((_id(name, place), _grade(each, place)) for name, each in zip(ids, grades, strict=True))


def _id(value: Any, place: str) -> str:
    whole = isinstance(value, float) and value.is_integer()  # a column of numbers with gaps
    if isinstance(value, bool) or not (isinstance(value, str | Integral) or whole) or value == "":
        raise InputError(f"{place} holds {shorten(value)} as the id of a text; allowed: a text or a whole number.")
    try:
        return scrub(str(int(value) if whole else value))
    except ValueError as error:  # Python writes no number of so many digits
        raise InputError(
            f"{place} holds a number of thousands of digits as the id of a text. Write it as a text."
        ) from error


def _own_grade(value: Any, name: Any, place: str) -> float:
    """The grade of one id, which must be there: an id whose grade is missing is neither relevant nor not."""
    if is_missing(value) or value == "":
        raise InputError(
            f"{place} grades the text {shorten(name)} with {shorten(value)}; allowed: a number, 0 for a text that is "
            f"no answer. Give it a grade, or leave it out."
        )
    return _grade(value, place)


def _grade(value: Any, place: str) -> float:
    if not isinstance(value, float) and (is_missing(value) or (isinstance(value, str) and value == "")):
        return 1.0
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise InputError(
            f"{place} holds {shorten(value)} as a grade; allowed: a number, 0 for a text that is no answer."
        )
    return number


def _two_grades(source: str, query: str, text: str) -> InputError:
    return InputError(
        f"{source}: the query {shorten(query)} grades the text {shorten(text)} twice, and not alike. Keep one."
    )


# -- rows become queries ----------------------------------------------------------------------------------------------


@dataclass
class _Counts:
    empty: int = 0
    twice: int = 0
    refused: int = 0
    merged: int = 0
    texts: dict[str, str] = field(default_factory=dict)  # the id of each query
    judged: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, row: _Row, query: str, source: str) -> None:
        name = row.query_id or str(len(self.texts))
        first = self.texts.setdefault(query, name)
        self.merged += row.query_id is not None and first != name
        for text, grade in row.relevant:
            known = self.judged.get((query, text))
            if known is not None and known != grade:
                raise _two_grades(source, query, text)
            self.twice += known is not None
            self.judged[query, text] = grade

    def notes(self, idle: int) -> Iterator[str]:
        if self.empty:
            yield f"Queries left out because they are empty: {self.empty:,}."
        if self.merged:
            yield f"Queries with the text of another one: {self.merged:,}. They count as one, with the answers of both."
        if self.twice:
            yield f"Judgements of queries that stand twice: {self.twice:,}. Each counts once."
        if self.refused:
            yield f"Judgements of queries with a grade of 0 or less: {self.refused:,}. These texts are not relevant."
        if idle:
            yield f"Queries left out because they name no relevant text: {idle:,}."


def _gathered(rows: Iterable[_Row], source: str) -> Queries:
    """Each distinct query once, with all that answers it."""
    counts = _Counts()
    for row in rows:
        if is_missing(row.query) or (isinstance(row.query, str) and shows_nothing(row.query)):
            counts.empty += 1
            continue
        if not isinstance(row.query, str):
            raise InputError(
                f"{row.place} holds {shorten(row.query)} ({type(row.query).__name__}) where a query is expected. "
                f"Convert it to text first."
            )
        counts.add(row, scrub(row.query), source)
    relevant = {key: grade for key, grade in counts.judged.items() if grade > 0}
    counts.refused = len(counts.judged) - len(relevant)
    numbers = {query: position for position, query in enumerate(dict.fromkeys(query for query, _ in relevant))}
    if not counts.texts:
        raise InputError(
            f"{source}: received {counts.empty:,} queries, all of them empty; at least one with a text is needed. "
            f"Check the column of the queries."
        )
    if not numbers:
        raise InputError(
            f"{source}: received {len(counts.texts):,} queries, none of which names a relevant text; at least one "
            f"must. Give each query the ids of the texts that answer it."
        )
    return Queries(
        ids=tuple(counts.texts[query] for query in numbers),
        texts=tuple(numbers),
        query=np.array([numbers[query] for query, _ in relevant], dtype=np.int64),
        named=tuple(text for _, text in relevant),
        grade=np.array(list(relevant.values()), dtype=np.float64),
        source=source,
        notes=tuple(counts.notes(len(counts.texts) - len(numbers))),
    )


def id_column_for(source: Any, queries: Queries) -> str | None:
    """The column of a table of texts that holds the ids which the queries name, or chunks of them; None without one.

    >>> asked = read_queries({"what is a cat?": ["c1"]})
    >>> id_column_for({"id": ["c1", "c2"], "text": ["It purrs.", "It barks."]}, asked)
    'id'
    """
    if not isinstance(source, str | os.PathLike) and not is_table(source):
        return None
    try:
        table, named = open_table(source), set(queries.named)
        for column in (*CHUNK_IDS, *_DOCUMENT_IDS):
            values = [] if column not in table.kinds else [str(row[0]) for row in table.rows([column])]
            if column in CHUNK_IDS:
                values += groups_of_ids(values) or []
            elif len(set(values)) < len(values):  # a document of several texts is no id
                continue
            if not named.isdisjoint(values):
                return column
    except InputError:  # a folder, lines of text, a pipe: the names of their texts are their own
        pass
    return None
