"""Writers that are killed at every change of the disk in turn, and disks that are full."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

# Every event of the system by which a writer changes the disk.
STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def killed_at(step: int, write: Callable[[], Any]) -> bool:
    """Kill a process that runs `write` as it begins its `step`-th change of the disk; False if it came to an end."""
    child = os.fork()
    if child == 0:
        left = [step]

        def count(event, arguments):
            if event in STEPS and not (event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            write()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


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
