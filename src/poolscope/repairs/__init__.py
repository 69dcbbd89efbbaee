"""Repairs: attention temperature for any transformer, readings of decoders, and what is done to finished vectors.

`tempscale` and `bake` are at the root (`poolscope.tempscale`); the names here are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolscope.numbers.pooling import pool
    from poolscope.repairs.readings import AlignedValues, AtLayer, BothWays, Echo, ValuePooling
    from poolscope.repairs.registry import REPAIRS, register
    from poolscope.repairs.repair_file import Repair
    from poolscope.repairs.temperature.rules import (
        PUBLISHED_GRID,
        ByRole,
        Constant,
        LogLength,
        Steps,
        YarnLike,
        as_rule,
        fit_steps,
    )
    from poolscope.repairs.temperature.tempscale import apply_saved, keep_rule
    from poolscope.repairs.trials import rerank
    from poolscope.repairs.vectors import (
        AllButTheTop,
        EmbedFilter,
        MeanRemoval,
        Standardisation,
        Whitening,
        load_repair,
    )

_HOMES = {
    "PUBLISHED_GRID": "temperature.rules",
    "AlignedValues": "readings",
    "AllButTheTop": "vectors",
    "AtLayer": "readings",
    "BothWays": "readings",
    "ByRole": "temperature.rules",
    "Constant": "temperature.rules",
    "Echo": "readings",
    "EmbedFilter": "vectors",
    "LogLength": "temperature.rules",
    "MeanRemoval": "vectors",
    "REPAIRS": "registry",
    "Repair": "repair_file",
    "Standardisation": "vectors",
    "Steps": "temperature.rules",
    "ValuePooling": "readings",
    "Whitening": "vectors",
    "YarnLike": "temperature.rules",
    "apply_saved": "temperature.tempscale",
    "as_rule": "temperature.rules",
    "fit_steps": "temperature.rules",
    "keep_rule": "temperature.tempscale",
    "load_repair": "vectors",
    "register": "registry",
    "pool": ".numbers.pooling",
    "rerank": "trials",
}

__all__ = [
    "PUBLISHED_GRID",
    "REPAIRS",
    "AlignedValues",
    "AllButTheTop",
    "AtLayer",
    "BothWays",
    "ByRole",
    "Constant",
    "Echo",
    "EmbedFilter",
    "LogLength",
    "MeanRemoval",
    "Repair",
    "Standardisation",
    "Steps",
    "ValuePooling",
    "Whitening",
    "YarnLike",
    "apply_saved",
    "as_rule",
    "fit_steps",
    "keep_rule",
    "load_repair",
    "pool",
    "register",
    "rerank",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'poolscope.repairs' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", "poolscope.repairs"), name)
