"""Inputs that are made to tell length from what comes with it: two null models, and probes.

Null models: averages of more and more independent vectors come closer to each other whatever a model does. So the rise
of the cosine with length is set beside the mean of independently encoded chunks of the same documents, at the same
total length; beside the same chunks at the positions that they have in the document; and beside one chunk at other
positions.

Probes change the length and nothing else. In a corpus long texts may also be about other things than short ones. Here
the content is held fixed (the same texts cut at 16, 32, 64, … tokens), or there is none (one word again and again), or
it is mixed at random (k texts joined).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.batching import Array, Ids, TokenInputs, as_inputs
from poolscope.errors import InputError
from poolscope.metrics.length.bins import TOKENS, LengthPart, Panel, Series
from poolscope.numbers.cosines import PairCosine, pair_cosine
from poolscope.numbers.intervals import Estimate, Units, chosen_units, left_out_estimate, not_by_documents
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import shuffled_order
from poolscope.show.charts import short_name
from poolscope.texts.groups import checked_groups
from poolscope.texts.records import draw

DOCUMENTS = 64
TEXTS = 64
MIN_TEXTS = 20  # of a null model or a probe
SHORTEST = 16
WORDS = ("dog", "cat")
_MOST_TOKENS = 1024
_CHUNK = (16, 128)  # the chunk is a quarter of the model's limit, between these
_UNMOVED = "Positions were not looked at: they cannot be moved in a model of this kind (no table of them is at hand)."
_MOST_JOINED = 32
_SHORT = 0.5  # joined are texts of the shorter half, so that many fit


# -- null models --------------------------------------------------------------------------------------------------


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
    """A chunk moved by `offset` positions: mean pairwise cosine, and its change against offset 0."""

    offset: int
    cosine: Estimate
    change: Estimate
    beyond: bool


@dataclass(frozen=True, repr=False)
class LengthNulls(LengthPart):
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

    table_of = "averaging"

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

    def figure_title(self) -> str:
        return f"Null models · {short_name(self.model)} · the same {self.documents} documents"

    def panels(self) -> list[Panel]:
        tokens, up = [row.tokens for row in self.averaging], "mean pairwise cosine"
        series = [
            Series("whole documents", tokens, [row.full for row in self.averaging]),
            Series("averages of chunks", tokens, [row.averaged for row in self.averaging], 1, "dash"),
        ]
        if placed := [row.placed for row in self.averaging if row.placed is not None]:
            series.append(Series("averages, chunks in place", tokens, placed, 2, "dot"))
        panels = [Panel("Is it only averaging?", TOKENS, up, series, log=True, limit=self.limit)]
        if self.positions:
            places = [row.offset + self.chunk for row in self.positions]
            moved = Series(f"{self.chunk} tokens, moved", places, [row.cosine for row in self.positions], 3)
            across = "position of the last token"
            panels.append(Panel("Is it the position?", across, up, [moved], log=True, limit=self.limit))
        return panels

    def in_words(self) -> tuple[str, ...]:
        """What the null models say, with their numbers."""
        first, last = self.averaging[0], self.last
        words = [
            f"The same {self.documents} documents have a mean cosine of {first.full.value:.3f} at {first.tokens} "
            f"tokens and {last.full.value:.3f} at {last.tokens}.",
            f"Averages of {last.chunks} chunks, each encoded alone, have {last.averaged.value:.3f}"
            + ("." if last.placed is None else f" (at their own positions {last.placed.value:.3f})."),
        ]
        if self.explained is not None:
            share, reach = _percent(self.explained), last.excess.interval
            unsure = share != "100%" and reach is not None and reach.low <= 0 <= reach.high
            doubt = " (within chance, all of it)" if unsure else ""
            words.append(f"Plain averaging of chunks reproduces {share} of the rise{doubt}.")
        if self.other is not None:
            words.append(
                f"Averages of {self.other.chunks} chunks of {self.other.tokens // self.other.chunks} tokens, instead "
                f"of {self.chunk}, have {self.other.averaged.value:.3f}."
            )
        if self.positions:
            most = max(self.positions, key=lambda row: row.cosine.value or 0.0)
            start = self.positions[0]
            words.append(
                f"The same {self.chunk} tokens have {start.cosine.value:.3f} at the start, and {most.cosine.value:.3f} "
                f"moved by {most.offset} positions{' (beyond the limit)' if most.beyond else ''}."
            )
        return (*words, *self.notes)

    def derived(self) -> dict[str, Any]:
        """What averaging explains."""
        return {"explained": self.explained, "explained_placed": self.explained_placed}


def _percent(share: float) -> str:
    return "more than all" if share > 1.05 else "none" if share < 0.005 else f"{min(share, 1.0):.0%}"


def length_nulls(
    encoder: TokenEncoder | TokenInputs,
    texts: Sequence[str],
    *,
    documents: int = DOCUMENTS,
    chunk: int | None = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LengthNulls:
    """Plain averaging and position beside the model's own curve, on at most `documents` texts that are long enough.

    `chunk` is the length of a chunk in tokens, special ones included (default: a quarter of the model's limit). Total
    lengths double from one chunk up to what the model's positions allow (at most 1,024 tokens) and at least 20 texts
    reach; those beyond the limit in force are marked. The longest within it is also averaged in chunks of twice (or
    half) the length. These inputs are encoded on top of the texts themselves. `groups`: the document that each text
    is of, where known; intervals are then over these.
    """
    inputs = as_inputs(encoder)
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
    rows, names = _shuffled(inputs, texts, groups, seed)
    totals = _totals(inputs, [len(row) for row in rows], size)
    least = _needed(inputs, totals[-1], size)
    chosen, units = _drawn(rows, names, least, documents, seed)
    run = _Run(inputs, chosen, units, size, progress)
    movable = bool(inputs.position_tables())
    return LengthNulls(
        model=inputs.encoder.card.name,
        documents=len(chosen),
        chunk=size,
        limit=inputs.limit,
        averaging=run.averaging(totals),
        other=run.other(max(total for total in totals if not run.beyond(total))),
        positions=run.positions() if movable else None,
        encoded_tokens=run.tokens,
        notes=() if movable else (_UNMOVED,),
    )


def _shuffled(
    inputs: TokenInputs, texts: Sequence[str], groups: Sequence[Any] | None, seed: int
) -> tuple[list[Ids], list[str] | None]:
    """The tokens of the texts in an order that their words give, and their documents, where known."""
    order = shuffled_order(texts, seed=seed)
    names = None if groups is None else checked_groups(groups, len(texts))
    return inputs.content([texts[k] for k in order]), None if names is None else [names[k] for k in order]


def _drawn(
    rows: Sequence[Ids], names: Sequence[str] | None, least: int, most: int, seed: int
) -> tuple[list[Ids], Units]:
    """At most so many rows of so many tokens or more, and the unit of each."""
    drawn = draw([k for k, row in enumerate(rows) if len(row) >= least], most, seed=seed)
    return [rows[k] for k in drawn], chosen_units(len(drawn), None if names is None else [names[k] for k in drawn])


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
    while totals[-1] * 2 <= most and sum(n >= _needed(inputs, totals[-1] * 2, chunk) for n in lengths) >= MIN_TEXTS:
        totals.append(totals[-1] * 2)
    if len(totals) == 1:
        raise InputError(
            f"texts: fewer than {MIN_TEXTS} have {2 * chunk} tokens or more, so that the null models have "
            f"nothing to go by. Give longer texts, or call length_nulls with a `chunk` of fewer than {chunk} tokens."
        )
    return totals


class _Run:
    """The documents through the model, whole and in chunks; counts the tokens that are encoded."""

    def __init__(
        self, inputs: TokenInputs, rows: Sequence[Ids], units: Units, chunk: int, progress: Progress | None
    ) -> None:
        self.inputs = inputs
        self.rows = rows
        self.units = units
        self.chunk = chunk
        self._encoded_before = inputs.encoded
        self._progress = progress
        self._whole: dict[int, PairCosine] = {}

    @property
    def tokens(self) -> int:
        return self.inputs.encoded - self._encoded_before

    def averaging(self, totals: Sequence[int]) -> tuple[AveragingRow, ...]:
        """Every total length, read whole and as averages."""
        most = totals[-1] // self.chunk
        free = self._chunks(most, self.chunk)
        placed = None
        if self.inputs.position_tables():
            step = self.chunk - self.inputs.added
            placed = [free[0], *(self._moved(k, k * step) for k in range(1, most))]
        self._whole[self.chunk] = self._averaged(free[:1])
        counts = {total: total // self.chunk for total in totals}
        return tuple(self._row(total, free[:n], placed and placed[:n]) for total, n in counts.items())

    def other(self, total: int) -> AveragingRow | None:
        """One total length in chunks of twice the length, or of half where that is the whole."""
        size = 2 * self.chunk if 2 * self.chunk < total else self.chunk // 2
        if size <= self.inputs.added:
            return None
        return self._row(total, self._chunks(total // size, size), None)

    def positions(self) -> tuple[PositionRow, ...]:
        """The first chunk at the start and further on, in steps of a chunk that double."""
        most = (self.inputs.positions or _MOST_TOKENS) - self.chunk
        offsets = [0, *(self.chunk * 2**k for k in range(20) if self.chunk * 2**k <= most)]
        if offsets[-1] != most and most > 0:
            offsets.append(most)
        start = self._whole[self.chunk]
        moved = []
        for offset in offsets:
            cosine = start if offset == 0 else self._averaged([self._moved(0, offset)])
            beyond = self.beyond(offset + self.chunk)
            moved.append(PositionRow(offset, cosine.estimate, cosine.minus(start), beyond))
        return tuple(moved)

    def beyond(self, tokens: int) -> bool:
        """Longer than the limit in force?"""
        return self.inputs.limit is not None and tokens > self.inputs.limit

    def _row(self, total: int, free: Sequence[Array], placed: Sequence[Array] | None) -> AveragingRow:
        """One total length, and the averages of the vectors of its chunks."""
        if total not in self._whole:
            self._whole[total] = self._averaged([self._encode([self.inputs.cut(row, total) for row in self.rows])])
        whole, averaged = self._whole[total], self._averaged(free)
        return AveragingRow(
            tokens=total,
            chunks=len(free),
            full=whole.estimate,
            averaged=averaged.estimate,
            placed=None if placed is None else self._averaged(placed).estimate,
            excess=whole.minus(averaged),
            beyond=self.beyond(total),
        )

    def _chunks(self, count: int, size: int) -> list[Array]:
        """The vectors of the first so many chunks of every document, all in one pass."""
        rows = [row for number in range(count) for row in self._cut_out(number, size)]
        return np.split(self._encode(rows), count)

    def _moved(self, number: int, offset: int) -> Array:
        """The vectors of one chunk of every document at other positions."""
        with self.inputs.moved(offset):
            return self._encode(self._cut_out(number, self.chunk))

    def _cut_out(self, number: int, size: int) -> list[Ids]:
        own = size - self.inputs.added
        return [row[number * own : (number + 1) * own] for row in self.rows]

    def _encode(self, rows: Sequence[Ids]) -> Array:
        return self.inputs.encode(rows, progress=self._progress)

    def _averaged(self, parts: Sequence[Array]) -> PairCosine:
        """Of the means of several vectors of every document."""
        return pair_cosine(unit_rows(np.mean(parts, axis=0), "averages of chunks"), self.units)


# -- probes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeRow:
    """One length: tokens an input (for joins the mean), texts joined or words repeated, and the mean cosine.

    `averaged`, for joins: the same cosine for plain averages of the vectors of the parts.
    """

    tokens: float
    times: int
    cosine: Estimate
    averaged: Estimate | None = None


@dataclass(frozen=True, repr=False)
class LengthProbe(LengthPart):
    """One probe: its steps of length, and the slope of the cosine per doubling of the length (interval over texts).

    `texts` is how many inputs there are of each length; the slope has no interval for the repeated words, a single
    pair.
    """

    name: str
    meaning: str
    texts: int
    steps: tuple[ProbeRow, ...]
    slope: Estimate
    encoded_tokens: int

    table_of = "steps"

    def figure_title(self) -> str:
        return "Probes: only the length changes"

    def panels(self) -> list[Panel]:
        tokens = [row.tokens for row in self.steps]
        series = [Series("measured", tokens, [row.cosine for row in self.steps])]
        if averaged := [row.averaged for row in self.steps if row.averaged is not None]:
            series.append(Series("averages of the parts", tokens, averaged, 1, "dash"))
        return [Panel(self.meaning, TOKENS, "mean pairwise cosine", series, log=True)]

    def sentence(self) -> str:
        """The probe in words."""
        first, last = self.steps[0], self.steps[-1]
        around = self.slope.interval
        interval = "" if around is None else f" [{around.low:+z.3f}, {around.high:+z.3f}]"
        return (
            f"{self.meaning}: cosine {first.cosine.value:.3f} at {first.tokens:.0f} tokens, {last.cosine.value:.3f} at "
            f"{last.tokens:.0f}, {self.slope.value:+z.3f}{interval} per doubling."
        )

    def in_words(self) -> tuple[str, ...]:
        """The probe in words."""
        return (self.sentence(),)


def truncation_probe(
    encoder: TokenEncoder | TokenInputs,
    texts: Sequence[str],
    *,
    most_texts: int = TEXTS,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LengthProbe:
    """Texts cut at 16, 32, 64, … tokens up to the model's limit: equal beginnings, other lengths.

    At most `most_texts` texts that are long enough for the longest cut; the cuts go as far as 20 texts reach. `groups`:
    the document that each text is of, where known.
    """
    inputs = as_inputs(encoder)
    rows, names = _shuffled(inputs, texts, groups, seed)
    if _longest(inputs) < 2 * SHORTEST:
        raise InputError(
            f"max_length: received a limit of {_longest(inputs)} tokens; that is too short to cut texts at two "
            f"lengths: {2 * SHORTEST} or more are needed. Raise the limit."
        )
    own = np.array([len(row) for row in rows]) + inputs.added
    cuts = [cut for cut in _doubling(SHORTEST, _longest(inputs)) if (own >= cut).sum() >= MIN_TEXTS]
    if len(cuts) < 2:
        raise InputError(
            f"texts: fewer than {MIN_TEXTS} have {2 * SHORTEST} tokens or more, so that there is nothing to cut. Give "
            f"longer texts."
        )
    chosen, units = _drawn(rows, names, cuts[-1] - inputs.added, most_texts, seed)
    before = inputs.encoded
    vectors = inputs.encode([inputs.cut(row, cut) for cut in cuts for row in chosen], progress=progress)
    cosines = [_cosine(part, units) for part in np.split(vectors, len(cuts))]
    return _probe(
        "truncation",
        "The same texts cut short",
        [ProbeRow(cut, 1, cosine.estimate) for cut, cosine in zip(cuts, cosines, strict=True)],
        cosines,
        texts=len(chosen),
        encoded=inputs.encoded - before,
    )


def repetition_probe(
    encoder: TokenEncoder | TokenInputs, *, words: tuple[str, str] = WORDS, progress: Progress | None = None
) -> LengthProbe:
    """Two texts that repeat one different word k times each; their cosine for k = 1, 2, 4, … up to the model's limit.

    With nothing to say and nothing in common, whatever rises is the model's doing.
    """
    inputs = as_inputs(encoder)
    units = inputs.content(words)
    wide = max(map(len, units))
    limit = _longest(inputs)
    times = _doubling(1, (limit - inputs.added) // wide)
    if len(times) < 2:
        raise InputError(
            f"max_length: received a limit of {limit} tokens, of which the model adds {inputs.added} itself; that is "
            f"too short to repeat a word of {wide}: {inputs.added + 2 * wide} or more are needed. Raise the limit."
        )
    before = inputs.encoded
    vectors = inputs.encode([np.tile(unit, k) for k in times for unit in units], progress=progress)
    cosines = [_cosine(vectors[2 * k : 2 * k + 2]) for k in range(len(times))]
    tokens = [k * float(np.mean([len(unit) for unit in units])) + inputs.added for k in times]
    rows = [ProbeRow(n, k, Estimate(cosine.value)) for n, k, cosine in zip(tokens, times, cosines, strict=True)]
    meaning = f"'{words[0]}' and '{words[1]}' repeated"
    return _probe("repetition", meaning, rows, cosines, texts=1, encoded=inputs.encoded - before)


def join_probe(
    encoder: TokenEncoder | TokenInputs,
    texts: Sequence[str],
    *,
    most_texts: int = TEXTS,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LengthProbe:
    """Inputs made of k random texts, k = 1, 2, 4, …, beside plain averages of the vectors of the same k texts.

    Joined are texts of the shorter half of the corpus, as long as k of them fit into the model's limit; an input is cut
    there. No text is in two inputs, which would make them alike by itself. What the averages reach too is not the
    model's doing. `groups`: the document that each text is of, where known. An input is made of several documents,
    and a document is in several inputs, so that no interval is known then.
    """
    inputs = as_inputs(encoder)
    rows, names = _shuffled(inputs, texts, groups, seed)
    documents = chosen_units(len(rows), names)
    short = [row for row in rows if 0 < len(row) <= np.quantile([len(row) for row in rows], _SHORT)]
    limit = _longest(inputs)
    fitting = (limit - inputs.added) / max(float(np.mean([len(row) for row in short])), 1.0) if short else 0
    times = _doubling(1, min(int(fitting), _MOST_JOINED, len(short) // MIN_TEXTS))
    if len(times) < 2:
        raise InputError(
            f"texts: received {len(rows)}, of which too few are short enough for two to be joined within {limit} "
            f"tokens; {4 * MIN_TEXTS} are enough. Give more texts."
        )
    count = min(most_texts, len(short) // times[-1])
    made = np.random.default_rng(seed).permutation(len(short))[: count * times[-1]].reshape(count, times[-1])
    before = inputs.encoded
    parts = inputs.encode([short[i] for i in made.ravel()], progress=progress).reshape(*made.shape, -1)
    cosines, steps = [], []
    for k in times:
        joined = [inputs.cut(np.concatenate([short[i] for i in parts_of[:k]]), limit) for parts_of in made]
        cosine = _cosine(inputs.encode(joined, progress=progress))
        averaged = _cosine(parts[:, :k].mean(axis=1))
        tokens = [len(row) + inputs.added for row in joined]
        cosines.append(cosine)
        shown = (not_by_documents(one.estimate, documents) for one in (cosine, averaged))
        steps.append(ProbeRow(float(np.mean(tokens)), k, *shown))
    found = _probe("joins", "Random texts joined", steps, cosines, texts=len(made), encoded=inputs.encoded - before)
    return replace(found, slope=not_by_documents(found.slope, documents))


def _doubling(first: int, most: int) -> list[int]:
    sizes = [first]
    while sizes[-1] * 2 <= most:
        sizes.append(sizes[-1] * 2)
    return sizes


def _longest(inputs: TokenInputs) -> int:
    return min(inputs.limit or _MOST_TOKENS, _MOST_TOKENS)


def _cosine(vectors: Any, units: Units | None = None) -> PairCosine:
    return pair_cosine(unit_rows(vectors, "probe"), units)


def _probe(
    name: str, meaning: str, rows: Sequence[ProbeRow], cosines: Sequence[PairCosine], *, texts: int, encoded: int
) -> LengthProbe:
    """The line through the rows against log₂ of the tokens, and the same without each text in turn."""
    places = np.log2([row.tokens for row in rows])
    weights = (places - places.mean()) / ((places - places.mean()) ** 2).sum()
    slope = float(weights @ [cosine.value for cosine in cosines])
    without, first = weights @ np.stack([cosine.without for cosine in cosines]), cosines[0]
    found = left_out_estimate(slope, without, first.sizes, unit=first.unit)
    return LengthProbe(name, meaning, texts, tuple(rows), found, encoded)
