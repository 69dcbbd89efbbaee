"""How large the package is, and how far a call walks through it: modules, packages, and changes of package.

    PYTHONPATH=tests python tools/walk.py

A walk is that of a second, warm run on 40 texts with a bag of words: every call of a function of poolscope counts.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import poolscope
from audit_data import bag_of_words, topics

SOURCE = Path(poolscope.__file__).parent


def size() -> tuple[int, int, int]:
    """Modules, lines, and lines of code: without docstrings, comments and blank lines."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    return len(texts), sum(len(text.splitlines()) for text in texts), sum(map(code_lines, texts))


def code_lines(text: str) -> int:
    """Lines of a file that hold code."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    written: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for part in node.body if isinstance(node, kinds) else ():
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                written |= set(range(part.lineno, (part.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if number not in written and line.strip() and line.strip()[0] != "#")


def walk(call: Callable[[], Any]) -> tuple[int, int, int]:
    """Modules and packages whose functions a call enters, and how often the package changes from one to the next."""
    modules, packages = set(), []

    def enter(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            modules.add(path)
            packages.append(path.relative_to(SOURCE).parts[0])

    call()
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(modules), len(set(packages)), sum(one != other for one, other in pairwise(packages))


if __name__ == "__main__":
    texts = topics(40)
    clouds = poolscope.encode(bag_of_words, texts)
    print("{:,} modules, {:,} lines, {:,} of them code".format(*size()))
    for name, call in {
        "audit": lambda: poolscope.audit(bag_of_words, texts),
        "socm": lambda: poolscope.socm(clouds),
        "tune": lambda: poolscope.tune(bag_of_words, texts),
    }.items():
        print("{}: {} modules, {} packages, {:,} changes of package".format(name, *walk(call)))
