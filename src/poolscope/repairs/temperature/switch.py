"""Setting the temperature of a model's attention and taking it back, to the last bit, in any order and any thread.

Whether a model is scaled in all its attentions is seen in one short pass over it; if not, it is refused.

The temperature is written on the attention modules, and the configuration gets the name of the scaled attention. It
belongs to the model: every pass over it is scaled, in whichever thread. So a second thread may not set another one
while a context of the first is open, and is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from poolscope.capture.attention import attention_tap
from poolscope.encoders.temperature import STATE
from poolscope.errors import ModelError, PoolscopeError
from poolscope.repairs.temperature.routes import (
    IMPLEMENTATIONS,
    PREFIX,
    AttentionTemperature,
    intercept,
    is_intercepted,
    refusal,
    register,
    start_watch,
    uses_registry,
)


@dataclass(frozen=True, eq=False)
class _Use:
    """A temperature (None: the model as it is) and the thread that set it (None: it was there before)."""

    temperature: AttentionTemperature | None
    thread: int | None = None


@dataclass
class _Renamed:
    """A configuration under our name: what it said before, and how many contexts need it so."""

    config: Any
    before: str
    uses: int = 0


_lock = threading.RLock()
_uses: WeakKeyDictionary[Any, list[_Use]] = WeakKeyDictionary()  # of an attention module: outermost first
_handles: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()  # of its hooks
_renamed: dict[int, _Renamed] = {}  # by the id of the configuration; several models may share one


def find_attentions(model: Any) -> dict[str, Any]:
    """The attention modules of a transformers model whose temperature can be set, by name (shared ones once)."""
    found = {
        name: module
        for name, module in model.named_modules()
        if uses_registry(module.__class__) or is_intercepted(type(module))
    }
    if not found:
        kind = next((m for m in model.modules() if "Attention" in type(m).__name__), model)
        raise refusal(kind, "it computes its attention (if any) in a way of its own")
    for module in found.values():
        if getattr(module, "reorder_and_upcast_attn", False):
            raise refusal(module, "reorder_and_upcast_attn makes it compute its attention in a way of its own")
    return found


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
    found = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    configs = [config for config in found.values() if hasattr(config, "_attn_implementation")]
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
        with torch.inference_mode(), _evaluating(model):
            state = model(**inputs, return_dict=True).last_hidden_state
    except PoolscopeError:
        raise
    except Exception as error:  # a model of another kind raises whatever its code raises
        raise ModelError(
            f"{type(model).__name__}: it cannot be run on token ids and a mask alone ({type(error).__name__}: {error})."
            f" Needed: a model for texts that gives token vectors. Pass the text part of the model."
        ) from error
    return state, mask.to(model.device)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Out of training mode: dropout would draw random numbers that the training misses."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
