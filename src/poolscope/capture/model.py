"""A transformer whose layers can be watched while texts go through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from poolscope.capture.hooks import LayerCapture, Observer, Visitor, check_layer
from poolscope.capture.records import TextBatch
from poolscope.capture.sites import find_sites, has_final_norm
from poolscope.capture.trace import trace
from poolscope.encoders import Progress, as_encoder
from poolscope.encoders.base import check_layers, check_texts
from poolscope.encoders.batching import Batch, Forward
from poolscope.encoders.capabilities import attention_of, planner_of
from poolscope.errors import InputError, ModelError

V = TypeVar("V", bound=Visitor)


@dataclass(frozen=True)
class Pass(Generic[V]):
    """A finished batch: its texts, who saw its layers, and the pooled tokens' final vectors, text after text."""

    texts: TextBatch
    visitor: V
    output: NDArray[Any]


class OpenModel:
    """A transformer whose layers can be watched.

    `sites` says where the parts of each layer are; `final_norm`, whether the last layer's output is changed before it
    is pooled.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        encoder = as_encoder(model, **options)
        self._models = attention_of(encoder)
        self.encoder = planner_of(encoder)
        self.card = encoder.card
        self._model = self._models[0]
        self.subject = f"{encoder.card.name} ({type(self._model).__name__})"
        if any(module._compiled_call_impl is not None for module in self._model.modules()):
            raise ModelError(
                f"{self.subject}: received a model that was compiled in place, whose layers cannot be watched; allowed "
                f"is the model as it was loaded. Load it again, and compile it afterwards."
            )
        found = trace(self._model, self._forward, positions=encoder.card.positions)
        self.sites = find_sites(found, self._model, subject=self.subject)
        self.final_norm = has_final_norm(found, self.sites)

    def run(
        self,
        texts: Sequence[str],
        visitor: Callable[[TextBatch], V],
        *,
        layers: Sequence[int] | None = None,
        parallel: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[Pass[V]]:
        """All batches through the model; the visitor of a batch is given every wanted layer as it ends.

        `parallel` takes several batches at a time on a CPU, one a core, which is faster and holds as many in memory.
        Whenever a batch is yielded the model is as it was before.
        """
        plan = self.encoder.plan(check_texts(texts))
        observer = Observer(self.sites, wanted=self._wanted(layers), subject=self.subject)
        batches = zip(plan.groups(), plan, strict=True)
        at_once = self._most_at_once() if parallel else 1
        check = True
        while group := list(islice(batches, at_once)):
            held = [TextBatch(at, batch.mask, batch.keep, plan.tokens.cut[at]) for at, batch in group]
            visitors = [visitor(batch) for batch in held]
            outputs = self._together(observer, [batch for _, batch in group], visitors, check=check)
            check = False
            for done in map(Pass, held, visitors, outputs):
                yield done
                if progress is not None:
                    progress(len(done.texts.positions), int(done.texts.mask.sum()))

    def _together(
        self, observer: Observer, batches: Sequence[Batch], visitors: Sequence[V], *, check: bool
    ) -> list[NDArray[Any]]:
        """The outputs of some batches, each in a thread of its own if there are several."""

        def one(run: Forward, batch: Batch, visitor: V) -> NDArray[Any]:
            with observer.watching(_Checked(visitor, batch, self.subject) if check else visitor):
                return run(batch)[self._last]

        with observer.installed(), self.encoder.workers([self._last], len(batches)) as workers:
            if len(batches) == 1:
                return [one(workers[0], batches[0], visitors[0])]
            with ThreadPoolExecutor(len(batches)) as pool:
                return list(pool.map(one, workers, batches, visitors))

    def _most_at_once(self) -> int:
        """As many batches as the backend has workers for them; one where there are several devices."""
        import torch

        if len(self._models) > 1:
            return 1
        with self.encoder.workers([self._last], torch.get_num_threads()) as workers:
            return len(workers)

    @property
    def _last(self) -> int:
        return -1 if self.card.layers is None else self.card.layers

    def _forward(self, batch: Batch) -> NDArray[Any]:
        with self.encoder.workers([self._last]) as workers:
            return workers[0](batch)[self._last]

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


class _Checked:
    """A visitor before whose eyes every layer is checked."""

    def __init__(self, visitor: Visitor, batch: Batch, subject: str) -> None:
        self._visitor = visitor
        self._mask = batch.mask
        self._subject = subject
        self._before: LayerCapture | None = None

    def add(self, layer: LayerCapture) -> None:
        import torch

        mask = torch.from_numpy(self._mask).to(layer.H.device)
        check_layer(layer, self._before, mask, subject=self._subject)
        self._before = layer
        self._visitor.add(layer)
