"""Repairs: attention temperature for any transformer, and what is done to vectors after the model.

`tempscale` and `bake` are at the root (`poolscope.tempscale`); the names here are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolscope.repairs.pooling import pool
    from poolscope.repairs.repair_file import Repair
    from poolscope.repairs.reranking import rerank
    from poolscope.repairs.saved_rules import apply_saved, keep_rule
    from poolscope.repairs.step_fit import fit_steps
    from poolscope.repairs.temperature_rules import (
        PUBLISHED_GRID,
        ByRole,
        Constant,
        LogLength,
        Steps,
        YarnLike,
        as_rule,
    )
    from poolscope.repairs.vectors import AllButTheTop, MeanRemoval, Standardisation, Whitening, load_repair

_HOMES = {
    "PUBLISHED_GRID": "temperature_rules",
    "AllButTheTop": "vectors",
    "ByRole": "temperature_rules",
    "Constant": "temperature_rules",
    "LogLength": "temperature_rules",
    "MeanRemoval": "vectors",
    "Repair": "repair_file",
    "Standardisation": "vectors",
    "Steps": "temperature_rules",
    "Whitening": "vectors",
    "YarnLike": "temperature_rules",
    "apply_saved": "saved_rules",
    "as_rule": "temperature_rules",
    "fit_steps": "step_fit",
    "keep_rule": "saved_rules",
    "load_repair": "vectors",
    "pool": "pooling",
    "rerank": "reranking",
}

__all__ = [
    "PUBLISHED_GRID",
    "AllButTheTop",
    "ByRole",
    "Constant",
    "LogLength",
    "MeanRemoval",
    "Repair",
    "Standardisation",
    "Steps",
    "Whitening",
    "YarnLike",
    "apply_saved",
    "as_rule",
    "fit_steps",
    "keep_rule",
    "load_repair",
    "pool",
    "rerank",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'poolscope.repairs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"poolscope.repairs.{_HOMES[name]}"), name)
