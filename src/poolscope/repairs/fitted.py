"""Vector repairs and poolings as one file on disk.

A file is safetensors: the fitted arrays as tensors, everything else as JSON in its metadata. Reading it runs no code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope import __version__
from poolscope.errors import StoreError, reading, require
from poolscope.files import atomic_path
from poolscope.numbers.fitted import Arrays
from poolscope.results import plain

FORMAT = 1
_KEY = "poolscope"


def rebuild(content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], kinds: Mapping[str, type[Any]]) -> Any:
    """The object that `to_dict` and `arrays` describe, one of `kinds`."""
    name = str(content.get("name"))
    if name not in kinds:
        raise StoreError(
            f"received {name!r}; this version knows {', '.join(kinds)}. The file is of another version or damaged."
        )
    try:
        found = kinds[name](**content["parameters"])
    except (KeyError, TypeError) as error:
        raise StoreError(f"received parameters that {name!r} does not have ({error}). The file is damaged.") from error
    for key, value in arrays.items():
        # Whoever wrote the file chose the names: none may take the place of a method or of a parameter.
        fitted = key.isidentifier() and key.endswith("_") and not key.startswith("_")
        if not fitted or hasattr(found, key) or value.dtype.kind not in "fiu":
            raise StoreError(
                f"received the array {key!r} of {value.dtype} for {name!r}; allowed: fitted numbers, whose names "
                f"end in an underscore. The file is damaged, or of another version."
            )
        setattr(found, key, value)
    return found


def write_arrays(path: str | os.PathLike[str], content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write one safetensors file, atomically: arrays as tensors, `content` as JSON in its metadata."""
    safetensors = require("safetensors.numpy", "repairs")
    text = json.dumps({"format": FORMAT, "version": __version__, **plain(content)}, allow_nan=False)
    tensors = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
    data = safetensors.save(tensors, metadata={_KEY: text})
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def read_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], Arrays]:
    """The content and the arrays of a file of that kind; an error says what it is instead."""
    safetensors = require("safetensors", "repairs")
    try:
        with (
            reading(path, "Write it again.", is_not="a readable safetensors file"),
            safetensors.safe_open(os.fspath(path), framework="numpy") as file,
        ):
            content = json.loads((file.metadata() or {}).get(_KEY, "{}"))
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError:
        raise StoreError(f"{path}: there is no such file. Write one with save, or `poolscope tune -o`.") from None
    content = content if isinstance(content, dict) else {}
    if content.get("kind") != kind or content.get("format") != FORMAT:
        found = content.get("kind") or "no poolscope file"
        raise StoreError(
            f"{Path(path).name}: received {found} of format {content.get('format')}; expected {kind} of format "
            f"{FORMAT}. Load it with what wrote it."
        )
    return content, arrays
