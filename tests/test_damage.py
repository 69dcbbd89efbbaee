"""Files that once ended the process, showed foreign memory or gave a traceback, made again by code."""

from __future__ import annotations

import os
import sys
import zipfile
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import poolscope as ps
from audit_data import bag_of_words, topics
from fuzzing import TARGETS, clouds, damage, fuzz
from poolscope.errors import InputError, PoolscopeError, StoreError
from poolscope.lab.tokens.moments import load_state
from poolscope.stores.store import Store
from poolscope.texts.spooled import open_spooled, save_spooled
from store_fakes import edit_json, fill

TEXTS = ["one text", "another text", "the last text of all"]
READERS = {
    "texts": lambda path: [len(text) for text in ps.read_texts(path)],
    "columns": lambda path: [len(text) for text in ps.read_texts(path, column="text", label_column=None)],
    "spooled": lambda path: [len(text) for text in open_spooled(path)],
    "clouds": lambda path: [list(ps.open_clouds(path).ids), [cloud.sum() for cloud in ps.open_clouds(path)]],
}
needs_fork = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files are read in forked processes")


def read_alone(reader, path):
    """What another process says that reads the file: this one shall outlive it."""
    receives, sends = os.pipe()
    child = os.fork()
    if child == 0:
        said = "raised"
        try:
            said = f"read {READERS[reader](path)}"
        except PoolscopeError as error:
            said = f"refused {error}"
        finally:
            os.write(sends, said.encode()[:4000])
            os._exit(0)
    os.close(sends)
    with os.fdopen(receives, encoding="utf-8") as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the process was ended by a signal"
    return said


def replace_numbers(path, numbers, position, value, dtype):
    """Change one of these numbers, which stand side by side somewhere in the file."""
    data = path.read_bytes()
    whole = np.array(numbers, dtype)
    assert data.count(whole.tobytes()) == 1
    changed = whole.copy()
    changed[position] = value
    path.write_bytes(data.replace(whole.tobytes(), changed.tobytes()))


@needs_fork
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("opener", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("wrong", [100_000, -5, 2**31 - 1])
def test_no_text_comes_from_outside_the_file(tmp_path, kind, opener, wrong):
    path = tmp_path / "texts.arrow"
    table = pa.table({"text": pa.array(TEXTS, kind)})
    with opener(str(path), table.schema) as writer:
        writer.write_table(table)
    replace_numbers(path, [0, 8, 20, 40], 2, wrong, np.int32 if kind == pa.string() else np.int64)
    assert path.stat().st_size < 1000
    assert read_alone("texts", path).startswith("refused texts.arrow: damaged")


@needs_fork
@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ([0, 3, 4, 8, 10], np.int64),  # tokens and token ids: one column at a time, see below
        ([0, 5, 6, 17, 20], np.int64),  # texts, in bytes
        ([0, 1, 2, 3, 4], np.int32),  # ids
    ],
)
@pytest.mark.parametrize("wrong", [10**6, -7, 2**31 - 2])
def test_no_cloud_comes_from_outside_the_file(tmp_path, numbers, dtype, wrong):
    path = tmp_path / "clouds.arrow"
    made = clouds()
    if numbers[1] == 3:
        made = ps.TokenClouds.from_arrays(list(made), texts=list(made.texts))
    made.save(path)
    replace_numbers(path, numbers, 2, wrong, dtype)
    assert "refused" in read_alone("clouds", path)


@needs_fork
def test_a_number_of_a_dictionary_beyond_it(tmp_path):
    path = tmp_path / "texts.arrow"
    table = pa.table({"text": pa.array(TEXTS * 3).dictionary_encode()})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    replace_numbers(path, [0, 1, 2] * 3, 4, 10**8, np.int32)
    assert read_alone("texts", path).startswith("refused")


def test_names_of_columns_that_are_no_text(tmp_path):
    path = tmp_path / "texts.arrow"
    table = pa.table({"sentence": TEXTS})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"sentence", b"s\xffntence"))
    with pytest.raises(InputError, match=r"texts\.arrow"):
        ps.read_texts(path)


def test_strings_that_are_no_utf8_are_still_read_with_a_mark(tmp_path):
    path = tmp_path / "texts.arrow"
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"another", b"an\xffther"))
    texts = ps.read_texts(path)
    assert texts[1] == "an\ufffdther text"
    assert texts.report.undecodable == 1


def _broken_letters(path):
    """A table of texts and vectors whose second text is no UTF-8."""
    pq.write_table(
        pa.table({"text": TEXTS, "vector": np.eye(3).tolist()}), path, use_dictionary=False, compression=None
    )
    path.write_bytes(path.read_bytes().replace(b"another", b"an\xffther"))


def test_strings_beside_vectors_that_are_no_utf8(tmp_path):
    _broken_letters(tmp_path / "vectors.parquet")
    with pytest.raises(InputError, match=r"vectors\.parquet: damaged"):
        ps.read_vectors(tmp_path / "vectors.parquet")


