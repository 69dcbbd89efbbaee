"""What is wrong in a call is said before torch is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

IMPORTED = 99
TORCH = f"import os\nos._exit({IMPORTED})\n"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "fake" / "torch").mkdir(parents=True)
    (tmp_path / "fake" / "torch" / "__init__.py").write_text(TORCH)
    rows = [{"id": f"d{k}", "text": f"text number {k}"} for k in range(40)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, head, letter in (("q", "query,id", "d"), ("other", "query,relevant", "z"), ("columns", "foo,bar", "d")):
        lines = [head, *(f"number {k},{letter}{k}" for k in range(20))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "fake"), *sys.path])}

    def call(words):
        command = [sys.executable, "-m", "poolscope", *words.split()]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False).returncode

    return call


@pytest.mark.parametrize(
    "words",
    [
        "audit builtin:minilm t.jsonl --no-files --queries other.csv",
        "audit builtin:minilm t.jsonl --no-files --queries columns.csv",
        "audit builtin:minilm t.jsonl --no-files --column nope",
        "audit builtin:minilm t.jsonl --no-files --against no/such/model",
        "audit builtin:minilm t.jsonl --no-files --against builtin:nope",
        "audit builtin:minilm t.jsonl --no-files --card card.txt",
        "audit builtin:minilm t.jsonl --no-files --device warp",
        "calibrate t.jsonl --queries other.csv",
    ],
)
def test_what_is_wrong_is_said_before_torch_is_imported(run, words):
    assert run(words) == 2


def test_queries_with_the_columns_query_and_id_are_read(run):
    assert run("audit builtin:minilm t.jsonl --no-files --queries q.csv") == IMPORTED
