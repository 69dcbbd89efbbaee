"""Is an answer still found at the end of a long document? A relevant segment is moved, and the rank watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.inputs import Array, Ids, TokenInputs
from poolscope.errors import InputError
from poolscope.metrics.length.statistics import query_estimate
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.ranking import unit_rows
from poolscope.results import plain
from poolscope.texts import Pairs
from poolscope.verdicts import Level, Verdict

QUERIES = 48
MIN_QUERIES = 10
POSITIONS = (0.0, 0.5, 1.0)
_MOST_TOKENS = 512
_LEAST_TOKENS = 4  # a quarter of them is the segment
# Published averages of the worst case over position are about 15 %; a third of that is worth a look.
WATCH_DROP = 0.05
REPAIR_DROP = 0.15


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


@dataclass(frozen=True)
class PositionProbe:
    """A relevant segment of `segment` tokens within documents of `tokens` tokens, otherwise filled with other texts.

    The rank is among the same documents without any segment, one for every query; those that hold a document that is
    relevant to the query are no foils for it. `among` is the mean number of documents that take part in a
    ranking, the one with the segment included. Intervals are over queries.
    """

    queries: int
    segment: int
    tokens: int
    among: float
    rows: tuple[SegmentRow, ...]
    encoded_tokens: int

    @property
    def verdict(self) -> Verdict:
        """Does the similarity fall when the segment moves away from the first place?"""
        start = self.rows[0]
        worst = min(self.rows[1:], key=lambda row: row.change.value or 0.0)
        change, base = worst.change, start.similarity.value or 0.0
        drop = -(change.value or 0.0) / base if base > 0 else 0.0
        where = _place(worst.position)
        evidence = tuple(
            f"Segment at the {_place(row.position)}: cosine {row.similarity.value:.3f}, mean rank {row.rank.value:.1f} "
            f"of {self.among:.0f}, first for {row.first.value:.0%}."
            for row in self.rows
        )
        certain = change.interval is not None and change.interval.high < 0
        if certain:
            less = f"{drop:.0%} less similar" if base > 0 else "less similar"
            sentence = (
                f"An answer at the {where} of a long document is {less} to its query than at the "
                f"{_place(start.position)} (cosine {change.value:+.3f} {change.interval})."
            )
        elif change.interval is not None and change.interval.low > 0:
            sentence = (
                f"An answer is nowhere less similar to its query than at the {_place(start.position)} of a long "
                f"document (at the {where}, cosine {change.value:+.3f} {change.interval})."
            )
        else:
            sentence = (
                f"Answers at the {where} and at the {_place(start.position)} of a long document cannot be told apart "
                f"by their similarity (cosine {change.value:+.3f}"
                f"{'' if change.interval is None else f' {change.interval}'})."
            )
        rank = worst.rank_change.interval
        level: Level = "watch" if certain and drop >= WATCH_DROP else "ok"
        if level == "watch" and drop >= REPAIR_DROP and rank is not None and rank.low > 0:
            level = "repair"
        return Verdict(level, sentence, change.value, change.interval, 0.0, evidence)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return {**content, "verdict": self.verdict.to_dict()}


def position_probe(
    encoder: TokenEncoder,
    pairs: Pairs,
    *,
    positions: Sequence[float] = POSITIONS,
    queries: int = QUERIES,
    segment: int | None = None,
    query_encoder: TokenEncoder | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> PositionProbe:
    """Put the beginning of each query's document into a long document of other texts, at the start, middle and end.

    `pairs` are queries with their documents; at most `queries` of them are drawn. The segment has `segment` tokens (a
    quarter of the whole), the document as many as the model's limit allows, at most 512. The filler is the same at all
    places. Queries are left out whose document is shorter than the segment, or whose other documents together are
    shorter than the filler. Encodes queries × (places + 1) documents.
    """
    if len(positions) < 2 or any(not 0 <= place <= 1 for place in positions):
        raise InputError(
            f"positions: received {list(positions)}; needed are two or more between 0 (start) and 1 (end)."
        )
    inputs = TokenInputs(encoder)
    total, size = _sizes(inputs, segment)
    documents = inputs.content(pairs.documents.texts)
    long = [(q, d) for q, (d, *_) in _relevant(pairs).items() if len(documents[d]) >= size]
    fill = _Filler(pairs, documents, total)
    usable = [(q, d) for q, d in long if fill.suffices(q)]
    if len(usable) < MIN_QUERIES:
        raise InputError(
            f"pairs: received {len(pairs)}, of which {len(long)} have a document of {size} tokens or more, and "
            f"{len(usable)} of these {total:,} tokens or more in documents that are not relevant, to fill a document "
            f"around it; at least {MIN_QUERIES} are needed. Give more or longer documents, a shorter segment, "
            f"or a shorter max_length."
        )
    random = np.random.default_rng(seed)
    if len(usable) > queries:
        usable = [usable[k] for k in np.sort(random.permutation(len(usable))[:queries])]
    filled = [fill(q, random) for q, _ in usable]
    fillers = [filler for filler, _ in filled]
    foreign = np.array([[fill.foreign(q, held) for _, held in filled] for q, _ in usable])
    asked = TokenInputs(query_encoder or encoder)
    questions = asked.content([pairs.queries[q] for q, _ in usable])
    questions = [row[: (asked.limit or len(row)) - asked.added] for row in questions]
    units = unit_rows(asked.encode(questions, progress=progress), "queries").astype(np.float64)
    held = [
        _inserted(filler, documents[d][:size], place)
        for place in positions
        for filler, (_, d) in zip(fillers, usable, strict=True)
    ]
    # All at once: batches of equal length, and no core waits between the places.
    encoded = unit_rows(inputs.encode([*fillers, *held], progress=progress), "documents").astype(np.float64)
    foils, *placed = np.split(encoded, len(positions) + 1)
    rows: list[SegmentRow] = []
    base: tuple[Array, Array] | None = None
    for place, vectors in zip(positions, placed, strict=True):
        similarity = np.einsum("ij,ij->i", units, vectors)
        rank = 1.0 + ((units @ foils.T > similarity[:, None]) & foreign).sum(axis=1)
        base = base or (similarity, rank)
        rows.append(_row(place, similarity, rank, base))
    tokens = len(encoded) * (total + inputs.added) + sum(map(len, questions))
    among = 1 + float(foreign.sum(axis=1).mean())
    return PositionProbe(len(usable), size, total + inputs.added, among, tuple(rows), tokens)


def _sizes(inputs: TokenInputs, segment: int | None) -> tuple[int, int]:
    """Tokens of a document and of its segment, without what the model adds."""
    total = min(inputs.limit or _MOST_TOKENS, _MOST_TOKENS) - inputs.added
    if total < _LEAST_TOKENS:
        raise InputError(
            f"max_length: received a limit of {total + inputs.added} tokens, of which the model adds {inputs.added} "
            f"itself; that is too short to move a segment within: {inputs.added + _LEAST_TOKENS} or more are needed. "
            f"Raise the limit."
        )
    size = total // 4 if segment is None else segment
    if not 0 < size < total:
        raise InputError(f"segment: received {size} tokens; allowed are 1 to {total - 1}, less than the document.")
    return total, size


def _relevant(pairs: Pairs) -> dict[int, list[int]]:
    """The documents of every query in their order; with labels, those that are relevant (label above 0)."""
    found: dict[int, list[int]] = {}
    for row, (query, document) in enumerate(pairs.index.tolist()):
        if pairs.labels is None or pairs.labels[row] > 0:
            found.setdefault(query, []).append(document)
    return found


class _Filler:
    """Text around a segment: so many tokens of documents that are not relevant to its query, in random order."""

    def __init__(self, pairs: Pairs, documents: Sequence[Ids], size: int) -> None:
        self._documents = documents
        self._size = size
        self._relevant = {query: set(found) for query, found in _relevant(pairs).items()}
        self._tokens = sum(map(len, documents))

    def suffices(self, query: int) -> bool:
        """Have the documents that are not relevant to the query tokens enough together?"""
        return self._tokens - sum(len(self._documents[k]) for k in self._relevant[query]) >= self._size

    def __call__(self, query: int, random: np.random.Generator) -> tuple[Ids, set[int]]:
        """The filler for a query for which there is enough, and the documents it is made of."""
        parts: list[Ids] = []
        used: set[int] = set()
        held = 0
        for other in random.permutation(len(self._documents)).tolist():
            if held >= self._size:
                break
            if other not in self._relevant[query]:
                parts.append(self._documents[other])
                used.add(other)
                held += len(self._documents[other])
        return np.concatenate(parts)[: self._size], used

    def foreign(self, query: int, used: set[int]) -> bool:
        """Is nothing in a filler relevant to the query?"""
        return self._relevant[query].isdisjoint(used)


def _inserted(filler: Ids, segment: Ids, place: float) -> Ids:
    """The segment at a place of the filler, whose end is cut so that the length stays."""
    rest = filler[: len(filler) - len(segment)]
    at = round(place * len(rest))
    return np.concatenate([rest[:at], segment, rest[at:]])


def _row(place: float, similarity: Array, rank: Array, base: tuple[Array, Array]) -> SegmentRow:
    return SegmentRow(
        position=place,
        similarity=query_estimate(similarity),
        rank=query_estimate(rank),
        first=query_estimate((rank == 1).astype(np.float64)),
        change=query_estimate(similarity - base[0]),
        rank_change=query_estimate(rank - base[1]),
    )


def _place(position: float) -> str:
    return {0.0: "start", 0.5: "middle", 1.0: "end"}.get(position, f"point {position:.0%}")
