"""One writer at a time."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from poolscope.errors import StoreError
from poolscope.folder import LOCK, StoreBusyError
from poolscope.stores.writer import store_lock
from store_fakes import FakeEncoder, fill, never


def test_a_second_writer_is_refused_and_a_dead_one_succeeded(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from poolscope.stores.writer import store_lock\n"
    code += f"with store_lock(Path({str(tmp_path)!r})): print('locked', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(StoreBusyError, match=rf"process {process.pid} on \S+ "):
            fill(tmp_path)
        process.kill()
    assert (tmp_path / LOCK).exists()
    fill(tmp_path)
    assert not (tmp_path / LOCK).exists()


def test_the_same_process_cannot_write_twice_at_once(tmp_path: Path) -> None:
    with store_lock(tmp_path), pytest.raises(StoreBusyError), store_lock(tmp_path):
        pass
    with store_lock(tmp_path):
        pass


def test_a_lock_file_without_a_signature_is_explained_all_the_same(tmp_path: Path) -> None:
    with store_lock(tmp_path):
        (tmp_path / LOCK).write_text("")
        with pytest.raises(StoreBusyError, match="another process"), store_lock(tmp_path):
            pass


def test_a_finished_store_opens_while_it_is_locked(tmp_path: Path) -> None:
    fill(tmp_path)
    with store_lock(tmp_path):
        assert fill(tmp_path, encoder=FakeEncoder(before=never)).reused == 10


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"/file/store: .*\("):
        fill(tmp_path / "file" / "store")


def test_a_lock_file_that_vanishes_while_it_is_taken_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder removes its file between our open and our lock: what we hold then locks nobody out."""
    attempts = []
    flock = fcntl.flock

    def slow_lock(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX:
            if not attempts:
                (tmp_path / LOCK).unlink()
            attempts.append(descriptor)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", slow_lock)
    with store_lock(tmp_path, wait=1.0):
        assert len(attempts) == 2
        assert (tmp_path / LOCK).exists()


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "not implemented")

    monkeypatch.setattr(fcntl, "flock", no_flock)
    with pytest.warns(UserWarning, match="no locks"), store_lock(tmp_path):
        pass
