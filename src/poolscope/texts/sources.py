"""The one door to every table: which file type, hub name or object in memory is read by what."""

from __future__ import annotations

import os
from pathlib import Path

from poolscope.errors import InputError
from poolscope.texts.arrow import ipc_table, is_table, memory_table, parquet_table
from poolscope.texts.hub import PREFIX, hub_table, looks_like_hub
from poolscope.texts.tables import Table, csv_table, json_table
from poolscope.texts.tally import shorten

_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")


def open_table(source: object, *, encoding: str | None = None) -> Table:
    """The table that a path, a hub name, a data frame, an Arrow table or a data set stands for."""
    if is_table(source):
        return memory_table(source)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"received {shorten(source)} ({type(source).__name__}); a table is a path, a hub name, a data "
            "frame, an Arrow table or a data set. Pass one of these."
        )
    path = Path(source)
    if exists(path):
        return _open_file(path, encoding)
    if isinstance(source, str) and looks_like_hub(source):
        return hub_table(source)
    raise InputError(
        f"received {shorten(str(source))}; there is no such file or folder. Check the spelling; a data set of "
        f"the hub is written {PREFIX}ORGANISATION/NAME, and texts in memory are passed as a list."
    )


def exists(path: Path) -> bool:
    """Whether there is a file or folder; False for what cannot be a path (too long, a NUL inside)."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _open_file(path: Path, encoding: str | None) -> Table:
    match path.suffix.lower():
        case ".csv" | ".tsv":
            return csv_table(path, encoding)
        case ".jsonl" | ".ndjson":
            return json_table(path, encoding)
        case ".parquet":
            return parquet_table(path)
        case ".arrow" | ".feather":
            return ipc_table(path)
    received = "a folder" if path.is_dir() else f"a file of type '{path.suffix}'"
    raise InputError(
        f"{path.name}: received {received}; tables are read from {', '.join(_SUFFIXES)}, plain texts from .txt "
        "(a line a text) or from a folder of .txt and .md files. Convert it to one of these."
    )
