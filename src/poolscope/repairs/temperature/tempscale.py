"""Attention temperature for any transformer: `with tempscale(model, 0.8): …` (TempScale; Zhou et al., ACL 2025).

A rule can also stay with a model (`keep_rule`): in the `config.json` that it is saved with, and applied when it is
loaded. That is honoured by poolscope (a folder or hub name given to `as_encoder` and every command) and by the first
module that a SentenceTransformer gets here. Plain transformers knows nothing of rules: call `apply_saved(model)` there.

`bake` writes a constant temperature into the weights, which gives an ordinary model that needs no code of ours. Logits
are bilinear in queries and keys, so that dividing the query projection by τ divides them. What else enters them is
divided too: position biases, the weight of a norm that follows the projection, a cap on the logits.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolscope.encoders.capabilities import (
    CONFIG_KEY,
    active_rule,
    attention_of,
    current_role,
    has_attention,
    in_role,
    is_encoder,
)
from poolscope.encoders.sites import close
from poolscope.encoders.transformers import check_reads_texts
from poolscope.errors import InputError, ModelError, require
from poolscope.files import atomic_folder
from poolscope.folder import Folder
from poolscope.repairs.temperature.rules import (
    PUBLISHED_TAU,
    ByRole,
    Constant,
    TemperatureRule,
    as_rule,
    checked_role,
    rule_from_dict,
)
from poolscope.repairs.temperature.switch import (
    AttentionTemperature,
    find_attentions,
    run_probe,
    scaled_layers,
    set_for_good,
    switched,
)


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

    Position biases are scaled with the logits, masks are not, and every text of a batch has the τ of its own length.
    Of nested contexts the innermost holds alone. At the end the model is as it was, to the last bit, after an error
    too. The temperature belongs to the model: passes of other threads over it are scaled as well, and a second thread
    that opens a context on it meanwhile is refused. A model that would not be changed in all its layers is refused.

    Parameters
    ----------
    model
        A SentenceTransformer, a transformers model, a pair (model, tokenizer), or an encoder of
        `poolscope.as_encoder` with all its copies; of an encoder–decoder the encoder.
    tau
        A number above 0 (below 1 sharpens), a rule such as `YarnLike(0.01)` or `Steps(…)`, or a function from the
        tokens of a text to its τ.
    role
        Whose rule of a `ByRole` holds: "query" or "document". Not needed for an encoder that knows its role, nor for
        `encode_query` and `encode_document` of a SentenceTransformer.

    Yields
    ------
    Applied
        The rule, and the names of the attention modules that it scales.

    Examples
    --------
    >>> from transformers import BertConfig, BertModel
    >>> sizes = dict(vocab_size=50, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    >>> with tempscale(BertModel(BertConfig(**sizes)), 0.8) as applied:
    ...     applied
    Applied(Constant(tau=0.8) to 2 attention modules: encoder.layer.0.attention.self … encoder.layer.1.attention.self)

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
        # First, so that of contexts within each other the inner one is left first: the outer one's role comes back.
        first.register_forward_hook(leave, always_call=True, prepend=True),
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
    """Transformers models inside the object that was passed, each with the prefix of its parameter names.

    Copies of one model (an encoder on several devices) have equal names and prefixes.
    """
    if is_encoder(model) and has_attention(model):
        return [("", part) for part in attention_of(model)]
    if isinstance(model, tuple) and len(model) == 2:
        model = model[0]
    models = outermost_models(model)
    several = len(models) > 1
    return [(f"{name}." if several else "", _encoder_half(part)) for name, part in models.items()]


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
    models = {name: part for name, part in model.named_modules() if isinstance(part, kind)}
    if not models:
        raise ModelError(
            f"{type(model).__name__}: no transformers model in it, and so no attention; needed: a transformer. "
            f"Static embeddings have none: repair the pooled vectors instead."
        )
    outer = {name: part for name, part in models.items() if not any(_inside(name, other) for other in models)}
    for part in outer.values():
        check_reads_texts(part, name=type(model).__name__)
    return outer


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


# -- rules that stay with a model --------------------------------------------------------------------------------------


def keep_rule(model: Any, tau: Any) -> Applied:
    """Run the model by a rule from now on, and save the rule with it (`save_pretrained` of its library).

    `model` is a SentenceTransformer or a transformers model, changed in place; `tau` a number or a named rule. The
    first module of a SentenceTransformer becomes a `TempScaledTransformer`, so that it is loaded with the rule again;
    as with every class from outside the library, loading then needs `trust_remote_code=True`.
    """
    rule = as_rule(tau)
    saved = rule.to_dict()  # refuses what cannot be saved, before anything is changed
    check_savable(model)
    first = _first_module(model)
    applied = run_at(model, rule)
    for part in outermost_models(model).values():
        setattr(part.config, CONFIG_KEY, saved)
    if first is not None:
        from poolscope.repairs.temperature.module import TempScaledTransformer

        first.__class__ = TempScaledTransformer  # which has no state of its own to add
    return applied


def apply_saved(model: Any) -> Applied:
    """Run a loaded model by the rule in its configuration from now on."""
    first, *others = (getattr(part.config, CONFIG_KEY, None) for part in outermost_models(model).values())
    if first is None or any(other != first for other in others):
        raise InputError(
            f"model: received a {type(model).__name__} whose configuration keeps no temperature rule, or parts of it "
            f"different ones; needed: one that was saved after poolscope.repairs.keep_rule(model, tau)."
        )
    return run_at(model, rule_from_dict(first))


def _first_module(model: Any) -> Any | None:
    """The module of a SentenceTransformer that must load the rule again, None for a transformers model."""
    if not type(model).__module__.startswith("sentence_transformers."):
        return None
    first = model[0]
    if type(first).__name__ not in ("Transformer", "TempScaledTransformer"):
        raise ModelError(
            f"{type(model).__name__}: its first module is {type(first).__name__}; allowed: Transformer, which can be "
            f"made to load a rule again. Bake a constant instead: poolscope.bake(model, tau)."
        )
    return first


def run_at(model: Any, rule: TemperatureRule) -> Applied:
    """Run a loaded model, or an encoder, by a rule from now on; nothing is saved with it."""
    with tempscale(model, rule) as applied:  # all the checks, before anything is changed for good
        pass
    for _, part in text_models(model):
        set_for_good(part, AttentionTemperature(rule))
    return applied


# -- a constant temperature written into the weights ------------------------------------------------------------------

# How families name the projection of the queries, and what else of an attention module is linear in the logits.
_QUERIES = ("query", "q_lin", "q_proj", "q", "query_proj")
_BESIDE = ("pos_query_proj", "pos_q_proj", "q_bias")
_CAP = "attn_logit_softcapping"


def bake(model: Any, tau: Any, folder: str | os.PathLike[str] | None = None) -> Any:
    """A copy of the model whose weights hold the temperature; with `folder` it is saved there as well.

    The copy is equal to the model inside `tempscale(model, tau)` up to the rounding of the weights; this is checked on
    a short pass before it is returned.

    Parameters
    ----------
    model
        A SentenceTransformer or a transformers model; it stays as it is.
    tau
        A number. A rule that depends on the length cannot be baked: see `poolscope.repairs.keep_rule`.
    folder
        A new or empty folder.

    Returns
    -------
    the same class as `model`
        An ordinary model of its library, which needs no code of ours.

    Examples
    --------
    >>> from transformers import BertConfig, BertModel
    >>> sizes = dict(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    >>> model = BertModel(BertConfig(**sizes))
    >>> query = lambda model: model.encoder.layer[0].attention.self.query.weight
    >>> bool((query(bake(model, 0.5)) == 2 * query(model)).all())
    True

    """
    rule = as_rule(tau)
    if not isinstance(rule, Constant):
        raise InputError(
            f"tau: received {rule!r}; only a constant can be written into weights, since they are the same for every "
            f"text. Pass a number, or keep the rule with the model by poolscope.repairs.keep_rule."
        )
    check_savable(model)
    target = None if folder is None else _free(Path(folder))
    parts = [part for _, part in text_models(model)]
    for part in parts:
        _check_plain(part)
    baked = copy.deepcopy(model)
    for (_, part), original in zip(text_models(baked), parts, strict=True):
        _bake(part, rule.tau)
        _check_equal(part, original, rule.tau)
    if target is not None:
        with atomic_folder(target) as written:  # the whole folder or none of it
            baked.save_pretrained(str(written.for_libraries()))
            _note_in_card(written, rule.tau)
    return baked


def _bake(model: Any, tau: float) -> None:
    import torch

    caps = []
    with torch.no_grad():
        for module in find_attentions(model).values():
            for parameter in _linear_in_logits(module):
                parameter /= tau
            if getattr(module, _CAP, None) is not None:
                setattr(module, _CAP, getattr(module, _CAP) / tau)
                caps.append(module.config)
        # A table of position biases belongs to the first layer (T5) or to the encoder (MPNet), for all layers.
        for module in model.modules():
            if isinstance(table := getattr(module, "relative_attention_bias", None), torch.nn.Embedding):
                table.weight /= tau
    for config in {id(config): config for config in caps}.values():
        setattr(config, _CAP, getattr(config, _CAP) / tau)


def _linear_in_logits(module: Any) -> Iterator[Any]:
    """The parameters of an attention module that are to be divided, or the parts of them (views)."""
    norm = getattr(module, "q_norm", None)
    if norm is not None:  # it would undo what is done to the projection before it
        yield _NormWeight(norm) if "Gemma" in type(norm).__name__ else norm.weight
        return
    projected = False
    for name in (*_QUERIES, *_BESIDE):
        part = getattr(module, name, None)
        if part is not None:
            projected = projected or name in _QUERIES
            yield from part.parameters() if hasattr(part, "parameters") else [part]
    fused = None if projected else _fused_queries(module)
    if fused is not None:
        yield from fused
    elif not projected:
        raise ModelError(
            f"{type(module).__name__}: the projection of its queries was not found under the names that transformers "
            f"uses; a temperature cannot be written into its weights. Keep it with the model by "
            f"poolscope.repairs.keep_rule."
        )


def _fused_queries(module: Any) -> list[Any] | None:
    """The queries' part of a projection that makes queries, keys and values in one."""
    if (part := getattr(module, "Wqkv", None)) is not None:  # [q | k | v], weight (outputs × inputs)
        return [parameter[: len(parameter) // 3] for parameter in part.parameters()]
    if (part := getattr(module, "c_attn", None)) is not None:  # the same, weight (inputs × outputs)
        return [parameter[..., : parameter.shape[-1] // 3] for parameter in part.parameters()]
    if (part := getattr(module, "qkv_proj", None)) is not None:  # fewer keys and values than queries
        queries = module.config.num_attention_heads * module.head_dim
        return [parameter[:queries] for parameter in part.parameters()]
    part = getattr(module, "query_key_value", None) or getattr(module, "in_proj", None)
    if part is not None:  # [q | k | v] of each head
        heads = getattr(module, "num_attention_heads", None) or module.config.num_attention_heads
        return [parameter.unflatten(0, (heads, 3, -1))[:, 0] for parameter in part.parameters()]
    return None


class _NormWeight:
    """The weight w of a norm that multiplies by 1 + w, as Gemma's do; dividing it divides the factor."""

    def __init__(self, norm: Any) -> None:
        self._norm = norm

    def __itruediv__(self, tau: float) -> _NormWeight:
        self._norm.weight.copy_((1 + self._norm.weight) / tau - 1)
        return self


def _check_plain(model: Any) -> None:
    if active_rule(model) is not None or getattr(model.config, CONFIG_KEY, None) is not None:
        raise InputError(
            f"model: received a {type(model).__name__} that runs at a temperature or keeps a rule; a baked one would "
            f"be scaled twice. Leave the context, or load the model again."
        )


def _check_equal(baked: Any, original: Any, tau: float) -> None:
    output, mask = run_probe(baked)
    with tempscale(original, tau):
        expected, _ = run_probe(original)
    if not close(output, expected, mask):
        raise ModelError(
            f"{type(original).__name__}: with the temperature in its weights it computes something else than inside "
            f"tempscale; nothing was saved. Keep the temperature with the model by poolscope.repairs.keep_rule."
        )


def _free(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"folder: received {folder}, where something is already; choose a new or an empty folder.")
    return folder


def _note_in_card(folder: Folder, tau: float) -> None:
    """Note in the model card that the weights differ from the original; the rest of the card stays."""
    card = "README.md"
    before = folder.read(card).decode("utf-8").rstrip() + "\n\n" if folder.kind(card) else ""
    note = (
        f"## Repaired by poolscope: attention temperature {tau:g}\n\nThe weights behind the attention queries are "
        f"divided by {tau:g}, and with them every attention logit. Everything else is as in the original model.\n"
    )
    folder.write_text(card, before + note)
