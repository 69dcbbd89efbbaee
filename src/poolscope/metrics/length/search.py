"""Who wins a search, and from where: quality by the length of the relevant document, and by the place of the answer.

Users correct a bias towards short documents in both directions without measuring it (rescaling by √length, penalising
log length). Here it is measured first: observed against expected shares, with the lengths shuffled as floor. And a
relevant segment is moved within a long document, and its rank watched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.batching import Array, Ids, TokenInputs
from poolscope.errors import InputError
from poolscope.metrics.length.bins import MIN_TEXTS, LengthPart, Panel, Series, length_bins, row_panels, table_rows
from poolscope.numbers.intervals import (
    Estimate,
    Units,
    chosen_units,
    difference_of_means,
    mean_estimate,
    paired_difference,
    query_units,
    ratio_estimate,
    share_estimate,
    with_floor,
)
from poolscope.numbers.ranking import Ranking, discount, over_places, rank_documents, unit_rows, wrong_above
from poolscope.numbers.streaming import row_marks, shuffled_order
from poolscope.surface import as_lengths
from poolscope.texts import Pairs
from poolscope.texts.groups import checked_groups

SHUFFLES = 200
FIFTH = 0.2
QUERIES = 48
MIN_QUERIES = 10
POSITIONS = (0.0, 0.5, 1.0)
_MOST_TOKENS = 512
_LEAST_TOKENS = 4  # a quarter of them is the segment


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
        told = []
        if self.unjudged:
            told.append(f"Whether short or long documents win cannot be judged here: {self.unjudged}.")
        elif self.shortest.ratio.value is not None and self.longest.ratio.value is not None:
            told.append(
                f"Among the first {self.k} wrong answers the shortest fifth of the documents stands "
                f"{self.shortest.ratio.value:.2f} times as often as its number explains, the longest fifth "
                f"{self.longest.ratio.value:.2f} times."
            )
        if self.shortest.hit.value is not None and self.longest.hit.value is not None:
            told.append(
                f"An answer in the shortest fifth is among the first {self.k} for {self.shortest.hit.value:.0%} of its "
                f"queries, one in the longest fifth for {self.longest.hit.value:.0%}."
            )
        return tuple(told)

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
        return _over_queries(values, self.units)

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


# -- position -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentRow:
    """The segment at one place (0: start, 1: end): cosine with its query, rank, share of queries that rank it first.

    `change` is the difference of the cosine against the first place, query by query.
    """

    position: float
    similarity: Estimate
    rank: Estimate
    first: Estimate
    change: Estimate
    rank_change: Estimate


@dataclass(frozen=True, repr=False)
class PositionProbe(LengthPart):
    """A relevant segment of `segment` tokens within documents of `tokens` tokens, otherwise filled with other texts.

    The rank is among the same documents without any segment, one for every query; those that hold a document that is
    relevant to the query are no foils for it. `among` is the mean number of documents that take part in a
    ranking, the one with the segment included, and `unrelated` the mean cosine of the queries with the others: what
    a document without an answer scores, and high where all vectors lie in one cone. `lost` is the share of its lead
    over these that the segment loses from the first place to the last: a ratio of two means, both estimated. Intervals
    are over queries, or over documents where these are known.
    """

    queries: int
    segment: int
    tokens: int
    among: float
    places: tuple[SegmentRow, ...]
    encoded_tokens: int
    unrelated: float = 0.0
    lost: Estimate = Estimate(None)  # noqa: RUF009 - it is frozen

    table_of = "places"

    def figure_title(self) -> str:
        return f"A segment of {self.segment} tokens within {self.tokens} · {self.queries} queries"

    def panels(self) -> list[Panel]:
        shown = {
            "similarity": ("Is the answer still near?", "cosine with the query"),
            "rank": ("Is it still found?", f"mean rank of {self.among:.0f}"),
        }
        places = [row.position for row in self.places]
        return row_panels(self.places, places, "place of the segment (0: start, 1: end)", shown)

    def in_words(self) -> tuple[str, ...]:
        """What becomes of an answer on its way from the start of a document to its end."""
        first, last = self.places[0], self.places[-1]
        cosines = f"{first.similarity.value:.3f} with its query at the start and {last.similarity.value:.3f} at the end"
        ranks = f"{first.rank.value:.1f} to {last.rank.value:.1f} of {self.among:.0f}"
        lost = f"It loses {self.lost.percent()} of its lead over documents without an answer."
        return (
            f"An answer within a document of {self.tokens} tokens has a cosine of {cosines}; its mean rank goes from "
            f"{ranks}.",
            *((lost,) if self.lost.interval is not None else ()),
        )


def position_probe(
    encoder: TokenEncoder,
    pairs: Pairs,
    *,
    positions: Sequence[float] = POSITIONS,
    queries: int = QUERIES,
    segment: int | None = None,
    longest: int | None = None,
    query_encoder: TokenEncoder | None = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> PositionProbe:
    """Put the beginning of each query's document into a long document of other texts, at the start, middle and end.

    `pairs` are queries with their documents; at most `queries` of them are drawn. The segment has `segment` tokens (a
    quarter of the whole), the document as many as the model's limit allows, at most 512 and at most `longest`, which
    is without what the model adds (None: the longest document of the pairs; what happens in longer ones happens to
    none of them). The filler is the same at all places. Queries are left out whose document is shorter
    than the segment, or whose other documents together are shorter than the filler. `groups`: what each document is
    a chunk of, where known. Encodes queries × (places + 1)
    documents.
    """
    if len(positions) < 2 or any(not 0 <= place <= 1 for place in positions):
        raise InputError(
            f"positions: received {list(positions)}; needed are two or more between 0 (start) and 1 (end)."
        )
    inputs = TokenInputs(encoder)
    documents = inputs.content(pairs.documents.texts)
    longest = max(map(len, documents), default=0) if longest is None else longest
    total, size = _sizes(inputs, segment, longest)
    relevant, tokens = _relevant(pairs), sum(map(len, documents))
    long = [(q, d) for q, (d, *_) in relevant.items() if len(documents[d]) >= size]
    usable = [(q, d) for q, d in long if tokens - sum(len(documents[k]) for k in relevant[q]) >= total]
    if len(usable) < MIN_QUERIES:
        raise InputError(
            f"pairs: received {len(pairs)}, of which {len(long)} have a document of {size} tokens or more, and "
            f"{len(usable)} of these {total:,} tokens or more in documents that are not relevant, to fill a document "
            f"around it; at least {MIN_QUERIES} are needed. Give more or longer documents, a shorter segment, "
            f"or a shorter max_length."
        )
    random = np.random.default_rng(seed)
    usable = [usable[k] for k in shuffled_order((pairs.queries[q] for q, _ in usable), seed=seed)[:queries]]
    order = shuffled_order(pairs.documents.texts, seed=seed)
    filled = [_filler(documents, relevant[q], total, order[random.permutation(len(order))]) for q, _ in usable]
    fillers = [filler for filler, _ in filled]
    foreign = np.array([[used.isdisjoint(relevant[q]) for _, used in filled] for q, _ in usable])
    asking = TokenInputs(query_encoder or encoder)
    questions = asking.content([pairs.queries[q] for q, _ in usable])
    questions = [row[: (asking.limit or len(row)) - asking.added] for row in questions]
    units = unit_rows(asking.encode(questions, progress=progress), "queries").astype(np.float64)
    with_answers = [
        _inserted(filler, documents[d][:size], place)
        for place in positions
        for filler, (_, d) in zip(fillers, usable, strict=True)
    ]
    # All at once: batches of equal length, and no core waits between the places.
    encoded = unit_rows(inputs.encode([*fillers, *with_answers], progress=progress), "documents").astype(np.float64)
    foils, *placed = np.split(encoded, len(positions) + 1)
    names = None if groups is None else [checked_groups(groups, len(documents))[d] for _, d in usable]
    chosen = chosen_units(len(usable), names, each="queries")
    rows: list[SegmentRow] = []
    base: tuple[Array, Array] | None = None
    without = units @ foils.T
    for place, vectors in zip(positions, placed, strict=True):
        similarity = np.einsum("ij,ij->i", units, vectors)
        rank = 1.0 + ((without > similarity[:, None]) & foreign).sum(axis=1)
        base = base or (similarity, rank)
        rows.append(segment_row(place, similarity, rank, base, chosen))
    cost = len(encoded) * (total + inputs.added) + sum(map(len, questions))
    among = 1 + float(foreign.sum(axis=1).mean())
    unrelated = float(without[foreign].mean()) if foreign.any() else 0.0
    first, last = (np.einsum("ij,ij->i", units, vectors) for vectors in (placed[0], placed[-1]))
    compared = np.flatnonzero(foreign.any(axis=1))
    lead = first - np.where(foreign, without, 0.0).sum(axis=1) / np.maximum(foreign.sum(axis=1), 1)
    lost = ratio_estimate((first - last)[compared], lead[compared], chosen.among(compared))
    return PositionProbe(len(usable), size, total + inputs.added, among, tuple(rows), cost, unrelated, lost)


def _sizes(inputs: TokenInputs, segment: int | None, longest: int) -> tuple[int, int]:
    """Tokens of a document and of its segment, without what the model adds."""
    total = min(inputs.limit or _MOST_TOKENS, _MOST_TOKENS) - inputs.added
    if total < _LEAST_TOKENS:
        raise InputError(
            f"max_length: received a limit of {total + inputs.added} tokens, of which the model adds {inputs.added} "
            f"itself; that is too short to move a segment within: {inputs.added + _LEAST_TOKENS} or more are needed. "
            f"Raise the limit."
        )
    total = min(total, max(longest, _LEAST_TOKENS))
    size = total // 4 if segment is None else segment
    if not 0 < size < total:
        raise InputError(f"segment: received {size} tokens; allowed are 1 to {total - 1}, less than the document.")
    return total, size


def _relevant(pairs: Pairs) -> dict[int, dict[int, None]]:
    """The documents of every query, each once, in their order; with labels, those that are relevant (label above 0)."""
    documents: dict[int, dict[int, None]] = {}
    for row, (query, document) in enumerate(pairs.index.tolist()):
        if pairs.labels is None or pairs.labels[row] > 0:
            documents.setdefault(query, {})[document] = None
    return documents


def _filler(
    documents: Sequence[Ids], relevant: Collection[int], size: int, order: NDArray[np.int64]
) -> tuple[Ids, set[int]]:
    """So many tokens of documents that are not relevant, in this order, and the documents they come from."""
    parts: list[Ids] = []
    used: set[int] = set()
    length = 0
    for other in order.tolist():
        if length >= size:
            break
        if other not in relevant:
            parts.append(documents[other])
            used.add(other)
            length += len(documents[other])
    return np.concatenate(parts)[:size], used


def _inserted(filler: Ids, segment: Ids, place: float) -> Ids:
    """The segment at a place of the filler, whose end is cut so that the length stays."""
    rest = filler[: len(filler) - len(segment)]
    at = round(place * len(rest))
    return np.concatenate([rest[:at], segment, rest[at:]])


def segment_row(place: float, similarity: Array, rank: Array, base: tuple[Array, Array], units: Units) -> SegmentRow:
    """A place from the similarities and ranks of all queries, and both at the first place."""
    return SegmentRow(
        position=place,
        similarity=_over_queries(similarity, units),
        rank=_over_queries(rank, units),
        first=share_estimate((rank == 1).astype(np.float64), units=units),
        change=_over_queries(similarity - base[0], units),
        rank_change=paired_difference(base[1], rank, units).change,
    )


def _over_queries(values: Array, units: Units) -> Estimate:
    """Mean over queries with its interval over units; NaN are left out, and there is no value for none."""
    known = ~np.isnan(values)
    return mean_estimate(values[known], units.among(known))
