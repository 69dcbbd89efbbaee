"""Texts through a model, batch by batch, with every layer opened: `capture`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from poolscope.capture.hooks import LayerCapture
from poolscope.capture.model import OpenModel
from poolscope.capture.records import CapturedBatch
from poolscope.encoders import Progress


def capture(
    model: Any,
    texts: Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Iterator[CapturedBatch]:
    """What every layer of a transformer computes for the texts: H, U, Z, Y, X, attention weights and projections.

    `model` is a transformer as `as_encoder` takes it and `options` are the fields of `EncoderOptions`; tokens, prompt
    and truncation are those of `encode`. `layers` (1 is the first, negative from the end; None: all) says which to
    keep. Batches come longest texts first and hold at most `batch_tokens` padded tokens; between two of them the model
    is as it was before. The pieces are found by watching one short pass, and what they must add up to is checked on
    the first batch; a model that hides one is refused with its name.
    """
    opened = OpenModel(model, **options)
    for done in opened.run(texts, lambda batch: _Kept(), layers=layers, progress=progress):
        yield CapturedBatch(done.texts, tuple(done.visitor.layers))


class _Kept:
    """Keeps the layers of one batch."""

    def __init__(self) -> None:
        self.layers: list[LayerCapture] = []

    def add(self, layer: LayerCapture) -> None:
        self.layers.append(layer)
