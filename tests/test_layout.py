"""The shape of the project: one direction of imports, a cheap root, public names that exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import poolscope

SOURCE = Path(poolscope.__file__).parent

# Stages from first to last; a module imports only from its own stage or an earlier one. Modules not named here are
# found by their first component.
STAGES = [
    ["errors", "extensions", "files", "locks"],
    ["texts"],
    ["clouds"],
    ["numbers"],
    ["results", "verdicts"],
    ["encoders"],
    ["chunks", "stores"],
    ["capture"],
    ["charts"],
    ["metrics"],
    ["evaluation"],
    ["repairs"],
    ["integrations"],
    ["report"],
    ["auditing"],
    ["research"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(STAGES) for name in names}


def imported_stages(path: Path) -> set[str]:
    """Stages that a file imports when it is itself imported (not inside functions or for type checking)."""
    found = set()
    pending = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("poolscope"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("poolscope.")}
        elif isinstance(node, ast.If | ast.Try | ast.With):
            pending.extend(node.body)
    return found - {"__version__"}


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_in_one_direction(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in RANK, f"{own} has no stage; add it to STAGES"
    back = [name for name in imported_stages(path) if RANK.get(name, 99) > RANK[own]]
    assert back == [], f"{own} imports from later stages"


def test_importing_the_root_and_the_command_line_is_cheap():
    heavy = ("torch", "transformers", "plotly", "pandas", "scipy")
    code = f"import sys, poolscope, poolscope.cli; print(*[name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


def test_public_names_exist():
    for name in poolscope.__all__:
        assert getattr(poolscope, name) is not None
    assert set(poolscope.__all__) == set(poolscope._HOMES)
    with pytest.raises(AttributeError, match="nonsense"):
        poolscope.nonsense  # noqa: B018


def test_missing_extra_is_named():
    from poolscope.errors import MissingExtraError, require

    with pytest.raises(MissingExtraError, match=r"pip install 'poolscope\[torch\]'"):
        require("surely_not_installed.part", "torch")
