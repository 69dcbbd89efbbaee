"""When two results say the same, bit by bit, and whether a file keeps to the schema that is shipped."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolscope.schema import bundled


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


@functools.cache
def schema_of_files() -> Any:
    """The validator of the schema that is shipped."""
    jsonschema = pytest.importorskip("jsonschema", reason="files are checked against their schema")
    schema = bundled()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def against_the_schema(path: Path) -> list[str]:
    """Where a file that was written departs from the schema: nothing, if all is well."""
    errors = schema_of_files().iter_errors(json.loads(path.read_text(encoding="utf-8")))
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]
