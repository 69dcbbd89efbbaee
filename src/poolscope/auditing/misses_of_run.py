"""What any search misses, from its rankings alone: `audit_run` needs no model and no vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from poolscope.auditing.words import fill
from poolscope.errors import InputError, whole_number
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.numbers.ranking import Ranking
from poolscope.results import Result, origin, provenance
from poolscope.texts import read_texts
from poolscope.texts.groups import plain_text
from poolscope.texts.queries import Queries, id_column_for
from poolscope.texts.runs import Run, read_qrels, read_run

SHOWN_BEFORE = 3
_FOUND = "{found:count} of {queries:count query} have a relevant text in the top {k:count}."
_QUALITY = "Scores: nDCG@{k:count} {ndcg:score}, recall@{k:count} {recall:score}, MRR@{k:count} {mrr:score}."
_RANKED = "Of {missed:count missed query}, {ranked:count} have it further down, and {absent:count} not at all."
_DEPTH = "The run holds up to {depth:count text} a query."
_UNANSWERED = "The run has no results for {unanswered:count query}."
_NOT_THERE = "{unknown:count relevant text} {unknown:number is} not among your texts, so no search can find them."
_EQUAL = "{equal:count missed query} {equal:number has} a text with the same words in the top {k:count}."
RUN_WORDS = (_FOUND, _QUALITY, _RANKED, _DEPTH, _UNANSWERED, _NOT_THERE, _EQUAL)


@dataclass(frozen=True)
class RunMiss:
    """A missed query: its best relevant text, at `rank` (None: not in the run), and the first texts before it.

    `equal` is a text of the top k with the same words as a relevant one, "" where there is none or texts are unknown.
    """

    query_id: str
    query: str
    text_id: str
    rank: float | None
    before: tuple[str, ...]
    equal: str = ""


@dataclass(frozen=True, repr=False, kw_only=True)
class RunAudit(Result):
    """Found and missed queries of a run; a judged query without results counts as missed.

    `unanswered` queries have no results, `unjudged` ones have results and no judgements. `unknown` relevant texts are
    not among the texts (None where no texts were given).
    """

    run: str
    k: int
    depth: int
    queries: int
    unanswered: int
    unjudged: int
    unknown: int | None
    found: Estimate
    ndcg: Estimate
    recall: Estimate
    mrr: Estimate
    misses: tuple[RunMiss, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = origin()

    @property
    def missed(self) -> int:
        """How many queries are missed."""
        return len(self.misses)

    def headline(self) -> dict[str, Any]:
        """Queries, how many are found, and the quality."""
        names = ("queries", "found", "ndcg", "recall", "mrr")
        return {"run": self.run, **{name: getattr(self, name) for name in names}}

    def in_words(self) -> tuple[str, ...]:
        """What the run finds and misses, in words."""
        absent = sum(miss.rank is None for miss in self.misses)
        values = {
            "found": self.queries - self.missed,
            "queries": self.queries,
            "k": self.k,
            "ndcg": self.ndcg,
            "recall": self.recall,
            "mrr": self.mrr,
            "missed": self.missed,
            "absent": absent,
            "ranked": self.missed - absent,
            "depth": self.depth,
            "unanswered": self.unanswered,
            "unknown": self.unknown,
            "equal": sum(bool(miss.equal) for miss in self.misses),
        }
        said = (
            (_FOUND, True),
            (_QUALITY, True),
            (_RANKED, self.missed),
            (_DEPTH, absent),
            (_UNANSWERED, self.unanswered),
            (_NOT_THERE, self.unknown),
            (_EQUAL, values["equal"]),
        )
        return tuple(fill(template, values) for template, holds in said if holds)

    def rows(self) -> list[dict[str, Any]]:
        """One row a missed query."""
        return [{**asdict(miss), "before": " ".join(miss.before)} for miss in self.misses]


def audit_run(run: Any, queries: Any, texts: Any = None, *, k: int = 10) -> RunAudit:
    """Which queries does a search miss? Its rankings are enough: no model, no vectors.

    Parameters
    ----------
    run
        A run file of TREC, or what `read_run` takes.
    queries
        Judgements by query id: a qrels file of TREC, or what `read_qrels` takes.
    texts
        The texts, by id: then relevant texts that are not among them, and texts of equal words, are told.
    k
        A query is found if a relevant text is among the first k.

    Returns
    -------
    RunAudit
        Quality with intervals over queries, and every missed query with what came before its best relevant text.

    Examples
    --------
    >>> found = audit_run({"q1": {"a": 2, "b": 1}, "q2": {"a": 3, "c": 1}}, {"q1": {"b": 1}, "q2": {"d": 1}}, k=1)
    >>> found.missed, found.misses[0].rank, found.misses[1].rank, found.misses[0].before
    (2, 2.0, None, ('a', 'b'))

    """
    whole_number(k, "k")
    given, judgements = read_run(run), read_qrels(queries)
    corpus = None if texts is None else read_texts(texts, id_column=id_column_for(texts, judgements))
    judged = sorted(set(judgements.query.tolist()))
    answered = [query for query in judged if judgements.ids[query] in given.scores]
    if not answered:
        raise InputError(
            f"{given.source}: no query of the run is judged; its queries begin with "
            f"{next(iter(given.scores))!r}, judgements with {judgements.ids[0]!r}. Name both by the same ids."
        )
    ranking = _ranking(given, judgements, judged, max(given.depth, k))
    best = ranking.best_rank()
    names = ("found", "ndcg", "recall", "mrr")
    grades = judgements.grade[np.lexsort((np.arange(len(judgements.query)), judgements.query))]
    values = (ranking.found(k), ranking.ndcg(k, grades=grades), ranking.recall(k), ranking.mrr(k))
    words = {} if corpus is None else dict(zip(corpus.ids, corpus.texts, strict=True))
    misses = [
        _miss(given, judgements, query, float(best[place]), k, words)
        for place, query in enumerate(judged)
        if best[place] > k
    ]
    return RunAudit(
        run=given.source,
        k=k,
        depth=given.depth,
        queries=len(judged),
        unanswered=len(judged) - len(answered),
        unjudged=len(set(given.scores) - {judgements.ids[query] for query in judged}),
        unknown=None if corpus is None else len(set(judgements.named) - set(corpus.ids)),
        **{name: share_estimate(each) for name, each in zip(names, values, strict=True)},
        misses=tuple(misses),
        provenance=provenance(settings={"run": given.source, "queries": judgements.source, "k": k}),
    )


def _ranking(run: Run, judgements: Queries, judged: list[int], behind: int) -> Ranking:
    """The places of the relevant texts; those that the run does not hold stand behind so many, one after the other."""
    place = {query: number for number, query in enumerate(judged)}
    rows = sorted(zip(judgements.query.tolist(), judgements.named, strict=True), key=lambda row: row[0])
    number = {name: position for position, name in enumerate(dict.fromkeys(judgements.named))}
    above, ties = behind + np.arange(len(rows)), np.ones(len(rows), np.int64)
    for row, (query, name) in enumerate(rows):
        scores = run.scores.get(judgements.ids[query], {})
        if name in scores:
            values = np.fromiter(scores.values(), np.float64)
            above[row], ties[row] = (values > scores[name]).sum(), (values == scores[name]).sum()
    queries = np.array([place[query] for query, _ in rows])
    documents = np.array([number[name] for _, name in rows])
    empty = np.empty((len(judged), 0))
    return Ranking(empty.astype(np.int64), empty, queries, documents, above, ties)


def _miss(run: Run, judgements: Queries, query: int, rank: float, k: int, words: Mapping[str, str]) -> RunMiss:
    """A missed query, opened."""
    scores = run.scores.get(judgements.ids[query], {})
    order = sorted(scores, key=lambda text: (-scores[text], text))
    relevant = [judgements.named[row] for row in np.flatnonzero(judgements.query == query)]
    best = min(relevant, key=lambda text: -scores.get(text, -np.inf))
    same = {plain_text(words[text]) for text in relevant if text in words}
    equal = [text for text in order[:k] if text in words and plain_text(words[text]) in same]
    return RunMiss(
        query_id=judgements.ids[query],
        query=judgements.texts[query],
        text_id=best,
        rank=rank if best in scores else None,
        before=tuple(order[:SHOWN_BEFORE]),
        equal=equal[0] if equal else "",
    )
