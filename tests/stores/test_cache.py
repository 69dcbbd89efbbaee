"""The cache: nothing encoded twice, nothing stale, nothing in the way."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import EncoderOptions
from poolscope.errors import InputError
from poolscope.stores.cache import cache_folder, cache_limit, cached_store, trim_cache
from poolscope.stores.cache import cached_clouds as clouds_of_the_cache
from poolscope.stores.store import MANIFEST
from poolscope.stores.writer import encode_to_store, store_lock
from store_fakes import CARD, FakeEncoder, contents, corpus, never

cached_clouds = partial(clouds_of_the_cache, shard_texts=3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def only_entry(cache: Path) -> Path:
    (entry,) = (path for path in cache.iterdir() if path.is_dir())
    return entry


def assert_equal(left: TokenClouds, right: TokenClouds) -> None:
    assert left.to_table().equals(right.to_table())
    assert left.provenance == right.provenance


def test_the_second_time_comes_from_the_cache() -> None:
    encoder = FakeEncoder()
    first = cached_clouds(encoder, corpus(), layers=(0, -1))
    second = cached_clouds(FakeEncoder(before=never), corpus(), layers=(0, -1))
    assert encoder.calls == 4
    assert list(first) == list(second) == [0, -1]
    for layer in first:
        assert_equal(first[layer], second[layer])


def test_opting_out_writes_nothing_and_gives_the_same_bits(cache: Path) -> None:
    without = cached_clouds(FakeEncoder(), corpus(), enabled=False)
    assert not cache.exists()
    assert list(without.ids) == list(corpus().ids)
    assert_equal(without, cached_clouds(FakeEncoder(), corpus()))


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": FakeEncoder(replace(CARD, revision="r2"))},
        {"encoder": FakeEncoder(replace(CARD, max_length=8))},
        {"texts": corpus(9)},
        {"texts": replace(corpus(), ids=tuple("abcdefghij"))},
        {"options": EncoderOptions(prompt="x: ")},
        {"layers": (0, -1)},
    ],
)
def test_any_other_choice_is_encoded_anew(cache: Path, change: dict[str, object]) -> None:
    cached_clouds(FakeEncoder(), corpus())
    choices = {"encoder": FakeEncoder(), "texts": corpus(), **change}
    encoder = choices["encoder"]
    assert isinstance(encoder, FakeEncoder)
    calls = encoder.calls
    cached_clouds(**choices)  # type: ignore[arg-type]
    assert encoder.calls > calls
    assert len(list(cache.iterdir())) == 2


def test_labels_source_and_speed_are_no_other_choice() -> None:
    cached_clouds(FakeEncoder(), corpus())
    texts = replace(corpus(labels=True), source="standard input")
    again = FakeEncoder(before=never)
    assert len(cached_clouds(again, texts, options=EncoderOptions(device="cpu", batch_tokens=64))) == len(texts)
    assert again.calls == 0


def test_an_entry_of_a_card_without_parameters_is_used() -> None:
    cached_clouds(FakeEncoder(), corpus())
    counted = FakeEncoder(replace(CARD, parameters=12), before=never)
    assert len(cached_clouds(counted, corpus())) == len(corpus())
    assert counted.calls == 0


def test_a_model_without_revision_is_not_cached(cache: Path) -> None:
    """A function may change under the same name, and nothing would tell."""
    encoder = FakeEncoder(replace(CARD, revision=None))
    for _ in range(2):
        cached_clouds(encoder, corpus())
    assert encoder.calls == 2
    assert not cache.exists()


def test_ready_arrays_come_through() -> None:
    clouds = FakeEncoder().encode(corpus().texts)[-1]
    found = cached_clouds(as_encoder(clouds), corpus())
    assert list(found.ids) == list(corpus().ids)
    np.testing.assert_array_equal(found[9], clouds[9])


def test_an_interrupted_filling_is_continued() -> None:
    def interrupt(call: int) -> None:
        if call == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_clouds(FakeEncoder(before=interrupt), corpus())
    encoder = FakeEncoder()
    continued = cached_clouds(encoder, corpus())
    assert encoder.calls == 2
    assert_equal(continued, cached_clouds(FakeEncoder(), corpus(), enabled=False))


def test_a_damaged_shard_is_said_and_encoded_again(cache: Path) -> None:
    cached_clouds(FakeEncoder(), corpus())
    shard = only_entry(cache) / "layer-last" / "shard-00002.arrow"
    os.truncate(shard, 100)
    encoder = FakeEncoder()
    with pytest.warns(UserWarning, match=r"damaged .*: 1 of"):
        repaired = cached_clouds(encoder, corpus())
    assert encoder.calls == 1
    assert_equal(repaired, cached_clouds(FakeEncoder(), corpus(), enabled=False))


@pytest.mark.parametrize("damage", ["", "{}", "gone", "of another model"])
def test_a_damaged_manifest_is_said_and_the_entry_rebuilt(cache: Path, damage: str) -> None:
    cached_clouds(FakeEncoder(), corpus())
    manifest = only_entry(cache) / MANIFEST
    if damage == "gone":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text().replace("r1", "r9") if damage == "of another model" else damage)
    with pytest.warns(UserWarning, match=r"damaged .*: all of"):
        rebuilt = cached_clouds(FakeEncoder(), corpus())
    assert_equal(rebuilt, cached_clouds(FakeEncoder(before=never), corpus()))
    assert_equal(rebuilt, cached_clouds(FakeEncoder(), corpus(), enabled=False))


def test_a_cache_in_use_is_passed_by(cache: Path) -> None:
    cached_clouds(FakeEncoder(), corpus())
    entry = only_entry(cache)
    (entry / "layer-last" / "shard-00002.arrow").unlink()  # as if another process were filling it
    with store_lock(entry), pytest.warns(UserWarning, match=r"in memory.*process \d+ "):
        clouds = cached_clouds(FakeEncoder(), corpus())
    np.testing.assert_array_equal(clouds[9], cached_clouds(FakeEncoder(), corpus(), enabled=False)[9])


def test_a_cache_that_cannot_be_written_is_passed_by(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match=r"in memory.*\bfile\b"):
        clouds = cached_clouds(FakeEncoder(), corpus(), cache_dir=tmp_path / "file")
    assert len(clouds) == 10


def test_the_longest_unused_entries_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {}
    for position, revision in enumerate("abc"):
        cached_clouds(FakeEncoder(replace(CARD, revision=revision)), corpus())
        (entries[revision],) = set(cache.iterdir()) - set(entries.values())
        os.utime(entries[revision] / MANIFEST, (1000 + position, 1000 + position))
    (cache / "precious").mkdir()
    (cache / "precious" / "data").write_bytes(b"x" * 10_000)
    size = sum(map(len, contents(entries["a"]).values()))

    cached_clouds(FakeEncoder(replace(CARD, revision="a"), before=never), corpus())  # now "b" is the oldest
    monkeypatch.setenv("POOLSCOPE_CACHE_GB", str(3.5 * size / 1e9))
    cached_clouds(FakeEncoder(replace(CARD, revision="d")), corpus())
    left = set(cache.iterdir())
    assert entries["b"] not in left
    assert {entries["a"], entries["c"], cache / "precious"} < left
    assert len(left) == 4

    with store_lock(entries["c"]):
        assert entries["c"] not in trim_cache(cache, limit=0)
    assert trim_cache(cache, limit=0, keep=entries["c"]) == []
    assert set(cache.iterdir()) == {entries["c"], cache / "precious"}


def test_an_entry_larger_than_the_limit_serves_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLSCOPE_CACHE_GB", "0")
    for _ in range(2):
        assert len(cached_clouds(FakeEncoder(), corpus())) == 10
    cached_clouds(FakeEncoder(before=never), corpus())


def visits(number: int, limit: str, said: Any) -> None:
    """Use entries of a cache that others use too. Runs in a process of its own."""
    os.environ["POOLSCOPE_CACHE_GB"] = limit
    draw = random.Random(number)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(15):
            card = replace(CARD, revision=draw.choice("abc"))
            encoder = FakeEncoder(card, before=lambda call: time.sleep(draw.random() / 200))
            assert_equal(cached_clouds(encoder, corpus()), cached_clouds(FakeEncoder(card), corpus(), enabled=False))
    said.put([str(warning.message) for warning in caught])


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not forked there")
@pytest.mark.parametrize("limit", ["10", "0"])
def test_several_processes_share_a_cache(cache: Path, limit: str) -> None:
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    processes = [context.Process(target=visits, args=(number, limit, said)) for number in range(4)]
    for process in processes:
        process.start()
    assert [said.get(timeout=120) for _ in processes] == [[]] * 4  # none calls it damaged, or does without
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_an_entry_that_is_read_or_filled_is_not_removed(cache: Path) -> None:
    store = cached_store(FakeEncoder(), corpus(), shard_texts=3)
    assert store is not None
    assert trim_cache(cache, limit=0) == []
    assert len(store.clouds()) == 10
    entry = store.folder
    del store
    assert trim_cache(cache, limit=0) == [entry]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_no_rights_are_changed_through_a_link(cache: Path, tmp_path: Path) -> None:
    cached_clouds(FakeEncoder(), corpus())
    entry, mine, also = only_entry(cache), tmp_path / "mine", tmp_path / "also mine"
    mine.mkdir(mode=0o755)
    also.write_text("")
    for path in (mine, also):
        path.chmod(0o755)
    (entry / "link").symlink_to(mine)
    (entry / "hard").hardlink_to(also)
    (entry / "layer-last" / "shard-00000.arrow").unlink()
    cached_clouds(FakeEncoder(), corpus())
    assert {path.stat().st_mode & 0o777 for path in (mine, also)} == {0o755}
    shutil.rmtree(entry)
    entry.symlink_to(mine)
    with pytest.warns(UserWarning, match="in memory"):
        cached_clouds(FakeEncoder(), corpus())
    assert (mine.stat().st_mode & 0o777, list(mine.iterdir())) == (0o755, [])


@pytest.mark.parametrize("limit", ["ten", "-1", "nan", "inf"])
def test_a_bad_limit_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLSCOPE_CACHE_GB", limit)
    with pytest.raises(InputError, match=f"POOLSCOPE_CACHE_GB: received '{limit}'"):
        cache_limit()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert cache_folder() == cache
    monkeypatch.delenv("POOLSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/poolscope/clouds")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "poolscope" / "clouds"
    assert cache_limit() == 10 * 10**9


def test_an_entry_is_a_store_like_any_other(cache: Path) -> None:
    cached_clouds(FakeEncoder(), corpus())
    assert encode_to_store(FakeEncoder(before=never), corpus(), only_entry(cache)).reused == 10


def test_the_clouds_say_of_which_texts_they_are_whatever_the_entry_says() -> None:
    first = cached_clouds(FakeEncoder(), corpus())
    assert first.provenance["texts"] == corpus().origin()
    moved = replace(corpus(), source="moved.txt", seed=3)
    second = cached_clouds(FakeEncoder(before=never), moved)
    assert second.provenance["texts"] == moved.origin()
    assert cached_clouds(FakeEncoder(), corpus(), enabled=False).provenance["texts"] == corpus().origin()


@pytest.mark.skipif(os.name == "nt", reason="rights are those of POSIX")
def test_only_the_owner_reads_an_entry(cache: Path) -> None:
    def modes() -> set[tuple[bool, int]]:
        return {(path.is_dir(), path.stat().st_mode & 0o777) for path in (only_entry(cache), *cache.rglob("*"))}

    before = os.umask(0o022)
    try:
        seen = []
        encoder = FakeEncoder(before=lambda call: seen.append(only_entry(cache).stat().st_mode & 0o777))
        cached_clouds(encoder, corpus())
        assert modes() == {(True, 0o700), (False, 0o600)}
        assert set(seen) == {0o700}
        only_entry(cache).chmod(0o755)  # as versions before left it
        cached_clouds(FakeEncoder(before=never), corpus())
        assert modes() == {(True, 0o700), (False, 0o600)}
    finally:
        os.umask(before)


@pytest.mark.parametrize("years", [-50, 50])
def test_a_clock_that_jumps_takes_nothing_from_the_cache(cache: Path, years: int, monkeypatch) -> None:
    """Neither entries from another time nor another time of the clock make anything stale."""
    jump = years * 365 * 86400
    first = cached_clouds(FakeEncoder(), corpus())
    for path in cache.rglob("*"):
        os.utime(path, (time.time() + jump,) * 2)
    assert_equal(first, cached_clouds(FakeEncoder(before=never), corpus()))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    assert_equal(first, cached_clouds(FakeEncoder(before=never), corpus()))
    assert trim_cache(cache, limit=10**9) == []
    assert_equal(first, cached_clouds(FakeEncoder(before=never), corpus()))
