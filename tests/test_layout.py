"""The shape of the project: one direction of imports, a cheap root, public names that exist."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import poolscope
from poolscope.surface import homes

SOURCE = Path(poolscope.__file__).parent

# Stages of the core from first to last; a module imports only from its own stage or an earlier one, wherever the import
# stands.
STAGES = [
    [
        "digests",
        "errors",
        "extensions",
        "files",
        "folder",
        "hosts",
        "keys",
        "machine",
        "replacing",
        "marks",
        "surface",
        "words",
    ],
    ["texts"],
    ["clouds"],
    ["numbers"],
    ["results", "schema", "show"],
    ["encoders"],
    ["chunks", "connectors", "stores"],
    ["metrics"],
    ["engines"],
    ["evaluation"],
    ["repairs"],
    ["auditing"],
    ["verification"],
    ["cli"],
    ["__main__"],
]
# The rooms beside the core: they import all of it, it imports neither, and they do not import each other.
ROOMS = ["lab", "connect"]
HOMES = homes(poolscope.__file__)
RANK = {name: rank for rank, names in enumerate([*STAGES, *([room] for room in ROOMS)]) for name in names}

# (file, stage that it imports from all the same): why. An entry that is no longer needed fails.
BACK_EDGES: dict[tuple[str, str], str] = {
    ("encoders/capabilities.py", "repairs"): "a model that keeps a rule runs by it as soon as it is loaded",
}
PLACE = re.compile(r"poolscope(\.\w+)+:[\w.]+")  # "package.module:name", imported when it is used
# Folders that may import torch: everything else sees numpy.
TORCH = ("encoders", "lab/capture", "repairs/temperature", "connect/integrations", "connect/patches.py")


def imports(path: Path) -> set[str]:
    """Every module that a file imports: at its top, inside functions, for type checking, or by the name of a place.

    A public name counts as an import from its home however it is reached: `poolscope.seal` too.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} if node.module != "poolscope" else {f"poolscope.{item.name}" for item in node.names}
        elif isinstance(node, ast.Import):
            names |= {item.name for item in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "poolscope" and node.attr in HOMES:
            names.add(f"poolscope.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PLACE.fullmatch(node.value):
            names.add(node.value.partition(":")[0])
    return names


def later_stages(path: Path) -> set[str]:
    """The stages after its own that a file imports from; public names of the root have the stage of their home."""
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in RANK, f"{own} has no stage; add it to STAGES"
    parts = [HOMES.get(name.removeprefix("poolscope."), name).split(".") for name in imports(path)]
    stages = {part[1] for part in parts if part[0] == "poolscope" and len(part) > 1}
    others = {*ROOMS} - {own} if own in ROOMS else set()
    return {stage for stage in stages if RANK.get(stage, -1) > RANK[own] or stage in others}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_run_in_one_direction(path):
    allowed = {stage for name, stage in BACK_EDGES if name == name_of(path)}
    assert later_stages(path) == allowed, "imports from later stages; or an exception that is no longer one"


CORE = [path for path in FILES if path.relative_to(SOURCE).parts[0] not in ROOMS]


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_the_core_names_a_room_only_where_its_rows_are_read(path):
    words = [
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {word for word in words if re.match(r"poolscope\.(lab|connect)\b", word)}
    assert named == ({f"poolscope.{room}.rows" for room in ROOMS} if name_of(path) == "extensions.py" else set())


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_torch_stops_at_its_wall(path):
    uses = any(part.split(".")[0] == "torch" for part in imports(path))
    assert name_of(path).startswith(TORCH) or not uses


# Ways out for words that pass by `words.clean`, and the files that may use each: those that build the clean one of it.
WAYS_OUT = {
    "warnings.warn": {"words.py"},
    "logging.getLogger": {"words.py"},
    "rich.console.Console": {"show/console.py"},
    "sys.stdout.write": set(),
    "sys.stderr.write": set(),
    "sys.__stdout__": set(),
    "sys.__stderr__": set(),
}


def ways_out(path: Path) -> set[str]:
    """The ways out of a file by their full names, however they were imported, and `print`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    full: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {item.asname or item.name: item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom):
            full |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, dot, rest = ast.unparse(node).partition(".")
            names.add(f"{full.get(first, first)}{dot}{rest}")
    return names & {*WAYS_OUT, "print"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_words_leave_by_one_exit(path):
    name = name_of(path)
    allowed = {way for way, files in WAYS_OUT.items() if name in files}
    if name == "words.py" or name.startswith("cli/"):  # whose streams are guarded before anything is printed
        allowed.add("print")
    assert ways_out(path) <= allowed


@pytest.mark.parametrize(
    "code",
    [
        "import warnings as w\nw.warn('a')",
        "from warnings import warn as told\ntold('a')",
        "print('a')",
        "from rich.console import Console\nConsole()",
        "from rich import console\nconsole.Console()",
        "import sys\nsys.stderr.write('a')",
        "import logging\nlogging.getLogger('a')",
    ],
)
def test_a_way_past_the_exit_is_found(code, tmp_path):
    (tmp_path / "code.py").write_text(code)
    assert len(ways_out(tmp_path / "code.py")) == 1


def test_every_exception_names_a_file():
    assert {name for name, _ in BACK_EDGES} <= {name_of(path) for path in FILES}


def test_importing_the_root_and_the_command_line_is_cheap():
    heavy = ("torch", "transformers", "plotly", "pandas", "scipy")
    code = f"import sys, poolscope, poolscope.cli; print(*[name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


def test_public_names_exist():
    for name in poolscope.__all__:
        assert getattr(poolscope, name) is not None
    assert set(poolscope.__all__) == set(HOMES)
    with pytest.raises(AttributeError, match="nonsense"):
        poolscope.nonsense  # noqa: B018


PROJECT = SOURCE.parents[1]
EXAMPLES = sorted(path for folder in ("docs", "examples") for path in (PROJECT / folder).rglob("*.*"))
IMPORT = re.compile(r"from (poolscope[\w.]*) import ([\w, ]+)")


@pytest.mark.skipif(not EXAMPLES, reason="an installed package has no documentation")
def test_examples_import_from_the_root_what_the_root_has():
    texts = [path for path in (PROJECT / "README.md", *EXAMPLES) if path.suffix in (".md", ".py", ".ipynb")]
    imported = [
        (path.name, module, name)
        for path in texts
        for module, names in IMPORT.findall(path.read_text(encoding="utf-8"))
        for name in names.replace(",", " ").split()
    ]
    assert len(imported) > 100
    assert [each for each in imported if each[1] != "poolscope" and each[2] in HOMES] == []


PUBLIC_FUNCTIONS = sorted(name for name in poolscope.__all__ if inspect.isfunction(getattr(poolscope, name)))


@pytest.mark.parametrize("name", PUBLIC_FUNCTIONS)
def test_every_public_function_says_what_it_takes_and_gives_and_shows_an_example(name):
    function = getattr(poolscope, name)
    text = inspect.getdoc(function) or ""
    sections = set(re.findall(r"^(\w+)\n-+$", text, flags=re.MULTILINE))
    assert ">>>" in text
    assert "Examples" in sections
    assert sections & {"Returns", "Yields"}
    described = text.partition("Parameters\n---")[2].partition("\nReturns\n---")[0]
    assert [each for each in inspect.signature(function).parameters if each not in described] == []


def test_missing_extra_is_named():
    from poolscope.errors import MissingExtraError, require

    with pytest.raises(MissingExtraError, match=r"pip install 'poolscope\[torch\]'"):
        require("surely_not_installed.part", "torch")
