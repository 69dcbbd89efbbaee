"""Folders that others made: nothing in them decides where is written, and nothing outside of them changes."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from audit_data import asking, bag_of_words, topics
from poolscope import Audit, audit, compare
from poolscope import folder as folders
from poolscope.errors import OutputError, StoreError
from poolscope.files import atomic_file, check_folder, folder_to_write, held_folder
from poolscope.folder import LOCK, Folder, StoreBusyError
from poolscope.replacing import finish_replacing, replace_files, replaced_files
from poolscope.results import write_csv
from store_fakes import fill

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there, and pipes are others")

PLACES = ["tables", "tables/deep"]


@pytest.fixture(params=[True, False], ids=["by descriptor", "by path"])
def kinds(request, monkeypatch):
    """Systems with descriptors of folders, and those without."""
    monkeypatch.setattr(folders, "_BY_DESCRIPTOR", request.param)


@pytest.fixture(scope="module")
def result() -> Audit:
    return audit(bag_of_words, topics(12), queries=asking(topics(12)))


@pytest.fixture
def victim(tmp_path) -> Path:
    """A folder of the user that no run may touch."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "authorized_keys").write_text("the owner's key")
    return folder


def untouched(victim: Path) -> bool:
    files = {path.name: path.read_text() for path in victim.iterdir()}
    return files == {"authorized_keys": "the owner's key"}


def forged(folder: Path, files: dict[str, str], listed: object) -> None:
    """Leave what looks like a replacement that was decided and not finished."""
    for name, content in files.items():
        place = folder / ".replacing" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    (folder / ".replacing" / ".list").write_text(json.dumps(listed))


