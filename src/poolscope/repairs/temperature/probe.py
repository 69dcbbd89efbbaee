"""One short pass that shows which attentions of a model are scaled, and refuses a model of which some are not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from poolscope.capture.attention import attention_tap
from poolscope.errors import ModelError, PoolscopeError
from poolscope.repairs.temperature.routes import start_watch
from poolscope.repairs.temperature.switch import find_attentions

_LENGTHS = (12, 7)  # tokens of the two texts of the pass

_seen: WeakKeyDictionary[Any, dict[str, tuple[str, ...]]] = WeakKeyDictionary()
_lock = threading.Lock()


def scaled_layers(model: Any) -> tuple[str, ...]:
    """Names of the attention modules that a pass over the model scales, in the order in which they run.

    To be asked while a temperature is set. A model in which any attention escapes is refused. The pass is made once
    for a model and implementation.
    """
    implementation = str(getattr(model.config, "_attn_implementation", ""))
    with _lock:
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
