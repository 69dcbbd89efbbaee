"""Dividing attention logits by a temperature, whichever way a model of transformers computes its attention.

*Registry*: most models look their attention up by the name in their configuration. Under a name of ours they call
`scaled_attention`, which divides the queries, and the position bias where there is one, by τ and hands on to the
function that the model would have called. The name is registered for masks too: a model under a name without a mask
builder gets no mask at all, and attends to padding without a word.

*Interception*: MPNet and DeBERTa write their attention out. While such a module runs, the scores that it hands to
softmax are divided by τ; all its terms, position biases among them, are in them.

The mask is never weakened: the registry route does not touch it, and intercepted scores of masked pairs stay the
lowest number of their type (divided by τ < 1 they would be −∞, and a row of −∞ has no softmax).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from poolscope.encoders.temperature import STATE, current_role
from poolscope.errors import ModelError
from poolscope.repairs.temperature.rules import Constant, TemperatureRule

PREFIX = "tempscale_"  # of the names under which our functions are registered
IMPLEMENTATIONS = ("eager", "sdpa")

_MODELS = "transformers.models."
INTERCEPTED = (
    _MODELS + "mpnet.modeling_mpnet.MPNetSelfAttention",
    _MODELS + "deberta.modeling_deberta.DisentangledSelfAttention",
    _MODELS + "deberta_v2.modeling_deberta_v2.DisentangledSelfAttention",
)
_MASKED = -5_000.0  # additive masks are −10⁴ or the lowest number of a type at what is masked, 0 elsewhere


@dataclass(frozen=True, eq=False)
class AttentionTemperature:
    """The rule at which an attention module runs; `known` holds the temperatures met so far, by role and length."""

    rule: TemperatureRule
    known: dict[tuple[str | None, int], float] = field(default_factory=dict, repr=False)

    def of(self, mask: Any, query: Any, length: int) -> Any:
        """τ of a batch: a number, or a tensor (texts × 1 × 1 × 1); `length` is that of texts without a mask."""
        import torch

        role = current_role()
        rule = self.rule.for_role(role)
        if isinstance(rule, Constant):
            return rule.tau
        if mask is None:
            return rule(length)
        found = [self._at(rule, role, n) for n in token_counts(mask).tolist()]
        # Float32 at least: a temperature rounded to half precision would be another temperature.
        dtype = torch.promote_types(query.dtype, torch.float32)
        return torch.tensor(found, dtype=dtype, device=query.device)[:, None, None, None]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.rule,)

    def _at(self, rule: TemperatureRule, role: str | None, n: int) -> float:
        if (role, n) not in self.known:
            self.known[role, n] = rule(max(n, 1))
        return self.known[role, n]


def _unpickled(rule: TemperatureRule) -> AttentionTemperature:
    """In a new process the model comes with our names in its configuration; they must be known there."""
    for implementation in IMPLEMENTATIONS:
        register(implementation)
    return AttentionTemperature(rule)


def token_counts(mask: Any) -> Any:
    """The tokens of each text (a vector) from an attention mask (texts × heads or 1 × queries or 1 × keys).

    Every token attends to itself, in causal models and in those with windows too; padding never does.
    """
    import torch

    seen = mask > _MASKED if mask.is_floating_point() else mask.bool()
    square = mask.shape[-2] == mask.shape[-1]
    own = torch.diagonal(seen, dim1=-2, dim2=-1) if square else seen.any(dim=-2)
    return own.any(dim=1).sum(dim=-1)


def scaled_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, implementation: str, **settings: Any
) -> Any:
    """The attention of a module, its logits divided by the temperature of the module (if it has one).

    logits = scaling·QKᵀ + bias, or softcap·tanh(scaling·QKᵀ/softcap): both are divided by τ if Q, the bias and the
    softcap are.
    """
    plain = plain_attention(module.__class__, implementation)
    state = vars(module).get(STATE)
    if state is None:  # another model with the same configuration object, or the decoder of an encoder
        return plain(module, query, key, value, attention_mask, **settings)
    tau = 1.0 if watched(module, attention_mask) else state.of(attention_mask, query, key.shape[-2])
    if settings.get("s_aux") is not None:
        raise refusal(module, "its attention has sinks (logits that belong to no token)")
    for name in ("position_bias", "softcap"):
        if settings.get(name) is not None:
            settings[name] = divided(settings[name], tau)
    return plain(module, divided(query, tau), key, value, attention_mask, **settings)


def divided(numerator: Any, tau: Any) -> Any:
    """The tensor or number over τ, in its own precision."""
    quotient = numerator / tau
    return quotient.to(numerator.dtype) if hasattr(numerator, "dtype") else quotient


@cache
def uses_registry(kind: type) -> bool:
    """Does a module class look its attention up in the registry of transformers?"""
    forward: Any = inspect.unwrap(kind.forward) if hasattr(kind, "forward") else None
    names = getattr(getattr(forward, "__code__", None), "co_names", ())
    return "ALL_ATTENTION_FUNCTIONS" in names and "eager_attention_forward" in forward.__globals__


@cache
def plain_attention(kind: type, implementation: str) -> Callable[..., Any]:
    """The function that a module class would call for an implementation, with the overrides of its own file."""
    names = inspect.unwrap(kind.forward).__globals__  # type: ignore[attr-defined]
    found: Callable[..., Any] = names["ALL_ATTENTION_FUNCTIONS"].get_interface(
        implementation, names["eager_attention_forward"]
    )
    return found


def register(implementation: str) -> str:
    """Our name for the scaled form of an implementation, known to transformers for attention and for masks."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    name = PREFIX + implementation
    if name not in AttentionMaskInterface():
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[implementation])
        AttentionInterface.register(name, partial(scaled_attention, implementation=implementation))
    return name


