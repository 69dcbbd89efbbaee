"""Token moments on disk: one file, written whole or not at all, so that a run can be continued or shards merged."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.analyses.token_moments import KeyTable, LayerMoments, TokenMoments
from poolscope.errors import StoreError
from poolscope.files import atomic_path
from poolscope.streaming_moments import DirectionSum, GroupedMoments

FORMAT = "poolscope token moments 1"
SUFFIX = ".npz"
_PLAIN = ("source", "max_types", "texts", "truncated_texts", "truncated_tokens", "digest")
_MOMENTS = ("counts", "means", "scatters", "squares")


def save_state(moments: TokenMoments, path: str | os.PathLike[str]) -> None:
    """Write moments as an uncompressed `.npz` file, atomically."""
    directions = {layer: (state.directions.count, state.directions.zeros) for layer, state in moments.layers.items()}
    header = {name: getattr(moments, name) for name in _PLAIN}
    header |= {"format": FORMAT, "names": moments.names, "layers": directions}
    arrays: dict[str, NDArray[Any]] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    arrays |= {f"table.{name}": getattr(moments.table, name) for name in ("keys", "counts", "slots")}
    if moments.allowed is not None:
        arrays["allowed"] = moments.allowed
    used = int(moments.table.kept.sum())
    for layer, state in moments.layers.items():
        arrays[f"{layer}.direction"] = state.directions.total
        for name in _MOMENTS:
            arrays[f"{layer}.groups.{name}"] = getattr(state.groups, name)[:used]
            arrays[f"{layer}.pool.{name}"] = getattr(state.pool, name)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle


def load_state(path: str | os.PathLike[str]) -> TokenMoments:
    """Read what `save_state` wrote; bit by bit the same moments."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            header = json.loads(bytes(arrays["header"]))
            found = header.get("format")
            if found == FORMAT:
                return _read(header, arrays)
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file; needed: token moments that poolscope saved. Check the name.") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"{path}: not a file of token moments, or damaged ({type(error).__name__}: {error}). Remove it, and "
            f"measure the texts again."
        ) from error
    raise StoreError(
        f"{path}: written in the format {found!r}, and this version of poolscope reads {FORMAT!r}. Measure again."
    )


def _read(header: dict[str, Any], arrays: Any) -> TokenMoments:
    layers = {
        int(layer): LayerMoments(
            GroupedMoments(*(arrays[f"{layer}.groups.{name}"] for name in _MOMENTS)),
            GroupedMoments(*(arrays[f"{layer}.pool.{name}"] for name in _MOMENTS)),
            DirectionSum(arrays[f"{layer}.direction"], *counts),
        )
        for layer, counts in header["layers"].items()
    }
    return TokenMoments(
        **{name: header[name] for name in _PLAIN},
        allowed=arrays.get("allowed"),
        table=KeyTable(*(arrays[f"table.{name}"] for name in ("keys", "counts", "slots"))),
        layers=layers,
        names={int(key): name for key, name in header["names"].items()},
    )


def is_state(path: str | os.PathLike[str]) -> bool:
    """Whether a name means a file of token moments: it ends in `.npz` and is there."""
    return Path(path).suffix == SUFFIX and Path(path).is_file()
