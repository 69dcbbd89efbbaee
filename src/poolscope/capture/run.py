"""Texts through a model, batch by batch, with every layer opened: `capture`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.capture.hooks import LayerCapture, Observer, check_layer
from poolscope.capture.sites import Site, find_sites, has_final_norm
from poolscope.capture.trace import trace
from poolscope.encoders import Progress, as_encoder
from poolscope.encoders.base import check_layers, check_texts
from poolscope.encoders.batching import Batch, BatchedEncoder, BatchPlan
from poolscope.encoders.torch_backend import TorchBackend
from poolscope.errors import InputError, ModelError


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
    kept: list[LayerCapture] = []
    for batch in opened.run(texts, lambda batch, layer: kept.append(layer), layers=layers, progress=progress):
        yield CapturedBatch(batch.texts, tuple(kept))
        kept.clear()


@dataclass(frozen=True)
class Pass:
    """A finished batch: its texts, and the pooled tokens' final vectors, text after text (tokens × d)."""

    texts: TextBatch
    output: NDArray[Any]


class OpenModel:
    """A transformer whose layers can be watched.

    `sites` says where the parts of each layer are; `final_norm`, whether the last layer's output is changed before it
    is pooled.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        encoder = as_encoder(model, **options)
        if not isinstance(encoder, BatchedEncoder) or not isinstance(encoder.backend, TorchBackend):
            raise ModelError(
                f"{encoder.card.name}: received a model of kind '{encoder.card.kind}', whose layers cannot be watched; "
                f"allowed: transformers on torch (a hub name, a folder, builtin:minilm, a SentenceTransformer, or a "
                f"pair (model, tokenizer))."
            )
        self.encoder = encoder
        self.card = encoder.card
        self._backend = encoder.backend
        self._model = encoder.backend.models[0]
        self.subject = f"{encoder.card.name} ({type(self._model).__name__})"
        found = trace(self._model, self._forward, positions=encoder.card.positions)
        self.sites = find_sites(found, self._model, subject=self.subject)
        self.final_norm = has_final_norm(found, self.sites)

    def run(
        self,
        texts: Sequence[str],
        visit: Callable[[TextBatch, LayerCapture], None],
        *,
        layers: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Pass]:
        """All batches through the model; `visit` sees every wanted layer as it ends, then the batch is yielded."""
        plan = self.encoder.plan(check_texts(texts))
        wanted = self._wanted(layers)
        for first, (group, batch) in _numbered(plan):
            held = TextBatch(group, batch.mask, batch.keep, plan.tokens.cut[group])
            output = self._watched(batch, partial(visit, held), wanted, check=first)
            yield Pass(held, output)
            if progress is not None:
                progress(len(group), int(batch.mask.sum()))

    def _watched(
        self, batch: Batch, visit: Callable[[LayerCapture], None], wanted: frozenset[int], *, check: bool
    ) -> NDArray[Any]:
        import torch

        mask = torch.from_numpy(batch.mask).to(self._model.device)
        before: LayerCapture | None = None

        def checked(layer: LayerCapture) -> None:
            nonlocal before
            check_layer(layer, before, mask, subject=self.subject)
            before = layer
            visit(layer)

        observer = Observer(self.sites, checked if check else visit, wanted=wanted, subject=self.subject)
        with observer.watching():
            return self._forward(batch)

    def _forward(self, batch: Batch) -> NDArray[Any]:
        last = -1 if self.card.layers is None else self.card.layers
        with self._backend.workers([last]) as workers:
            return workers[0](batch)[last]

    def _wanted(self, layers: Sequence[int] | None) -> frozenset[int]:
        depth = len(self.sites)
        if layers is None:
            return frozenset(range(1, depth + 1))
        numbers = frozenset(check_layers(layers, depth, name=self.card.name).values())
        if 0 in numbers:
            raise InputError(
                "layers: received layer 0, the embedding output, which has no parts; the first layer is 1."
            )
        return numbers


def _numbered(plan: BatchPlan) -> Iterator[tuple[bool, tuple[NDArray[np.int64], Batch]]]:
    """Each batch with the positions of its texts, and whether it is the first."""
    for number, pair in enumerate(zip(plan.groups(), plan, strict=True)):
        yield number == 0, pair


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
        A=to_numpy(layer.A[row, :, :n, :n]),
    )


def to_numpy(tensor: Any) -> NDArray[Any]:
    """A tensor as numpy; bfloat16, which numpy does not know, as float32."""
    import torch

    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    result: NDArray[Any] = tensor.cpu().numpy()
    return result
