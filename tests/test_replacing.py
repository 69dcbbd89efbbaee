"""Several files are replaced as one: whenever the writer dies, readers find all of the old or all of the new."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from audit_data import bag_of_words, topics
from kills import full, killed_at, matrix
from poolscope import Audit, TokenClouds, audit
from poolscope.errors import OutputError
from poolscope.files import atomic_file, atomic_folder, folder_to_write
from poolscope.folder import LOCK, temporary_name
from poolscope.replacing import current_file, replaced_files
from poolscope.stores.store import Store
from soaking import Writer, attacked, soak, what_is_wrong, writers
from store_fakes import CARD, LAYERS, FakeEncoder, contents, corpus, fill

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")


def test_the_matrix_notices_a_writer_that_is_not_careful(tmp_path):
    old = tmp_path / "file"
    old.write_text("old")

    def careless():
        old.unlink()
        old.write_text("new")

    seen = []
    matrix(careless, lambda _: (seen.append(old.exists()), old.write_text("old")))
    assert False in seen


def test_a_writer_attacked_at_any_moment_loses_nothing():
    quick = [writer for writer in writers() if writer.name != "audit"]  # which the matrix below has
    verdicts = soak(lambda: iter(range(2)), quick, say=lambda line: None)
    assert verdicts.counts.total() == 42
    assert not verdicts.wrong


@pytest.mark.parametrize("attack", ["kill", "interrupt"])
def test_attacks_notice_a_writer_that_is_not_careful(tmp_path, attack):
    def careless(folder):
        (folder / "file").write_text("half")
        time.sleep(60)

    old, new = {"file": b"old"}, {"file": b"new"}
    (tmp_path / "file").write_text("old")
    attacked(lambda: careless(tmp_path), attack, 1.0, 0)
    assert "neither" in what_is_wrong(
        Writer("careless", careless, careless, contents), tmp_path, [old, new], new, attack
    )


def test_files_are_replaced_in_one_step_wherever_the_writer_dies(tmp_path):
    folder = tmp_path / "out"
    with folder_to_write(folder) as opened, replaced_files(opened, stale=["*.txt"]) as written:
        for name in ("a.txt", "b.txt", "gone.txt"):
            written.write(name, b"old")
    (folder / "mine.md").write_text("mine")
    states = []

    def write():
        with folder_to_write(folder) as opened, replaced_files(opened, stale=["*.txt"]) as written:
            for name in ("a.txt", "b.txt", "deep/new.txt"):
                written.write(name, b"new")

    def check(_):
        contents = {current_file(folder, name).read_text() for name in ("a.txt", "b.txt")}
        assert len(contents) == 1
        states.extend(contents)
        assert (folder / "mine.md").read_text() == "mine"

    assert matrix(write, check) > 8
    assert set(states) == {"old", "new"}
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["a.txt", "b.txt", "mine.md", "new.txt"]


def test_an_audit_stands_until_the_next_one_is_whole(tmp_path):
    old, new = audit(bag_of_words, topics(12)), audit(bag_of_words, topics(14, seed=1))
    old.save(tmp_path, page=False)
    counts = []

    def check(_):
        loaded = Audit.load(tmp_path)
        counts.append(loaded.corpus["texts"])
        whole = old if counts[-1] == 12 else new
        assert set(loaded.tables) == set(whole.tables)
        assert all(loaded.tables[name].equals(whole.tables[name]) for name in whole.tables)

    steps = matrix(lambda: new.save(tmp_path, page=False), check)
    assert steps > 10
    assert counts == sorted(counts)
    assert set(counts) == {12, 14}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_full_disk_leaves_the_audit_before_it(tmp_path, monkeypatch):
    old, new = audit(bag_of_words, topics(12)), audit(bag_of_words, topics(14, seed=1))
    old.save(tmp_path, page=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("mkdir", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(OutputError, match="No space"):
                new.save(tmp_path, page=False)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["clouds.arrow", "a[b]*.arrow"])
def test_a_later_run_removes_what_a_killed_one_left(tmp_path, name):
    clouds = TokenClouds.from_arrays([np.eye(3)])
    target = tmp_path / name
    (tmp_path / f".{name}.other.tmp").write_text("not ours")

    def check(step):
        if target.exists():
            assert len(TokenClouds.open(target)) == 1

    assert matrix(lambda: clouds.save(target), check) >= 2
    clouds.save(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f".{name}.other.tmp", name])


def test_the_file_of_a_writer_that_lives_is_left_alone(tmp_path):
    living = tmp_path / temporary_name("x").replace(f".{os.getpid()}.", f".{os.getppid()}.")
    living.write_text("of a process that lives")
    for name in ("x", "y", "x"):
        with atomic_file(tmp_path / name) as stream:
            stream.write(b"again")
    assert living.exists()


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "model"

    def write():
        with atomic_folder(target) as temporary:
            temporary.write("a", b"a")
            temporary.write("b", b"b")

    def check(_):
        assert not target.exists() or sorted(path.name for path in target.iterdir()) == ["a", "b"]

    assert matrix(write, check) >= 3
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_store_killed_at_any_step_is_continued_to_the_same_bytes(tmp_path):
    fill(tmp_path / "whole", texts=corpus(4, labels=True))
    whole = contents(tmp_path / "whole")
    for step in range(300):
        folder = tmp_path / str(step)
        killed = killed_at(step, lambda folder=folder: fill(folder, texts=corpus(4, labels=True)))
        fill(folder, texts=corpus(4, labels=True))
        assert {name: data for name, data in contents(folder).items() if name != LOCK} == whole, step
        if not killed:
            break
    assert step > 15


def test_a_store_that_is_replaced_is_all_old_or_all_new_wherever_the_writer_dies(tmp_path):
    other = FakeEncoder(replace(CARD, revision="r2"))
    fill(tmp_path / "old", texts=corpus(7, labels=True))
    fill(tmp_path / "new", encoder=other, texts=corpus(4))
    old, new = (Store.open(tmp_path / name) for name in ("old", "new"))
    after, seen = contents(new.folder), []
    for step in range(300):
        folder = tmp_path / str(step)
        shutil.copytree(old.folder, folder)

        def write(folder=folder):
            fill(folder, encoder=other, texts=corpus(4), overwrite=True)

        killed = killed_at(step, write)
        store = Store.open(folder)
        whole = old if len(store) == 7 else new
        assert all(store.clouds(layer).to_table().equals(whole.clouds(layer).to_table()) for layer in LAYERS)
        assert store.labels == whole.labels
        seen.append(len(store))
        write()
        assert {name: data for name, data in contents(folder).items() if name != LOCK} == after
        if not killed:
            break
    assert step > 20
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {7, 4}
