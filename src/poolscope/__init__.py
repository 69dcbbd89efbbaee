"""poolscope: see what pooling hides.

>>> import poolscope
>>> clouds = poolscope.TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]]])
>>> poolscope.socm(clouds)
SocmResult(all pairs: 1 pairs, mean 0.2500)

The public names stand in `__init__.pyi`, where type checkers look for them; each is imported when it is first used.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """Each public name and the module that holds it."""
    table = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    rows = [row for row in table if isinstance(row, ast.ImportFrom) and row.module is not None]
    return {alias.name: str(row.module) for row in rows for alias in row.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'poolscope' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
