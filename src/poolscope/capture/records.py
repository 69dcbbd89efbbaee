"""What capture hands out: batches of texts, and each text by itself without padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.capture.hooks import LayerCapture
from poolscope.capture.sites import Site


@dataclass(frozen=True)
class TextBatch:
    """Which texts a batch holds: `positions` in the caller's list, `mask` of their tokens, `pooled` of those pooled.

    Both masks are (texts × n), padding on the right; they differ where a model's pooling leaves out its prompt.
    `truncated` counts the tokens that were cut off each text.
    """

    positions: NDArray[np.int64]
    mask: NDArray[np.bool_]
    pooled: NDArray[np.bool_]
    truncated: NDArray[np.int32]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens that attend to each other, per text."""
        return np.asarray(self.mask.sum(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class TextLayer:
    """One layer of one text, as numpy: H, U, Z, Y, X (n × d) and A (heads × n × n); see `LayerCapture`."""

    number: int
    site: Site
    H: NDArray[Any]
    U: NDArray[Any]
    Z: NDArray[Any]
    Y: NDArray[Any]
    X: NDArray[Any]
    A: NDArray[Any]


@dataclass(frozen=True)
class CapturedText:
    """One text: its position in the caller's list, which of its tokens are pooled, and its layers."""

    position: int
    pooled: NDArray[np.bool_]
    layers: tuple[TextLayer, ...]


@dataclass(frozen=True)
class CapturedBatch:
    """Some texts with the layers that were asked for, as the model's own padded tensors; `texts` cuts out each text."""

    batch: TextBatch
    layers: tuple[LayerCapture, ...]

    def texts(self) -> Iterator[CapturedText]:
        """Each text by itself, without padding."""
        for row, (position, n) in enumerate(zip(self.batch.positions, self.batch.lengths, strict=True)):
            layers = tuple(_cut(layer, row, int(n)) for layer in self.layers)
            yield CapturedText(int(position), self.batch.pooled[row, :n], layers)


def _cut(layer: LayerCapture, row: int, n: int) -> TextLayer:
    def tokens(tensor: Any) -> NDArray[Any]:
        return to_numpy(tensor[row, :n])

    return TextLayer(
        number=layer.number,
        site=layer.site,
        H=tokens(layer.H),
        U=tokens(layer.U),
        Z=tokens(layer.Z),
        Y=tokens(layer.Y),
        X=tokens(layer.X),
        A=weights_to_numpy(layer.A[row, :, :n, :n]),
    )


def weights_to_numpy(weights: Any) -> NDArray[Any]:
    """Attention weights as numpy, in float32 at least: sums over many tokens need it."""
    import torch

    return to_numpy(weights.to(torch.promote_types(weights.dtype, torch.float32)))


def token_rows(tensor: Any, mask: NDArray[np.bool_]) -> NDArray[Any]:
    """The marked tokens of a padded batch (texts × longest × d), text after text (tokens × d)."""
    import torch

    full = bool(mask.all())
    return to_numpy(tensor.flatten(0, 1) if full else tensor[torch.from_numpy(mask).to(tensor.device)])


def to_numpy(tensor: Any) -> NDArray[Any]:
    """A tensor as numpy; bfloat16, which numpy does not know, as float32."""
    import torch

    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    result: NDArray[Any] = tensor.cpu().numpy()
    return result
