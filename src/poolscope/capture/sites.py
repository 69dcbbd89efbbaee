"""Finding the parts of every layer by what they do, not by what they are called.

In a traced pass each attention has a block around it (an element of a list of modules), a projection before it whose
output, averaged with the attention weights, is the input of the projection after it, and a module further on that
receives the block's input plus the branch. What cannot be found that way is named in the error.

With them stand the value and output projections of a layer's heads, with their spectral norms from thin factors, and
the checks that what was captured is what the model computed: comparisons up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.capture.trace import Attention, Call, Trace
from poolscope.errors import ModelError

# -- projections ------------------------------------------------------------------------------------------------------

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """A linear module as the map `x ↦ xW + b`. `transposed`: the module stores W as (outputs × inputs)."""

    module: Any
    transposed: bool

    @property
    def weight(self) -> Any:
        """W as a tensor (inputs × outputs)."""
        weight = self.module.weight.detach()
        return weight.T if self.transposed else weight

    @property
    def bias(self) -> Any:
        """b as a tensor, or None."""
        bias = getattr(self.module, "bias", None)
        return None if bias is None else bias.detach()


@dataclass(frozen=True)
class Projections:
    """W_V and W_O of one layer, head by head.

    `columns` are those of the value projection's output that hold the values, in the order of the key/value heads: all
    of them where values have a projection of their own, a part where queries, keys and values are projected in one.
    """

    value: Projection
    output: Projection
    columns: tuple[int, ...]
    heads: int

    @property
    def head_dimension(self) -> int:
        """Numbers a head averages."""
        return int(self.output.weight.shape[0]) // self.heads

    @property
    def value_heads(self) -> int:
        """Key/value heads; fewer than heads where several queries share one."""
        return len(self.columns) // self.head_dimension

    @property
    def merged(self) -> bool:
        """Are queries, keys and values projected in one?"""
        return len(self.columns) < int(self.value.weight.shape[1])

    @property
    def value_weights(self) -> Array:
        """W_V (heads × inputs × head dimension), shared ones repeated."""
        weight = _numpy(self.value.weight[:, list(self.columns)])
        split = weight.reshape(len(weight), self.value_heads, -1).swapaxes(0, 1)
        return np.repeat(split, self.heads // self.value_heads, axis=0)

    @property
    def output_weights(self) -> Array:
        """W_O (heads × head dimension × outputs)."""
        weight = _numpy(self.output.weight)
        return weight.reshape(self.heads, -1, weight.shape[1])

    @cached_property
    def value_norms(self) -> Array:
        """‖W_V‖₂ of every head."""
        return np.asarray(np.linalg.norm(_triangles(self.value_weights), ord=2, axis=(1, 2)))

    @cached_property
    def norms(self) -> Array:
        """‖W_V W_O‖₂ of every head: how far a head can stretch what it averages."""
        return product_norms(self.value_weights, self.output_weights)


def product_norms(left: Array, right: Array) -> Array:
    """Spectral norms of the products left·right (k × m × r) · (k × r × n), r small, without forming them.

    With left = QR and rightᵀ = PS, Q and P orthonormal, ‖left·right‖₂ = ‖RSᵀ‖₂: an r × r matrix in place of m × n.

    >>> product_norms(np.array([[[3.0], [4.0]]]), np.array([[[0.0, 2.0]]])).tolist()
    [10.0]
    """
    thin = _triangles(left) @ _triangles(right.swapaxes(1, 2)).swapaxes(1, 2)
    return np.asarray(np.linalg.norm(thin, ord=2, axis=(1, 2)))


def _triangles(matrices: Array) -> Array:
    """R of the QR decomposition of every matrix."""
    return np.asarray(np.linalg.qr(matrices, mode="r"))


def _numpy(tensor: Any) -> Array:
    import torch

    return np.asarray(tensor.to(torch.float64).cpu().numpy())


# -- checks -----------------------------------------------------------------------------------------------------------

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


# -- sites ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """The modules of one layer at which its quantities can be seen.

    block: H goes in, X comes out; projections: U goes into the value projection, and the heads come together in the
    output projection; branch: Z comes out; residual: Y = H + Z goes in. `pre_norm`: U is not H but a norm of it.
    `post_norm`: the output projection is followed by a norm before the sum, so that Z is not linear in U.
    """

    block: Any
    projections: Projections
    branch: Any
    residual: Any
    pre_norm: bool
    post_norm: bool


def find_sites(trace: Trace, model: Any, *, subject: str) -> list[Site]:
    """The site of every layer, in the order in which the model runs them (shared layers stand several times)."""
    import torch

    if not trace.attentions:
        kind = getattr(model.config, "_attn_implementation", None)
        raise hidden(
            subject,
            "the attention weights A",
            f"neither a softmax over pairs of tokens nor torch's fused attention was seen (implementation: {kind!r})",
            "If it has attention, load it with attn_implementation='sdpa' or 'eager'",
        )
    for number, attention in enumerate(trace.attentions, start=1):
        check_weights(attention.weights, trace.mask, subject=subject, number=number)
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    elements = {id(element) for modules in lists for element in modules}
    return [_Layer(subject, trace, attention, elements).site() for attention in trace.attentions]


def has_final_norm(trace: Trace, sites: Sequence[Site]) -> bool:
    """Does the model change the output of its last layer before it hands it out?"""
    last = next(call for call in reversed(trace.calls) if call.module is sites[-1].block)
    return not equal(trace.calls[0].output, last.output, trace.mask)


class _Layer:
    """The calls around one attention, and the search among them."""

    def __init__(self, subject: str, trace: Trace, attention: Attention, elements: set[int]) -> None:
        self.subject = subject
        self.trace = trace
        self.attention = attention
        self.block = self._find_block(elements)
        self.inside = [call for call in trace.calls if self.block.start < call.start and call.end < self.block.end]

    def site(self) -> Site:
        """All parts together."""
        mask, H = self.trace.mask, self.block.input
        output_call, output = self._find_output()
        value_call, value, columns = self._find_value(output_call)
        branch, residual = self._find_sum(output_call)
        return Site(
            block=self.block.module,
            projections=Projections(value, output, columns, int(self.attention.weights.shape[1])),
            branch=branch.module,
            residual=residual.module,
            pre_norm=not equal(H, value_call.input, mask),
            post_norm=not equal(output_call.output, branch.output, mask),
        )

    def _find_block(self, elements: set[int]) -> Call:
        """The outermost element of a list of modules around this attention and no other."""
        moments = [attention.moment for attention in self.trace.attentions]
        for call in self.attention.stack:
            if id(call.module) in elements and sum(call.spans(moment) for moment in moments) == 1:
                return call
        raise hidden(self.subject, "its layers", "an attention is not inside a list of blocks with one attention each")

    def _find_output(self) -> tuple[Call, Projection]:
        """The first projection after the attention."""
        for call in self.inside:
            if call.start > self.attention.moment and (projection := as_projection(call)) is not None:
                return call, projection
        raise hidden(self.subject, "the output projection W_O", "no linear module follows the attention in its block")

    def _find_value(self, output: Call) -> tuple[Call, Projection, tuple[int, ...]]:
        """The projection before the attention whose output, averaged by it, goes into the output projection."""
        weights, context, mask = self.attention.weights, output.input, self.trace.mask
        heads = int(weights.shape[1])
        size = int(context.shape[-1]) // heads
        for call in self.inside:
            if call.end > self.attention.moment or (projection := as_projection(call)) is None:
                continue
            for columns in _layouts(int(call.output.shape[-1]), heads, size):
                if close(averaged(weights, call.output[..., list(columns)], size, mask), context, mask):
                    return call, projection, columns
        raise hidden(
            self.subject,
            "the value projection W_V",
            "what its attention averages is not the output of one linear module, or is changed on its way to W_O",
        )

    def _find_sum(self, output: Call) -> tuple[Call, Call]:
        """The last call of the branch (its output is Z), and the call that receives Y = H + Z."""
        branch, mask, H = output, self.trace.mask, self.block.input
        for call in self.inside:
            if call.start < output.end or call.input is None:
                continue
            if is_sum(call.input, H, branch.output, mask):
                return branch, call
            if equal(call.input, branch.output, mask):
                branch = call
        raise hidden(
            self.subject,
            "the residual sum Y = H + Z",
            "no module of the block receives the block's input plus the attention branch (some models add attention "
            "and feed-forward in one step, or scale the branch)",
        )


def as_projection(call: Call) -> Projection | None:
    """The call as `x ↦ xW + b`, if the module has such a W; checked with the numbers of the call."""
    weight = getattr(call.module, "weight", None)
    if getattr(weight, "ndim", 0) != 2 or call.output is None or call.input is None:
        return None
    if call.input.ndim != 3 or not call.input.is_floating_point():
        return None
    for transposed in (True, False):
        projection = Projection(call.module, transposed)
        matrix, bias = projection.weight, projection.bias
        if matrix.shape == (call.input.shape[-1], call.output.shape[-1]):
            product = call.input @ matrix
            if close(product if bias is None else product + bias, call.output):
                return projection
    return None


def _layouts(width: int, heads: int, size: int) -> Iterator[tuple[int, ...]]:
    """Which columns of a projection `width` wide may hold the values of so many heads of that size.

    All of them; the last part of [queries | keys | values], with fewer keys and values than queries or as many; the
    last third of every head's own [query | key | value].
    """
    if width % size == 0 and heads % (width // size) == 0:
        yield tuple(range(width))
    part = (width - heads * size) // 2
    if part > 0 and part % size == 0 and heads % (part // size) == 0:
        yield tuple(range(width - part, width))
    if width == 3 * heads * size:
        yield tuple(3 * size * head + 2 * size + k for head in range(heads) for k in range(size))
