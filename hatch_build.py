"""Compile the optional kernel while a wheel (or an editable install) is made, and put the documentation into the wheel.

The kernel is plain C without the Python headers, loaded by ctypes. Where no compiler is found the package installs all
the same, and the numpy route of equal results is used. `POOLSCOPE_NO_KERNEL=1` leaves it out on purpose.

Reports bring the pages that explain them, so these travel with the package; an editable install reads them from docs/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = [
    "-O3",
    "-std=c99",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-fPIC",
    "-shared",
]


class PoolscopeBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version != "editable":
            build_data["force_include"].update(documentation(Path(self.root) / "docs"))
        folder = Path(self.root) / "src" / "poolscope" / "numbers" / "bures"
        library = folder / ("_kernel.dll" if sys.platform == "win32" else "_kernel.so")
        library.unlink(missing_ok=True)
        reason = (
            "POOLSCOPE_NO_KERNEL is set" if os.environ.get("POOLSCOPE_NO_KERNEL") else compile_kernel(folder, library)
        )
        if reason:
            self.app.display_warning(f"poolscope: kernel not compiled, the numpy route will be used ({reason})")
            return
        build_data["artifacts"].append(str(library.relative_to(self.root)))
        build_data["pure_python"] = False
        platform_tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform_tag}"


def documentation(folder: Path) -> dict[str, str]:
    """Pages and drawings, each with its place in the wheel."""
    files = [*folder.glob("*.md"), *folder.glob("images/*.svg")]
    return {str(file): f"poolscope/docs/{file.relative_to(folder).as_posix()}" for file in files}


def compile_kernel(folder: Path, library: Path) -> str | None:
    """Compile; None on success, otherwise the reason why not."""
    compiler = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        return "no C compiler found"
    try:
        command = [*compiler.split(), *FLAGS, "-o", str(library), str(folder / "kernel.c"), "-lm"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode:
        library.unlink(missing_ok=True)
        return f"{compiler} failed: {run.stderr.strip()[-500:]}"
    return None
