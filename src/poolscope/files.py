"""Writing files so that a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from poolscope.errors import OutputError


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and move it there in one step.

    If the body raises, the temporary file is removed and `path` is left as it was; what the system refuses is an
    `OutputError`. A process that is killed leaves `path` untouched and one hidden `.name.PID.tmp` file beside it.
    """
    target = Path(path)
    with _in_plain_words(target):
        _refuse_other_kinds(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(target)
        try:
            yield temporary
            _flush(temporary)
            temporary.replace(target)
            _flush(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse a name under which no file can be written, before the work whose result it is for.

    It is tried: a file is made beside it and removed, and so are the folders that were not there.
    """
    target = Path(path)
    with _in_plain_words(target):
        _refuse_other_kinds(target)
        with _made(target.parent):
            _try(_beside(target))


def check_folder(path: str | os.PathLike[str]) -> Path:
    """The folder to write into, there or not; an error where none can be, or nothing can be written into it."""
    target = Path(path)
    with _in_plain_words(target):
        _refuse_files_among((target, *target.parents), target)
        with _made(target):
            _try(_beside(target / "file"))
    return target


def _refuse_other_kinds(target: Path) -> None:
    """Refuse a folder or a device where a file is to be."""
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "no file that can be replaced"
        raise OutputError(f"output: received {target}, which is {what}; allowed is a file. Name another one.")
    _refuse_files_among(target.parents, target)


def _refuse_files_among(folders: Iterable[Path], target: Path) -> None:
    for part in folders:
        if part.exists() and not part.is_dir():
            raise OutputError(
                f"output: received {target}, but {part} is a file; allowed is a folder. Name another one."
            )


@contextmanager
def _in_plain_words(target: Path) -> Iterator[None]:
    """Say what could not be written, why, and what to do, where the system refuses."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        refused = OutputError(
            f"{target}: cannot be written ({error.strerror or error}). Name another place, or see to it that there is "
            f"room and the right to write."
        )
        refused.errno = error.errno
        raise refused from error


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def _try(path: Path) -> None:
    path.touch()
    path.unlink()


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """The folder is there inside; those that were not there before are gone again after it."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for part in missing:
            with suppress(OSError):
                part.rmdir()


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
