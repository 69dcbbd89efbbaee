"""One short pass with every module watched: who was called when, with what, inside whom.

The attention weights A are seen whichever way a model computes them, without changing what it computes. Models of
transformers either call softmax on the scores, or hand queries, keys and values to torch's fused kernel, which keeps
the weights to itself. Both pass through torch's function mode: the first is read, the second is computed again beside
it. The model goes on with its own numbers, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from poolscope.encoders.batching import Batch

# -- the attention weights --------------------------------------------------------------------------------------------

# Called with a function that gives the weights (texts × heads × n × n), so that weights nobody wants cost nothing.
Record = Callable[[Callable[[], Any]], None]


def attention_tap(record: Record) -> AbstractContextManager[Any]:
    """While the context is open, `record` is called for every attention of this thread, in order."""
    tap: AbstractContextManager[Any] = _tap_class()(record)
    return tap


@cache
def _tap_class() -> Any:
    """The class, made on first use: it inherits from torch, which importing poolscope must not need."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    softmaxes = {functional.softmax, torch.softmax, torch.Tensor.softmax}

    class AttentionTap(TorchFunctionMode):
        def __init__(self, record: Record) -> None:
            super().__init__()
            self._record = record

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            if func is functional.scaled_dot_product_attention:
                self._record(lambda: fused_weights(*args, **kwargs))
            elif func in softmaxes and result.ndim == 4:
                self._record(lambda: result)
            return result

    return AttentionTap


def fused_weights(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The weights of `torch.nn.functional.scaled_dot_product_attention`: its arguments, softmax(scale·QKᵀ + mask) back.

    In float32 at least. A row in which everything is masked has no weights and comes out as NaN; padding only.
    """
    import torch

    scale = query.shape[-1] ** -0.5 if scale is None else scale
    dtype = torch.promote_types(query.dtype, torch.float32)
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = (query.to(dtype) * scale) @ key.to(dtype).transpose(-2, -1)
    if is_causal:
        scores.masked_fill_(scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores.masked_fill_(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores += attn_mask
    return torch.softmax(scores, dim=-1, out=scores)


# -- the trace --------------------------------------------------------------------------------------------------------

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
    seen = Trace(torch.from_numpy(batch.mask).to(model.device))
    open_calls: list[Call] = []
    clock = iter(range(1 << 60))

    def enter(module: Any, args: Any, kwargs: Any) -> None:
        open_calls.append(Call(module, first_tensor((*args, kwargs.get("hidden_states"))), next(clock)))
        seen.calls.append(open_calls[-1])

    def leave(module: Any, args: Any, output: Any) -> None:
        call = open_calls.pop()
        call.output, call.end = first_tensor(output), next(clock)

    def attend(weights: Callable[[], Any]) -> None:
        seen.attentions.append(Attention(next(clock), weights(), tuple(open_calls)))

    with _hooks(model, enter, leave), attention_tap(attend):
        run(batch)
    return seen


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
