"""The memory that a process may still take, as the system or its container tells it."""

from __future__ import annotations

import os
from pathlib import Path

_UNKNOWN = 4 * 2**30  # bytes, where no system tells


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can be taken without swapping: what the system has left, or the control group if that is less.

    `root` is the folder of the system's files, for tests.
    """
    return min([_of_system(root), *_of_group(root)])


def _of_system(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2  # no count of what is free, as on macOS
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN


def _of_group(root: Path) -> list[int]:
    """What the control group of a container has left; nothing where there is no limit."""
    folder = root / "sys/fs/cgroup"
    try:
        limit, used = ((folder / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        return [max(int(limit) - int(used), 0)] if limit != "max" else []
    except (OSError, ValueError):
        return []
