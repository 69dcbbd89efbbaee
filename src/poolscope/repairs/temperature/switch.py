"""Setting the temperature of a model's attention and taking it back, to the last bit, in any order and any thread.

Whether a model is scaled in all its attentions is seen in one short pass over it; if not, it is refused.

The temperature is written on the attention modules, and the configuration gets the name of the scaled attention. It
belongs to the model: every pass over it is scaled, in whichever thread. So a second thread may not set another one
while a context of the first is open, and is refused.

Logits are divided by one of two routes, as a model computes its attention.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary, ref

from poolscope.encoders.capabilities import STATE, current_role
from poolscope.encoders.sites import attention_tap
from poolscope.encoders.torch_backend import resting
from poolscope.errors import ModelError, PoolscopeError
from poolscope.repairs.temperature.rules import Constant, TemperatureRule

# -- routes -----------------------------------------------------------------------------------------------------------

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

    def of(self, mask: Any, query: Any, length: int, module: Any) -> Any:
        """τ of a batch in an attention: a number, or a tensor (texts × 1 × 1 × 1); `length` is that of texts without
        a mask.
        """
        role = current_role()
        rule = self.rule.for_role(role)
        if isinstance(rule, Constant):
            return rule.tau
        if mask is None:
            return rule(length)
        return _shared("tau", module, (mask, self, role, query.dtype), partial(self._of_batch, rule, role, mask, query))

    def _of_batch(self, rule: TemperatureRule, role: str | None, mask: Any, query: Any) -> Any:
        import torch

        temperatures = [self._at(rule, role, n) for n in token_counts(mask).tolist()]
        # Float32 at least: a temperature rounded to half precision would be another temperature.
        dtype = torch.promote_types(query.dtype, torch.float32)
        return torch.tensor(temperatures, dtype=dtype, device=query.device)[:, None, None, None]

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
    watching = watched(module, attention_mask)
    tau = 1.0 if watching else state.of(attention_mask, query, key.shape[-2], module)
    if settings.get("s_aux") is not None:
        raise refusal(module, "its attention has sinks (logits that belong to no token)")
    if settings.get("softcap") is not None:
        settings["softcap"] = divided(settings["softcap"], tau)
    if (bias := settings.get("position_bias")) is not None:  # all layers share it, and it is larger than the queries
        divide = partial(divided, bias, tau)
        settings["position_bias"] = divide() if watching else _shared("bias", module, (bias, tau), divide)
    return plain(module, divided(query, tau), key, value, attention_mask, **settings)


def _shared(name: str, module: Any, given: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """What the layers of one pass share, computed by the first of them: in this thread, from the very same objects.

    A module that asks again begins another pass, and what is kept ends with the first thing it was made of.
    """
    shared: dict[str, Any] = vars(_local).setdefault(name, {})
    same = bool(shared) and all(one is other for one, other in zip(shared["given"](), given, strict=True))
    if not same or id(module) in shared["modules"]:
        shared.clear()
        first = ref(given[0], lambda _: shared.clear())
        shared.update(given=lambda: (first(), *given[1:]), modules=set(), value=compute())
    shared["modules"].add(id(module))
    return shared["value"]


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
    function: Callable[..., Any] = names["ALL_ATTENTION_FUNCTIONS"].get_interface(
        implementation, names["eager_attention_forward"]
    )
    return function


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
    tau = 1.0 if watched(module, mask) else vars(module)[STATE].of(mask, args[0], args[0].shape[-2], module)
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


# -- the switch -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Use:
    """A temperature (None: the model as it is) and the thread that set it (None: it was there before)."""

    temperature: AttentionTemperature | None
    thread: int | None = None


@dataclass
class _Renamed:
    """A configuration under our name: its name before, and how many contexts use ours."""

    config: Any
    before: str
    uses: int = 0


_lock = threading.RLock()
_uses: WeakKeyDictionary[Any, list[_Use]] = WeakKeyDictionary()  # of an attention module: outermost first
_handles: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()  # of its hooks
_renamed: dict[int, _Renamed] = {}  # by the id of the configuration; several models may share one


def find_attentions(model: Any) -> dict[str, Any]:
    """The attention modules of a transformers model whose temperature can be set, by name (shared ones once)."""
    attentions = {
        name: module
        for name, module in model.named_modules()
        if uses_registry(module.__class__) or is_intercepted(type(module))
    }
    if not attentions:
        kind = next((m for m in model.modules() if "Attention" in type(m).__name__), model)
        raise refusal(kind, "it computes its attention (if any) in a way of its own")
    for module in attentions.values():
        if getattr(module, "reorder_and_upcast_attn", False):
            raise refusal(module, "reorder_and_upcast_attn makes it compute its attention in a way of its own")
    return attentions


def set_for_good(model: Any, temperature: AttentionTemperature) -> None:
    """Set the temperature with no way back: what the model does from now on when no context is open."""
    attentions = list(find_attentions(model).values())
    configs = _configs(model, attentions)
    with _lock:
        _refuse_if_open(attentions)
        for config in configs:
            _rename(config)
        for module in attentions:
            _write(module, temperature)


@contextmanager
def switched(model: Any, temperature: AttentionTemperature) -> Iterator[None]:
    """Set the temperature of all attention modules of a transformers model while the context is open."""
    attentions = list(find_attentions(model).values())
    configs = _configs(model, attentions)
    use = _Use(temperature, threading.get_ident())
    with _lock:
        _refuse_if_open(attentions, but_by=use.thread)
        for config in configs:
            _renamed.setdefault(id(config), _Renamed(config, config._attn_implementation)).uses += 1
            _rename(config)
        for module in attentions:
            _uses.setdefault(module, [_Use(vars(module).get(STATE))]).append(use)
            _write(module, temperature)
    lost = False
    try:
        yield
        lost = any(not str(config._attn_implementation).startswith(PREFIX) for config in configs)
    finally:
        with _lock:
            _leave(attentions, configs, use)
    if lost:
        raise ModelError(
            f"{type(model).__name__}: its attention implementation was changed inside tempscale, and texts may have "
            f"been encoded without the temperature. Choose the implementation before the context is opened."
        )


def _leave(attentions: Sequence[Any], configs: Sequence[Any], use: _Use) -> None:
    for module in attentions:
        uses = _uses[module]
        uses.remove(use)
        _write(module, uses[-1].temperature)
        if len(uses) == 1:
            del _uses[module]
    for config in configs:
        renamed = _renamed[id(config)]
        renamed.uses -= 1
        if not renamed.uses:
            config._attn_implementation_internal = renamed.before
            del _renamed[id(config)]


def _write(module: Any, temperature: AttentionTemperature | None) -> None:
    if temperature is None:
        vars(module).pop(STATE, None)
        for handle in _handles.pop(module, []):
            handle.remove()
        return
    vars(module)[STATE] = temperature
    if is_intercepted(type(module)) and (handles := intercept(module)):
        _handles[module] = handles


def _refuse_if_open(attentions: Sequence[Any], *, but_by: int | None = None) -> None:
    for module in attentions:
        if module in _uses and _uses[module][-1].thread != but_by:
            raise ModelError(
                f"{type(module).__name__}: another context has set the temperature of this model and is still open (in "
                f"another thread, if you see this inside `with tempscale`); a model runs at one temperature at a time. "
                f"Close it first, or give each thread a copy of the model."
            )


def _configs(model: Any, attentions: Sequence[Any]) -> list[Any]:
    """The configuration objects by whose name the model finds its attention and builds its masks."""
    if not any(uses_registry(module.__class__) for module in attentions):
        return []
    by_id = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    configs = [config for config in by_id.values() if hasattr(config, "_attn_implementation")]
    for config in configs:
        if str(config._attn_implementation).removeprefix(PREFIX) not in IMPLEMENTATIONS:
            raise ModelError(
                f"{type(model).__name__}: it runs with the attention implementation {config._attn_implementation!r}; "
                f"allowed: {', '.join(IMPLEMENTATIONS)}. Load it with attn_implementation='sdpa'."
            )
    return configs


def _rename(config: Any) -> None:
    # The internal name, as transformers itself sets it: the public one would change nested configurations as well.
    config._attn_implementation_internal = register(config._attn_implementation.removeprefix(PREFIX))


# -- one short pass ----------------------------------------------------------------------------------------------------

_LENGTHS = (12, 7)  # tokens of the two texts of the pass

_seen: WeakKeyDictionary[Any, dict[str, tuple[str, ...]]] = WeakKeyDictionary()  # by model and implementation
_probing = threading.Lock()


def scaled_layers(model: Any) -> tuple[str, ...]:
    """Names of the attention modules that a pass over the model scales, in the order in which they run.

    To be asked while a temperature is set. A model in which any attention escapes is refused. The pass is made once
    for a model and implementation.
    """
    implementation = str(getattr(model.config, "_attn_implementation", ""))
    with _probing:
        known = _seen.setdefault(model, {})
        if implementation not in known:
            known[implementation] = _probe(model)
        return known[implementation]


def _probe(model: Any) -> tuple[str, ...]:
    scaled: list[Any] = []
    attentions: list[Any] = []
    start_watch(scaled)
    try:
        with attention_tap(attentions.append):
            run_probe(model)
    finally:
        start_watch(None)
    if not scaled or len(attentions) != len(scaled):
        raise ModelError(
            f"{type(model).__name__}: of {len(attentions)} attentions in a pass {len(scaled)} would be scaled; all "
            f"must be, or it is another repair than the one that was tested. Repair the pooled vectors instead."
        )
    names = {id(module): name for name, module in find_attentions(model).items()}
    return tuple(dict.fromkeys(names[id(module)] for module in scaled))


def run_probe(model: Any) -> tuple[Any, Any]:
    """The last hidden state of two short texts of random tokens, the second one padded, and their mask."""
    import torch

    random = torch.Generator().manual_seed(0)
    ids = torch.randint(model.get_input_embeddings().num_embeddings, (2, max(_LENGTHS)), generator=random)
    mask = torch.arange(max(_LENGTHS)) < torch.tensor(_LENGTHS)[:, None]
    inputs = {"input_ids": ids.to(model.device), "attention_mask": mask.long().to(model.device)}
    try:
        with torch.inference_mode(), resting(model):
            state = model(**inputs, return_dict=True).last_hidden_state
    except PoolscopeError:
        raise
    except Exception as error:  # a model of another kind raises whatever its code raises
        raise ModelError(
            f"{type(model).__name__}: it cannot be run on token ids and a mask alone ({type(error).__name__}: {error})."
            f" Needed: a model for texts that gives token vectors. Pass the text part of the model."
        ) from error
    return state, mask.to(model.device)
