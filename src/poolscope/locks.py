"""Writing into a folder: one writer at a time, plain words when the system refuses, what is kept when interrupted."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from poolscope.errors import OutputError, StoreError
from poolscope.files import text_of

LOCK = ".lock"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}
# What is kept when a run is interrupted: work that saves as it goes says so here, and the command line tells it.
_under_way: list[Callable[[], str]] = []
_told: list[str] = []
_kept: dict[str, str] = {}


class StoreBusyError(StoreError):
    """Another process is writing the same folder now."""


@contextmanager
def writing(folder: Path, *, kept: str = "") -> Iterator[None]:
    """Turn a full disk, missing rights and the like into a `StoreError`; `kept` says what is safe already."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        reason = error.__cause__ if isinstance(error, OutputError) else error
        raise StoreError(
            f"{folder}: {'the disk is full' if full else f'cannot be written ({reason})'}. {kept}"
            f"{'Make room' if full else 'Remove the cause'}, then run the same again: it goes on from there."
        ) from error


@contextmanager
def folder_lock(folder: Path, name: str = LOCK, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the folder for writing; `StoreBusyError` names the process and host that hold it already.

    `name` is that of the lock file, for locks on parts of a folder; `wait` says for how many seconds to wait for it.
    The lock is one of the system on an open file, gone when its process is gone, however it died: the `.lock`
    file that a killed writer leaves locks nothing. The file goes with the lock; whoever waits for a file that went
    makes it anew.
    """
    from filelock import FileLock, Timeout

    path = folder / name
    lock = FileLock(path, timeout=wait, mode=0o644, fallback_to_soft=False)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(poll_interval=0.2)
        except Timeout:
            raise StoreBusyError(
                f"{folder}: {_holder(path)} is writing here now, and one writer at a time is allowed. "
                f"Wait until it is done, or choose another folder."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            warnings.warn(
                "this file system has no locks: make sure that one process at a time writes the folder.", stacklevel=3
            )
    try:
        _sign(path)
        yield
    finally:
        if sys.platform != "win32":  # Windows cannot remove an open file; there the empty lock file stays
            path.unlink(missing_ok=True)
        lock.release()


def _sign(path: Path) -> None:
    """Leave word of who holds the lock, for the message that others get; on a full disk, do without."""
    with suppress(OSError):
        path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))


def _holder(path: Path) -> str:
    try:
        owner = json.loads(text_of(path))
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, TypeError, KeyError):  # it has locked the file and not signed it yet
        return "another process"


@contextmanager
def keeping(sentence: Callable[[], str]) -> Iterator[None]:
    """While the body runs, `sentence` says what would be kept of it just now, and how to go on."""
    _under_way.append(sentence)
    try:
        yield
    except KeyboardInterrupt:
        _told.append(sentence())
        raise
    finally:
        _under_way.remove(sentence)


def keep(name: str, sentence: str) -> None:
    """Say what is kept from here on, whatever comes; a later sentence under the same name replaces it."""
    _kept[name] = sentence


def what_is_kept() -> list[str]:
    """The sentences that hold now, the innermost work first."""
    sentences = [*_told, *(sentence() for sentence in reversed(_under_way)), *_kept.values()]
    return list(dict.fromkeys(filter(None, sentences)))
