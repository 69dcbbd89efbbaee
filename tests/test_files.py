from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from poolscope.files import atomic_path, user_cache_folder, write_json


def test_atomic_path_moves_on_success_only(tmp_path):
    target = tmp_path / "sub" / "file.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("one")
        assert not target.exists()
    assert target.read_text() == "one"

    def broken() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("two")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert target.read_text() == "one"
    assert [path.name for path in target.parent.iterdir()] == ["file.txt"]


def test_a_reader_keeps_the_old_file_whole_while_a_new_one_takes_its_name(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")
    with target.open() as reader:
        with atomic_path(target) as temporary:
            temporary.write_text("new")
        assert reader.read() == "old"
    assert target.read_text() == "new"


def test_write_json_refuses_nan_and_keeps_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"µ": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"µ": 1}


def test_user_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert user_cache_folder() == tmp_path / "cache" / "poolscope"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for platform, expected in (
        ("linux", ".cache/poolscope"),
        ("darwin", "Library/Caches/poolscope"),
        ("win32", "AppData/Local/poolscope/Cache"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.delenv("LOCALAPPDATA", raising=False)
        assert user_cache_folder() == tmp_path / expected
