"""poolscope: see what pooling hides.

>>> import poolscope
>>> clouds = poolscope.TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]]])
>>> poolscope.socm(clouds)
SocmResult(all pairs: 1 pairs, mean 0.2500)

The public names stand in `__init__.pyi`, where type checkers look for them; each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """Each public name and the module that holds it: one line `from MODULE import NAME as NAME` a name."""
    lines = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line.startswith("from ")]
    return {row[3]: row[1] for row in rows}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'poolscope' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
