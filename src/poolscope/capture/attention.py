"""Seeing the attention weights A, whichever way a model computes them, without changing what it computes.

Models of transformers either call softmax on the scores, or hand queries, keys and values to torch's fused kernel,
which keeps the weights to itself. Both pass through torch's function mode: the first is read, the second is computed
again beside it. The model goes on with its own numbers, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

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
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = (query.to(dtype) * scale) @ key.to(dtype).transpose(-2, -1)
    if is_causal:
        scores.masked_fill_(scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores.masked_fill_(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores += attn_mask
    return torch.softmax(scores, dim=-1, out=scores)
