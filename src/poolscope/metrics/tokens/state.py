"""Token moments on disk: one file, written whole or not at all, so that a run can be continued or shards merged."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import StoreError
from poolscope.files import atomic_path
from poolscope.metrics.tokens.moments import KeyTable, LayerMoments, TokenMoments
from poolscope.metrics.tokens.sample import SampledText, TextSample
from poolscope.numbers.streaming import DirectionSum, GroupedMoments

FORMAT = "poolscope token moments 2"
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
    sample = moments.sample.items()
    arrays["sample.marks"] = np.array([mark for mark, _ in sample], np.int64)
    arrays["sample.copies"] = np.array([text.copies for _, text in sample], np.int64)
    arrays["sample.lengths"] = np.array([len(text.keys) for _, text in sample], np.int64)
    arrays["sample.keys"] = np.concatenate([np.zeros(0, np.int64), *(text.keys for _, text in sample)])
    used = int(moments.table.kept.sum())
    for layer, state in moments.layers.items():
        arrays[f"{layer}.direction"] = state.directions.total
        if sample:
            arrays[f"{layer}.sample"] = np.concatenate([text.rows[layer] for _, text in sample])
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
        sample=_read_sample(list(layers), arrays),
        names={int(key): name for key, name in header["names"].items()},
    )


def _read_sample(layers: list[int], arrays: Any) -> TextSample:
    sample = TextSample()
    cuts = np.cumsum(arrays["sample.lengths"])[:-1]
    if not len(arrays["sample.marks"]):
        return sample
    keys = np.split(arrays["sample.keys"], cuts)
    rows = {layer: np.split(arrays[f"{layer}.sample"], cuts) for layer in layers}
    for number, (mark, copies) in enumerate(zip(arrays["sample.marks"], arrays["sample.copies"], strict=True)):
        own = {layer: parts[number] for layer, parts in rows.items()}
        sample.add(int(mark), SampledText(int(copies), keys[number], own))
    return sample


def is_state(path: str | os.PathLike[str]) -> bool:
    """Whether a name means a file of token moments: it ends in `.npz` and is there."""
    return Path(path).suffix == SUFFIX and Path(path).is_file()
