"""Two null models of length collapse: plain averaging, and position.

Averages of more and more independent vectors come closer to each other whatever a model does. So the rise of the
cosine with length is set beside the mean of independently encoded chunks of the same documents, at the same total
length; beside the same chunks at the positions that they have in the document; and beside one chunk at other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.inputs import Array, Ids, TokenInputs
from poolscope.errors import InputError
from poolscope.metrics.length.statistics import PairCosine, pair_cosine
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.ranking import unit_rows
from poolscope.results import plain
from poolscope.texts.records import draw

DOCUMENTS = 64
MIN_DOCUMENTS = 20
_CHUNK = (16, 128)  # the chunk is a quarter of the model's limit, between these
_MOST_TOKENS = 1024
_UNMOVED = "Positions were not looked at: they cannot be moved in a model of this kind (no table of them is at hand)."


@dataclass(frozen=True)
class AveragingRow:
    """One total length: mean pairwise cosine of the same documents, read whole or as averages of their chunks.

    `full`: the first `tokens` tokens in one input; `averaged`: the mean of the vectors of `chunks` independent inputs;
    `placed`: the same, each chunk at its own position in the document (None without absolute positions). `excess` is
    full − averaged, with its interval over documents. `beyond`: longer than the limit in force.
    """

    tokens: int
    chunks: int
    full: Estimate
    averaged: Estimate
    placed: Estimate | None
    excess: Estimate
    beyond: bool


@dataclass(frozen=True)
class PositionRow:
    """The same chunk `offset` positions further on: mean pairwise cosine, and its change against offset 0."""

    offset: int
    cosine: Estimate
    change: Estimate
    beyond: bool


@dataclass(frozen=True)
class LengthNulls:
    """Both null models on the same documents; `positions` is None for a model without absolute positions.

    `limit` is the limit in force, at which this run cuts its texts. `explained` is the share of the rise from one chunk
    to the longest input within the limit that averaging gives too (None where nothing rises), `explained_placed` the
    same with positions. `other` is that longest input again, in chunks of another length: what averaging explains must
    not hang on the choice (None where no other chunk fits).
    """

    model: str
    documents: int
    chunk: int
    limit: int | None
    averaging: tuple[AveragingRow, ...]
    positions: tuple[PositionRow, ...] | None
    encoded_tokens: int
    other: AveragingRow | None = None
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> AveragingRow:
        """The longest input within the limit."""
        return next(row for row in reversed(self.averaging) if not row.beyond)

    @property
    def explained(self) -> float | None:
        """Share of the rise that plain averaging gives too."""
        return self._share(self.last.averaged)

    @property
    def explained_placed(self) -> float | None:
        """Share of the rise that averaging and positions together give."""
        return None if self.last.placed is None else self._share(self.last.placed)

    def _share(self, null: Estimate) -> float | None:
        start, full = self.averaging[0].full.value, self.last.full.value
        if start is None or full is None or null.value is None or full - start <= 0.005:
            return None
        return (null.value - start) / (full - start)

    def sentences(self) -> tuple[str, ...]:
        """What the null models say, with their numbers."""
        first, last = self.averaging[0], self.last
        found = [
            f"The same {self.documents} documents: cosine {first.full.value:.3f} at {first.tokens} tokens, "
            f"{last.full.value:.3f} at {last.tokens}; averages of {last.chunks} independently encoded chunks "
            f"{last.averaged.value:.3f}"
            + ("." if last.placed is None else f", at their own positions {last.placed.value:.3f}.")
        ]
        if self.explained is not None:
            found.append(f"In these chunks plain averaging gives {_percent(self.explained)} of that rise.")
        if self.other is not None:
            found.append(
                f"In chunks of {self.other.tokens // self.other.chunks} tokens instead of {self.chunk}, averages of "
                f"{self.other.chunks}: {self.other.averaged.value:.3f}."
            )
        if self.positions:
            most = max(self.positions, key=lambda row: row.cosine.value or 0.0)
            start = self.positions[0]
            found.append(
                f"The same {self.chunk} tokens: cosine {start.cosine.value:.3f} at the start, {most.cosine.value:.3f} "
                f"moved by {most.offset} positions{' (beyond the limit)' if most.beyond else ''}."
            )
        return (*found, *self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return {**content, "explained": self.explained, "explained_placed": self.explained_placed}


def _percent(share: float) -> str:
    return "more than all" if share > 1.05 else "none" if share < 0.005 else f"{min(share, 1.0):.0%}"


def length_nulls(
    encoder: TokenEncoder,
    texts: Sequence[str],
    *,
    documents: int = DOCUMENTS,
    chunk: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LengthNulls:
    """Plain averaging and position beside the model's own curve, on at most `documents` texts that are long enough.

    `chunk` is the length of a chunk in tokens, special ones included (default: a quarter of the model's limit). Total
    lengths double from one chunk up to what the model's positions allow (at most 1,024 tokens) and at least 20 texts
    reach; those beyond the limit in force are marked. The longest within it is also averaged in chunks of twice (or
    half) the length. These inputs are encoded on top of the texts themselves.
    """
    inputs = TokenInputs(encoder)
    size = _chunk_size(inputs) if chunk is None else chunk
    if size <= inputs.added or (inputs.positions is not None and size > inputs.positions):
        raise InputError(
            f"chunk: received {size} tokens; allowed are {inputs.added + 1} (with special tokens) to "
            f"{inputs.positions or 'any number'}."
        )
    if inputs.limit is not None and inputs.limit < 2 * size:
        raise InputError(
            f"max_length: received a limit of {inputs.limit} tokens, in which two chunks of {size} have no room: "
            f"{2 * size} or more are needed. Raise the limit, or give a shorter chunk."
        )
    rows = inputs.content(texts)
    totals = _totals(inputs, [len(row) for row in rows], size)
    chosen = draw([row for row in rows if len(row) >= _needed(inputs, totals[-1], size)], documents, seed=seed)
    run = _Run(inputs, chosen, size, progress)
    movable = bool(inputs.position_tables())
    return LengthNulls(
        model=encoder.card.name,
        documents=len(chosen),
        chunk=size,
        limit=inputs.limit,
        averaging=run.averaging(totals),
        other=run.other(max(total for total in totals if not run.beyond(total))),
        positions=run.positions() if movable else None,
        encoded_tokens=run.tokens,
        notes=() if movable else (_UNMOVED,),
    )


def _chunk_size(inputs: TokenInputs) -> int:
    most = inputs.limit or inputs.positions or _MOST_TOKENS
    return int(np.clip(most // 4, *_CHUNK))


def _needed(inputs: TokenInputs, total: int, chunk: int) -> int:
    """Tokens of its own that a document needs for the whole input of that length and for its chunks."""
    return max(total - inputs.added, total // chunk * (chunk - inputs.added))


def _totals(inputs: TokenInputs, lengths: Sequence[int], chunk: int) -> list[int]:
    """Total lengths: one chunk, two, four, … as far as positions and documents reach."""
    most = min(inputs.positions or _MOST_TOKENS, _MOST_TOKENS)
    totals = [chunk]
    while totals[-1] * 2 <= most and sum(n >= _needed(inputs, totals[-1] * 2, chunk) for n in lengths) >= MIN_DOCUMENTS:
        totals.append(totals[-1] * 2)
    if len(totals) == 1:
        raise InputError(
            f"texts: fewer than {MIN_DOCUMENTS} have {2 * chunk} tokens or more, so that the null models have "
            f"nothing to go by. Give longer texts, or a chunk of fewer than {chunk} tokens."
        )
    return totals


class _Run:
    """The documents through the model, whole and in chunks; counts the tokens that are encoded."""

    def __init__(self, inputs: TokenInputs, rows: Sequence[Ids], chunk: int, progress: Progress | None) -> None:
        self.inputs = inputs
        self.rows = rows
        self.chunk = chunk
        self.tokens = 0
        self._progress = progress
        self._whole: dict[int, PairCosine] = {}

    def averaging(self, totals: Sequence[int]) -> tuple[AveragingRow, ...]:
        """Every total length, read whole and as averages."""
        most = totals[-1] // self.chunk
        free = [self._chunk_vectors(k) for k in range(most)]
        placed = None
        if self.inputs.position_tables():
            step = self.chunk - self.inputs.added
            placed = [free[0], *(self._chunk_vectors(k, offset=k * step) for k in range(1, most))]
        self._whole[self.chunk] = _averaged(free[:1])
        counts = {total: total // self.chunk for total in totals}
        return tuple(self._row(total, free[:n], placed and placed[:n]) for total, n in counts.items())

    def other(self, total: int) -> AveragingRow | None:
        """One total length in chunks of twice the length, or of half where that is the whole."""
        size = 2 * self.chunk if 2 * self.chunk < total else self.chunk // 2
        if size <= self.inputs.added:
            return None
        return self._row(total, [self._chunk_vectors(k, size=size) for k in range(total // size)], None)

    def positions(self) -> tuple[PositionRow, ...]:
        """The first chunk at the start and further on, in steps of a chunk that double."""
        most = (self.inputs.positions or _MOST_TOKENS) - self.chunk
        offsets = [0, *(self.chunk * 2**k for k in range(20) if self.chunk * 2**k <= most)]
        if offsets[-1] != most and most > 0:
            offsets.append(most)
        start = self._whole[self.chunk]
        found = []
        for offset in offsets:
            cosine = start if offset == 0 else _averaged([self._chunk_vectors(0, offset=offset)])
            beyond = self.beyond(offset + self.chunk)
            found.append(PositionRow(offset, cosine.estimate, cosine.minus(start), beyond))
        return tuple(found)

    def beyond(self, tokens: int) -> bool:
        """Longer than the limit in force?"""
        return self.inputs.limit is not None and tokens > self.inputs.limit

    def _row(self, total: int, free: Sequence[Array], placed: Sequence[Array] | None) -> AveragingRow:
        """One total length, and the averages of the vectors of its chunks."""
        if total not in self._whole:
            self._whole[total] = _averaged([self._encode([self.inputs.cut(row, total) for row in self.rows])])
        whole, averaged = self._whole[total], _averaged(free)
        return AveragingRow(
            tokens=total,
            chunks=len(free),
            full=whole.estimate,
            averaged=averaged.estimate,
            placed=None if placed is None else _averaged(placed).estimate,
            excess=whole.minus(averaged),
            beyond=self.beyond(total),
        )

    def _chunk_vectors(self, number: int, *, offset: int = 0, size: int | None = None) -> Array:
        own = (size or self.chunk) - self.inputs.added
        rows = [row[number * own : (number + 1) * own] for row in self.rows]
        if offset == 0:
            return self._encode(rows)
        with self.inputs.moved(offset):
            return self._encode(rows)

    def _encode(self, rows: Sequence[Ids]) -> Array:
        self.tokens += sum(len(row) + self.inputs.added for row in rows)
        return self.inputs.encode(rows, progress=self._progress)


def _averaged(parts: Sequence[Array]) -> PairCosine:
    """Of the means of several vectors of every document."""
    return pair_cosine(unit_rows(np.mean(parts, axis=0), "averages of chunks"))
