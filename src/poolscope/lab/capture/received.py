"""How much attention each token of a text receives: which tokens the model itself looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poolscope.lab.capture.model import LayerCapture, OpenModel, TextBatch, weights_to_numpy
from poolscope.numbers import Array


def attention_received(model: Any, texts: Sequence[str], *, layer: int = -1, **options: Any) -> list[Array]:
    """The attention that each pooled token receives in a layer, mean over heads and over the tokens that look.

    Parameters
    ----------
    model
        A transformer as `as_encoder` takes it.
    texts
        Texts; tokens, prompt and truncation are those of `encode`.
    layer
        1 is the first, negative from the end.
    **options
        The fields of `EncoderOptions`.

    Returns
    -------
    list of arrays
        One number a token, as many as the cloud of the text has tokens; without a prompt or other tokens that are not
        pooled they add up to 1.

    """
    received: dict[int, Array] = {}
    for done in OpenModel(model, **options).run(texts, _Received, layers=[layer]):
        received.update(done.visitor.received)
    return [received[k] for k in range(len(texts))]


class _Received:
    """Adds up the columns of the attention weights of each text of one batch."""

    def __init__(self, batch: TextBatch) -> None:
        self.batch = batch
        self.received: dict[int, Array] = {}

    def add(self, layer: LayerCapture) -> None:
        weights = weights_to_numpy(layer.A)
        for row, (position, length) in enumerate(zip(self.batch.positions, self.batch.lengths, strict=True)):
            n = int(length)
            columns = weights[row, :, :n, :n].astype(np.float64).mean(axis=(0, 1))
            self.received[int(position)] = columns[self.batch.pooled[row, :n]]
