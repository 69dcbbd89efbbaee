from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

import pytest

from poolscope import cli, files, read_texts
from poolscope.clouds.vectors import read_vectors
from poolscope.connect.runtimes.seal import Seal
from poolscope.errors import OutputError, PoolscopeError, StoreError
from poolscope.files import atomic_file, check_file, check_folder, user_cache_folder, write_json, writing
from poolscope.texts.runs import read_qrels, read_run


def test_atomic_file_moves_on_success_only(tmp_path):
    target = tmp_path / "sub" / "file.txt"
    with atomic_file(target) as stream:
        stream.write(b"one")
        assert not target.exists()
    assert target.read_text() == "one"

    def broken() -> None:
        with atomic_file(target) as stream:
            stream.write(b"two")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert target.read_text() == "one"
    assert [path.name for path in target.parent.iterdir()] == ["file.txt"]


def test_a_reader_keeps_the_old_file_whole_while_a_new_one_takes_its_name(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")
    with target.open() as reader:
        with atomic_file(target) as stream:
            stream.write(b"new")
        assert reader.read() == "old"
    assert target.read_text() == "new"


def test_write_json_refuses_nan_and_keeps_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"µ": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"µ": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="the usual place of Linux")
def test_user_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert user_cache_folder() == tmp_path / "cache" / "poolscope"
    user_cache_folder().chmod(0o755)  # as earlier versions left it
    assert user_cache_folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache_folder() == tmp_path / ".cache" / "poolscope"


def test_a_name_that_can_be_written_leaves_nothing_behind(tmp_path):
    check_file(tmp_path / "a" / "b" / "x.json")
    assert check_folder(tmp_path / "c" / "d") == tmp_path / "c" / "d"
    (tmp_path / "kept").mkdir()
    check_file(tmp_path / "kept" / "x.json")
    check_folder(tmp_path / "kept")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


def test_what_is_no_file_is_never_replaced(tmp_path):
    (tmp_path / "file").write_text("old")
    for write in (check_file, lambda path: write_json(path, {})):
        with pytest.raises(OutputError, match=f"{re.escape(str(tmp_path))}, which is"):
            write(tmp_path)
        with pytest.raises(OutputError, match=f"{os.devnull}, "):
            write(os.devnull)
        with pytest.raises(OutputError, match=r"x\.json, but .*/file is"):
            write(tmp_path / "file" / "x.json")
    with pytest.raises(OutputError, match=r"/file, but .*/file is"):
        check_folder(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "old"


def test_what_the_system_refuses_is_said_in_plain_words(tmp_path):
    def write(error: OSError) -> None:
        with atomic_file(tmp_path / "x.bin"):
            raise error

    with pytest.raises(OutputError, match=r"x\.bin: .*\(No space") as full:
        write(OSError(errno.ENOSPC, "No space left on device"))
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(OutputError, match=r"\(File name too"):
        check_file(tmp_path / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


def test_a_store_says_the_reason_once(tmp_path):
    def write() -> None:
        with writing(tmp_path), atomic_file(tmp_path / "x.bin"):
            raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(StoreError, match="Permission denied") as refused:
        write()
    assert str(refused.value).count("cannot be") == 1


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="the system does not say where the holes are")
@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl", "json", "run", "qrels", "seal", "npy"])
def test_a_file_of_holes_is_refused(tmp_path, ending):
    path = tmp_path / f"file.{ending}"
    path.write_bytes(b"q0 Q0 d 1 1 t\n")
    os.truncate(path, 2**36)
    read = {"run": read_run, "qrels": read_qrels, "seal": Seal.load, "npy": read_vectors}.get(ending, read_texts)
    with pytest.raises(PoolscopeError, match="are on the disk"):
        read(path)


def test_a_large_file_without_holes_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_ROOM", 0)
    monkeypatch.setattr(files, "_FOLD", 0)
    (tmp_path / "texts.txt").write_text("one\ntwo\n")
    assert len(read_texts(tmp_path / "texts.txt")) == 2


def test_a_command_without_memory_says_so_in_one_line(monkeypatch, capsys):
    def taken(*_):
        raise MemoryError

    monkeypatch.setattr("poolscope.cli.application.run", taken)
    monkeypatch.setattr(sys, "argv", ["poolscope", "socm"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
