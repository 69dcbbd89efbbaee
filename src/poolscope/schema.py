"""The JSON Schema of the files that poolscope writes, made from their classes; `schema.json` beside this file holds it.

`VERSION` counts changes after which a file of the earlier version no longer fits. A new field is no such change.

>>> from poolscope.numbers.intervals import Interval
>>> schema_of(Interval)["required"]
['low', 'high', 'level', 'answers', 'method', 'unit']
>>> schema_of(float | None)
{'anyOf': [{'$ref': '#/$defs/number'}, {'type': 'null'}]}
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from poolscope.results import Result, kept_fields, key_of, unaliased

VERSION = 1
FILE = "schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
    float: {"$ref": "#/$defs/number"},
    type(None): {"type": "null"},
}
_SHARED: dict[str, Any] = {
    "number": {
        "description": "A number; what is not finite is a word in files, and null in summaries.",
        "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}, {"type": "null"}],
    },
    "array": {
        "description": "Numbers as the bytes of an array (little-endian base64), or as a list.",
        "anyOf": [
            {"type": "array"},
            {
                "type": "object",
                "required": ["dtype", "shape", "base64"],
                "properties": {
                    "dtype": {"type": "string"},
                    "shape": {"type": "array", "items": {"type": "integer"}},
                    "base64": {"type": "string", "contentEncoding": "base64"},
                },
            },
        ],
    },
}


def bundled() -> dict[str, Any]:
    """The schema that is shipped with this version."""
    content: dict[str, Any] = json.loads(resources.files("poolscope").joinpath(FILE).read_text(encoding="utf-8"))
    return content


def schema_of_files(results: Iterable[type[Result]], others: Mapping[tuple[str, str], type]) -> dict[str, Any]:
    """One schema for all files: results name their class, `others` are known by the value of one of their keys."""
    kinds = {("result", kind.__name__): kind for kind in sorted(results, key=lambda each: each.__name__)} | dict(others)
    return {
        "$schema": _DIALECT,
        "$id": f"urn:poolscope:files:{VERSION}",
        "title": "Files that poolscope writes as JSON",
        "type": "object",
        "anyOf": [
            {"properties": {mark: {"enum": [value for key, value in kinds if key == mark]}}, "required": [mark]}
            for mark in dict.fromkeys(mark for mark, _ in kinds)
        ],
        "allOf": [
            {
                "if": {"properties": {mark: {"const": value}}, "required": [mark]},
                "then": {"$ref": f"#/$defs/{kind.__name__}"},
            }
            for (mark, value), kind in kinds.items()
        ],
        "$defs": {**_SHARED, **_definitions(kinds.values())},
    }


def _definitions(kinds: Iterable[type]) -> dict[str, Any]:
    """The schema of every dataclass among these and their fields, by name."""
    shapes: dict[str, Any] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if kind.__name__ not in shapes:
            shapes[kind.__name__] = schema_of(kind)
            hints = typing.get_type_hints(kind)
            waiting += [record for part in kept_fields(kind) for record in _records(hints[part.name])]
    return dict(sorted(shapes.items()))


def _records(kind: Any) -> list[type]:
    """The dataclasses that a type mentions."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return [kind]
    return [record for inner in typing.get_args(kind) for record in _records(inner)]


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of one type; a dataclass among its parts is a reference to `$defs`."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _record(kind)
    return _type(kind)


def _record(kind: type) -> dict[str, Any]:
    """The fields of a dataclass by their keys. Further keys are allowed: values that follow from the fields."""
    hints = typing.get_type_hints(kind)
    fields = kept_fields(kind)
    shape: dict[str, Any] = {"type": "object", "description": (kind.__doc__ or "").split("\n")[0]}
    named = {"result": {"type": "string"}, "poolscope": {"type": "string"}} if issubclass(kind, Result) else {}
    shape["properties"] = named | {key_of(part): _type(hints[part.name]) for part in fields}
    shape["required"] = [*named, *(key_of(part) for part in fields if not part.metadata.get("bulk"))]
    return shape


def _type(kind: Any) -> dict[str, Any]:
    """The schema of a type as a field declares it."""
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    kind = unaliased(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type(each) for each in inner]}
    if kind is np.ndarray or origin is np.ndarray:
        return {"$ref": "#/$defs/array"}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin in (tuple, list, Sequence):
        return _sequence(origin, inner)
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _type(inner[1])}
    return {}


def _sequence(origin: Any, inner: tuple[Any, ...]) -> dict[str, Any]:
    """The schema of a list of one type, or of a tuple with a type for each place."""
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        places = [_type(each) for each in inner]
        return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}
    return {"type": "array", "items": _type(inner[0])}
