"""The parts of every layer, found by their role and not by their names.

In a traced pass each attention has a block around it (an element of a list of modules), a projection before it whose
output, averaged with the attention weights, is the input of the projection after it, and a module further on that
receives the block's input plus the branch. What cannot be found that way is named in the error. In that pass every
module is watched: who was called when, with what, inside whom.

The attention weights A are seen whichever way a model computes them, without changing what it computes. Models of
transformers either call softmax on the scores, or hand queries, keys and values to torch's fused kernel, which keeps
the weights to itself. Both pass through torch's function mode: the first is read, the second is computed again beside
it. The model goes on with its own numbers, bit for bit.

With them stand the value and output projections of a layer's heads, with their spectral norms from thin factors, and
the checks that what was captured is what the model computed: comparisons up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.batching import Batch
from poolscope.encoders.capabilities import as_numpy, attention_of, last_layer
from poolscope.errors import ModelError

Array = NDArray[np.float64]

# Called with a function that gives the weights (texts × heads × n × n), so that weights nobody wants cost nothing.
Record = Callable[[Callable[[], Any]], Any]


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
        weight = self.value.weight[:, list(self.columns)] if self.merged else self.value.weight
        weight = as_numpy(weight, "float64")
        split = weight.reshape(len(weight), self.value_heads, -1).swapaxes(0, 1)
        return split if self.value_heads == self.heads else np.repeat(split, self.heads // self.value_heads, axis=0)

    @property
    def output_weights(self) -> Array:
        """W_O (heads × head dimension × outputs)."""
        weight = as_numpy(self.output.weight, "float64")
        return weight.reshape(self.heads, -1, weight.shape[1])

    @cached_property
    def value_norms(self) -> Array:
        """‖W_V‖₂ of every head."""
        return self._spectral[0]

    @cached_property
    def norms(self) -> Array:
        """‖W_V W_O‖₂ of every head: how far a head can stretch what it averages."""
        return self._spectral[1]

    @cached_property
    def _spectral(self) -> tuple[Array, Array]:
        """‖W_V‖₂ and ‖W_V W_O‖₂, from W_VᵀW_V, which both need."""
        squared = _squared(self.value_weights)
        return _largest_roots(squared), product_norms(squared, _squared(self.output_weights.swapaxes(1, 2)))


def product_norms(left: Array, right: Array) -> Array:
    """Spectral norms of products PQ (k × m × r) · (k × r × n), r small, from left = PᵀP and right = QQᵀ (k × r × r).

    With left = LLᵀ, ‖PQ‖₂² is the largest eigenvalue of Lᵀ·right·L: an r × r matrix in place of m × n. Squaring takes
    no digits from a largest value.

    >>> product_norms(np.array([[[25.0]]]), np.array([[[4.0]]])).tolist()
    [10.0]
    """
    try:
        factors = np.linalg.cholesky(left)
    except np.linalg.LinAlgError:  # not of full rank, as where a head was pruned
        squares, vectors = np.linalg.eigh(left)
        factors = vectors * np.sqrt(np.maximum(squares, 0))[:, None, :]
    return _largest_roots(factors.swapaxes(1, 2) @ right @ factors)


def _squared(matrices: Array) -> Array:
    """MᵀM of every matrix of a stack."""
    return np.asarray(matrices.swapaxes(1, 2) @ matrices)


def _largest_roots(squared: Array) -> Array:
    """The root of the largest eigenvalue of every matrix of a stack of such squares."""
    return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(squared)[:, -1], 0)))


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
        inside = (weights.float() * mask[:, None, None, :].float()).sum(-1).transpose(1, 2)[mask]
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
    blocks = find_blocks(trace, model)
    if None in blocks:
        raise hidden(subject, "its layers", "an attention is not inside a list of blocks with one attention each")
    pairs = zip(trace.attentions, blocks, strict=True)
    return [_Layer(subject, trace, attention, block).site() for attention, block in pairs if block is not None]


def find_blocks(trace: Trace, model: Any) -> list[Call | None]:
    """Of every attention the outermost element of a list of modules around it and no other; None without one."""
    import torch

    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    elements = {id(element) for modules in lists for element in modules}
    moments = [attention.moment for attention in trace.attentions]

    def alone(call: Call) -> bool:
        return id(call.module) in elements and sum(call.spans(moment) for moment in moments) == 1

    return [next(filter(alone, attention.stack), None) for attention in trace.attentions]


def has_final_norm(trace: Trace, sites: Sequence[Site]) -> bool:
    """Does the model change the output of its last layer before it hands it out?"""
    last = next(call for call in reversed(trace.calls) if call.module is sites[-1].block)
    return not equal(trace.calls[0].output, last.output, trace.mask)


class _Layer:
    """The calls around one attention, and the search among them."""

    def __init__(self, subject: str, trace: Trace, attention: Attention, block: Call) -> None:
        self.subject = subject
        self.trace = trace
        self.attention = attention
        self.block = block
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


def attention_tap(record: Record) -> AbstractContextManager[Any]:
    """While the context is open, `record` is called for every attention of this thread, in order.

    What it is given computes the weights. A fused attention whose weights it returns is made of them, and the kernel,
    which would compute them once more, is not called.
    """
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
            if func is functional.scaled_dot_product_attention:
                weights = self._record(lambda: fused_weights(*args, **kwargs))
                made = None if weights is None else _fused(weights, *args, **kwargs)
                return func(*args, **kwargs) if made is None else made
            result = func(*args, **kwargs)
            if func in softmaxes and result.ndim == 4:
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
        attn_mask = torch.zeros_like(attn_mask, dtype=dtype).masked_fill_(~attn_mask, -torch.inf)
    if attn_mask is not None:
        scores += attn_mask  # several times as fast as filling the scores of every head
    return torch.softmax(scores, dim=-1, out=scores)


def _fused(
    weights: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *_: Any, **__: Any
) -> Any:
    """The attention of these weights; None where the kernel does more, or where all of a row is masked."""
    if dropout_p or value.shape[:2] != query.shape[:2] or value.dtype != weights.dtype:
        return None
    made = weights @ value
    return None if made.isnan().any() else made


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


def trace(encoder: TokenEncoder) -> Trace:
    """Watch a transformer on two short texts of random tokens."""
    import torch

    model = attention_of(encoder)[0]
    batch = _probe(model.get_input_embeddings().num_embeddings, encoder.card.positions)
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

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.enter_context(module.register_forward_hook(leave))
        hooks.enter_context(attention_tap(attend))
        last_layer(encoder, batch)
    return seen


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
