"""Yardsticks: other ways to search, on the same queries. They repair nothing; they show how much could be found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cure import Cost, Cure, Tried, free
from poolscope.auditing.cures.late import maxsim
from poolscope.auditing.search import CANDIDATES, Search, query_encoder, vectors_of
from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.pooling import TextPooling
from poolscope.extensions import load_extensions
from poolscope.numbers.maxsim import blend

# The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009).
_FUSION = 60


_WORD = re.compile(r"\w+")
_OTHER = ""  # every word that no query has: it counts for the length of a text alone


class KeywordIndex:
    """BM25 over words without letter case; nothing is stemmed, and no word is left out, whatever the language.

    Only words of the queries are told apart, so that a large corpus takes eight bytes a word while it is indexed.
    """

    def __init__(self, texts: Sequence[str], queries: Sequence[str]) -> None:
        import bm25s  # type: ignore[import-untyped]  # here, since most commands never search by words
        from bm25s.tokenization import Tokenized  # type: ignore[import-untyped]

        query_words = sorted({word for query in queries for word in _words(query)})
        self._ids = {_OTHER: 0, **{word: number for number, word in enumerate(query_words, start=1)}}
        self._count = len(texts)
        self._index: Any = bm25s.BM25()
        rows = [[self._ids.get(word, 0) for word in _words(text)] for text in texts]
        self._index.index(Tokenized(ids=rows, vocab=self._ids), show_progress=False)

    def scores(self, queries: Sequence[str]) -> NDArray[np.float32]:
        """The score of every query with every text (queries × texts); 0 where they share no word."""
        table = np.zeros((len(queries), self._count), np.float32)
        for row, query in enumerate(queries):
            if words := _words(query):
                table[row] = self._index.get_scores(words)
        return table


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def keyword_index(search: Search) -> KeywordIndex:
    """The keyword index of the texts, built once."""
    return search.once("keywords", lambda: KeywordIndex(search.texts, search.queries))


def _keywords(search: Search) -> Tried:
    index = keyword_index(search)
    return Tried(search, lambda rows: index.scores(search.queries[rows]))


def _both_by_rank(search: Search) -> Tried:
    index = keyword_index(search)

    def scores(rows: slice) -> NDArray[Any]:
        tables = (search.own_scores(rows), index.scores(search.queries[rows]))
        return sum((1 / (_FUSION + _places(table)) for table in tables), start=np.zeros(tables[0].shape))

    return Tried(search, scores)


def _places(scores: NDArray[Any]) -> NDArray[Any]:
    """The rank of every text, from 1; equal scores share their mean rank."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(-scores, axis=1))


def _both_by_score(search: Search) -> Tried:
    index = keyword_index(search)
    return Tried(
        search,
        lambda rows: blend(search.own_scores(rows), index.scores(search.queries[rows])),
    )


def _tokens_alone(search: Search) -> Tried:
    return Tried(search, search.reordered(maxsim(search)))


def _best_order(search: Search) -> Tried:
    """The candidates with all relevant ones first, the higher graded before: no re-ranker finds more."""
    judged = search.judgements
    grade = {(query, text): value for (query, text), value in zip(judged.relevant.tolist(), judged.grade, strict=True)}
    table = np.array(
        [
            [grade.get((query, text), 0.0) - place * 1e-6 for place, text in enumerate(row)]
            for query, row in enumerate(search.first.tolist())
        ]
    )
    return Tried(search, search.reordered(table))


def _row(name: str, label: str, tries: Any, *, needs: Any = "vectors", cost: Any = free) -> Cure:
    return Cure(name=name, label=label, does="", needs=needs, tries=tries, cost=cost, step="none")


def _per_query(search: Search) -> Cost:
    return Cost(per_query=search.candidates)


YARDSTICKS: dict[str, Cure] = {
    row.name: row
    for row in (
        _row("keywords", "keyword search (BM25)", _keywords),
        _row("both-by-rank", "vectors + keywords, by rank", _both_by_rank),
        _row("both-by-score", "vectors + keywords, by score", _both_by_score),
        _row("tokens-alone", "MaxSim alone", _tokens_alone, needs="tokens", cost=_per_query),
        _row("best-order", f"best order of the first {CANDIDATES}", _best_order, cost=_per_query),
    )
}


def all_yardsticks() -> dict[str, Cure]:
    """Every yardstick, those of extensions included."""
    load_extensions()
    return YARDSTICKS


def other_model(encoder: TokenEncoder, name: str) -> Cure:
    """Another model on the same search; it encodes all texts and queries."""

    def tries(search: Search) -> Tried:
        asking = query_encoder(encoder, None)
        queries = vectors_of(asking, TextPooling.of(asking), list(search.queries))
        texts = vectors_of(encoder, TextPooling.of(encoder), search.texts)
        return Tried(search, lambda rows: np.asarray(queries[rows] @ texts.T))

    row = _row(f"model:{name}", name[-32:], tries)
    return replace(row, cost=lambda search: Cost(texts=len(search.texts), tokens=int(search.lengths.sum())))
