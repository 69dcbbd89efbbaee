"""One short pass with every module watched: who was called when, with what, inside whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.capture.attention import attention_tap
from poolscope.encoders.batching import Batch

# Two texts of these lengths: long enough to tell the parts of a layer apart, one padded.
_LENGTHS = (12, 7)


@dataclass(eq=False)
class Call:
    """One call of a module: its first tensor in, its first tensor out, and the time span between."""

    module: Any
    input: Any
    start: int
    output: Any = None
    end: int = 0

    def spans(self, moment: int) -> bool:
        """Was the call under way at that moment?"""
        return self.start < moment < self.end


@dataclass(frozen=True)
class Attention:
    """One computation of attention weights: when, the weights, and the calls under way (outermost first)."""

    moment: int
    weights: Any
    stack: tuple[Call, ...]


@dataclass(frozen=True)
class Trace:
    """All calls of a pass in the order of their start, its attentions, and which positions hold tokens."""

    mask: Any
    calls: list[Call] = field(default_factory=list)
    attentions: list[Attention] = field(default_factory=list)


def trace(model: Any, run: Callable[[Batch], Any], *, positions: int | None) -> Trace:
    """Watch `run`, which puts a batch through `model`, on two short texts of random tokens."""
    import torch

    batch = _probe(model.get_input_embeddings().num_embeddings, positions)
    found = Trace(torch.from_numpy(batch.mask).to(model.device))
    open_calls: list[Call] = []
    clock = iter(range(1 << 60))

    def enter(module: Any, args: Any, kwargs: Any) -> None:
        open_calls.append(Call(module, first_tensor((*args, kwargs.get("hidden_states"))), next(clock)))
        found.calls.append(open_calls[-1])

    def leave(module: Any, args: Any, output: Any) -> None:
        call = open_calls.pop()
        call.output, call.end = first_tensor(output), next(clock)

    def attend(weights: Callable[[], Any]) -> None:
        found.attentions.append(Attention(next(clock), weights(), tuple(open_calls)))

    with _hooks(model, enter, leave), attention_tap(attend):
        run(batch)
    return found


@contextmanager
def _hooks(model: Any, enter: Any, leave: Any) -> Iterator[None]:
    handles = []
    try:
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()


def first_tensor(values: Any) -> Any:
    """The tensor itself, or the first one of a tuple, list or model output; None if there is none."""
    import torch

    if isinstance(values, torch.Tensor):
        return values
    items = values.values() if hasattr(values, "values") else values if isinstance(values, tuple | list) else ()
    return next((item for item in items if isinstance(item, torch.Tensor)), None)


def _probe(vocabulary: int, positions: int | None) -> Batch:
    lengths = np.minimum(_LENGTHS, positions or max(_LENGTHS))
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.random.default_rng(0).integers(vocabulary, size=mask.shape)
    return Batch(ids, mask, mask, None, np.arange(mask.sum()))
