"""What every result carries: where it came from, and how it becomes JSON."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from poolscope import __version__
from poolscope.clouds import TokenClouds


def provenance(*clouds: TokenClouds, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, date, settings, and what is known of the model and the texts behind each set of clouds."""
    return {
        "poolscope": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": dict(settings),
        "clouds": [
            {
                **part.provenance,
                "corpus": part.provenance.get("texts"),
                "texts": len(part),
                "tokens": int(part.lengths.sum()),
                "dimension": part.dimension,
                "dtype": str(part.dtype),
                "texts_truncated": int((part.truncated > 0).sum()),
                "tokens_truncated": int(part.truncated.sum()),
            }
            for part in clouds
        ],
    }


def plain(value: Any) -> Any:
    """The value in the types of JSON: numpy and dataclasses unpacked, NaN and infinity as None.

    >>> plain({"a": np.float32(0.5), "b": np.arange(2), "c": float("nan")})
    {'a': 0.5, 'b': [0, 1], 'c': None}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