@needs_fork
def test_what_a_parquet_file_says_of_a_column(tmp_path):
    """A case of the fuzzer: pyarrow ended the process where the levels of one column were asked for."""
    path = tmp_path / "texts.parquet"
    target = next(target for target in TARGETS if target.name == "texts parquet")
    (tmp_path / "whole").mkdir()
    target.make(tmp_path / "whole")
    damage(target, tmp_path / "whole", tmp_path / "copy", 90210000368)
    (tmp_path / "copy" / "texts.parquet").rename(path)
    assert read_alone("columns", path).startswith(("read", "refused"))


@needs_fork
def test_no_spooled_text_comes_from_outside_the_file(tmp_path):
    save_spooled(ps.read_texts(TEXTS), tmp_path)
    replace_numbers(tmp_path / ".texts.arrow", [0, 8, 20, 40], 2, 100_000, np.int64)
    assert read_alone("spooled", tmp_path).startswith("refused")


@pytest.mark.parametrize("header", ["{'descr': '<f8', 'shape': (2", "\0" * 9, "{'shape': (2**62, 3)}", "(" * 3000])
def test_headers_of_vectors(tmp_path, header):
    path = tmp_path / "vectors.npy"
    text = header.encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(InputError, match=r"vectors\.npy: damaged"):
        ps.read_vectors(path)


@pytest.mark.parametrize("kind", ["<f8", "<V0", "<U0"], ids=["numbers", "nothing", "no letter"])
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_header_that_promises_more_than_the_file_holds(tmp_path, kind, ending):
    """Items of no byte would fill no file, and reading them would never end."""
    path, array = tmp_path / f"vectors.{ending}", BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": (9_000_000_000, 9_000)}
    np.lib.format.write_array_header_1_0(array, header)
    path.write_bytes(array.getvalue() + bytes(100))
    if ending == "npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("vectors.npy", array.getvalue() + bytes(100))
    with pytest.raises(InputError, match=rf"vectors\.{ending}: damaged.* [\d,]+ bytes"):
        ps.read_vectors(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shard_sizes", 3),
        ("shard_sizes", [2.5]),
        ("shard_sizes", []),
        ("shard_sizes", [-4]),
        ("texts", []),
        ("texts", {"digest": 1, "labels": None}),
        ("model", {}),
        ("model", None),
        ("layers", ["0"]),
        ("layers", 7),
    ],
)
def test_a_manifest_whose_parts_are_of_another_kind(tmp_path, name, value):
    fill(tmp_path)
    edit_json(tmp_path / "manifest.json", **{name: value})
    with pytest.raises(StoreError, match=r"manifest\.json: damaged"):
        Store.open(tmp_path).clouds(-1)


def test_json_without_end(tmp_path):
    deep = "[" * 100_000
    fill(tmp_path / "store")
    (tmp_path / "store" / "manifest.json").write_text(deep, encoding="utf-8")
    (tmp_path / "audit.json").write_text(deep, encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "modules.json").write_text(deep, encoding="utf-8")
    for read in (Store.open, ps.Audit.load, ps.as_encoder):
        place = {Store.open: "store", ps.Audit.load: "", ps.as_encoder: "model"}[read]
        with pytest.raises(PoolscopeError, match="damaged"):
            read(tmp_path / place)


def test_tables_of_an_audit(tmp_path):
    ps.audit(bag_of_words, topics(12)).save(tmp_path, page=False)
    path = next((tmp_path / "tables").glob("*.parquet"))
    whole = path.read_bytes()
    for data in (b"", whole[:-20], whole[:100] + b"\xff" * 40 + whole[140:]):
        path.write_bytes(data)
        with pytest.raises(StoreError, match="damaged"):
            ps.Audit.load(tmp_path)
    path.unlink()
    with pytest.raises(StoreError, match="is missing"):
        ps.Audit.load(tmp_path)


def test_no_table_of_an_audit_is_read_from_elsewhere(tmp_path):
    folder = tmp_path / "audit"
    ps.audit(bag_of_words, topics(12)).save(folder, page=False)
    pq.write_table(pa.table({"secret": [1]}), tmp_path / "secret.parquet")
    edit_json(folder / "audit.json", files={"../secret.parquet": "0"})
    with pytest.raises(StoreError, match="leads out"):
        ps.Audit.load(folder)


def test_a_state_that_is_no_archive(tmp_path):
    for data in (b"", b"PK\x03\x04" + b"\xff" * 60, b"\x93NUMPY\x01\x00\x05\x00((((\n"):
        (tmp_path / "state.npz").write_bytes(data)
        with pytest.raises(StoreError, match=r"state\.npz: damaged"):
            load_state(tmp_path / "state.npz")


@needs_fork
@pytest.mark.parametrize("target", [target.name for target in TARGETS])
def test_damaged_files_are_read_or_refused(target):
    """A few dozen cases of a fixed seed for every reader; `make fuzz` goes on for long."""
    few = any(word in target for word in ("model", "audit", "lancedb", "chroma", "qdrant"))
    verdicts = fuzz(lambda: iter(range(10 if few else 50)), only=target)
    assert verdicts.wrong == []
    # Of the many pages of a Chroma base few are used; damaged cells of a paper are measured again.
    assert verdicts.counts["refused"] > 0 or target in ("chroma", "paper")
