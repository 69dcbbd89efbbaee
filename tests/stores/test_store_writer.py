"""Writing stores: what survives a dead writer, what is recognised, what is refused."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions
from poolscope.errors import InputError, ModelError, StoreError
from poolscope.folder import LOCK
from poolscope.stores.store import LABELS, MANIFEST, Store, open_store
from poolscope.stores.writer import shard_sizes
from store_fakes import CARD, SHARD_TEXTS, FakeEncoder, contents, corpus, fill, never


def test_shards_are_cut_by_size_as_well() -> None:
    cut = {"shard_texts": 100, "token_bytes": 10, "shard_bytes": 1000}
    assert shard_sizes(["x" * 60] * 7, **cut) == [4, 3]  # 2 + 20 tokens, 220 bytes each
    assert shard_sizes(["x" * 60] * 7, max_length=11, **cut) == [7]
    assert shard_sizes(["x" * 6, "x" * 9000, "x" * 6], **cut) == [1, 1, 1]
    assert shard_sizes(["日本" * 10] * 7, **cut) == [4, 3]  # by bytes: one token a character


# -- going on after a dead writer ---------------------------------------------------------------------------


def run_doomed(folder: Path, event: str, count: int) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\nimport store_fakes\n"
    code += f"store_fakes.doomed_writer({str(folder)!r}, {event!r}, {count})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == -signal.SIGKILL, result.stderr


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    fill(folder, texts=corpus(labels=True))
    return contents(folder)


# A run of 4 shards and 2 layers writes 11 files: manifest, labels, 8 shards, manifest.
@pytest.mark.parametrize(
    ("event", "count", "reused"),
    [
        ("encoding", 0, 0),
        ("encoding", 2, 6),
        ("half a file written", 0, 0),
        ("half a file written", 5, 3),
        ("file not yet renamed", 6, 6),
        ("file renamed", 7, 9),
        ("half a file written", 10, 10),
    ],
)
def test_a_killed_run_is_continued_to_the_same_bytes(
    tmp_path: Path, uninterrupted: dict[str, bytes], event: str, count: int, reused: int
) -> None:
    run_doomed(tmp_path, event, count)
    assert contents(tmp_path) != uninterrupted
    encoder = FakeEncoder()
    store = fill(tmp_path, encoder=encoder, texts=corpus(labels=True))
    assert contents(tmp_path) == uninterrupted
    assert (store.reused, store.damaged) == (reused, 0)
    assert encoder.calls == 4 - len(range(0, reused, SHARD_TEXTS))
    assert store.manifest.complete


def test_a_run_killed_from_outside_several_times(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    code = f"import sys, time; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\nfrom store_fakes import *\n"
    code += f"fill(Path({str(tmp_path)!r}), encoder=FakeEncoder(before=lambda call: time.sleep(0.3)), "
    code += "texts=corpus(labels=True))"
    for shard in range(3):
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            while not (tmp_path / "layer-last" / f"shard-0000{shard}.arrow").exists():
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
    assert fill(tmp_path, texts=corpus(labels=True)).reused >= 9
    assert contents(tmp_path) == uninterrupted


def test_an_interrupt_from_the_keyboard_is_continued(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    def interrupt(call: int) -> None:
        if call == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path, encoder=FakeEncoder(before=interrupt), texts=corpus(labels=True))
    assert not (tmp_path / LOCK).exists()
    seen: list[tuple[int, int]] = []
    store = fill(tmp_path, texts=corpus(labels=True), progress=lambda texts, tokens: seen.append((texts, tokens)))
    assert contents(tmp_path) == uninterrupted
    assert seen[0] == (6, 0)
    assert sum(texts for texts, _ in seen) == 10
    assert store.reused == 6
    assert "6 of 10 texts" in store.notes()[0]


def test_the_cuts_are_those_of_the_first_run(tmp_path: Path) -> None:
    """Whoever goes on without a wish of his own cuts as the store was begun."""
    stop = FakeEncoder(before=lambda call: never(call) if call else None)
    with pytest.raises(AssertionError):
        fill(tmp_path / "a", encoder=stop, shard_texts=4)
    fill(tmp_path / "b", shard_texts=4)
    fill(tmp_path / "a", shard_texts=None)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("damage", ["cut", "garbage", "other ids", "gone", "labels"])
def test_damage_is_said_and_repaired(tmp_path: Path, uninterrupted: dict[str, bytes], damage: str) -> None:
    fill(tmp_path, texts=corpus(labels=True))
    path = tmp_path / ("layer-0/shard-00001.arrow" if damage != "labels" else LABELS)
    if damage == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif damage in ("garbage", "labels"):
        path.write_bytes(b"\0" * path.stat().st_size)
    elif damage == "other ids":
        path.write_bytes((tmp_path / "layer-0/shard-00002.arrow").read_bytes())
    else:
        path.unlink()
    if damage == "labels":
        with pytest.raises(StoreError, match=r"labels.parquet: damaged.*Repair it .*my texts.txt"):
            _ = Store.open(tmp_path).labels
    elif damage != "other ids":
        with pytest.raises(StoreError, match=r"shard-00001.arrow: .* Repair"):
            open_store(tmp_path, layer=0)
    encoder = FakeEncoder()
    store = fill(tmp_path, encoder=encoder, texts=corpus(labels=True))
    assert contents(tmp_path) == uninterrupted
    assert encoder.calls == (damage != "labels")
    assert store.damaged == (damage not in ("labels", "gone"))
    if store.damaged:
        assert store.notes()[-1].startswith("1 shard ")


def test_a_shard_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, layers=None)
    last = tmp_path / "layer-last" / "shard-00003.arrow"
    last.write_bytes((tmp_path / "layer-last" / "shard-00000.arrow").read_bytes())
    with pytest.raises(StoreError, match=r"3 texts .* 1 "):
        open_store(tmp_path)


# -- a full disk --------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    folder.mkdir()
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs Linux and root")
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("this machine lets root mount nothing (a container without the right)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_keeps_what_is_stored(tmp_path: Path) -> None:
    card = replace(CARD, dimension=512)  # 3 texts of about 4 tokens: some 50 kB a shard
    with small_disk(tmp_path / "disk", 300) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 150_000)
        with pytest.raises(StoreError, match=r"full.* \d of 10 texts") as caught:
            fill(disk / "store", encoder=FakeEncoder(card), layers=None)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        held = contents(disk / "store")
        assert not [name for name in held if "tmp" in name]
        stored = len(Store.open(disk / "store").clouds(allow_partial=True))
        assert 0 < stored < 10
        ballast.unlink()
        store = fill(disk / "store", encoder=FakeEncoder(card), layers=None)
        assert store.reused == stored
        fill(tmp_path / "whole", encoder=FakeEncoder(card), layers=None)
        assert contents(disk / "store") == contents(tmp_path / "whole")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_write_that_fails_names_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    saves = 0

    def failing_write(clouds: TokenClouds, stream: BinaryIO) -> None:
        nonlocal saves
        saves += 1
        if saves > 2:
            raise OSError(number, os.strerror(number))
        real_write(clouds, stream)

    real_write = TokenClouds.write
    monkeypatch.setattr(TokenClouds, "write", failing_write)
    cause = "cannot be written.*Input/output error" if number == errno.EIO else "the disk is full"
    with pytest.raises(StoreError, match=rf"{cause}.*6 of 10 texts"):
        fill(tmp_path, layers=None)


def test_an_error_of_the_encoder_is_not_taken_for_one_of_the_disk(tmp_path: Path) -> None:
    def broken(call: int) -> None:
        raise OSError(errno.ENOSPC, "no memory on the device")

    with pytest.raises(OSError, match="no memory"):
        fill(tmp_path, encoder=FakeEncoder(before=broken))


# -- the same and other choices -----------------------------------------------------------------------------


def test_a_finished_store_is_recognised_without_encoding(tmp_path: Path) -> None:
    fill(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    store = fill(tmp_path, encoder=FakeEncoder(before=never))
    assert store.reused == 10
    assert store.reused == len(store)
    assert len(store.notes()) == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_speed_settings_and_the_name_of_the_source_do_not_matter(tmp_path: Path) -> None:
    fill(tmp_path)
    store = fill(
        tmp_path,
        encoder=FakeEncoder(before=never),
        texts=replace(corpus(), source="standard input"),
        options=EncoderOptions(device="cuda", batch_tokens=100),
        shard_texts=None,
    )
    assert store.reused == 10


OTHER_CHOICES: dict[str, tuple[dict[str, object], str]] = {
    "model": (
        {"encoder": FakeEncoder(replace(CARD, name="b"))},
        "model name: 'fake/model' in the store, 'b' asked",
    ),
    "revision": (
        {"encoder": FakeEncoder(replace(CARD, revision="r2"))},
        "model revision: 'r1' in the store, 'r2'",
    ),
    "max length": ({"options": EncoderOptions(max_length=8)}, "option max_length: None in the store, 8 asked for"),
    "prompt": ({"options": EncoderOptions(prompt="x: ")}, "option prompt: None in the store, 'x: ' asked for"),
    "layers": ({"layers": None}, r"layers: \[0, -1\] in the store, None asked for"),
    "texts": ({"texts": corpus(9)}, "digest of the texts: '[0-9a-f]{64}' in the store, '[0-9a-f]{64}' asked for"),
    "labels": ({"texts": corpus(labels=True)}, "digest of the labels: None in the store, '[0-9a-f]{64}' asked for"),
    "shards": ({"shard_texts": 5}, "texts in a shard: 3 in the store, 5 asked for"),
}


@pytest.mark.parametrize("name", OTHER_CHOICES)
@pytest.mark.parametrize("complete", [True, False])
def test_other_choices_are_refused_by_name_and_replace_with_overwrite(
    tmp_path: Path, name: str, complete: bool
) -> None:
    choices, message = OTHER_CHOICES[name]
    if complete:
        fill(tmp_path / "a")
    else:
        with pytest.raises(AssertionError):
            fill(tmp_path / "a", encoder=FakeEncoder(before=lambda call: never(call) if call else None))
    before = contents(tmp_path / "a")
    with pytest.raises(StoreError, match=message) as caught:
        fill(tmp_path / "a", **choices)
    assert "; " not in str(caught.value), "one difference"
    assert "--overwrite" in str(caught.value)
    assert contents(tmp_path / "a") == before
    fill(tmp_path / "a", overwrite=True, **choices)
    fill(tmp_path / "b", **choices)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_store_that_holds_nothing_yet_may_be_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        fill(tmp_path, encoder=FakeEncoder(before=never), texts=corpus(labels=True))
    store = fill(tmp_path, options=EncoderOptions(max_length=8))
    assert store.manifest.options["max_length"] == 8
    assert LABELS not in contents(tmp_path)


def test_overwrite_continues_a_store_of_the_same_choices(tmp_path: Path) -> None:
    fill(tmp_path)
    assert fill(tmp_path, encoder=FakeEncoder(before=never), overwrite=True).reused == 10


def test_a_replacement_leaves_the_old_store_until_the_new_one_is_whole(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    old = contents(tmp_path / "a")
    card = replace(CARD, revision="r2")
    doomed = FakeEncoder(card, before=lambda call: never(call) if call == 2 else None)
    with pytest.raises(AssertionError):
        fill(tmp_path / "a", encoder=doomed, overwrite=True)
    assert {name: data for name, data in contents(tmp_path / "a").items() if not name.startswith(".next")} == old
    assert fill(tmp_path / "a", encoder=FakeEncoder(card), overwrite=True).reused == 6
    fill(tmp_path / "b", encoder=FakeEncoder(card))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_replacement_of_yet_other_choices_begins_anew(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    for revision in ("r2", "r3"):
        doomed = FakeEncoder(replace(CARD, revision=revision), before=lambda call: never(call) if call == 2 else None)
        with pytest.raises(AssertionError):
            fill(tmp_path / "a", encoder=doomed, overwrite=True)
    assert fill(tmp_path / "a", encoder=FakeEncoder(replace(CARD, revision="r2")), overwrite=True).reused == 0
    fill(tmp_path / "b", encoder=FakeEncoder(replace(CARD, revision="r2")))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_replacement_that_is_given_up_takes_no_room(tmp_path: Path) -> None:
    fill(tmp_path)
    doomed = FakeEncoder(replace(CARD, revision="r2"), before=lambda call: never(call) if call == 2 else None)
    with pytest.raises(AssertionError):
        fill(tmp_path, encoder=doomed, overwrite=True)
    (tmp_path / "layer-0" / "shard-00000.arrow").unlink()
    fill(tmp_path)
    assert not [name for name in contents(tmp_path) if name.startswith(".")]


def test_files_of_others_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".mine.tmp").write_text("kept")
    fill(tmp_path / "hidden")
    assert ".mine.tmp" in contents(tmp_path / "hidden")
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(StoreError, match="'hidden'"):
        fill(tmp_path, overwrite=True)
    with pytest.raises(StoreError, match=r"thesis\.doc, which is a file"):
        fill(tmp_path / "thesis.doc")
    (tmp_path / MANIFEST).write_text('{"manifest_version": 3, "name": "a browser extension"}')
    with pytest.raises(StoreError, match=r"manifest\.json: .* manifest"):
        fill(tmp_path, overwrite=True)
    assert sorted(name for name in contents(tmp_path) if "hidden" not in name) == [MANIFEST, "thesis.doc"]


def test_overwrite_leaves_files_that_it_did_not_write(tmp_path: Path) -> None:
    fill(tmp_path)
    for name in ("notes.txt", "layer-0/notes.txt"):
        (tmp_path / name).write_text("mine")
    fill(tmp_path, overwrite=True, layers=None)
    assert sorted(name for name in contents(tmp_path) if "shard" not in name) == [
        "layer-0/notes.txt",
        MANIFEST,
        "notes.txt",
    ]


# -- input that cannot be used ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"layers": ()}, r"layers: received \[\]"),
        ({"layers": (0, 0)}, r"layers: received \[0, 0\]"),
        ({"layers": (0, 12)}, "fake/model has 0 .* 2"),
        ({"shard_texts": 0}, "shard_texts: received 0"),
    ],
)
def test_bad_choices(tmp_path: Path, choices: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fill(tmp_path / "store", **choices)
    assert not (tmp_path / "store").exists()


def test_no_texts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"my texts\.txt: .* texts"):
        fill(tmp_path, texts=corpus(1)[:0])


def test_an_encoder_that_returns_too_little_is_refused(tmp_path: Path) -> None:
    class Forgetful(FakeEncoder):
        def encode(self, texts: Sequence[str], **choices: object) -> dict[int, TokenClouds]:
            return super().encode(texts[:-1], **choices)  # type: ignore[arg-type]

    with pytest.raises(ModelError, match=r"\{0: 2, -1: 2\} .*\{0: 3, -1: 3\}"):
        fill(tmp_path, encoder=Forgetful())
