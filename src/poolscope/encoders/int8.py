"""Linear layers in 8-bit whole numbers: faster where the processor multiplies bytes, and less exact.

Weights have one scale for each column and inputs one for each token, so that a token does not depend on the others of
its batch. Everything but linear layers stays in single precision.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from poolscope.encoders.packed import first_position
from poolscope.errors import InputError

INT8 = "int8"
_LARGEST = 127
_LEAST = 1e-30  # a token of zeros has no scale


def in_int8(model: Any) -> Any:
    """The model, its linear layers replaced; it must be in single precision and on the CPU."""
    import torch

    if model.device.type != "cpu":
        raise InputError(f"--dtype int8 is for the CPU; the model is on {model.device}. Use --dtype float16 there.")
    layers = [(name, layer) for name, layer in model.named_modules() if type(layer) is torch.nn.Linear]
    if not layers:
        raise InputError("--dtype int8: this model has no linear layers that could be changed. Use --dtype bfloat16.")
    if hasattr(model, "config"):
        first_position(model.eval())  # tried in single precision; rounding to bytes would hide what it looks for
    for name, layer in layers:
        model.set_submodule(name, _layer_class()(layer))
    return model


@cache
def _largest_weight() -> int:
    """Half of the range where products of bytes overflow: without VNNI a processor adds pairs of them in 16 bits."""
    import torch

    rows, columns = (torch.full(shape, _LARGEST, dtype=torch.int8) for shape in ((64, 384), (384, 64)))
    is_exact = bool((torch._int_mm(rows, columns) == 384 * _LARGEST**2).all())
    return _LARGEST if is_exact else _LARGEST // 2


@cache
def _layer_class() -> Any:
    """The class is made when torch is there."""
    import torch

    class Int8Linear(torch.nn.Module):
        """x ↦ (bytes of x · bytes of W) × scale of the token × scale of the column + b."""

        scale: torch.Tensor

        def __init__(self, layer: Any) -> None:
            super().__init__()
            scale = layer.weight.detach().abs().amax(dim=1).clamp_min(_LEAST) / _largest_weight()
            whole = (layer.weight.detach() / scale[:, None]).round().to(torch.int8).t().contiguous()
            self.columns = len(scale)
            self.weight = torch.nn.Parameter(whole, requires_grad=False)
            self.bias = None if layer.bias is None else torch.nn.Parameter(layer.bias.detach(), requires_grad=False)
            self.register_buffer("scale", scale)

        def forward(self, values: Any) -> Any:
            """The layer for values (… × depth)."""
            rows = values.flatten(0, -2)
            size = rows.abs().amax(dim=1, keepdim=True).clamp_min(_LEAST) / _LARGEST
            whole = (rows / size).round_().to(torch.int8)
            out = torch._int_mm(whole, self.weight).float().mul_(size).mul_(self.scale)
            out = out if self.bias is None else out.add_(self.bias)
            return out.reshape(*values.shape[:-1], self.columns)

    return Int8Linear
