"""The attention temperature that a loaded model runs at: set by `poolscope.repairs`, read where a model is named."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from poolscope.encoders.base import ModelCard

# The attribute of an attention module that holds its temperature. On the module and not in a table: so a copy of the
# model keeps it, and every thread that runs the model sees it.
STATE = "_poolscope_temperature"
CONFIG_KEY = "tempscale"  # under which the configuration of a model keeps a rule

# Where the function stands that runs a model by such a rule. It belongs to the repairs, a later stage, and is looked up
# by name when a model keeps a rule: nothing else here knows how a rule is applied. `tests/test_layout.py` lists it.
APPLIES_RULE = "poolscope.repairs.temperature.tempscale:apply_saved"

_local = threading.local()


@contextmanager
def in_role(role: str | None) -> Iterator[None]:
    """Passes of this thread are for queries or for documents, which may have temperatures of their own."""
    before = current_role()
    _local.role = role
    try:
        yield
    finally:
        _local.role = before


def current_role() -> str | None:
    """The role of the passes of this thread, None if nobody has said."""
    return getattr(_local, "role", None)


def apply_kept_rule(model: Any) -> None:
    """Run a loaded model from now on by the rule that its configuration keeps, if it keeps one."""
    if getattr(model.config, CONFIG_KEY, None) is not None:
        module, _, name = APPLIES_RULE.partition(":")
        getattr(importlib.import_module(module), name)(model)


def active_rule(model: Any) -> Any | None:
    """The rule at which a model runs just now, None for the model as it is."""
    states = (vars(module).get(STATE) for module in model.modules())
    return next((state.rule for state in states if state is not None), None)


def with_temperature(card: ModelCard, model: Any, *, role: str | None) -> ModelCard:
    """The card of a model as it runs just now: a model at another temperature is another model.

    A rule that cannot be written down (a function) leaves the model without a revision, so that nobody takes its
    clouds for those of another.
    """
    rule = active_rule(model)
    rule = rule.for_role(role) if rule is not None and role is not None else rule
    if rule is None or rule.neutral:
        return card
    if not rule.named:
        return replace(card, temperature={"kind": rule.kind}, revision=None)
    return replace(card, temperature=rule.to_dict())
