"""Where in a document an answer stands: a relevant segment is moved within a long document, and its rank watched."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.batching import Array, Ids, TokenInputs
from poolscope.errors import InputError
from poolscope.metrics.length.bins import LengthPart, Panel, row_panels
from poolscope.metrics.length.search import over_queries
from poolscope.numbers.intervals import Estimate, Units, chosen_units, paired_difference, ratio_estimate, share_estimate
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import shuffled_order
from poolscope.texts import Pairs
from poolscope.texts.groups import checked_groups

QUERIES = 48
MIN_QUERIES = 10
POSITIONS = (0.0, 0.5, 1.0)
_MOST_TOKENS = 512
_LEAST_TOKENS = 4  # a quarter of them is the segment


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
        cosines = f"{first.similarity.value:.3f} to {last.similarity.value:.3f}"
        ranks = f"{first.rank.value:.1f} to {last.rank.value:.1f} of {self.among:.0f}"
        lost = f"It loses {self.lost.percent()} of its lead over documents without an answer."
        return (
            f"Moved from the start to the end of {self.tokens} tokens, an answer's cosine with its query goes from "
            f"{cosines}, and its mean rank from {ranks}.",
            *((lost,) if self.lost.interval is not None else ()),
        )


def position_probe(
    encoder: TokenEncoder,
    pairs: Pairs,
    *,
    positions: Sequence[float] = POSITIONS,
    queries: int = QUERIES,
    segment: int | None = None,
    query_encoder: TokenEncoder | None = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> PositionProbe:
    """Put the beginning of each query's document into a long document of other texts, at the start, middle and end.

    `pairs` are queries with their documents; at most `queries` of them are drawn. The segment has `segment` tokens (a
    quarter of the whole), the document as many as the model's limit allows, at most 512 and at most the longest
    document of the pairs: what happens in longer ones happens to none of them. The filler is the same at all places.
    Queries are left out whose document is shorter than the segment, or whose other documents together are shorter
    than the filler. `groups`: what each document is a chunk of, where known. Encodes queries × (places + 1)
    documents.
    """
    if len(positions) < 2 or any(not 0 <= place <= 1 for place in positions):
        raise InputError(
            f"positions: received {list(positions)}; needed are two or more between 0 (start) and 1 (end)."
        )
    inputs = TokenInputs(encoder)
    documents = inputs.content(pairs.documents.texts)
    total, size = _sizes(inputs, segment, max(map(len, documents), default=0))
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
        similarity=over_queries(similarity, units),
        rank=over_queries(rank, units),
        first=share_estimate((rank == 1).astype(np.float64), units=units),
        change=over_queries(similarity - base[0], units),
        rank_change=paired_difference(base[1], rank, units).change,
    )
