"""Compile the optional kernels while a package is made, put the documentation into it, the README into its metadata.

The kernels are plain C without the Python headers, loaded by ctypes. Where no compiler is found the package installs
all the same, and numpy and torch give equal results. `POOLSCOPE_NO_KERNEL=1` leaves them out on purpose.

A wheel is built without touching the source tree: the libraries are made in a temporary folder and packed from there.
An editable install runs from the source tree, so there, and only there, a library that was compiled is put beside its
source; one that could not be compiled replaces nothing.

Reports bring the pages that explain them, so these travel with the package; an editable install reads them from docs/.

The README names files of this repository, which a package index does not have: there its links lead to the repository
that [project.urls] names, and are plain words as long as it names none.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCES = PurePosixPath("src")
KERNELS = tuple(SOURCES / "poolscope" / folder / "kernel.c" for folder in ("numbers/bures", "encoders"))
LIBRARIES = tuple(kernel.with_name("_kernel.dll" if sys.platform == "win32" else "_kernel.so") for kernel in KERNELS)

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
# manylinux_2_17 is the oldest platform that current installers and build images still speak of.
OLDEST_GLIBC = (2, 17)


class PoolscopeBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        editable = version == "editable"
        if not editable:
            build_data["force_include"].update(documentation(root / "docs"))
        self.temporary = tempfile.TemporaryDirectory(prefix="poolscope-build-")
        made = []
        for number, (source, place) in enumerate(zip(KERNELS, LIBRARIES, strict=True)):
            library = Path(self.temporary.name) / f"{number}{place.name}"
            reason = compile_kernel(root / source, library)
            if reason:
                before = editable and (root / place).exists()
                rest = f"{place} of an earlier install stays in use" if before else "slower routes will be used"
                self.app.display_warning(f"poolscope: {source} not compiled, {rest} ({reason})")
            elif editable:
                install(library, root / place)
            else:
                build_data["force_include"][str(library)] = str(place.relative_to(SOURCES))
                made.append(library)
        if made:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag(*made)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name == "wheel":
            self.temporary.cleanup()


class PoolscopeMetadataHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        content = with_absolute_links(text, repository) + mark_of_server(Path(self.root), repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": content}


def mark_of_server(root: Path, repository: str | None) -> str:
    """The line by which the registry of MCP servers knows whose package this is; "" while no repository is named."""
    if not repository:
        return ""
    place = root / "tools" / "check_release.py"
    description = importlib.util.spec_from_file_location("check_release", place)
    module = importlib.util.module_from_spec(description)
    sys.modules[description.name] = module  # where its dataclass looks itself up
    description.loader.exec_module(module)
    return f"\n<!-- mcp-name: {module.server_name(repository)} -->\n"


def with_absolute_links(text: str, repository: str | None) -> str:
    """Markdown whose links to files lead into the repository; without one they are words, and images are left out."""
    image, link = r'<img src="(?!https?:)([^"]+)"', r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)"
    if repository is None:
        return re.sub(link, r"\1", re.sub(rf"{image}[^>]*>\n*", "", text))
    address = repository.rstrip("/")
    return re.sub(link, rf"[\1]({address}/blob/HEAD/\2)", re.sub(image, rf'<img src="{address}/raw/HEAD/\1"', text))


def documentation(folder: Path) -> dict[str, str]:
    """Pages and drawings, each with its place in the wheel."""
    files = [*folder.glob("*.md"), *folder.glob("images/*.svg")]
    return {str(file): f"poolscope/docs/{file.relative_to(folder).as_posix()}" for file in files}


def compile_kernel(source: Path, library: Path) -> str | None:
    """Compile; None on success, otherwise the reason why not."""
    if not source.exists():  # a mistake in this project, not a machine without a compiler
        raise FileNotFoundError(f"{source}: the source of the kernel is not where hatch_build.py says it is")
    if os.environ.get("POOLSCOPE_NO_KERNEL"):
        return "POOLSCOPE_NO_KERNEL is set"
    compiler = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        return "no C compiler found"
    try:
        command = [*compiler.split(), *FLAGS, "-o", str(library), str(source), "-lm"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return f"{compiler} failed: {run.stderr.strip()[-500:]}" if run.returncode or not library.exists() else None


def install(library: Path, place: Path) -> None:
    """Put the library at its place in one step: a process that has loaded the old one keeps it."""
    beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    shutil.copy2(library, beside)
    beside.replace(place)


def platform_tag(*libraries: Path) -> str:
    """The platforms that can load the libraries, as a wheel names them.

    With glibc it is the manylinux tag of the newest symbol version that they ask for: they need nothing but libc and
    libm. The names of those versions stand in them as plain text.
    """
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if tag.endswith("universal2"):  # the compiler makes the code of this machine only
        return tag.replace("universal2", platform.machine())
    if not tag.startswith("linux_") or platform.libc_ver()[0] != "glibc":
        return tag
    needed = re.findall(rb"GLIBC_(\d+)\.(\d+)", b"\0".join(library.read_bytes() for library in libraries))
    major, minor = max([OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in needed)])
    return tag.replace("linux", f"manylinux_{major}_{minor}", 1)
