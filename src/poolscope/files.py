"""Writing files so that a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and move it there in one step.

    If the body raises, the temporary file is removed and `path` is left as it was. A process that is
    killed leaves `path` untouched and one hidden `.name.PID.tmp` file beside it.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
        _flush(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _flush(path: Path) -> None:
    """Ask the system to put a file, or the entries of a folder, on disk."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open folders, and does not need it
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinity are refused: they are not JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def user_cache_folder() -> Path:
    """The folder for what poolscope can make again: XDG_CACHE_HOME, or the platform's usual place."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():  # the XDG rules say to ignore any other value
        return chosen / "poolscope"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "poolscope" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "poolscope"
    return Path.home() / ".cache" / "poolscope"
