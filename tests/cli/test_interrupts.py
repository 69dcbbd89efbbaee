"""Ctrl-C in a real process: it ends soon, says what was kept and how to go on, with exit code 130 and no traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import poolscope as ps
from command_line import run
from poolscope.cli.application import _unless_interrupted
from poolscope.files import held_folder
from poolscope.folder import LOCK
from store_fakes import fill
from tiny_models import declare, save_model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no other process can press Ctrl-C there")

LONG = 300  # seconds of work under way; a process that waits for it to end is found out
LOADING = "poolscope.encoders"  # importing torch is work enough
# A call of C that no signal ends, and that lets other threads run meanwhile.
BUSY = "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"


def interrupted(folder: Path, arguments: list[object], *, patch: str, home: Path, before: str = "pass") -> str:
    """What a command says that gets Ctrl-C while it is busy in the function `patch` (module:name)."""
    module, name = patch.split(":")
    mark = folder / "mark"
    code = f"""
import hashlib, sys
from pathlib import Path
import {module} as module
original = module.{name}
def marked(*arguments, **options):
    {before}
    Path({str(mark)!r}).touch()
    {BUSY if module != LOADING else "pass"}
    return original(*arguments, **options)
module.{name} = marked
sys.argv = ["poolscope", *{[str(argument) for argument in arguments]!r}]
from poolscope.cli import main
main()
"""
    paths = os.pathsep.join([str(Path(ps.__file__).parents[1]), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(home), "OMP_NUM_THREADS": "1"}
    environment.pop("POOLSCOPE_CACHE", None)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            while not mark.exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LONG / 5)  # generous: only a process that hangs takes so long
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.count("poolscope: interrupted.") == 1
    return said


@pytest.fixture
def model(tmp_path):
    """A table of words: it needs no torch, which takes seconds to start."""
    words = ["the", "cat", "number", "sat", "on", "a", "mat", *map(str, range(40))]
    vectors = np.random.default_rng(0).standard_normal((len(words), 8)).round(3)
    rows = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, vectors.tolist(), strict=True)]
    path = tmp_path / "words.vec"
    path.write_text("\n".join([f"{len(words)} 8", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"the cat number {k} sat on a mat" for k in range(40)), encoding="utf-8")
    return path


# A command in a process that goes on after it and, like the command itself, begins others.
FORKING = """
import os, signal, sys, time
from poolscope.cli import main
from poolscope.cli.application import watched

def interrupt_a_fork():
    child = os.fork()
    if child == 0:
        try:
            time.sleep(60)
        finally:
            os._exit(3)
    time.sleep(0.2)
    os.kill(child, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3

sys.argv = ["poolscope", "verify", "there is none"]
try:
    main()
except SystemExit as end:
    assert end.code == 2
else:
    raise AssertionError("the command was to fail")
assert signal.set_wakeup_fd(-1) == -1
with watched():
    interrupt_a_fork()
    time.sleep(1.5)  # longer than the moment that a command has to end
print("goes on")
"""


def test_a_forked_process_that_is_interrupted_does_not_end_its_parent():
    ended = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=LONG)
    assert (ended.returncode, ended.stdout) == (0, "goes on\n"), ended.stderr


def test_while_encoding_the_store_is_kept_and_continued(tmp_path, model, texts):
    store = tmp_path / "store"
    arguments = ["encode", model, texts, "-o", store, "--shard-texts", 10]
    first = f"if not list(Path({str(store)!r}).rglob('shard-*.arrow')): return original(*arguments, **options)"
    said = interrupted(tmp_path, arguments, patch="poolscope.stores.writer:encode_shard", home=tmp_path, before=first)
    assert re.search(rf"10 of 40 texts .*{re.escape(str(store))}", said)
    (shard,) = store.rglob("shard-*.arrow")
    data = shard.read_bytes()
    assert "10 of 40 texts" in run(*arguments)
    assert shard.read_bytes() == data


def test_while_the_kernel_runs_in_all_threads(tmp_path):
    path = tmp_path / "clouds.arrow"
    generator = np.random.default_rng(0)
    ps.TokenClouds.from_arrays([generator.standard_normal((60, 64)) for _ in range(400)]).save(path)
    said = interrupted(tmp_path, ["socm", path], patch="poolscope.numbers.bures.pairs:_block", home=tmp_path)
    assert "Nothing was" in said


def test_while_a_model_is_loaded(tmp_path, texts):
    model = declare(save_model(tmp_path / "model"), pooling={"pooling_mode_mean_tokens": True})
    arguments = ["encode", model, texts, "-o", tmp_path / "store"]
    said = interrupted(tmp_path, arguments, patch=f"{LOADING}:as_encoder", home=tmp_path)
    assert "Nothing was" in said
    assert not (tmp_path / "store").exists()


def test_while_trials_run_what_was_encoded_is_kept(tmp_path, model, texts):
    patch = "poolscope.auditing.run:examine"
    arguments = ["audit", model, texts, "--output", tmp_path / "audit"]
    said = interrupted(tmp_path, arguments, patch=patch, home=tmp_path)
    assert "the cache" in said
    assert {path.name for path in (tmp_path / "audit").rglob("*")} <= {LOCK}  # which locks nothing any more
    with held_folder(tmp_path / "audit"):
        pass
    assert list(tmp_path.rglob("shard-*.arrow"))


def test_a_store_that_would_be_replaced_stands(tmp_path, model, texts):
    fill(tmp_path / "store")
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    arguments = ["encode", model, texts, "-o", tmp_path / "store", "--overwrite"]
    said = interrupted(tmp_path, arguments, patch="poolscope.stores.writer:encode_shard", home=tmp_path)
    assert re.search(rf"\b0 of 40 texts .*{re.escape(str(tmp_path / 'store'))}", said)
    assert {path: path.read_bytes() for path in before} == before


# Every other long command, in a function of its measurement; they keep nothing unless they are told to.
WORK = {
    "length": "poolscope.lab.length.report:_attempt",
    "tokens": "poolscope.lab.tokens.measure:pieces",
    "tune": "poolscope.repairs.tune:_prepared",
    "windows": "poolscope.lab.windows:_part",
    "layers": "poolscope.lab.layers.measure:_offsets",
}


@pytest.mark.parametrize("command", WORK)
def test_every_long_command(tmp_path, model, texts, command):
    if command == "layers":
        model = declare(save_model(tmp_path / "model"), pooling={"pooling_mode_mean_tokens": True})
    halves = [f"the cat number {k} sat on a mat the cat on {39 - k} sat a number" for k in range(40)]
    texts.write_text("\n".join(halves), encoding="utf-8")
    said = interrupted(tmp_path, [command, model, texts], patch=WORK[command], home=tmp_path)
    assert "Nothing was" in said
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_interrupt_that_python_ignores_is_not_reported_and_others_are():
    told = []
    for error in (KeyboardInterrupt(), ValueError()):
        _unless_interrupted(told.append, SimpleNamespace(exc_value=error))
    assert [type(each.exc_value) for each in told] == [ValueError]
