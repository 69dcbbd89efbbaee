"""Who wins a search: quality by the length of the relevant document.

Users correct a bias towards short documents in both directions without measuring it (rescaling by √length, penalising
log length). Here it is measured first: observed against expected shares, with the lengths shuffled as floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.encoders.batching import Array
from poolscope.errors import InputError
from poolscope.metrics.length.bins import MIN_TEXTS, LengthPart, Panel, Series, length_bins, table_rows
from poolscope.numbers.intervals import (
    Estimate,
    Units,
    chosen_units,
    difference_of_means,
    mean_estimate,
    query_units,
    share_estimate,
    with_floor,
)
from poolscope.numbers.ranking import Ranking, discount, over_places, rank_documents, wrong_above
from poolscope.numbers.streaming import row_marks
from poolscope.surface import as_lengths
from poolscope.texts.groups import checked_groups

SHUFFLES = 200
FIFTH = 0.2


@dataclass(frozen=True)
class RetrievalRow:
    """One bin of document lengths: documents, queries whose relevant document is in it, their quality, its share.

    hit, ndcg, mrr and rank are of one relevant document at a time, ranked among the documents that are not relevant to
    its query: other relevant ones before it cost it nothing, and a perfect ranking scores 1. hit, ndcg and mrr are
    within the first k. share is that of the bin among the first k answers that are not relevant, expected its share
    among all documents that are not, ratio the one over the other. `cost` is what the set takes from the others: how
    much more often a relevant document outside it is found once the set is left out than once as many wrong documents
    drawn at random are; 0 where the set is nothing special.
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
    cost: Estimate = field(default_factory=lambda: Estimate(None))


@dataclass(frozen=True, repr=False)
class LengthRetrieval(LengthPart):
    """Retrieval by document length; `shortest` and `longest` are the fifths of the documents, rows like the bins.

    `hit_gap` is the hit rate of the queries whose answer is in the shortest fifth minus that of the longest. `unjudged`
    says why a bias cannot be judged here (all documents of one length, or no answer that is not relevant), and is empty
    where it can.
    """

    k: int
    queries: int
    documents: int
    bins: tuple[RetrievalRow, ...]
    shortest: RetrievalRow
    longest: RetrievalRow
    hit_gap: Estimate
    notes: tuple[str, ...]
    unjudged: str = ""

    def figure_title(self) -> str:
        return f"Who wins · {self.queries:,} queries, {self.documents:,} documents"

    def panels(self) -> list[Panel]:
        labels, across = [row.label for row in self.bins], "tokens of the document"
        quality = [
            Series(name, labels, [getattr(row, part) for row in self.bins], colour)
            for colour, (part, name) in enumerate((("hit", "hit rate"), ("ndcg", "nDCG"), ("mrr", "MRR")))
        ]
        shares = [Series("observed / expected", labels, [row.ratio for row in self.bins])]
        share = f"share of the first {self.k} / expected"
        return [
            Panel("Which answers are found?", across, f"quality at {self.k}", quality),
            Panel("Which documents crowd the top?", across, share, shares, reference=1.0),
        ]

    def in_words(self) -> tuple[str, ...]:
        """Who crowds the first places, and whose answers are found."""
        sentences = []
        if self.unjudged:
            sentences.append(f"Whether short or long documents win cannot be judged here: {self.unjudged}.")
        elif self.shortest.ratio.value is not None and self.longest.ratio.value is not None:
            sentences.append(
                f"Among the {self.k} best-ranked wrong results, the shortest fifth of the documents appears "
                f"{self.shortest.ratio.value:.2f} times as often as expected, the longest fifth "
                f"{self.longest.ratio.value:.2f} times."
            )
        if self.shortest.hit.value is not None and self.longest.hit.value is not None:
            sentences.append(
                f"Answers in the shortest fifth reach the top {self.k} for {self.shortest.hit.value:.0%} of their "
                f"queries, answers in the longest fifth for {self.longest.hit.value:.0%}."
            )
        return tuple(sentences)

    def rows(self) -> list[dict[str, Any]]:
        """One row a bin, then the shortest and the longest fifth."""
        fifths = [
            replace(row, label=f"{name} fifth ({row.label})")
            for name, row in (("shortest", self.shortest), ("longest", self.longest))
        ]
        return table_rows([*self.bins, *fifths])


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
    counted: ArrayLike | None = None,
    groups: Sequence[Any] | NDArray[Any] | None = None,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> LengthRetrieval:
    """Rank all documents for every query by cosine, and ask what the length of a document has to do with its place.

    queries (m × d), documents (N × d), relevant: (query, document) positions, lengths of the documents (N) and, where
    known, how many tokens were cut off each (`truncated`): the shortest and the longest fifth go by the whole length,
    bins by what the model saw. `counted`: rows of `relevant` whose ranks count (None: all); the others are no wrong
    answers either. `groups`: what each document is a chunk of, where known; intervals are then over these (of the
    first document that answers a query). Floors come from shuffling the lengths among the documents, whole groups at a
    time.
    """
    ranking = rank_documents(queries, documents, relevant, k=k)
    count = len(np.asarray(documents))
    seen = as_lengths(lengths, count, "lengths")
    if count <= k:
        raise InputError(f"documents: received {count} for the first k = {k} places; more documents than k are needed.")
    by_bin = length_bins(seen, bins, min_texts=min_texts)
    orders = _shuffles(np.asarray(documents), groups, shuffles, seed)
    names = None if groups is None else checked_groups(groups, count)
    judged = np.stack([ranking.query, ranking.document], axis=1)
    units = query_units(judged, names, queries=ranking.queries)
    tally = _Tally(ranking, count, orders, units, counted=counted)
    whole = seen if truncated is None else seen + as_lengths(truncated, count, "truncated")
    low, high = np.quantile(whole, [FIFTH, 1 - FIFTH])
    short, long = whole <= low, whole >= high
    unjudged = ""
    if (short & long).any():
        unjudged = (
            f"{(whole == low).mean():.0%} of the documents have one length, {low:g}, so that no fifth is the shortest"
        )
    elif not tally.answers:
        unjudged = f"none of the first {k} places is taken by a document that is not relevant"
    gap = tally.gap(short, long)
    sets = [*(by_bin.of == number for number in range(len(by_bin.labels))), short, long]
    above = wrong_above(queries, documents, relevant, np.stack(sets, axis=1))
    costs = [tally.cost(member, above[0], above[1][:, number]) for number, member in enumerate(sets)]
    labels = (*by_bin.labels, f"≤ {low:g}", f"≥ {high:g}")
    rows = [tally.row(*parts) for parts in zip(labels, sets, costs, strict=True)]
    return LengthRetrieval(
        k=k,
        queries=ranking.queries,
        documents=count,
        bins=tuple(rows[:-2]),
        shortest=rows[-2],
        longest=rows[-1],
        hit_gap=gap,
        notes=by_bin.notes(),
        unjudged=unjudged,
    )