def is_intercepted(kind: type) -> bool:
    """Is it one of the module classes whose softmax we intercept?"""
    return f"{kind.__module__}.{kind.__qualname__}" in INTERCEPTED


def intercept(module: Any) -> list[Any]:
    """Install the hooks of the interception; the handles remove them. A copy of a hooked module has them already."""
    if _before in module._forward_pre_hooks.values():
        return []
    return [
        module.register_forward_pre_hook(_before, with_kwargs=True),
        module.register_forward_hook(_after, always_call=True),
    ]


def _before(module: Any, args: Any, kwargs: Any) -> None:
    mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
    tau = 1.0 if watched(module, mask) else vars(module)[STATE].of(mask, args[0], args[0].shape[-2])
    interception = _interception_class()(tau)
    interception.__enter__()
    _local.__dict__.setdefault("interceptions", []).append(interception)


def _after(module: Any, args: Any, output: Any) -> None:
    # Called when the module raised as well, and when another hook did before ours: then there is nothing to end.
    if interceptions := getattr(_local, "interceptions", None):
        interceptions.pop().__exit__(None, None, None)


@cache
def _interception_class() -> Any:
    """The class, made on first use: it inherits from torch, which importing poolscope must not need."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    softmaxes = {functional.softmax, torch.softmax, torch.Tensor.softmax}

    class SoftmaxInterception(TorchFunctionMode):
        def __init__(self, tau: Any) -> None:
            super().__init__()
            self._tau = tau

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in softmaxes and args[0].ndim == 4:
                # In place: the scores are the module's own, used nowhere else, and the largest tensor of the layer.
                args[0].div_(self._tau).clamp_(min=torch.finfo(args[0].dtype).min)
            return func(*args, **(kwargs or {}))

    return SoftmaxInterception


_local = threading.local()


def start_watch(scaled: list[Any] | None) -> None:
    """From now on note the modules whose attention is scaled in this thread (None: no longer)."""
    _local.watch = scaled


def watched(module: Any, mask: Any) -> bool:
    """Is this thread's pass only watched? Then note the module, and look whether its mask is nothing but a mask."""
    scaled: list[Any] | None = getattr(_local, "watch", None)
    if scaled is None:
        return False
    scaled.append(module)
    if mask is not None and mask.is_floating_point() and bool(((mask > _MASKED) & (mask != 0)).any()):
        raise refusal(module, "it adds a position bias to its mask, so that neither can be scaled without the other")
    return True


def refusal(module: Any, why: str) -> ModelError:
    """The refusal of a model, by the name of its attention class."""
    return ModelError(
        f"{type(module).__name__}: {why}, and its temperature cannot be set; allowed: attention by the registry of "
        f"transformers ({' or '.join(IMPLEMENTATIONS)}), MPNet and DeBERTa. Repair the pooled vectors instead."
    )
