"""Who wins a search: quality by the length of the relevant document, and whether short documents crowd the top.

Users correct this bias in both directions without measuring it (rescaling by √length, penalising log length). Here it
is measured first: observed against expected shares, with the lengths shuffled as floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds.vectors import as_lengths
from poolscope.errors import InputError
from poolscope.metrics.length.bins import MIN_TEXTS, length_bins
from poolscope.metrics.length.profile import with_floor
from poolscope.metrics.length.result import estimate_cells
from poolscope.metrics.length.statistics import difference_of_means, query_estimate
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.ranking import Ranking, rank_documents
from poolscope.results import plain
from poolscope.verdicts import Level, Verdict

Array = NDArray[np.float64]
Index = NDArray[np.int64]

SHUFFLES = 200
FIFTH = 0.2
# A quarter more often than their share: seen in every result page of ten. Twice as often: one place in two is theirs.
WATCH_RATIO = 1.25
REPAIR_RATIO = 2.0


@dataclass(frozen=True)
class RetrievalRow:
    """One bin of document lengths: documents, queries whose relevant document is in it, their quality, its share.

    hit, ndcg, mrr and rank are of one relevant document at a time, ranked among the documents that are not relevant to
    its query: other relevant ones before it cost it nothing, and a perfect ranking scores 1. hit, ndcg and mrr are
    within the first k. share is that of the bin among the first
    k answers that are not relevant, expected its share among all documents that are not, ratio the one over the other.
    """

    label: str
    documents: int
    queries: int
    hit: Estimate
    ndcg: Estimate
    mrr: Estimate
    rank: Estimate
    share: Estimate
    expected: float
    ratio: Estimate


@dataclass(frozen=True)
class LengthRetrieval:
    """Retrieval by document length; `shortest` and `longest` are the fifths of the documents, rows like the bins.

    `hit_gap` is the hit rate of the queries whose answer is in the shortest fifth minus that of the longest. `unjudged`
    says why a bias cannot be judged here (all documents of one length, or no answer that is not relevant), and is empty
    where it can.
    """

    k: int
    queries: int
    documents: int
    rows: tuple[RetrievalRow, ...]
    shortest: RetrievalRow
    longest: RetrievalRow
    hit_gap: Estimate
    notes: tuple[str, ...]
    unjudged: str = ""

    @property
    def verdict(self) -> Verdict:
        """Are short documents (or long ones) in the first places more often than their number explains?"""
        short, long = self.shortest.ratio, self.longest.ratio
        if self.unjudged:
            return Verdict("ok", f"Whether short or long documents win cannot be judged here: {self.unjudged}.")
        if _over(short) >= _over(long):
            who, found, other = "Short", short, self.shortest
        else:
            who, found, other = "Long", long, self.longest
        evidence = (self._quality(), *self.notes)
        if _over(found) < WATCH_RATIO:
            sentence = (
                f"Short documents fill {_number(short.value)} times and long ones {_number(long.value)} times their "
                f"share of the first {self.k} places: no bias worth a correction."
            )
            return Verdict("ok", sentence, short.value, short.interval, short.floor, evidence)
        gap = self.hit_gap.interval
        lost = gap is not None and (gap.low > 0 if who == "Short" else gap.high < 0)
        level: Level = "repair" if (found.value or 0) >= REPAIR_RATIO and lost else "watch"
        sentence = (
            f"{who} documents take {found.value:.2f} times their share of the first {self.k} places "
            f"({other.share.value:.0%} of them, {other.expected:.0%} expected)"
            + (
                ", and the others are found less often for it."
                if lost
                else "; the others are found as often all the same."
            )
        )
        return Verdict(level, sentence, found.value, found.interval, found.floor, evidence)

    def _quality(self) -> str:
        parts = [
            f"{name} fifth: hit rate {_number(row.hit.value)}, mean rank {_number(row.rank.value)}"
            for name, row in (("shortest", self.shortest), ("longest", self.longest))
        ]
        return f"Relevant documents of the {'; of the '.join(parts)}."

    def table(self) -> list[dict[str, Any]]:
        """One row a bin, then the shortest and the longest fifth."""
        named = [*((row.label, row) for row in self.rows)]
        named += [(f"shortest fifth ({self.shortest.label})", self.shortest)]
        named += [(f"longest fifth ({self.longest.label})", self.longest)]
        return [
            {
                "bin": name,
                "documents": row.documents,
                "queries": row.queries,
                "expected": row.expected,
                **{
                    cell: value
                    for part in ("hit", "ndcg", "mrr", "rank", "share", "ratio")
                    for cell, value in estimate_cells(part, getattr(row, part)).items()
                },
            }
            for name, row in named
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return {**content, "verdict": self.verdict.to_dict()}


def retrieval_by_length(
    queries: ArrayLike,
    documents: ArrayLike,
    relevant: ArrayLike,
    lengths: ArrayLike,
    *,
    bins: int | Sequence[float] | None = None,
    min_texts: int = MIN_TEXTS,
    k: int = 10,
    truncated: ArrayLike | None = None,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> LengthRetrieval:
    """Rank all documents for every query by cosine, and ask what the length of a document has to do with its place.

    queries (m × d), documents (N × d), relevant: (query, document) positions, lengths of the documents (N) and, where
    known, how many tokens were cut off each (`truncated`): the shortest and the longest fifth go by the whole length,
    bins by what the model saw. Intervals are bootstraps over queries; floors come from shuffling the lengths among the
    documents.
    """
    ranking = rank_documents(queries, documents, relevant, k=k)
    count = len(np.asarray(documents))
    found = as_lengths(lengths, count, "lengths")
    if count <= k:
        raise InputError(f"documents: received {count} for the first k = {k} places; more documents than k are needed.")
    by_bin = length_bins(found, bins, min_texts=min_texts)
    tally = _Tally(ranking, count, shuffles=shuffles, seed=seed)
    whole = found if truncated is None else found + as_lengths(truncated, count, "truncated")
    low, high = np.quantile(whole, [FIFTH, 1 - FIFTH])
    short, long = whole <= low, whole >= high
    unjudged = ""
    if (short & long).any():
        unjudged = (
            f"{(whole == low).mean():.0%} of the documents have one length, {low:g}, so that no fifth is the shortest"
        )
    elif not tally.answers:
        unjudged = f"none of the first {k} places is taken by a document that is not relevant"
    gap = difference_of_means(tally.hits(short), tally.hits(long), unit="queries")
    return LengthRetrieval(
        k=k,
        queries=ranking.queries,
        documents=count,
        rows=tuple(tally.row(label, by_bin.of == number) for number, label in enumerate(by_bin.labels)),
        shortest=tally.row(f"≤ {low:g}", short),
        longest=tally.row(f"≥ {high:g}", long),
        hit_gap=gap,
        notes=by_bin.notes(),
        unjudged=unjudged,
    )


class _Tally:
    """Relevant documents, ranked among the others, and answers that are not relevant, to be counted by document set."""

    def __init__(self, ranking: Ranking, documents: int, *, shuffles: int, seed: int) -> None:
        self.ranking = ranking
        self.k = ranking.top.shape[1]
        self.documents = documents
        self.rank = _rank_among_others(ranking)
        judged = ranking.query * documents + ranking.document
        keys = np.arange(ranking.queries)[:, None] * documents + ranking.top
        self._wrong = ~np.isin(keys, judged)
        self._per_query = np.bincount(ranking.query, minlength=ranking.queries)
        random = np.random.default_rng(seed)
        self._orders = [random.permutation(documents) for _ in range(shuffles)]

    @property
    def answers(self) -> int:
        """How many of the first k places of all queries hold a document that is not relevant."""
        return int(self._wrong.sum())

    def hits(self, member: NDArray[np.bool_]) -> Array:
        """Found within the first k, one number a query with a relevant document in the set."""
        return self._by_query(member, (self.rank <= self.k).astype(np.float64))

    def row(self, label: str, member: NDArray[np.bool_]) -> RetrievalRow:
        """Everything of one set of documents."""
        rank, near = self.rank, self.rank <= self.k
        gain = np.where(near, 1 / np.log2(1 + rank), 0.0)
        expected = self._expected(member)
        shares = self._shares(member)
        share = query_estimate(shares)
        # Where all of the first k are relevant for every query, there is nothing to share out, and no chance to show.
        orders = self._orders if len(shares) else []
        chance = np.array([self._shares(member[order]).mean() for order in orders]) / (expected or np.nan)
        return RetrievalRow(
            label=label,
            documents=int(member.sum()),
            queries=len(self.hits(member)),
            hit=query_estimate(self.hits(member)),
            ndcg=query_estimate(self._by_query(member, gain)),
            mrr=query_estimate(self._by_query(member, np.where(near, 1 / rank, 0.0))),
            rank=query_estimate(self._by_query(member, rank)),
            share=share,
            expected=expected,
            ratio=with_floor(_scaled(share, expected), chance),
        )

    def _shares(self, member: NDArray[np.bool_]) -> Array:
        """Share of the set among the answers that are not relevant, one number a query that has such answers."""
        answers = self._wrong.sum(axis=1)
        inside = (member[self.ranking.top] & self._wrong).sum(axis=1)
        return np.asarray(inside[answers > 0] / answers[answers > 0])

    def _expected(self, member: NDArray[np.bool_]) -> float:
        """Its share among all documents that are not relevant, mean over the queries that have such; 0 for none."""
        own = np.bincount(self.ranking.query, member[self.ranking.document], self.ranking.queries)
        others = self.documents - self._per_query
        asked = others > 0
        return float(((member.sum() - own)[asked] / others[asked]).mean()) if asked.any() else 0.0

    def _by_query(self, member: NDArray[np.bool_], values: Array) -> Array:
        """Mean of the values of a query's relevant documents in the set; queries without one are left out."""
        inside = member[self.ranking.document]
        owners = self.ranking.query[inside]
        counts = np.bincount(owners, minlength=self.ranking.queries)
        sums = np.bincount(owners, values[inside], self.ranking.queries)
        return np.asarray(sums[counts > 0] / counts[counts > 0])


def _rank_among_others(ranking: Ranking) -> Array:
    """The rank of each relevant document with the other relevant ones of its query left out."""
    found = np.empty(len(ranking.rank))
    order = np.lexsort((ranking.rank, ranking.query))
    for start, stop in pairwise(np.searchsorted(ranking.query[order], np.arange(ranking.queries + 1))):
        own = ranking.rank[order[start:stop]]
        before, through = (np.searchsorted(own, own, side=side) for side in ("left", "right"))
        found[order[start:stop]] = own - before - (through - before - 1) / 2
    return found


def _scaled(share: Estimate, expected: float) -> Estimate:
    if share.value is None or expected <= 0:
        return Estimate(None)
    found = share.interval
    if found is not None:
        found = Interval(found.low / expected, found.high / expected, found.level, found.answers, found.method)
    return Estimate(share.value / expected, found)


def _over(ratio: Estimate) -> float:
    """The ratio, 1 where chance explains it: its interval or its floor reaches that far."""
    if ratio.value is None or ratio.interval is None or ratio.floor_high is None:
        return 1.0
    return ratio.value if ratio.interval.low > 1 and ratio.value > ratio.floor_high else 1.0


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