def refused(*arguments: object) -> str:
    """The one line with which a command ends that the command line refuses."""
    command = [sys.executable, "-m", "poolscope", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


# -- a replacement that someone else left -----------------------------------------------------------------------------


def test_a_received_folder_makes_no_audit_write_outside_of_it(tmp_path, victim):
    evil, texts = tmp_path / "received", tmp_path / "texts.txt"
    forged(evil, {"tables/authorized_keys": "the attacker's key", ".removed": "[]"}, [])
    (evil / "tables").symlink_to(victim)
    texts.write_text("\n".join(topics(12)))
    said = refused("audit", "builtin:wordllama", texts, "--no-encode", "--no-page", "-o", evil)
    assert "by you" in said
    assert untouched(victim)


def test_no_writer_of_folders_takes_up_what_another_left(tmp_path, result, kinds):
    result.save(tmp_path / "one", page=False)
    result.save(tmp_path / "two", page=False)
    writers = {
        "audit": lambda folder: result.save(folder, page=False),
        "compare": lambda folder: compare(tmp_path / "one", tmp_path / "two").save(folder),
        "store": lambda folder: fill(folder),
    }
    for name, write in writers.items():
        folder = tmp_path / f"received {name}"
        forged(folder, {"audit.json": "{}"}, {"files": {"audit.json": 2}, "removed": [], "made_by": "0" * 64})
        with pytest.raises((OutputError, StoreError)):
            write(folder)
        assert not (folder / "audit.json").exists()


@pytest.mark.parametrize("by", [b"", b"\0" * 32, "the digest of the list"])
def test_a_replacement_needs_the_key_of_this_user(tmp_path, by):
    plan = {"files": {"a": 1}, "removed": []}
    content = json.dumps(plan, sort_keys=True).encode()
    mark = hashlib.sha256(content) if isinstance(by, str) else hmac.new(by, content, hashlib.sha256)
    forged(tmp_path, {"a": "x"}, {**plan, "made_by": mark.hexdigest()})
    with Folder.open(tmp_path) as folder, pytest.raises(OutputError, match=r"\.replacing: "):
        finish_replacing(folder)
    assert not (tmp_path / "a").exists()


def decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A replacement of this user that stopped right after its step."""
    (tmp_path / "old").write_text("old")
    with folder_to_write(tmp_path) as folder, monkeypatch.context() as stopped:
        stopped.setattr("poolscope.replacing.finish_replacing", lambda folder: None)
        with replaced_files(folder, stale=["old"]) as written:
            written.write("a", b"new a")
            written.write("deep/b", b"new b")
    assert (tmp_path / "old").exists()
    return tmp_path / ".replacing"


def test_a_replacement_of_this_user_is_taken_up(tmp_path, monkeypatch):
    decided(tmp_path, monkeypatch)
    with Folder.open(tmp_path) as folder:
        finish_replacing(folder)
        assert sorted(folder.files()) == ["a", "deep/b"]
        assert folder.read("deep/b") == b"new b"


@pytest.mark.parametrize("change", ["longer", "more", "less", "link", "pipe", "list"])
def test_a_replacement_whose_list_and_files_differ_is_refused(tmp_path, monkeypatch, change, victim):
    target = tmp_path / "out"
    target.mkdir()
    hidden = decided(target, monkeypatch)
    plan = json.loads((hidden / ".list").read_text())
    changes = {
        "longer": lambda: (hidden / "a").write_text("longer than it was"),
        "more": lambda: (hidden / "c").write_text("c"),
        "less": lambda: (hidden / "a").unlink(),
        "link": lambda: (hidden / "c").symlink_to(victim),
        "pipe": lambda: os.mkfifo(hidden / "c"),
        "list": lambda: (hidden / ".list").write_text(json.dumps({**plan, "removed": ["old", "mine"]})),
    }
    changes[change]()
    (target / "mine").write_text("mine")
    with Folder.open(target) as folder, pytest.raises(OutputError):
        finish_replacing(folder)
    assert (target / "old").read_text() == "old"
    assert (target / "mine").read_text() == "mine"
    assert untouched(victim)


def test_a_link_is_no_unfinished_replacement(tmp_path, victim, kinds):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".replacing").symlink_to(victim)
    with Folder.open(tmp_path / "out") as folder, pytest.raises(OutputError, match="a link"):
        finish_replacing(folder)
    assert untouched(victim)


# -- links, pipes, exchanged folders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_no_link_on_the_way_is_followed(tmp_path, victim, kinds, place):
    link = tmp_path / "out" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with folder_to_write(tmp_path / "out") as folder:
        for attempt in (
            lambda: folder.write(f"{place}/authorized_keys", b"the attacker's"),
            lambda: folder.remove(f"{place}/authorized_keys"),
            lambda: folder.read(f"{place}/authorized_keys"),
            lambda: folder.match(f"{place}/*"),
            lambda: folder.append(f"{place}/authorized_keys", "more"),
        ):
            with pytest.raises(OutputError, match="a link"):
                attempt()
    assert untouched(victim)


def test_an_audit_follows_no_link_of_its_folder(tmp_path, victim, result, kinds):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").symlink_to(victim)
    with pytest.raises(OutputError, match="tables is"):
        result.save(tmp_path / "out", page=False)
    assert untouched(victim)


def test_a_link_or_a_hard_link_in_place_of_a_file_is_replaced_itself(tmp_path, victim, result, kinds):
    out = tmp_path / "out"
    out.mkdir()
    (out / "audit.json").symlink_to(victim / "authorized_keys")
    os.link(victim / "authorized_keys", out / "report.html")
    result.save(out)
    assert untouched(victim)
    assert not (out / "audit.json").is_symlink()
    assert Audit.load(out).corpus == result.corpus


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_the_lock_file_is_never_written_through(tmp_path, victim, kinds, kind):
    out = tmp_path / "out"
    out.mkdir()
    key = victim / "authorized_keys"
    {"link": (out / LOCK).symlink_to, "hard link": (out / LOCK).hardlink_to, "pipe": lambda _: os.mkfifo(out / LOCK)}[
        kind
    ](key)
    with folder_to_write(out) as folder:
        assert folder.kind(LOCK) == "file"
    assert untouched(victim)


def test_a_pipe_is_neither_waited_for_nor_written(tmp_path, kinds):
    os.mkfifo(tmp_path / "a")
    with folder_to_write(tmp_path) as folder:
        with pytest.raises(OutputError, match=r"/a is .*regular"):
            folder.read("a")
        with pytest.raises(OutputError, match=r"/a is .*nor"):
            folder.files()
        folder.write("a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"


def test_a_folder_that_is_a_link_is_named(tmp_path, victim, result, kinds):
    (tmp_path / "out").symlink_to(victim)
    for write in (lambda: result.save(tmp_path / "out"), lambda: check_folder(tmp_path / "out")):
        with pytest.raises(OutputError, match=r"/out is .*/home"):
            write()
    assert untouched(victim)


def test_a_folder_exchanged_after_it_was_opened_gets_nothing(tmp_path, victim):
    out = tmp_path / "out"
    with folder_to_write(out) as folder, replaced_files(folder) as written:
        written.write("tables/a", b"a")
        out.rename(tmp_path / "moved")
        out.symlink_to(victim)
        written.write("authorized_keys", b"ours")
    assert untouched(victim)
    assert sorted(path.name for path in (tmp_path / "moved").rglob("*") if path.is_file()) == ["a", "authorized_keys"]


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a//b", ".", "a\0"])
def test_no_name_leads_out_of_a_folder(tmp_path, kinds, name):
    with Folder.open(tmp_path / "out") as folder, pytest.raises(OutputError, match=re.escape(repr(name))):
        folder.write(name, b"")
    assert list(tmp_path.iterdir()) == []


def test_single_files_replace_what_has_their_name_and_follow_it_nowhere(tmp_path, victim, kinds):
    (tmp_path / "a.json").symlink_to(victim / "authorized_keys")
    with atomic_file(tmp_path / "a.json") as stream:
        stream.write(b"{}")
    assert untouched(victim)
    assert (tmp_path / "a.json").read_bytes() == b"{}"


def test_files_are_moved_from_one_device_to_another(tmp_path, monkeypatch):
    rename = os.replace

    def across(source, target, *, src_dir_fd=None, dst_dir_fd=None):
        if target == "a" and not str(source).endswith(".tmp"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "replace", across)
    with folder_to_write(tmp_path) as folder, replaced_files(folder) as written:
        written.write("b", b"b")
        written.write("a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_replacement_that_was_killed_over_its_list_goes_on(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with folder_to_write(tmp_path) as folder:
        folder.write(".next/a", b"a")
        left = folders.temporary_name(".list").replace(f".{os.getpid()}.", f".{dead.pid}.")
        (tmp_path / ".next" / left).write_text("half")
        replace_files(folder, ".next")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# -- two runs into one folder -----------------------------------------------------------------------------------------


def test_a_second_audit_into_the_same_folder_is_refused(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(topics(12)))
    with held_folder(tmp_path / "out"):
        with pytest.raises(StoreBusyError, match=f"process {os.getpid()} on "), held_folder(tmp_path / "out"):
            pass
        said = refused("audit", "builtin:wordllama", texts, "--no-encode", "--no-page", "-o", tmp_path / "out")
        assert f"process {os.getpid()} on " in said
    assert not (tmp_path / "out").exists()  # nothing was written, and the lock went


# -- tables for spreadsheets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r=1", "＝1"])
def test_no_cell_of_a_csv_file_is_a_formula(tmp_path, text):
    from pyarrow import csv

    with atomic_file(tmp_path / "t.csv") as stream:
        write_csv(pa.table({text: [1], "text": [text], "number": [-1.5]}), stream)
    table = csv.read_csv(tmp_path / "t.csv", parse_options=csv.ParseOptions(newlines_in_values=True))
    assert table.column_names == [f"'{text}", "text", "number"]
    assert table.to_pylist() == [{f"'{text}": 1, "text": f"'{text}", "number": -1.5}]
