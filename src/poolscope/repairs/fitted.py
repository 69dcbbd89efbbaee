"""What vector repairs and poolings share: parameters as scikit-learn knows them, fitted arrays, one file on disk.

A file is safetensors: the fitted arrays as tensors, everything else as JSON in its metadata. Reading it runs no code.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from poolscope import __version__
from poolscope.errors import InputError, StoreError, require
from poolscope.files import atomic_path
from poolscope.results import plain

FORMAT = 1
_KEY = "poolscope"

Arrays = dict[str, NDArray[Any]]


class Fitted:
    """Parameters are the arguments of `__init__`, kept under their names; fitted arrays end in an underscore."""

    name: ClassVar[str]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn asks for them."""
        return {key: getattr(self, key) for key in _parameters(type(self))}

    def set_params(self, **values: Any) -> Self:
        """Change parameters; unknown names are refused."""
        if unknown := sorted(set(values) - set(_parameters(type(self)))):
            allowed = ", ".join(_parameters(type(self))) or "none"
            raise InputError(f"{type(self).__name__}: received the parameters {unknown}; allowed: {allowed}.")
        for key, value in values.items():
            setattr(self, key, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.get_params().items())
        return f"{type(self).__name__}({given})"

    @property
    def label(self) -> str:
        """A short name with the parameters that matter, for tables."""
        return self.name

    @property
    def arrays(self) -> Arrays:
        """The fitted arrays by name; empty before `fit`, or where there is nothing to fit."""
        fitted = {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}
        return {key: value for key, value in fitted.items() if isinstance(value, np.ndarray)}

    def require_fit(self, attribute: str) -> None:
        """Refuse to work before `fit`."""
        if not hasattr(self, attribute):
            raise InputError(f"{self!r} is not fitted yet; call fit on a sample first, or load a saved one.")

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, for JSON; the arrays are kept beside it."""
        return {"name": self.name, "parameters": plain(self.get_params())}


def _parameters(kind: type) -> list[str]:
    return [key for key in inspect.signature(kind).parameters if key != "self"]


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
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            content = json.loads((file.metadata() or {}).get(_KEY, "{}"))
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError:
        raise StoreError(f"{path}: there is no such file. Write one with save, or `poolscope tune -o`.") from None
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        raise StoreError(f"{path}: not a readable safetensors file ({error}). Write it again.") from error
    content = content if isinstance(content, dict) else {}
    if content.get("kind") != kind or content.get("format") != FORMAT:
        found = content.get("kind") or "no poolscope file"
        raise StoreError(
            f"{Path(path).name}: received {found} of format {content.get('format')}; expected {kind} of format "
            f"{FORMAT}. Load it with what wrote it."
        )
    return content, arrays
