"""The public names of a package, kept once in its `.pyi`: type checkers read that file, and so does the package.

Arguments of public functions are held against their signatures before anything is done with them. A signature says what
a function takes, so it is what refuses: a string where a list belongs, a list where a function belongs, NaN for a
number. What it leaves open (`Any`, protocols, arrays) the function judges itself.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from poolscope.errors import InputError, shorten, whole_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


P = ParamSpec("P")
R = TypeVar("R")
_LISTS = (Sequence, Iterable, Collection, list, tuple)
_HAS_REST = 0x04  # `inspect.CO_VARARGS`; importing that module takes as long as the rest of `import poolscope`
_MOST_ITEMS = 1000  # of a list that are looked at; texts are looked at by their reader
# A type in words, one of it and many.
_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    bool: ("True", "truth values"),
    Callable: ("a function", "functions"),
    Mapping: ("a dictionary", "dictionaries"),
    os.PathLike: ("a path", "paths"),
    type(None): ("None", "None"),
}


def homes(file: str) -> dict[str, str]:
    """Each public name and the module that holds it: one line `from MODULE import NAME as NAME` a name."""
    lines = Path(file).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line.startswith("from ")]
    return {row[3]: row[1] for row in rows}


def public_names(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a package: a name is imported when it is first used.

    Public functions check their arguments (`checked`), and are at home in the package for `pickle`.
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


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with arguments refused that are not of the types its signature names.

    >>> def first(texts: list[str], count: int = 1) -> list[str]:
    ...     return texts[:count]
    >>> checked(first)(["one", "two"])
    ['one']
    >>> checked(first)(["one", "two"], count="2")
    Traceback (most recent call last):
    poolscope.errors.InputError: count: received '2'; allowed: a whole number.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        names, rest = _places(function)
        hints = _hints(function)
        for place, value in enumerate(args):
            _check(names[place] if place < len(names) else rest, value, hints)
        for name, value in kwargs.items():
            _check(name, value, hints)
        return function(*args, **kwargs)

    return call


def check_fields(instance: Any) -> None:
    """Hold the fields of a dataclass that users make against their annotations; `__post_init__` calls it."""
    hints = _hints(instance.__class__)
    for name in hints:
        _check(name, getattr(instance, name), hints)


@cache
def _places(function: Callable[..., Any]) -> tuple[tuple[str, ...], str]:
    """The names of arguments by their places, and that of those beyond them (`*audits`)."""
    code = function.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[named] if code.co_flags & _HAS_REST else ""
    return code.co_varnames[: code.co_argcount], rest


def refuse_masked(value: Any, name: str) -> None:
    """Refuse a masked array of numpy with masked numbers: whoever reads it as an array gets what lies below the mask.

    >>> import numpy as np
    >>> refuse_masked(np.ma.masked_array([1.0, 2.0], mask=[False, True]), "vectors")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    poolscope.errors.InputError: vectors: received a masked array with 1 masked number; allowed: an array in which ...
    """
    arrays = value if isinstance(value, list | tuple) and not isinstance(next(iter(value), None), str) else (value,)
    for each in arrays:
        if hasattr(each, "filled") and hasattr(each, "mask") and (masked := int(each.mask.sum())):
            raise InputError(
                f"{name}: received a masked array with {masked:,} masked number{'' if masked == 1 else 's'}; allowed: "
                f"an array in which every number counts. Leave these rows out, or fill the gaps (array.filled)."
            )


def as_array(value: Any, name: str, dtype: type | None = None) -> NDArray[Any]:
    """The value as an array, of numbers where a type is named, or an error that names it.

    >>> as_array([1, 2], "weights", float).tolist()
    [1.0, 2.0]
    """
    import numpy as np

    refuse_masked(value, name)
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError):  # lists of unequal lengths, what is no number
        kind = "an array, or a list of items of one shape" if dtype is None else "an array or a list of numbers"
        raise InputError(f"{name}: received {shorten(value)}; allowed: {kind}.") from None


def as_lengths(lengths: Any, count: int, source: str) -> NDArray[np.int64]:
    """The lengths as whole numbers, one a vector and none negative; otherwise an error that says which is wrong."""
    import numpy as np

    numbers = as_array(lengths, "lengths")
    whole = numbers.dtype.kind in "iu" or (
        numbers.dtype.kind == "f" and bool(np.isfinite(numbers).all()) and bool((numbers == np.round(numbers)).all())
    )
    if numbers.shape != (count,) or not whole or (numbers < 0).any():
        raise InputError(
            f"{source}: received lengths of shape {numbers.shape} and type {numbers.dtype}; needed is one whole "
            f"number ≥ 0 for each of the {count} vectors. Count the tokens (or the words) of every text."
        )
    return numbers.astype(np.int64)


class _Names(dict[str, Any]):
    """Names of Python and of a module; one that is imported for type checkers alone may be anything."""

    def __missing__(self, name: str) -> Any:
        return Any


@cache
def _hints(owner: Any) -> dict[str, tuple[Any, ...]]:
    """What each argument of a function, or field of a dataclass, may be."""
    names = _Names({**vars(builtins), **vars(sys.modules[owner.__module__])})
    texts = {name: text for name, text in owner.__annotations__.items() if isinstance(text, str)}
    return {name: _members(eval(text, {}, names)) for name, text in texts.items() if name != "return"}


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _check(name: str, value: Any, hints: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse a value that none of the types of an argument allows, a masked array, and a seed below 0."""
    refuse_masked(value, name)
    if not any(_fits(value, member) for member in hints.get(name, (Any,))):
        words = [_in_words(member)[0] for member in hints[name]]
        listed = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
        raise InputError(f"{name}: received {shorten(value)}; allowed: {listed}.")
    if name == "seed":
        whole_number(value, name, least=0)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of one type; True where a type does not say."""
    kind = typing.get_origin(hint) or hint
    if kind is bool:
        return _is_truth(value)
    if kind in (int, float):
        return not _is_truth(value) and _is_number(value, kind)
    if kind is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if kind is Callable:
        return callable(value)
    if kind in _LISTS:
        return _is_list(value, whole=kind is not Iterable) and _items_fit(value, hint)
    return kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def _is_truth(value: Any) -> bool:
    return type(value).__name__ in ("bool", "bool_")


def _is_number(value: Any, kind: type) -> bool:
    """Whether a value is a whole number (int), or any that is not NaN (float), of Python or another package."""
    if not hasattr(value, "__index__" if kind is int else "__float__"):
        return False
    try:
        number = value.__index__() if kind is int else float(value)
    except Exception:  # arrays of several numbers, or of none
        return False
    return bool(number == number)


def _is_list(value: Any, *, whole: bool) -> bool:
    """Whether a value is many: letters and dictionaries are not, and what cannot be counted is no `whole` list."""
    if isinstance(value, str | bytes | bytearray | Mapping | type) or not hasattr(value, "__iter__"):
        return False
    return not whole or hasattr(value, "__len__")


def _items_fit(value: Any, hint: Any) -> bool:
    items = [member for argument in typing.get_args(hint) for member in _members(argument)]
    if not items or not isinstance(value, list | tuple | set | frozenset):
        return True
    return all(any(_fits(item, member) for member in items) for item in list(value)[:_MOST_ITEMS])


def _in_words(hint: Any) -> tuple[str, str]:
    """A type in words, one of it and many."""
    kind = typing.get_origin(hint) or hint
    if kind in _WORDS:
        return _WORDS[kind]
    if kind is Literal:
        return " or ".join(map(repr, typing.get_args(hint))), ""
    if kind in _LISTS:
        items = [_in_words(member)[1] for argument in typing.get_args(hint) for member in _members(argument)]
        return f"a list of {' or '.join(items)}" if items else "a list", "lists"
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[:1] in 'AEIO' else 'a'} {name}", f"{name} objects"
