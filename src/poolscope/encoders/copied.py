"""A copy of this process, made by fork: what this one has imported is there already.

A fork has one thread of its parent. What another thread held at that moment would stay held in the copy for ever, so a
copy is made only where no other thread runs, or one that is known to hold nothing the copy needs.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

Work = Callable[[BinaryIO, BinaryIO], object]  # reads requests, writes answers

_LARGEST = 2 * 2**30  # bytes: what this process changes later is held twice while the copy lives
# Threads that a copy does without: they wait, or draw on the terminal, which the copy never does.
_WAITING = ("ctrl-c", "poolscope-opening")
_DRAWING = "rich.live"
_ALLOCATOR = "jemalloc_bg_thd"  # of pyarrow, which is ready for forks


class Copy:
    """A copy of this process at work; of `subprocess.Popen` it has what the one who asks it needs."""

    def __init__(self, pid: int, stdin: BinaryIO, stdout: BinaryIO) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, None while it works."""
        return self._ended(os.WNOHANG)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self._ended(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _ended(self, flags: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, flags)
            except ChildProcessError:  # somebody else has waited for it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def can_be_copied() -> bool:
    """Whether a copy of this process may be tried; what the threads of libraries are shows when it is made.

    >>> can_be_copied() in (True, False)
    True
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return False
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    return all(map(_is_harmless, others)) and _resident() < _LARGEST


def copy_at(work: Work) -> Copy | None:
    """A copy of this process at this work; None where one cannot be had."""
    if not can_be_copied():
        return None
    requests, answers = os.pipe(), os.pipe()
    try:
        with warnings.catch_warnings():  # newer Pythons warn of the threads that are looked at below
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:  # no memory, or no process more
        for end in (*requests, *answers):
            os.close(end)
        return None
    if pid == 0:
        _be_the_copy(work, requests[0], answers[1])
    # The threads of OpenBLAS end before a fork and come back later. So those that are here now were there, too.
    unknown = _unknown_threads()
    os.close(requests[0])
    os.close(answers[1])
    copy = Copy(pid, os.fdopen(requests[1], "wb"), os.fdopen(answers[0], "rb"))
    if not unknown:
        return copy
    copy.kill()
    copy.wait()
    copy.stdin.close()
    copy.stdout.close()
    return None


def _is_harmless(thread: threading.Thread) -> bool:
    return thread.name in _WAITING or type(thread).__module__ == _DRAWING


def _unknown_threads() -> set[int]:
    """Threads of this process that are not known to be harmless, by their numbers."""
    known = {thread.native_id for thread in threading.enumerate() if _is_harmless(thread)}
    unknown = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it ended just now
            if (task / "comm").read_text(encoding="ascii", errors="replace").strip() != _ALLOCATOR:
                unknown.add(int(task.name))
    return unknown - known - {threading.get_native_id()}


def _resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _be_the_copy(work: Work, requests: int, answers: int) -> NoReturn:
    """Leave what belongs to the other process alone: its files, terminal, signals, objects that have an end."""
    try:
        gc.freeze()
        faulthandler.disable()
        logging.disable()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for end in range(3):
            os.dup2(null, end)
        for end in {int(place.name) for place in Path("/proc/self/fd").iterdir()} - {0, 1, 2, requests, answers}:
            with suppress(OSError):  # of the listing itself
                os.close(end)
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end of the process
        work(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))
    finally:
        os._exit(0)
