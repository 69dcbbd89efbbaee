"""Is what was captured what the model computed? Comparisons up to rounding, and the refusal that names a piece."""

from __future__ import annotations

from typing import Any

from poolscope.capture.weights import Projections
from poolscope.errors import ModelError

# Largest difference, relative to the largest number, between values that are equal but for the order of the sums.
_ROUNDING = {"torch.float16": 2e-2, "torch.bfloat16": 5e-2}
_ROUNDING_DEFAULT = 1e-4


def equal(left: Any, right: Any, mask: Any) -> bool:
    """Are two tensors (texts × n × d) the same at every token?"""
    import torch

    return left.shape == right.shape and torch.equal(left[mask], right[mask])


def close(left: Any, right: Any, mask: Any = None) -> bool:
    """Are two tensors the same at every token, but for rounding?"""
    if left.shape != right.shape:
        return False
    if mask is not None:
        left, right = left[mask], right[mask]
    difference, scale = float((left - right).abs().max()), float(right.abs().max())
    return difference <= _ROUNDING.get(str(right.dtype), _ROUNDING_DEFAULT) * scale


def is_sum(total: Any, left: Any, right: Any, mask: Any) -> bool:
    """Is total = left + right at every token, to the last bits of its precision?"""
    import torch

    if not total.shape == left.shape == right.shape:
        return False
    total, left, right = total[mask], left[mask], right[mask]
    allowed = 4 * torch.finfo(total.dtype).eps * (left.abs() + right.abs())
    return bool(((total - (left + right)).abs() <= allowed).all())


def averaged(weights: Any, values: Any, size: int, mask: Any) -> Any:
    """The averages A_h V_h of all heads side by side (texts × n × heads·size); V is texts × n × value heads·size."""
    split = values.masked_fill(~mask[..., None], 0).unflatten(-1, (-1, size)).transpose(1, 2)
    split = split.repeat_interleave(weights.shape[1] // split.shape[1], dim=1)
    return (weights.to(values.dtype) @ split).transpose(1, 2).flatten(2)


def recomposed(weights: Any, U: Any, projections: Projections, mask: Any) -> Any:
    """The branch from its parts: Σ_h A_h (U W_V^h + b_V^h) W_O^h + b_O."""
    value, output, columns = projections.value, projections.output, list(projections.columns)
    values = U @ value.weight[:, columns]
    values = values if value.bias is None else values + value.bias[columns]
    branch = averaged(weights, values, projections.head_dimension, mask) @ output.weight
    return branch if output.bias is None else branch + output.bias


def check_weights(weights: Any, mask: Any, *, subject: str, number: int) -> None:
    """Refuse weights that are not (texts × heads × n × n) with rows that sum to 1 over the tokens of their text."""
    n = mask.shape[-1]
    if weights.shape[-2:] == (n, n):
        inside = weights.float().masked_fill(~mask[:, None, None, :], 0).sum(-1).transpose(1, 2)[mask]
        if float((inside - 1).abs().max()) <= _ROUNDING.get(str(weights.dtype), _ROUNDING_DEFAULT):
            return
    raise hidden(
        subject,
        f"the attention weights A of attention {number}",
        f"for {n} tokens they have the shape {tuple(weights.shape)}, or do not sum to 1 over the tokens (attention in "
        f"windows, sinks, registers or memory)",
    )


def hidden(subject: str, piece: str, why: str, remedy: str = "") -> ModelError:
    """The refusal of an architecture: which piece of a layer cannot be seen, and why."""
    remedy = remedy or "Measure its token clouds instead: poolscope.encode and poolscope.socm need none of this"
    return ModelError(
        f"{subject}: cannot show {piece}: {why}. A layer must be H → Y = H + Z → X with one attention inside. {remedy}."
    )
