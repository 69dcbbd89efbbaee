"""Writers that are killed at every change of the disk in turn, and disks that are full."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

# Every event of the system by which a writer changes the disk.
STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
_NOT_REACHED = 9  # the exit code of a process that ended before


def _changes(event: str, arguments: tuple[Any, ...]) -> bool:
    return event in STEPS and not (event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR))


def disturbed_at(step: int, write: Callable[[], Any], disturb: Callable[[], Any]) -> bool:
    """Run `write` in a process, and `disturb` as its `step`-th change of the disk begins; False if it ended before."""
    child = os.fork()
    if child == 0:
        left = [step]

        def count(event, arguments):
            if _changes(event, arguments):
                left[0] -= 1
                if left[0] == -1:
                    disturb()

        sys.addaudithook(count)
        with suppress(BaseException):
            write()
        os._exit(_NOT_REACHED if left[0] >= 0 else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != _NOT_REACHED


def killed_at(step: int, write: Callable[[], Any]) -> bool:
    """Kill a process that runs `write` as it begins its `step`-th change of the disk; False if it came to an end."""
    return disturbed_at(step, write, lambda: os.kill(os.getpid(), signal.SIGKILL))


def matrix(write: Callable[[], Any], check: Callable[[int], Any], *, most: int = 300) -> int:
    """Kill the writer at every step in turn; return at how many it could be killed."""
    for step in range(most):
        killed = killed_at(step, write)
        check(step)
        if not killed:
            return step
    raise AssertionError(f"more than {most} steps")


def full(*_: Any, **__: Any) -> NoReturn:
    """What a full disk says."""
    raise OSError(errno.ENOSPC, "No space left on device")


def traced(write: Callable[[], Any]) -> list[str]:
    """The names by which a process that runs `write` changes the disk: bare ones are below an open folder."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:

        def tell(event, arguments):
            if _changes(event, arguments):
                names = [str(part) for part in arguments[: 2 if event == "os.rename" else 1]]
                os.write(writes, "".join(f"{name}\n" for name in names).encode())

        sys.addaudithook(tell)
        try:
            write()
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, encoding="utf-8") as stream:
        names = stream.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0
    return names
