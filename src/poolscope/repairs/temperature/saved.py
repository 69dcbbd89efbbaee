"""Temperature rules that stay with a model: in the `config.json` that it is saved with, and applied when it is loaded.

Honoured by poolscope (a folder or hub name given to `as_encoder` and every command) and by the first module that a
SentenceTransformer gets here. Plain transformers knows nothing of rules: there, call `apply_saved(model)`.
"""

from __future__ import annotations

from typing import Any

from poolscope.encoders.temperature import CONFIG_KEY
from poolscope.errors import InputError, ModelError
from poolscope.repairs.temperature.routes import AttentionTemperature
from poolscope.repairs.temperature.rules import TemperatureRule, as_rule, rule_from_dict
from poolscope.repairs.temperature.switch import set_for_good
from poolscope.repairs.temperature.tempscale import Applied, check_savable, outermost_models, tempscale, text_models


def keep_rule(model: Any, tau: Any) -> Applied:
    """Run the model by a rule from now on, and save the rule with it (`save_pretrained` of its library).

    `model` is a SentenceTransformer or a transformers model, changed in place; `tau` a number or a named rule. The
    first module of a SentenceTransformer becomes a `TempScaledTransformer`, so that it is loaded with the rule again;
    as with every class from outside the library, loading then needs `trust_remote_code=True`.
    """
    rule = as_rule(tau)
    kept = rule.to_dict()  # refuses what cannot be saved, before anything is changed
    check_savable(model)
    first = _first_module(model)
    applied = _apply(model, rule)
    for part in outermost_models(model).values():
        setattr(part.config, CONFIG_KEY, kept)
    if first is not None:
        from poolscope.integrations.tempscaled_transformer import TempScaledTransformer

        first.__class__ = TempScaledTransformer  # which has no state of its own to add
    return applied


def apply_saved(model: Any) -> Applied:
    """Run a loaded model by the rule in its configuration from now on."""
    rules = [saved_rule(part.config) for part in outermost_models(model).values()]
    rule = rules[0]
    if rule is None or any(other != rule for other in rules):
        raise InputError(
            f"model: received a {type(model).__name__} whose configuration keeps no temperature rule, or parts of it "
            f"different ones; needed: one that was saved after poolscope.repairs.keep_rule(model, tau)."
        )
    return _apply(model, rule)


def saved_rule(config: Any) -> TemperatureRule | None:
    """The rule that a configuration keeps, None if it keeps none."""
    kept = getattr(config, CONFIG_KEY, None)
    return None if kept is None else rule_from_dict(kept)


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


def _apply(model: Any, rule: TemperatureRule) -> Applied:
    with tempscale(model, rule) as applied:  # all the checks, before anything is changed for good
        pass
    for _, part in text_models(model):
        set_for_good(part, AttentionTemperature(rule))
    return applied
