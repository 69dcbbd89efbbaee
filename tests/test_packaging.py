"""Packages made of the source: what is in them, their platform tag, and that making them leaves the tree as it was."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

pytest.importorskip("hatchling")
ROOT = Path(__file__).parent.parent
PARTS = ("src", "docs", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE", ".gitignore")
NO_COMPILER = "/there/is/no/compiler"
compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def hook():
    """The module hatch_build.py."""
    description = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    """A copy of what a package is made from, with the libraries of an earlier editable install in it."""
    copy = tmp_path / "tree"
    copy.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "_kernel.*"))
        else:
            shutil.copy2(ROOT / part, copy / part)
    for library in hook().LIBRARIES:
        (copy / library).write_bytes(b"an earlier library")
    return copy


def build(tree: Path, target: str, **environment: str) -> Path:
    """The package that the build backend makes of the tree, without the network."""
    folder = tree.parent / f"{target}-{len(list(tree.parent.iterdir()))}"
    folder.mkdir()
    code = f"from hatchling import build; build.build_{target}({str(folder)!r})"
    variables = {key: value for key, value in os.environ.items() if key not in ("CC", "POOLSCOPE_NO_KERNEL")}
    subprocess.run([sys.executable, "-c", code], cwd=tree, env={**variables, **environment}, check=True)
    return next(folder.iterdir())


def state(tree: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file."""
    files = [path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(tree)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def kernels(wheel: Path) -> dict[str, bytes]:
    """The compiled libraries in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if "/_kernel." in name}


@compiled
def test_a_wheel_brings_its_own_library_and_leaves_the_tree_alone(tree):
    before = state(tree)
    wheel = build(tree, "wheel")
    assert state(tree) == before
    assert kernels(wheel).keys() == {str(library.relative_to("src")) for library in hook().LIBRARIES}
    assert b"an earlier library" not in kernels(wheel).values()
    if sys.platform == "linux":  # an index refuses linux_x86_64; kernel.c needs nothing that glibc 2.17 has not
        assert "-py3-none-manylinux_2_17_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert "poolscope/docs/socm.md" in archive.namelist()


def test_a_source_distribution_builds_without_a_compiler(tree):
    sdist = build(tree, "sdist")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/_kernel." in name]
        archive.extractall(tree.parent / "unpacked", filter="data")
    wheel = build(next((tree.parent / "unpacked").iterdir()), "wheel", CC=NO_COMPILER)
    assert not kernels(wheel)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        sources = {str(kernel.relative_to("src")) for kernel in hook().KERNELS}
        assert {"poolscope/docs/socm.md", "poolscope/py.typed", *sources} <= set(names)
        metadata = message_from_bytes(archive.read(next(name for name in names if name.endswith("/METADATA"))))
    heading = (tree / "README.md").read_text(encoding="utf-8").partition("\n")[0]
    assert heading in metadata.get_payload()


def install_editable(tree: Path) -> list[str]:
    """What the hook does for an editable install of the tree; the warnings that it shows."""
    warnings: list[str] = []
    application = SimpleNamespace(display_warning=warnings.append)
    step = hook().PoolscopeBuildHook(str(tree), {}, None, None, "", "wheel", application)
    step.initialize("editable", {"force_include": {}})
    step.finalize("editable", {}, "")
    return warnings


@compiled
def test_an_editable_install_puts_each_library_beside_its_source(tree, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("POOLSCOPE_NO_KERNEL", raising=False)
    before = state(tree)
    assert not install_editable(tree)
    libraries = {str(library) for library in hook().LIBRARIES}
    assert {name for name, value in state(tree).items() if before.get(name) != value} == libraries
    assert all((tree / library).read_bytes() != b"an earlier library" for library in libraries)


@pytest.mark.parametrize(("variable", "value"), [("CC", NO_COMPILER), ("POOLSCOPE_NO_KERNEL", "1")])
def test_an_editable_install_without_a_compiler_keeps_the_library(tree, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    before = state(tree)
    for library, warning in zip(hook().LIBRARIES, install_editable(tree), strict=True):
        assert str(library) in warning
    assert state(tree) == before
    (tree / hook().LIBRARIES[0]).unlink()
    assert "slower routes" in install_editable(tree)[0]


def test_a_kernel_that_is_not_where_the_build_looks_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"kernel\.c: the source"):
        hook().compile_kernel(tmp_path / "kernel.c", tmp_path / "library")


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is of Linux")
def test_the_platform_tag_is_of_the_newest_symbol(tmp_path, monkeypatch):
    module, library = hook(), tmp_path / "library"
    monkeypatch.setattr(module.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(module.sysconfig, "get_platform", lambda: "linux-aarch64")
    for symbols, tag in (("GLIBC_2.2.5", "2_17"), ("GLIBC_2.2.5\0GLIBC_2.29\0GLIBC_2.4", "2_29")):
        library.write_bytes(symbols.encode())
        assert module.platform_tag(library) == f"manylinux_{tag}_aarch64"
    monkeypatch.setattr(module.platform, "libc_ver", lambda: ("", ""))  # musl
    assert module.platform_tag(library) == "linux_aarch64"


def test_the_lowest_versions_are_those_that_are_declared():
    """constraints-lowest.txt says the floors of pyproject.toml again, as exact versions; torch apart, see there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    used = floors(project["dependencies"], *(needs for name, needs in extras.items() if name not in ("test", "docs")))
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = floors([line for line in lines if line and not line.startswith("#")])
    assert used.keys() <= pins.keys()
    everything = used | floors(extras["test"])
    assert {name: pin for name, pin in pins.items() if name != "torch" and everything.get(name) != pin} == {}


def floors(*needs: list[str]) -> dict[str, Version]:
    """The lowest version that stands in the requirements of each package, of poolscope's own extras apart."""
    parsed = [Requirement(need) for need in chain(*needs)]
    bounds = [(each.name, Version(bound.version)) for each in parsed for bound in each.specifier]
    return dict(sorted(bounds, reverse=True))


def test_links_of_the_readme_lead_somewhere_on_an_index():
    image, others = '<img src="docs/a.png" width="7">\n\n', "[speed](#speed), [paper](https://arxiv.org/abs/1), f(a)[0]"
    text = f"{image}[docs](docs/a.md), {others}"
    links = hook().with_absolute_links
    assert links(text, None) == f"docs, {others}"
    address = "https://host/us/poolscope"
    assert links(text, f"{address}/") == (
        f'<img src="{address}/raw/HEAD/docs/a.png" width="7">\n\n[docs]({address}/blob/HEAD/docs/a.md), {others}'
    )
    whole = links((ROOT / "README.md").read_text(encoding="utf-8"), None)
    assert "](docs/" not in whole
    assert 'src="docs/' not in whole
