"""Finding the parts of every layer by what they do, not by what they are called.

In a traced pass each attention has a block around it (an element of a list of modules), a projection before it whose
output, averaged with the attention weights, is the input of the projection after it, and a module further on that
receives the block's input plus the branch. What cannot be found that way is named in the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from poolscope.capture.checks import averaged, check_weights, close, equal, hidden, is_sum
from poolscope.capture.trace import Attention, Call, Trace
from poolscope.capture.weights import Projection, Projections


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
            found = call.input @ matrix
            if close(found if bias is None else found + bias, call.output):
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
