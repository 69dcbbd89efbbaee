"""Asking a runtime for what the comparison needs: all probes, some of them again, some alone, and no text at all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import Progress
from poolscope.encoders.endpoint import VectorSource
from poolscope.encoders.http import EndpointError, TooLongError
from poolscope.runtimes.received import row_cosines

# Texts that are sent again alone, to see whether their neighbours change them.
_ALONE = 6


@dataclass(frozen=True)
class Asked:
    """What a runtime gave: the vectors of the texts, `batches` of one request each, and what asking again gave.

    `repeated` is the lowest cosine of a text with itself in an equal request, `batched` that with itself alone.
    `empty` says in words what came back for an empty text. `texts` are those that were answered and `refused` those
    that the server takes for too long, with what it said of them.
    """

    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    batches: tuple[tuple[int, ...], ...]
    repeated: float
    batched: float
    empty: str
    requests: int
    seconds: float
    refused: tuple[str, ...] = ()
    said: str = ""


def ask(source: VectorSource, texts: Sequence[str], *, progress: Progress | None = None) -> Asked:
    """Send the texts in batches, the first batch again, some texts alone, and an empty text.

    Texts that the server refuses as too long are left out, and all is asked again: padding goes by requests.
    """
    try:
        return _ask(source, texts, progress)
    except TooLongError as error:
        refused = _refused(source, texts)
        taken = [text for text in texts if text not in refused]
        if not refused or not taken:
            raise
        return replace(_ask(source, taken, progress), refused=tuple(refused), said=str(error))


def _refused(source: VectorSource, texts: Sequence[str]) -> list[str]:
    """The texts that are too long for the server, from the longest down to the first that it takes."""
    refused = []
    for text in sorted(texts, key=len, reverse=True):
        try:
            source.send([text])
            break
        except TooLongError:
            refused.append(text)
    return refused


def _ask(source: VectorSource, texts: Sequence[str], progress: Progress | None) -> Asked:
    began = time.perf_counter()
    positions = range(len(texts))
    batches = [tuple(positions[start : start + source.batch]) for start in range(0, len(texts), source.batch)]
    alone = [batch[k] for batch in batches for k in range(0, len(batch), max(1, len(texts) // _ALONE))][:_ALONE]
    groups = [*batches, batches[0], *((k,) for k in alone)]
    answers = dict(source.requests([[texts[k] for k in group] for group in groups], progress=progress))
    vectors = np.concatenate([answers[k] for k in range(len(batches))])
    singles = np.concatenate([answers[len(batches) + 1 + k] for k in range(len(alone))])
    empty = _empty(source)
    if progress is not None:
        progress(1, 1)
    return Asked(
        tuple(texts),
        vectors,
        tuple(batches),
        repeated=_lowest(vectors[list(batches[0])], answers[len(batches)]),
        batched=_lowest(vectors[alone], singles),
        empty=empty,
        requests=len(groups) + 1,
        seconds=time.perf_counter() - began,
    )


def _lowest(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    return float(row_cosines(first.astype(np.float64), second.astype(np.float64))[0].min())


def _empty(source: VectorSource) -> str:
    """What an empty text gives; a server may refuse it, and need not be asked again."""
    try:
        vector = source.once().send([""])
    except EndpointError as error:
        return "refused" if "refused" in str(error) else "failed"
    return "a vector" if np.any(vector) else "a vector of zeros"
