"""Ctrl-C: the work stops where it is, or is ended a second later, and what was kept is said.

Python raises KeyboardInterrupt between two of its own steps. A model or a kernel may be far from the next one, and
threads that work are waited for. Since every file is whole or absent at any moment, and a folder is replaced in one
step, nothing is lost if the process ends at once: so a thread watches for the signal and ends it after a moment.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

from poolscope.interrupts import what_is_kept

INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended
SECONDS = 1.0  # for what is under way to come to its own end

_came = threading.Event()
_saying = threading.Lock()


def watch() -> None:
    """Begin to watch for Ctrl-C in this process; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        return
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_wait, args=(reads, writes), name="ctrl-c", daemon=True).start()


def _wait(reads: socket.socket, writes: socket.socket) -> None:
    """Wait for the signal, then for the end; `writes` is held so that it stays open."""
    while signal.SIGINT not in reads.recv(1):
        pass
    _came.set()
    reads.settimeout(SECONDS)
    began = time.monotonic()
    with suppress(TimeoutError):
        while signal.SIGINT not in reads.recv(1) and time.monotonic() < began + SECONDS:
            pass
    end_interrupted()


def was_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C ended the command, whatever became of it on its way up: click makes an exit of it."""
    code = error.code if isinstance(error, SystemExit) else None
    return _came.is_set() or isinstance(error, KeyboardInterrupt) or code == INTERRUPTED


def end_interrupted() -> NoReturn:
    """Say that the command was stopped, what was kept and how to go on; then end, without waiting for threads."""
    with _saying:  # whoever comes second waits for the end
        kept = " ".join(what_is_kept()) or "Nothing was kept: the same command begins anew."
        shown = "\N{ESCAPE}[?25h" if sys.stderr.isatty() else ""  # the cursor, which a bar has hidden
        with suppress(OSError, ValueError):
            print(f"{shown}\npoolscope: interrupted. {kept} No file is half written.", file=sys.stderr, flush=True)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(INTERRUPTED)
