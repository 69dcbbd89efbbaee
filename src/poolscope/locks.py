"""Writing into a folder: a lock for one writer at a time, and plain words when the system refuses."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from poolscope.errors import OutputError, StoreError
from poolscope.files import text_of

LOCK = ".lock"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


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
    file that a killed writer leaves locks nothing. (A process number in a file, the usual way, must guess
    whether the number now means another process.)
    """
    path = folder / name
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _acquire_within(path, wait)
    try:
        yield
    finally:
        if sys.platform != "win32":  # Windows cannot remove an open file; there the empty lock file stays
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire_within(path: Path, wait: float) -> int:
    until = time.monotonic() + wait
    while True:
        try:
            return _acquire(path)
        except StoreBusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(min(0.2, wait))


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _try_lock(descriptor):
                raise StoreBusyError(
                    f"{path.parent}: {_holder(path)} is writing here now, and one writer at a time is allowed. "
                    f"Wait until it is done, or choose another folder."
                )
            if _same_file(descriptor, path):
                _sign(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the last holder removed the file between our open and our lock: try the new one


def _same_file(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Leave word of who holds the lock, for the message that others get; on a full disk, do without."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())


def _holder(path: Path) -> str:
    try:
        owner = json.loads(text_of(path))
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, TypeError, KeyError):  # it has locked the file and not signed it yet
        return "another process"


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # a locked byte cannot be read: lock one behind the signature
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            warnings.warn(
                "this file system has no locks: make sure that one process at a time writes the folder.",
                stacklevel=2,
            )
        return True
