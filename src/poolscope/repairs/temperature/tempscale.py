"""Attention temperature for any transformer: `with tempscale(model, 0.8): …` (TempScale; Zhou et al., ACL 2025)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from poolscope.encoders.capabilities import attention_of, has_attention, is_encoder
from poolscope.encoders.temperature import current_role, in_role
from poolscope.errors import InputError, ModelError, require
from poolscope.repairs.temperature.probe import scaled_layers
from poolscope.repairs.temperature.routes import AttentionTemperature
from poolscope.repairs.temperature.rules import PUBLISHED_TAU, ByRole, TemperatureRule, as_rule, checked_role
from poolscope.repairs.temperature.switch import switched


@dataclass(frozen=True)
class Applied:
    """What a context changed: the rule, and the names of the attention modules that it scales, in running order."""

    rule: TemperatureRule
    layers: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Applied({self.rule!r} to {len(self.layers)} attention modules: {self.layers[0]} … {self.layers[-1]})"


@contextmanager
def tempscale(model: Any, tau: Any = PUBLISHED_TAU, *, role: str | None = None) -> Iterator[Applied]:
    """Divide the attention logits of every layer by τ while the context is open: softmax(QKᵀ/(τ√d))V.

    `model`: a SentenceTransformer, a transformers model, a pair (model, tokenizer), or an encoder of
    `poolscope.as_encoder` with all its copies; of an encoder–decoder the encoder. `tau`: a number above 0 (below 1
    sharpens), a rule such as `YarnLike(0.01)` or `Steps(…)`, or a function from the tokens of a text to its τ; with
    `ByRole` and a `role`, an encoder that knows its role, or `encode_query` and `encode_document` of a
    SentenceTransformer, queries and documents differ.

    Position biases are scaled with the logits, masks are not, and every text of a batch has the τ of its own length.
    Of nested contexts the innermost holds alone. At the end the model is as it was, to the last bit, after an error
    too. The temperature belongs to the model: passes of other threads over it are scaled as well, and a second thread
    that opens a context on it meanwhile is refused. A model that would not be changed in all its layers is refused.
    """
    rule = as_rule(tau)
    if role is not None:
        rule = rule.for_role(checked_role(role))
    with ExitStack() as stack:
        if isinstance(rule, ByRole):
            stack.enter_context(_hearing_roles(model))
        layers: dict[str, None] = {}
        for prefix, part in text_models(model):
            stack.enter_context(switched(part, AttentionTemperature(rule)))
            layers |= dict.fromkeys(prefix + name for name in scaled_layers(part))
        yield Applied(rule, tuple(layers))


@contextmanager
def _hearing_roles(model: Any) -> Iterator[None]:
    """Let `encode_query` and `encode_document` of a SentenceTransformer tell its passes what the texts are.

    They name the role to those modules that ask for it; the first one does while the context is open.
    """
    if not any(kind.__module__.startswith("sentence_transformers.") for kind in type(model).__mro__):
        yield
        return
    first = model[0]
    before = vars(first).get("forward_kwargs")
    # A module that knows nothing of roles would hand the name on to its model, which does not either.
    knows = "task" in getattr(first, "forward_kwargs", ()) or type(first).__name__ == "Router"
    first.forward_kwargs = {*getattr(first, "forward_kwargs", ()), "task"}
    roles = threading.local()

    def enter(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        context = in_role(kwargs.get("task", current_role()))  # an outer context may have heard it before this one
        context.__enter__()
        roles.__dict__.setdefault("open", []).append(context)
        return args, kwargs if knows else {name: value for name, value in kwargs.items() if name != "task"}

    def leave(module: Any, args: Any, output: Any) -> None:
        if contexts := getattr(roles, "open", None):  # a hook before ours may have raised
            contexts.pop().__exit__(None, None, None)

    handles = [
        first.register_forward_pre_hook(enter, with_kwargs=True),
        first.register_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        if before is None:
            del first.forward_kwargs
        else:
            first.forward_kwargs = before


def text_models(model: Any) -> list[tuple[str, Any]]:
    """The transformers models inside what a caller passed, each with what its names must be prefixed by.

    Copies of one model (an encoder on several devices) have equal names and prefixes.
    """
    if is_encoder(model) and has_attention(model):
        return [("", part) for part in attention_of(model)]
    if isinstance(model, tuple) and len(model) == 2:
        model = model[0]
    found = outermost_models(model)
    several = len(found) > 1
    return [(f"{name}." if several else "", _encoder_half(part)) for name, part in found.items()]


def outermost_models(model: Any) -> dict[str, Any]:
    """The transformers models in a torch module that are in no other one, by name; the module itself if it is one."""
    if not isinstance(model, require("torch", "torch").nn.Module):
        kind = f"an encoder of kind '{model.card.kind}'" if is_encoder(model) else repr(model)
        raise InputError(
            f"model: received {kind}; allowed: a SentenceTransformer, a transformers model, a pair (model, tokenizer), "
            f"or an encoder on torch. For a name, first encoder = poolscope.as_encoder(name)."
        )
    if hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None:
        raise ModelError(
            f"{type(model).__name__}: a compiled model may keep the attention it was compiled with; set the "
            f"temperature of the model before torch.compile."
        )
    kind = require("transformers", "torch").PreTrainedModel
    found = {name: part for name, part in model.named_modules() if isinstance(part, kind)}
    if not found:
        raise ModelError(
            f"{type(model).__name__}: no transformers model in it, and so no attention; needed: a transformer. "
            f"Static embeddings have none: repair the pooled vectors instead."
        )
    return {name: part for name, part in found.items() if not any(_inside(name, other) for other in found)}


def check_savable(model: Any) -> None:
    """Refuse what has no folder of its own: encoders, pairs and bare modules."""
    if is_encoder(model) or not hasattr(model, "save_pretrained"):
        raise InputError(
            f"model: received {type(model).__name__}; allowed: a SentenceTransformer or a transformers model, which "
            f"can be saved. Pass the model that is inside."
        )


def _inside(name: str, other: str) -> bool:
    return name != other and (not other or name.startswith(f"{other}."))


def _encoder_half(model: Any) -> Any:
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model
