"""Every writer of folders, in a folder that an attacker prepared or exchanges: nothing outside of it changes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import zoo as families
from audit_data import asking, bag_of_words, topics
from command_line import run
from kills import disturbed_at, traced
from poolscope import audit, compare, fix, paper
from poolscope.connect.integrations.evaluator import SOCMEvaluator
from poolscope.errors import PoolscopeError
from poolscope.folder import LOCK
from poolscope.repairs.temperature.tempscale import bake
from store_fakes import corpus, fill

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there, and pipes are others")

Writer = Callable[[Path], object]
# Names that writers give to what is not finished.
HIDDEN = [LOCK, ".replacing", ".next", ".texts.lock"]
NAMES = [
    "audit",
    "comparison",
    "store",
    "replaced store",
    "moments",
    "paper",
    "repaired model",
    "evaluator",
    "fix by a setting",
    "fix by texts",
]


@pytest.fixture(scope="module")
def writers(tmp_path_factory) -> dict[str, Writer]:
    home = tmp_path_factory.mktemp("written")
    result = audit(bag_of_words, topics(12), queries=asking(topics(12)))
    result.save(home / "one", page=False)
    result.save(home / "two", page=False)
    comparison = compare(home / "one", home / "two")
    texts = topics(12)
    model, _ = families.family("BERT")
    named = home / "texts.jsonl", home / "queries.jsonl"
    rows = [{"id": str(k), "text": f"the same title in all texts {text}"} for k, text in enumerate(texts)]
    asked = [{"query": text, "relevant": str(k)} for k, text in enumerate(texts)]
    for path, content in zip(named, (rows, asked), strict=True):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in content))
    run("audit", "builtin:wordllama", named[0], "--queries", named[1], "--no-encode", "--no-page", "-o", home / "named")

    def replace_store(folder: Path) -> None:
        fill(folder)
        fill(folder, texts=corpus(7), overwrite=True)

    written: dict[str, Writer] = {
        "audit": lambda folder: result.save(folder, page=False),
        "comparison": comparison.save,
        "store": fill,
        "replaced store": replace_store,
        "moments": lambda folder: fill(folder, keep="moments"),
        "paper": lambda folder: paper("socm", folder, figures=["3"], cache=False),
        "repaired model": lambda folder: bake(model, 1.1, folder),
        "evaluator": lambda folder: SOCMEvaluator(texts)._write(folder, {"socm": 0.5}),
        "fix by a setting": lambda folder: fix(home / "named", folder, cure="maxsim"),
        "fix by texts": lambda folder: fix(home / "named", folder, cure="stripped"),
    }
    assert list(written) == NAMES
    return written


@pytest.fixture
def victim(tmp_path) -> Path:
    """A folder of the user that no run may touch."""
    folder = tmp_path / "home"
    (folder / "empty").mkdir(parents=True)
    (folder / "key").write_text("the owner's key")
    return folder


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that a writer could change: names, rights, times, contents."""
    return {
        str(path): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


def names_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def attack(write: Writer, folder: Path, victim: Path) -> bool:
    """Whether the writer came to an end; what it refuses is one of our errors, and the victim is as it was."""
    before = state(victim)
    try:
        write(folder)
        done = True
    except PoolscopeError:
        done = False
    assert state(victim) == before
    return done


@pytest.mark.parametrize("name", NAMES)
def test_no_name_that_it_writes_leads_out(tmp_path, writers, victim, name):
    write = writers[name]
    write(tmp_path / "clean")
    names = [*names_below(tmp_path / "clean"), *HIDDEN]
    assert len(names) > len(HIDDEN)
    for number, each in enumerate(names):
        for kind, target in {"file": victim / "key", "folder": victim, "new": victim / "new"}.items():
            folder = tmp_path / f"{number} {kind}"
            (folder / each).parent.mkdir(parents=True)
            (folder / each).symlink_to(target)
            attack(write, folder, victim)
        folder = tmp_path / f"{number} hard link"
        (folder / each).parent.mkdir(parents=True)
        (folder / each).hardlink_to(victim / "key")
        attack(write, folder, victim)
        for made in tmp_path.glob(f"{number} *"):
            shutil.rmtree(made)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_is_itself_a_link_gets_nothing(tmp_path, writers, victim, name):
    (tmp_path / "loop").symlink_to("loop")
    assert not attack(writers[name], tmp_path / "loop", victim)
    for number, target in enumerate((victim, victim / "empty", victim / "new", victim / "key")):
        (tmp_path / f"out {number}").symlink_to(target)
        assert not attack(writers[name], tmp_path / f"out {number}", victim)


# Others go the same ways, and take minutes here.
@pytest.mark.parametrize("name", ["audit", "comparison", "moments", "repaired model", "evaluator", "fix by texts"])
def test_a_folder_exchanged_at_any_change_of_the_disk_gets_nothing(tmp_path, writers, victim, name):
    before = state(victim)
    for step in range(300):
        out = tmp_path / f"out {step}"

        def exchange(out: Path = out) -> None:
            if out.is_dir():
                out.rename(f"{out} moved")
            out.symlink_to(victim)

        reached = disturbed_at(step, lambda out=out: writers[name](out), exchange)
        assert state(victim) == before, step
        if not reached:
            assert step > 1
            return
    raise AssertionError("more than 300 steps")


@pytest.mark.parametrize("name", NAMES)
def test_a_forged_replacement_is_not_taken_up(tmp_path, writers, victim, name):
    out = tmp_path / "out"
    (out / ".replacing" / "tables").mkdir(parents=True)
    for each in ("audit.json", "tables/key", "manifest.json"):
        (out / ".replacing" / each).write_text("the attacker's")
    listed = {"files": {"audit.json": 14, "tables/key": 14, "manifest.json": 14}, "removed": ["mine", "../home/key"]}
    (out / ".replacing" / ".list").write_text(json.dumps({**listed, "made_by": "0" * 64}))
    (out / "tables").symlink_to(victim)
    (out / "mine").write_text("mine")
    attack(writers[name], out, victim)
    assert (out / "mine").read_text() == "mine"
    assert "the attacker's" not in {path.read_text() for path in out.glob("*.json")}


# A library writes the weights, through a way that leads by the descriptor (`Folder.for_libraries`).
@pytest.mark.parametrize("name", [name for name in NAMES if name != "repaired model"])
def test_nothing_below_it_is_changed_by_a_path(tmp_path, writers, name):
    out = tmp_path / "out"
    changes = traced(lambda: writers[name](out))
    assert changes  # the writer was seen at work
    assert [change for change in changes if f"{out}{os.sep}" in change] == []