def _shuffles(
    documents: NDArray[Any], groups: Sequence[Any] | NDArray[Any] | None, shuffles: int, seed: int
) -> list[NDArray[np.int64]]:
    """Which document comes to the place of each, in every shuffle; drawn in the order of their marks."""
    order = np.argsort(row_marks(documents), kind="stable")
    units = chosen_units(len(order), None if groups is None else np.asarray(checked_groups(groups, len(order)))[order])
    random, dealt = np.random.default_rng(seed), []
    for _ in range(shuffles):
        places = np.empty_like(order)
        places[order] = order[units.shuffled(random)]
        dealt.append(places)
    return dealt


class _Tally:
    """Relevant documents, ranked among the others, and answers that are not relevant, to be counted by document set."""

    def __init__(
        self,
        ranking: Ranking,
        documents: int,
        orders: Sequence[NDArray[np.int64]],
        units: Units,
        *,
        counted: ArrayLike | None,
    ) -> None:
        self.ranking, self.units = ranking, units
        self._counted = np.ones(len(ranking.query), bool)
        if counted is not None:
            self._counted = np.isin(np.arange(len(ranking.query)), counted)
        self.k = ranking.top.shape[1]
        self.documents = documents
        self.alone = ranking.among_irrelevant()
        judged = ranking.query * documents + ranking.document
        keys = np.arange(ranking.queries)[:, None] * documents + ranking.top
        self._wrong = ~np.isin(keys, judged)
        self._per_query = np.bincount(ranking.query, minlength=ranking.queries)
        self._orders = orders

    @property
    def answers(self) -> int:
        """How many of the first k places of all queries hold a document that is not relevant."""
        return int(self._wrong.sum())

    def hits(self, member: NDArray[np.bool_]) -> Array:
        """Found within the first k, one number a query; NaN for queries without a relevant document in the set."""
        return self._by_query(member, self._worth(np.ones(self.k)))

    def gap(self, short: NDArray[np.bool_], long: NDArray[np.bool_]) -> Estimate:
        """The hits of one set minus those of another."""
        sides = self.hits(short), self.hits(long)
        known = [~np.isnan(side) for side in sides]
        values = [side[mark] for side, mark in zip(sides, known, strict=True)]
        if self.units.name == "queries":
            return difference_of_means(*values, each="queries")
        of = [self.units.of[mark] for mark in known]
        return difference_of_means(*values, *of, each=self.units.name)

    def mean(self, values: Array) -> Estimate:
        """The mean over queries; NaN are left out."""
        return over_queries(values, self.units)

    def cost(self, member: NDArray[np.bool_], above: NDArray[np.int64], inside: NDArray[np.int64]) -> Estimate:
        """What the set takes from relevant documents outside it. `above`: wrong documents at or above each, `inside`:
        those of them in the set. No draw is made: how many of those above a draw would take is hypergeometric.
        """
        relevant_inside = np.bincount(self.ranking.query, member[self.ranking.document], self.ranking.queries)
        wrong, own = self.documents - self._per_query, member.sum() - relevant_inside
        query = self.ranking.query
        from scipy import stats  # not before it is needed: its import takes long

        drawn = stats.hypergeom.sf(above - self.k, wrong[query], above, own[query])
        gain = (above - inside < self.k) - drawn
        return self.mean(self._by_query(~member, gain))

    def row(self, label: str, member: NDArray[np.bool_], cost: Estimate) -> RetrievalRow:
        """Everything of one set of documents."""
        places = np.arange(1, self.k + 1)
        expected = self._expected(member)
        shares, hits = self._shares(member), self.hits(member)
        share = self.mean(shares)
        # Where all of the first k are relevant for every query, there is nothing to share out, and no chance to show.
        orders = [] if share.value is None else self._orders
        chance = np.array([np.nanmean(self._shares(member[order])) for order in orders]) / (expected or np.nan)
        found = ~np.isnan(hits)
        return RetrievalRow(
            label=label,
            documents=int(member.sum()),
            queries=int(found.sum()),
            hit=share_estimate(hits[found], units=self.units.among(found)),
            ndcg=self.mean(self._by_query(member, self._worth(1 / discount(places)))),
            mrr=self.mean(self._by_query(member, self._worth(1 / places))),
            rank=self.mean(self._by_query(member, self.alone.rank)),
            share=share,
            expected=expected,
            ratio=with_floor(share.scaled(1 / expected) if expected > 0 else Estimate(None), chance),
            cost=cost,
        )

    def _worth(self, by_place: Array) -> Array:
        """What the place of each relevant document is worth, mean over the orders of its ties."""
        return over_places(by_place, self.alone.above, self.alone.ties) / self.alone.ties

    def _shares(self, member: NDArray[np.bool_]) -> Array:
        """Share of the set among the answers that are not relevant, one number a query; NaN where it has none."""
        answers = self._wrong.sum(axis=1)
        inside = (member[self.ranking.top] & self._wrong).sum(axis=1)
        return np.asarray(np.divide(inside, answers, out=np.full(len(answers), np.nan), where=answers > 0))

    def _expected(self, member: NDArray[np.bool_]) -> float:
        """Its share among all documents that are not relevant, mean over the queries that have such; 0 for none."""
        own = np.bincount(self.ranking.query, member[self.ranking.document], self.ranking.queries)
        others = self.documents - self._per_query
        counted = others > 0
        return float(((member.sum() - own)[counted] / others[counted]).mean()) if counted.any() else 0.0

    def _by_query(self, member: NDArray[np.bool_], values: Array) -> Array:
        """Mean of the values of a query's relevant documents in the set; NaN for queries without one."""
        inside = member[self.ranking.document] & self._counted
        owners = self.ranking.query[inside]
        counts = np.bincount(owners, minlength=self.ranking.queries)
        sums = np.bincount(owners, values[inside], self.ranking.queries)
        return np.asarray(np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0))


def over_queries(values: Array, units: Units) -> Estimate:
    """Mean over queries with its interval over units; NaN are left out, and there is no value for none."""
    known = ~np.isnan(values)
    return mean_estimate(values[known], units.among(known))
