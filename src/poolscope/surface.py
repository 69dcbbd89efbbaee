"""The public names of a package, kept once in its `.pyi`: type checkers read that file, and so does the package."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from poolscope.arguments import checked


def homes(file: str) -> dict[str, str]:
    """Each public name and the module that holds it: one line `from MODULE import NAME as NAME` a name."""
    lines = Path(file).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line.startswith("from ")]
    return {row[3]: row[1] for row in rows}


def public_names(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a package: a name is imported when it is first used.

    Public functions check their arguments (`poolscope.arguments`), and are at home in the package for `pickle`.
    """
    modules = homes(file)

    @cache
    def public(function: Callable[..., Any]) -> Callable[..., Any]:
        call = checked(function)
        call.__module__ = package
        return call

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        return public(value) if isinstance(value, FunctionType) else value

    return sorted(modules), get
