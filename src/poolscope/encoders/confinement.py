"""Limits of the process that opens foreign models: memory, processor time, files, places, network.

A process that confines itself cannot take the limits back. What a system lacks is left out, and `confine` says what it
set: Linux has all of it (places and network from kernel 5.13 and 6.7 on), macOS the processor time and the open files,
Windows none; the time limit of whoever waits for the process is there everywhere.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

inside = False  # is this a process in which foreign models are opened first?

OPEN_FILES = 256
_LARGEST_FILE = 2**24  # bytes of a file that is written where nothing has to be


@dataclass(frozen=True)
class Limits:
    """The limits of one opening: bytes of memory beyond those of the process, and seconds.

    `written` is the largest file that it may write, in bytes.
    """

    memory: int
    processor: float
    wall: float
    written: int = _LARGEST_FILE

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for the other process."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Limits:
        """What `to_dict` wrote."""
        return cls(**content)


def confine(limits: Limits, readable: Iterable[Path], writable: Iterable[Path] = ()) -> tuple[str, ...]:
    """Limit this process for good; return the names of the limits that the system has."""
    confined = []
    if sys.platform == "linux":
        _die_with_parent()
        if restrict_places([*readable, *_installation()], writable):
            confined.append("places")
    with suppress(ImportError):  # Windows
        confined += _limit_resources(limits)
    return tuple(confined)


def _limit_resources(limits: Limits) -> list[str]:
    import resource

    seconds = math.ceil(limits.processor)
    wanted = {
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_FSIZE": limits.written,
        "RLIMIT_CPU": seconds,  # a signal at the limit, the end two seconds behind it
        "RLIMIT_AS": _memory_in_use() + limits.memory,
    }
    if sys.platform == "darwin":
        del wanted["RLIMIT_AS"]  # which it takes and does not enforce
    limited = []
    for name, value in wanted.items():
        kind = getattr(resource, name)
        highest = resource.getrlimit(kind)[1]
        value = value if highest == resource.RLIM_INFINITY else min(value, highest)
        ceiling = value + 2 if name == "RLIMIT_CPU" and highest == resource.RLIM_INFINITY else value
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, ceiling))
            limited.append(name.removeprefix("RLIMIT_").lower())
    return limited


def _memory_in_use() -> int:
    """The address space of this process in bytes; 0 where the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


# -- places (Landlock) ------------------------------------------------------------------------------------------------

# The numbers of the system calls are the same on every architecture that has them.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NO_NEW_PRIVILEGES, _PARENT_DEATH_SIGNAL = 38, 1
_BENEATH = 1  # the kind of rule: a file or folder and what is below it
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_FILE_ONLY = 1 << 0 | 1 << 1 | _READ_FILE | 1 << 14 | 1 << 15  # rights that a rule about a file may give
# Rights on files that each version of the interface added, as the number of the highest one.
_HIGHEST_RIGHT = {1: 12, 2: 13, 3: 14, 4: 14, 5: 15}
_TCP_FROM, _SCOPES_FROM = 4, 6  # versions
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals of other processes


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("rights", ctypes.c_uint64), ("descriptor", ctypes.c_int32)]


def restrict_places(readable: Iterable[Path], writable: Iterable[Path] = ()) -> bool:
    """Let this process read and write below these places only, and reach no network; False where no kernel can.

    A place that does not exist is left out. Files that are open already stay open.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    rights = (1 << (_HIGHEST_RIGHT[min(version, 5)] + 1)) - 1
    ruleset = _Ruleset(rights, _TCP if version >= _TCP_FROM else 0, _SCOPES if version >= _SCOPES_FROM else 0)
    size = 8 * (1 + (version >= _TCP_FROM) + (version >= _SCOPES_FROM))
    rules = libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    if rules < 0:
        return False
    try:
        reading = _READ_FILE | _READ_FOLDER
        for places, wanted in ((readable, reading), (writable, rights)):
            for place in places:
                _allow(libc, rules, place, wanted & rights)
                if not place.is_dir():  # libraries look which files stand beside one; they cannot be read
                    _allow(libc, rules, place.parent, _READ_FOLDER)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _allow(libc: Any, rules: int, place: Path, rights: int) -> None:
    try:
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = _Beneath(rights if place.is_dir() else rights & _FILE_ONLY, descriptor)
        libc.syscall(_ADD_RULE, rules, _BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _installation() -> list[Path]:
    """Where Python, its packages and the system's libraries lie, and what they read of the machine."""
    packages = [place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")]
    own = Path(__file__).resolve().parents[1]
    return [
        *(Path(place) for place in {*packages, *sysconfig.get_paths().values(), sys.base_prefix}),
        own,
        *map(Path, ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom")),
        *map(Path, ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system", "/sys/fs/cgroup")),
    ]


def _die_with_parent() -> None:
    """Be ended when the process that started this one ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
