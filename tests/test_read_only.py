"""Folders that nobody may write: they are read like any other, and refused in one line where something is to go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from audit_data import asking, bag_of_words, topics
from poolscope import audit
from store_fakes import fill

# The rights of a folder hold for root, too, once it has given up these.
POWERS = "-dac_override,-dac_read_search,-fowner"
ROOT = sys.platform != "win32" and os.geteuid() == 0
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or (ROOT and shutil.which("setpriv") is None), reason="folders cannot be closed here"
)


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """Two audits, a store, texts and the cache of a run before, in folders that cannot be written."""
    home = tmp_path_factory.mktemp("closed")
    result = audit(bag_of_words, topics(12), queries=asking(topics(12)))
    for name in ("one", "two"):
        result.save(home / name, page=False)
    fill(home / "store")
    (home / "texts.txt").write_text("\n".join(topics(12)))
    assert poolscope(home, "audit", *RUN, "-o", home / "three").returncode == 0  # which fills the cache
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield home
    for folder in folders:
        folder.chmod(0o755)


RUN = ("builtin:wordllama", "texts.txt", "--no-page")


def poolscope(home: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    less = ["setpriv", f"--bounding-set={POWERS}", f"--inh-caps={POWERS}"] if ROOT else []
    return subprocess.run(
        [*less, sys.executable, "-m", "poolscope", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, "XDG_CACHE_HOME": str(home / "cache"), "POOLSCOPE_CACHE": str(home / "cache" / "clouds")},
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", *RUN, "-o", "one"),
        ("audit", *RUN, "-o", "new"),
        ("compare", "one", "two", "-o", "one"),
        ("encode", *RUN[:2], "-o", "new"),
        ("chunk", *RUN[:2], "-o", "chunks.jsonl"),
        ("tune", *RUN[:2], "-o", "repair.safetensors"),
    ],
    ids=lambda arguments: f"{arguments[0]} into {arguments[-1]}",
)
def test_what_is_to_go_there_is_refused_in_one_line(closed, arguments):
    before = sorted(closed.rglob("*"))
    done = poolscope(closed, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("poolscope: ")
    assert "Permission denied" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(closed.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments", [("verify", "one"), ("verify", "store"), ("compare", "one", "two"), ("socm", "store")], ids=" ".join
)
def test_what_lies_there_is_read(closed, arguments):
    done = poolscope(closed, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cache_that_cannot_be_written_is_read(closed, tmp_path):
    done = poolscope(closed, "audit", *RUN, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert "cache" not in done.stderr
