"""Does a wheel run where its name says? auditwheel reads the symbols of its library; the tag must not promise more.

python tools/check_platform.py dist/poolscope-0.1.0-py3-none-manylinux_2_17_x86_64.whl
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def glibc(tag: str) -> tuple[int, int]:
    """The oldest glibc of a manylinux tag.

    >>> glibc("manylinux_2_17_x86_64")
    (2, 17)
    """
    match = re.search(r"manylinux_(\d+)_(\d+)_", tag)
    if match is None:
        raise SystemExit(f"{tag}: this is no tag manylinux_MAJOR_MINOR_MACHINE, which other distributions accept.")
    return int(match[1]), int(match[2])


def main(wheel: str) -> None:
    """Compare the tag in the name with the one that auditwheel finds."""
    run = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True
    )
    consistent = re.search(r'platform\s+tag:\s+"([^"]+)"', run.stdout)
    if consistent is None or glibc(consistent[1]) > glibc(Path(wheel).name):
        raise SystemExit(f"{wheel}: auditwheel finds another platform.\n{run.stdout}")
    print(f"{Path(wheel).name}: its library needs no more than {consistent[1]}")


if __name__ == "__main__":
    main(sys.argv[1])
