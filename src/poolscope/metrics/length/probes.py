"""Probes that change the length and nothing else: cut texts, repeated words, joined texts.

In a corpus long texts may also be about other things than short ones. Here the content is held fixed (the same texts
cut at 16, 32, 64, … tokens), or there is none (one word again and again), or it is mixed at random (k texts joined).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.inputs import Ids, TokenInputs
from poolscope.errors import InputError
from poolscope.metrics.length.statistics import PairCosine, leave_one_out_interval, pair_cosine
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.ranking import unit_rows
from poolscope.results import plain
from poolscope.texts.records import draw

TEXTS = 64
MIN_TEXTS = 20
SHORTEST = 16
WORDS = ("dog", "cat")
_MOST_TOKENS = 1024
_MOST_JOINED = 32
_SHORT = 0.5  # joined are texts of the shorter half, so that many fit


@dataclass(frozen=True)
class ProbeRow:
    """One length: tokens an input (for joins the mean), texts joined or words repeated, and the mean cosine.

    `averaged`, for joins: the same cosine for plain averages of the vectors of the parts.
    """

    tokens: float
    times: int
    cosine: Estimate
    averaged: Estimate | None = None


@dataclass(frozen=True)
class LengthProbe:
    """One probe: its rows by length, and the slope of the cosine per doubling of the length (interval over texts).

    `texts` is how many inputs there are of each length; the slope has no interval for the repeated words, a single
    pair.
    """

    name: str
    meaning: str
    texts: int
    rows: tuple[ProbeRow, ...]
    slope: float
    slope_interval: Interval | None
    encoded_tokens: int

    def sentence(self) -> str:
        """The probe in words."""
        first, last = self.rows[0], self.rows[-1]
        interval = "" if self.slope_interval is None else f" {self.slope_interval}"
        return (
            f"{self.meaning}: cosine {first.cosine.value:.3f} at {first.tokens:.0f} tokens, {last.cosine.value:.3f} at "
            f"{last.tokens:.0f}, {self.slope:+.3f}{interval} per doubling."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return content


def truncation_probe(
    encoder: TokenEncoder,
    texts: Sequence[str],
    *,
    most_texts: int = TEXTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> LengthProbe:
    """The same texts cut at 16, 32, 64, … tokens up to the model's limit: same beginnings, other length.

    At most `most_texts` texts that are long enough for the longest cut; the cuts go as far as 20 texts reach.
    """
    inputs = TokenInputs(encoder)
    rows = inputs.content(texts)
    if _longest(inputs) < 2 * SHORTEST:
        raise InputError(
            f"max_length: received a limit of {_longest(inputs)} tokens; that is too short to cut texts at two "
            f"lengths: {2 * SHORTEST} or more are needed. Raise the limit."
        )
    cuts = [cut for cut in _doubling(SHORTEST, _longest(inputs)) if _reach(rows, cut - inputs.added) >= MIN_TEXTS]
    if len(cuts) < 2:
        raise InputError(
            f"texts: fewer than {MIN_TEXTS} have {2 * SHORTEST} tokens or more, so that there is nothing to cut. Give "
            f"longer texts."
        )
    chosen = draw([row for row in rows if len(row) >= cuts[-1] - inputs.added], most_texts, seed=seed)
    cosines = []
    for cut in cuts:
        cosines.append(_cosine(inputs.encode([inputs.cut(row, cut) for row in chosen], progress=progress)))
    return _probe(
        "truncation",
        "The same texts cut short",
        [ProbeRow(cut, 1, cosine.estimate) for cut, cosine in zip(cuts, cosines, strict=True)],
        cosines,
        texts=len(chosen),
        encoded=len(chosen) * sum(cuts),
    )


def repetition_probe(
    encoder: TokenEncoder, *, words: tuple[str, str] = WORDS, progress: Progress | None = None
) -> LengthProbe:
    """Two texts that repeat one different word k times each; their cosine for k = 1, 2, 4, … up to the model's limit.

    With nothing to say and nothing in common, whatever rises is the model's doing.
    """
    inputs = TokenInputs(encoder)
    units = inputs.content(words)
    wide = max(map(len, units))
    limit = _longest(inputs)
    times = _doubling(1, (limit - inputs.added) // wide)
    if len(times) < 2:
        raise InputError(
            f"max_length: received a limit of {limit} tokens, of which the model adds {inputs.added} itself; that is "
            f"too short to repeat a word of {wide}: {inputs.added + 2 * wide} or more are needed. Raise the limit."
        )
    vectors = inputs.encode([np.tile(unit, k) for k in times for unit in units], progress=progress)
    cosines = [_cosine(vectors[2 * k : 2 * k + 2]) for k in range(len(times))]
    tokens = [k * float(np.mean([len(unit) for unit in units])) + inputs.added for k in times]
    rows = [ProbeRow(n, k, Estimate(found.value)) for n, k, found in zip(tokens, times, cosines, strict=True)]
    meaning = f"'{words[0]}' and '{words[1]}' repeated"
    return _probe("repetition", meaning, rows, cosines, texts=1, encoded=int(2 * sum(tokens)))


def join_probe(
    encoder: TokenEncoder,
    texts: Sequence[str],
    *,
    most_texts: int = TEXTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> LengthProbe:
    """Inputs made of k random texts, k = 1, 2, 4, …, beside plain averages of the vectors of the same k texts.

    Joined are texts of the shorter half of the corpus, as long as k of them fit into the model's limit; an input is cut
    there. No text is in two inputs, which would make them alike by itself. What the averages reach too is not the
    model's doing.
    """
    inputs = TokenInputs(encoder)
    rows = inputs.content(texts)
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
    groups = np.random.default_rng(seed).permutation(len(short))[: count * times[-1]].reshape(count, times[-1])
    used = [short[i] for i in groups.ravel()]
    parts = inputs.encode(used, progress=progress).reshape(*groups.shape, -1)
    cosines, found, encoded = [], [], sum(len(row) + inputs.added for row in used)
    for k in times:
        joined = [inputs.cut(np.concatenate([short[i] for i in group[:k]]), limit) for group in groups]
        cosine = _cosine(inputs.encode(joined, progress=progress))
        averaged = _cosine(parts[:, :k].mean(axis=1))
        tokens = [len(row) + inputs.added for row in joined]
        encoded += sum(tokens)
        cosines.append(cosine)
        found.append(ProbeRow(float(np.mean(tokens)), k, cosine.estimate, averaged.estimate))
    return _probe("joins", "Random texts joined", found, cosines, texts=len(groups), encoded=encoded)


def _doubling(first: int, most: int) -> list[int]:
    found = [first]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found


def _longest(inputs: TokenInputs) -> int:
    return min(inputs.limit or _MOST_TOKENS, _MOST_TOKENS)


def _reach(rows: Sequence[Ids], tokens: int) -> int:
    return sum(len(row) >= tokens for row in rows)


def _cosine(vectors: Any) -> PairCosine:
    return pair_cosine(unit_rows(vectors, "probe"))


def _probe(
    name: str, meaning: str, rows: Sequence[ProbeRow], cosines: Sequence[PairCosine], *, texts: int, encoded: int
) -> LengthProbe:
    """The line through the rows against log₂ of the tokens, and the same without each text in turn."""
    places = np.log2([row.tokens for row in rows])
    weights = (places - places.mean()) / ((places - places.mean()) ** 2).sum()
    slope = float(weights @ [cosine.value for cosine in cosines])
    interval = leave_one_out_interval(slope, weights @ np.stack([cosine.without for cosine in cosines]))
    return LengthProbe(name, meaning, texts, tuple(rows), slope, interval, encoded)
