"""A byte that changed on the disk is noticed: by digests of what is read, and by `poolscope verify` of all."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import poolscope as ps
from audit_data import bag_of_words, topics
from command_line import invoke, run
from fuzzing import TARGETS, clouds, without_digests
from poolscope.auditing.result import Audit
from poolscope.clouds import file as cloud_file
from poolscope.digests import PIECE, check_seal, digest_of_numbers, sealed
from poolscope.errors import InputError, PoolscopeError, StoreError
from poolscope.lab.tokens.moments import load_state
from poolscope.repairs.repair_file import Repair
from poolscope.results import Result
from poolscope.stores.store import Store
from store_fakes import FakeEncoder, contents, corpus, edit_json, fill

# -- the digest of many numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7, 8, 509 * 8 - 1, 509 * 8, 509 * 8 + 3, 50_000])
def test_every_byte_and_the_length_count(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    whole = digest_of_numbers(data)
    assert digest_of_numbers(data.copy()) == whole
    assert digest_of_numbers(np.append(data, np.uint8(0))) != whole
    for place in {*range(min(size, 40)), *range(max(size - 40, 0), size)}:
        changed = data.copy()
        changed[place] ^= 1
        assert digest_of_numbers(changed) != whole


@pytest.mark.parametrize("page", [4096, 65536])
def test_pages_that_were_exchanged_are_noticed(page):
    data = np.random.default_rng(0).integers(0, 256, PIECE, np.uint8)
    whole = digest_of_numbers(data)
    for other in range(1, PIECE // page):
        changed = data.copy().reshape(-1, page)
        changed[[0, other]] = changed[[other, 0]]
        assert digest_of_numbers(changed) != whole


def test_a_seal_is_of_the_content_and_of_what_stands_beside_it():
    content = sealed({"a": {2: 1.5, 10: None}, "b": "ä"}, beside="x")
    read = json.loads(json.dumps(content))
    assert check_seal(read, "f", "", beside="x") == {"a": {"2": 1.5, "10": None}, "b": "ä"}
    for changed in ({**read, "b": "a"}, {**read, "c": 1}, {name: read[name] for name in ("a", "checksum")}):
        with pytest.raises(StoreError, match="f: damaged"):
            check_seal(changed, "f", "", beside="x")
    with pytest.raises(StoreError, match="f: damaged"):
        check_seal(read, "f", "", beside="y")


# -- every byte of every kind of file -----------------------------------------------------------------------------


def _clouds_content(opened):
    return (
        [cloud.tobytes() for cloud in opened],
        list(opened.ids),
        list(opened.texts or ()),
        opened.truncated.tolist(),
        [np.asarray(opened.token_ids(k)).tolist() for k in range(len(opened))],
        opened.provenance,
    )


def _store_content(folder):
    store = Store.open(folder / "store")
    return _clouds_content(store.clouds(-1)), _clouds_content(store.clouds(0)), store.labels, store.card


def _state_content(path):
    moments = load_state(path)
    layers = {
        layer: [getattr(state.groups, name).tolist() for name in ("counts", "means", "scatters", "squares")]
        for layer, state in moments.layers.items()
    }
    return layers, moments.names, moments.table.keys.tolist(), moments.allowed, moments.texts, moments.source


def _repair_content(path):
    repair = Repair.load(path)
    return repair.to_dict(), {name: value.tobytes() for name, value in repair.arrays.items()}, repair.evidence


def _audit_content(folder):
    loaded = Audit.load(folder)
    return loaded.to_dict(), {name: table.to_pydict() for name, table in loaded.tables.items()}


READ = {
    "clouds": lambda folder: _clouds_content(ps.open_clouds(folder / "clouds.arrow")),
    "store": _store_content,
    "state": lambda folder: _state_content(folder / "state.npz"),
    "repair": lambda folder: _repair_content(folder / "repair.safetensors"),
    "audit": _audit_content,
    "result": lambda folder: Result.load(folder / "r.json").to_dict(arrays=True),
}
CASES = {"audit": 60, "store": 150, "state": 150}  # more take long: reading one takes milliseconds


@pytest.mark.parametrize("kind", READ)
def test_a_changed_byte_changes_nothing_or_is_refused(kind, tmp_path):
    """Of some hundred bytes of every file, first and last ones among them, each flipped in turn."""
    whole = tmp_path / "whole"
    whole.mkdir()
    next(target for target in TARGETS if target.name == kind).make(whole)
    expected, refused = READ[kind](whole), 0
    assert ps.verify(whole).is_right
    generator = np.random.default_rng(7)
    files = sorted(path for path in whole.rglob("*") if path.is_file() and path.suffix != ".html")
    for path in generator.permutation(files)[:4].tolist():
        data = Path(path).read_bytes()
        count = min(len(data), CASES.get(kind, 600) // min(len(files), 4))
        for place in sorted(generator.choice(len(data), count, replace=False).tolist()):
            changed = bytearray(data)
            changed[place] ^= 1 << int(generator.integers(8))
            Path(path).write_bytes(changed)
            try:
                assert READ[kind](whole) == expected, (path, place)
            except PoolscopeError:
                refused += 1
        Path(path).write_bytes(data)
    assert refused > 20


def test_vectors_are_compared_when_they_are_used_and_only_those(tmp_path):
    path = tmp_path / "clouds.arrow"
    arrays = [np.full((700, 200), k, np.float32) for k in range(8)]  # half a megabyte each
    ps.TokenClouds.from_arrays(arrays).save(path)
    data = bytearray(path.read_bytes())
    data[data.rindex(np.float32(7).tobytes() * 100)] ^= 1
    path.write_bytes(data)
    opened = ps.open_clouds(path)
    assert np.array_equal(opened[0], arrays[0])
    assert np.array_equal(opened[1:5][2], arrays[3])
    for use in (
        lambda: opened[7],
        lambda: opened[3:][4],
        lambda: list(opened),
        lambda: [block.tokens for block in opened.blocks()],
        lambda: opened.described(ids=list("abcdefgh"))[7],
        lambda: ps.TokenClouds.concatenate([opened[:2], opened])[9],
        lambda: opened.select([7]),
        opened.to_table,
        lambda: opened.save(tmp_path / "copy.arrow"),
    ):
        with pytest.raises(StoreError, match=r"clouds\.arrow: damaged"):
            use()
    assert not (tmp_path / "copy.arrow").exists()


def test_batches_that_are_missing_or_out_of_place_are_noticed(tmp_path):
    path = tmp_path / "clouds.arrow"
    with ps.CloudWriter(path) as writer:
        for part in (clouds()[:2], clouds()[2:]):
            writer.write(part)
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        parts = [reader.get_batch_with_custom_metadata(k) for k in range(3)]
        for order in ([0, 1], [0, 2], [1, 0, 2], [0, 0, 2], [2], []):
            with pa.ipc.new_file(str(tmp_path / "other.arrow"), reader.schema) as writer:
                for batch, metadata in (parts[k] for k in order):
                    writer.write_batch(batch, custom_metadata=metadata)
            with pytest.raises(StoreError, match=r"other\.arrow: damaged"):
                ps.open_clouds(tmp_path / "other.arrow")


# -- files of before ----------------------------------------------------------------------------------------------


def test_a_store_without_digests_is_read_and_continued(tmp_path, caplog):
    fill(tmp_path, texts=corpus(labels=True))
    expected = list(ps.open_clouds(tmp_path))
    without_digests(tmp_path)
    cloud_file.say_without_digests.cache_clear()
    assert all(map(np.array_equal, ps.open_clouds(tmp_path), expected))
    assert sum("without digests" in message for message in caplog.messages) == 1  # of many files
    before = contents(tmp_path)
    assert fill(tmp_path, texts=corpus(labels=True)).reused == 10
    assert contents(tmp_path) == before
    files = {file.name: file for file in ps.verify(tmp_path).files}
    assert files["layer-0/shard-00000.arrow"].state == "unchecked"
    assert files["layer-0/shard-00000.arrow"].words.endswith(f" {ps.__version__}")
    assert ps.verify(tmp_path).is_right


def test_an_audit_without_digests_is_read(tmp_path):
    ps.audit(bag_of_words, topics(12)).save(tmp_path, page=False)
    expected = _audit_content(tmp_path)
    content = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    del content["files"]
    (tmp_path / "audit.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(StoreError, match="digest differs"):  # the seal is of all of it
        Audit.load(tmp_path)
    edit_json(tmp_path / "audit.json")
    assert _audit_content(tmp_path) == expected


# -- a damaged shard is made again --------------------------------------------------------------------------------


def test_changed_vectors_are_encoded_again_by_the_command_that_made_them(tmp_path):
    fill(tmp_path)
    whole = contents(tmp_path)
    path = tmp_path / "layer-last" / "shard-00001.arrow"
    _change_a_vector(path)
    with pytest.raises(StoreError, match=r"shard-00001\.arrow: .*megabyte 0"):
        list(ps.open_clouds(tmp_path))
    encoder = FakeEncoder()
    assert fill(tmp_path, encoder=encoder).damaged == 1
    assert encoder.calls == 1
    assert contents(tmp_path) == whole


def _change_a_vector(path):
    (block,) = ps.TokenClouds.open(path).blocks()
    row, data = block.tokens[0].tobytes(), path.read_bytes()
    assert row in data
    path.write_bytes(data.replace(row, (block.tokens[0] + 1).tobytes(), 1))


# -- verify -------------------------------------------------------------------------------------------------------


def test_verify_says_one_line_a_file_and_ends_with_1_where_one_is_wrong(tmp_path):
    fill(tmp_path / "store", texts=corpus(labels=True))
    headline, *said = run("verify", tmp_path / "store").splitlines()
    assert "11 ok" in headline
    assert len(said) == 11  # manifest, labels, 2 layers of 4 shards, the texts
    assert {line.split()[0] for line in said} == {"ok"}
    _change_a_vector(tmp_path / "store" / "layer-0" / "shard-00002.arrow")
    (tmp_path / "store" / "layer-0" / "shard-00003.arrow").unlink()
    said = run("verify", tmp_path / "store", expect=1).splitlines()[1:]
    wrong = [line.split()[:2] for line in said if not line.startswith(("ok", " "))]  # a long line goes on indented
    assert wrong == [["damaged", "layer-0/shard-00002.arrow"], ["missing", "layer-0/shard-00003.arrow"]]


def test_verify_notices_shards_of_another_place(tmp_path):
    fill(tmp_path / "store", layers=None)
    shards = [tmp_path / "store" / "layer-last" / f"shard-0000{k}.arrow" for k in (0, 1)]
    shutil.copy(shards[1], shards[0])
    checked = ps.verify(tmp_path / "store")
    assert [file.state for file in checked.files] == ["ok"] * 5 + ["damaged"]
    assert "layer -1" in checked.files[-1].words


def test_verify_goes_through_a_folder_of_outputs(tmp_path):
    for target in TARGETS:
        if target.name in ("clouds", "store", "state", "repair", "audit", "result"):
            folder = tmp_path / target.name
            folder.mkdir()
            target.make(folder)
    (tmp_path / "notes.txt").write_text("mine")
    checked = ps.verify(tmp_path)
    assert {file.state for file in checked.files} == {"ok"}
    assert {file.name.split("/")[0] for file in checked.files} == set(READ)
    assert Result.from_dict(checked.to_dict()) == checked
    path = tmp_path / "audit" / "tables" / "causes.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    wrong = [file.name for file in ps.verify(tmp_path).files if file.state == "damaged"]
    assert wrong == ["audit/tables/causes.parquet"]


def test_verify_of_what_poolscope_did_not_write(tmp_path):
    with pytest.raises(InputError, match="no such"):
        ps.verify(tmp_path / "nothing")
    with pytest.raises(InputError, match=f"{re.escape(str(tmp_path))}: nothing"):
        ps.verify(tmp_path)
    (tmp_path / "a.csv").write_text("text\na\n")
    assert invoke("verify", tmp_path / "a.csv").stdout.splitlines()[1].startswith("unchecked")
    for name, data in {"x.arrow": b"x", "x.npz": b"PK", "x.safetensors": b"", "x.json": b"[" * 10**5}.items():
        (tmp_path / name).write_bytes(data)
        assert ps.verify(tmp_path / name).files[0].state == "damaged", name
