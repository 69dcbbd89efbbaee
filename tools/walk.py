"""How large the package is, and how far a call walks through it: modules, changes of package, the longest chain.

    python tools/walk.py

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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from audit_data import asking, bag_of_words, topics

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
    """Modules whose functions a call enters, how often the package changes, and how many modules stand in one chain."""
    modules: set[Path] = set()
    packages: list[str] = []
    chain: list[Path] = []  # the module of every open call of the package
    deepest = 0

    def follow(frame: FrameType, event: str, _: Any) -> None:
        nonlocal deepest
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(SOURCE):
            return
        if event == "return":
            if chain:
                chain.pop()
            return
        modules.add(path)
        packages.append(path.relative_to(SOURCE).parts[0])
        chain.append(path)
        deepest = max(deepest, 1 + sum(one != other for one, other in pairwise(chain)))

    call()
    sys.setprofile(follow)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(modules), sum(one != other for one, other in pairwise(packages)), deepest


def rooms() -> dict[str, tuple[int, int]]:
    """Modules and lines of each room."""
    counts: dict[str, tuple[int, int]] = {}
    for path in SOURCE.rglob("*.py"):
        first = path.relative_to(SOURCE).parts[0]
        room = first if first in ("lab", "connect") else "core"
        modules, lines = counts.get(room, (0, 0))
        counts[room] = modules + 1, lines + len(path.read_text(encoding="utf-8").splitlines())
    return counts


if __name__ == "__main__":
    texts = topics(40)
    clouds = poolscope.encode(bag_of_words, texts)
    audited = poolscope.audit(bag_of_words, texts, queries=asking(texts))
    print("{:,} modules, {:,} lines, {:,} of them code".format(*size()))
    for room, (modules, lines) in sorted(rooms().items()):
        print(f"{room}: {modules:,} modules, {lines:,} lines")
    for name, call in {
        "socm": lambda: poolscope.socm(clouds),
        "audit": lambda: poolscope.audit(bag_of_words, texts, queries=asking(texts)),
        "page": audited.to_html,
    }.items():
        print("{}: {} modules, {:,} changes of package, {} modules in the longest chain".format(name, *walk(call)))
