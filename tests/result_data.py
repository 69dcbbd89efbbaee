"""When two results say the same, bit by bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


def same(first: Any, second: Any) -> bool:
    """Equal, with NaN equal to NaN, arrays of one type and shape, and what no file keeps left aside."""
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    if dataclasses.is_dataclass(first):
        kept = [part.name for part in dataclasses.fields(first) if not part.metadata.get("transient")]
        return type(first) is type(second) and all(same(getattr(first, name), getattr(second, name)) for name in kept)
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, tuple | list):  # what a mapping of anything holds comes back as a list
        return len(first) == len(second) and all(same(one, two) for one, two in zip(first, second, strict=True))
    return first == second or (first != first and second != second)


def same_but_for_time(first: Any, second: Any) -> bool:
    """Equal but for the provenance, which says when it was made."""
    return same(*(dataclasses.replace(result, provenance={}) for result in (first, second)))
