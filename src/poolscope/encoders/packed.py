"""The products of a model on the CPU with weights laid out for them once, where that is known to be faster.

A linear layer multiplies by the same matrix in every batch, and torch lays that matrix out anew for each product.
oneDNN can be given it ready: the same numbers but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

# Laying a matrix out costs a tenth of a batch, which is what a batch wins; its copy is dropped after the last one.
_FEWEST_BATCHES = 3
_MOST_BYTES = 2**30


def packed_products(model: Any, batches: int) -> AbstractContextManager[Any]:
    """What the model runs in: its linear layers then use copies of their weights, laid out here; or nothing changes.

    It may be entered by several threads. Nothing is written to the model, and weights that change are not followed.
    """
    import torch

    weights = list(_weights(model)) if batches >= _FEWEST_BATCHES and _wins() else []
    if not 0 < sum(weight.nbytes for weight in weights) <= _MOST_BYTES:
        return nullcontext()
    with torch.inference_mode():
        packed = {id(weight): torch.ops.mkldnn._reorder_linear_weight(weight.detach()) for weight in weights}
    mode: AbstractContextManager[Any] = _mode()(packed)
    return mode


def _wins() -> bool:
    """Is oneDNN faster here? With AVX2 and AVX-512 it is; not timed, so that equal calls give equal bytes."""
    import torch

    ready: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return ready and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def _weights(model: Any) -> Iterable[Any]:
    """The matrices of the linear layers, if they are plain single-precision ones on the CPU."""
    import torch

    for module in model.modules():
        weight: Any = getattr(module, "weight", None)
        if type(module) is torch.nn.Linear and weight.dtype == torch.float32 and weight.device.type == "cpu":
            yield weight


def _mode() -> Any:
    """The class is made when torch is there; it answers for linear layers alone."""
    from torch import ops
    from torch.nn.functional import linear
    from torch.overrides import TorchFunctionMode

    class Packed(TorchFunctionMode):
        def __init__(self, packed: dict[int, Any]) -> None:
            super().__init__()
            self._packed = packed

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is linear and len(args) == 3 and not kwargs and id(args[1]) in self._packed:
                x, weight, bias = args
                return ops.mkldnn._linear_pointwise(x, self._packed[id(weight)], bias, "none", [], "")
            return func(*args, **(kwargs or {}))

    return Packed
