"""A constant temperature written into the weights: an ordinary model that needs no code of ours.

Logits are bilinear in queries and keys, so that dividing the query projection by τ divides them. What else enters them
is divided too: position biases, the weight of a norm that follows the projection, a cap on the logits.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from poolscope.capture.checks import close
from poolscope.encoders.temperature import CONFIG_KEY, active_rule
from poolscope.errors import InputError, ModelError
from poolscope.files import atomic_folder
from poolscope.repairs.temperature.rules import Constant, as_rule
from poolscope.repairs.temperature.switch import find_attentions, run_probe
from poolscope.repairs.temperature.tempscale import check_savable, tempscale, text_models

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
        _save(baked, target, rule.tau)
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
        yield _NormWeight(norm) if _adds_one(norm) else norm.weight
        return
    found = False
    for name in (*_QUERIES, *_BESIDE):
        part = getattr(module, name, None)
        if part is not None:
            found = found or name in _QUERIES
            yield from part.parameters() if hasattr(part, "parameters") else [part]
    fused = None if found else _fused_queries(module)
    if fused is not None:
        yield from fused
    elif not found:
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


def _adds_one(norm: Any) -> bool:
    """Does the norm multiply by 1 + weight, as Gemma's do?"""
    return "Gemma" in type(norm).__name__


class _NormWeight:
    """The weight w of a norm that multiplies by 1 + w; dividing it divides the factor."""

    def __init__(self, norm: Any) -> None:
        self._norm = norm

    def __itruediv__(self, tau: float) -> _NormWeight:
        self._norm.weight.copy_((1 + self._norm.weight) / tau - 1)
        return self


def _check_plain(model: Any) -> None:
    if active_rule(model) is not None or getattr(model.config, CONFIG_KEY, None) is not None:
        raise InputError(
            f"model: received a {type(model).__name__} that runs at a temperature or keeps a rule; a baked one would "
            f"be scaled twice. Leave the context, or load the model anew."
        )


def _check_equal(baked: Any, original: Any, tau: float) -> None:
    found, mask = run_probe(baked)
    with tempscale(original, tau):
        expected, _ = run_probe(original)
    if not close(found, expected, mask):
        raise ModelError(
            f"{type(original).__name__}: with the temperature in its weights it computes something else than inside "
            f"tempscale; nothing was saved. Keep the temperature with the model by poolscope.repairs.keep_rule."
        )


def _free(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"folder: received {folder}, where something is already; choose a new or an empty folder.")
    return folder


def _save(model: Any, target: Path, tau: float) -> None:
    """The whole folder or none of it: written beside its place, then moved there."""
    with atomic_folder(target) as temporary:
        model.save_pretrained(str(temporary))
        _note_in_card(temporary / "README.md", tau)


def _note_in_card(card: Path, tau: float) -> None:
    """Say in the model card that the weights are not those of the original; what it said before stays."""
    before = card.read_text(encoding="utf-8").rstrip() + "\n\n" if card.exists() else ""
    note = (
        f"## Repaired by poolscope: attention temperature {tau:g}\n\nThe weights behind the attention queries are "
        f"divided by {tau:g}, and with them every attention logit. Everything else is as in the original model.\n"
    )
    card.write_text(before + note, encoding="utf-8")
