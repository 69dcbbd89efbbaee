"""Pipes, devices, names and cells that no one means: each is refused in one line, and none is waited for."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import poolscope as ps
from audit_data import bag_of_words, topics
from poolscope.clouds.vectors import open_vectors
from poolscope.errors import InputError, PoolscopeError
from poolscope.lab.correlate.model_records import read_audits
from poolscope.lab.tokens.moments import load_state
from poolscope.results import Result
from poolscope.stores.store import Store
from poolscope.texts import plain, read_texts
from poolscope.texts.queries import read_queries
from poolscope.texts.spooled import open_spooled
from store_fakes import corpus, fill

pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")


@pipes
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json", "a.parquet", "a.arrow", "a.csv.gz"])
@pytest.mark.parametrize("read", [read_texts, read_queries, ps.verify])
def test_a_pipe_is_not_waited_for(tmp_path, name, read):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=rf"{re.escape(name)}.*(regular file|of type)"):
        read(tmp_path / name)


@pipes
@pytest.mark.parametrize("name", ["a.arrow", "a.safetensors", "a.json", "a.npz"])
def test_verify_does_not_wait_for_a_pipe(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=rf"{re.escape(name)} .*regular file"):
        ps.verify(tmp_path / name)


@pipes
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_folder_of_texts_with_a_pipe_or_a_device(tmp_path, kind):
    (tmp_path / "a.txt").write_text("a text")
    if kind == "pipe":
        os.mkfifo(tmp_path / "b.txt")
    else:
        (tmp_path / "b.txt").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"b\.txt .*regular file"):
        read_texts(tmp_path)


def test_a_folder_of_texts_follows_no_link_and_reads_no_hidden_file(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "texts"
    for place in (outside, folder / ".hidden", folder / "inside"):
        place.mkdir(parents=True)
        (place / "a.jsonl").write_text(f'{{"text": "the words of {place.name}"}}\n')
        (place / "a.txt").write_text(f"the words of {place.name}\n")
    (folder / ".a.jsonl").write_text('{"text": "the words of a hidden file"}\n')
    (folder / "link").symlink_to(outside)
    assert {text.strip() for text in read_texts(folder).texts} == {"the words of inside"}


def test_standard_input_and_links_to_files_are_still_read(tmp_path):
    code = "import poolscope as ps; print(len(ps.read_texts('-')))"
    done = subprocess.run([sys.executable, "-c", code], input="one\ntwo\n", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    assert len(read_texts(tmp_path / "b.txt")) == 3


# -- verify -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [None, 5, b"a", "", "a\0", "a" * 5000])
def test_verify_of_what_is_no_name(path):
    with pytest.raises(InputError, match=r"received|no such file"):
        ps.verify(path)


@pytest.mark.parametrize(
    "files", [5, [1], None, {"": "0"}, {".": "0"}, {"folder": "0"}, {"a\0": "0"}, {"loop": "0"}, {"a" * 5000: "0"}]
)
def test_verify_of_a_list_of_files_that_is_damaged(tmp_path, files):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "audit.json").write_text(json.dumps({"files": files}))
    assert ps.verify(tmp_path).files[1].state == "damaged"


@pipes
def test_verify_of_a_listed_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "audit.json").write_text(json.dumps({"files": {"pipe": "0"}}))
    assert "regular file" in ps.verify(tmp_path).files[1].words


def test_verify_reads_no_endless_json(tmp_path, monkeypatch):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(2**30 + 1)
    with pytest.raises(InputError, match="1,073,741,825"):
        ps.verify(tmp_path / "a.json")
    (tmp_path / "b.json").write_bytes(b"[" * 1_000)
    monkeypatch.setattr("poolscope.files._LONGEST_TEXT", 999)
    full = ps.verify(tmp_path / "b.json").files[0]
    assert full.state == "damaged"
    assert "1,000" in full.words


# -- queries ----------------------------------------------------------------------------------------------------------


def table(**columns):
    return {"query": ["a query"], **columns}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (table(relevant=["[" * 100_000]), "row 1 .* too deep"),
        ({"a": {"c1": 10**400}}, "query 'a' holds 10{9}.* grade"),
        ({"a": [10**5000]}, "query 'a' holds .*thousands"),
        ({"a": [[10**5000]]}, "query 'a' holds .*list"),
        (table(relevant=["c1"], grade=[float("nan")]), "row 1 .*nan .* grade"),
        ("", "received ''"),
    ],
)
def test_cells_that_cannot_be_meant(source, message):
    with pytest.raises(InputError, match=message):
        read_queries(source)


def test_a_grade_that_is_missing_is_still_one():
    assert read_queries(table(relevant=["c1"], grade=[None])).grade.tolist() == [1.0]


@pytest.mark.parametrize("columns", [5, {"query": "relevant"}, "query", ("query", "query"), ("query",), (1, 2)])
def test_columns_that_cannot_be_meant(columns):
    with pytest.raises(InputError, match=r"queries: .*the columns"):
        read_queries(table(relevant=["c1"]), columns=columns)


def test_among_no_texts():
    with pytest.raises(InputError, match=r"memory: .*no ids"):
        read_queries({"a": ["c1"]}).among(())


@pytest.mark.parametrize("columns", [{"ids": ["c1"]}, {"query_id": ["q1"], "id": ["c1"]}])
def test_ids_are_those_of_texts_where_nothing_else_can_be(columns):
    assert read_queries(table(**columns)).named == ("c1",)


@pytest.mark.parametrize("source", [[{"query": "a query", "id": "c1"}], table(id=["c1"])])
def test_an_id_beside_a_query_is_that_of_a_text(source):
    assert read_queries(source).named == ("c1",)


def _benchmark(folder: Path, queries: list[dict], qrels: str = "q1\tc1\t1\n") -> Path:
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "c1", "text": "a text"}))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return folder


ONE = {"_id": "q1", "text": "one"}


@pytest.mark.parametrize(
    ("queries", "qrels", "message"),
    [
        ([ONE, {"_id": "q1", "text": "two"}], "q1\tc1\t1\n", "id 'q1'"),
        ([ONE, {"_id": None, "text": "two"}], "None\tc1\t1\n", r"queries\.jsonl: row 2 .* id"),
        ([ONE], "q1\t\t1\n", r"\.tsv: row 1 .* id"),
        ([ONE], "q1\tc1\tnan\n", "query q1 holds 'nan'"),
    ],
)
def test_benchmarks_whose_ids_or_grades_are_unclear(tmp_path, queries, qrels, message):
    with pytest.raises(InputError, match=message):
        read_queries(_benchmark(tmp_path, queries, qrels))


def test_a_query_of_a_benchmark_may_stand_twice(tmp_path):
    assert read_queries(_benchmark(tmp_path, [ONE, ONE], "q1\tc1\t1\n\n")).ids == ("q1",)


# -- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [5, "abc", [["a"]]])
def test_what_is_kept_are_ids(keep):
    with pytest.raises(InputError, match="keep: received"):
        read_texts(["one", "two"], limit=1, keep=keep)


@pytest.mark.parametrize("encoding", [5, b"utf-8", "a\0"])
def test_an_encoding_is_a_name(tmp_path, encoding):
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(InputError, match=f"encoding {re.escape(repr(encoding))}"):
        read_texts(tmp_path / "a.txt", encoding=encoding)


def test_no_name_is_not_the_current_folder():
    with pytest.raises(InputError, match="received ''"):
        read_texts("")


# -- packed files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.json.gz"])
def test_a_packed_file_without_a_line_end_is_not_unpacked_into_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(plain, "_ROOM", 2**20)
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b" " * 2**20)
    unpacked = []
    monkeypatch.setattr(plain.gzip.GzipFile, "read", counted(unpacked, plain.gzip.GzipFile.read))
    with pytest.raises(InputError, match=rf"{re.escape(path.name)}: .*packed"):
        read_texts(path)
    assert sum(unpacked) < 2**20 + 101 * path.stat().st_size + 2**17 < 2**26


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_a_small_packed_file_of_countless_empty_lines_is_refused(tmp_path, end):
    path = tmp_path / "lines.txt.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(20):
            file.write(end * 2**20)
    assert path.stat().st_size < 50_000
    with pytest.raises(InputError, match="packed file"):
        read_texts(path)


def counted(sizes, read):
    def counting(file, size=-1):
        data = read(file, size)
        sizes.append(len(data))
        return data

    return counting


def test_a_packed_file_that_shrank_as_texts_do_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(plain, "_ROOM", 100)
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(json.dumps({"text": f"the text of number {k} of all"}) for k in range(500)))
    assert len(read_texts(tmp_path / "a.jsonl.gz")) == 500


def repeated(rows=4_000, size=4_000):
    """One long text many times, which a dictionary or a packer keeps once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["word " * (size // 5)]))


def write_arrow(path, table):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table)


def write_promise(path, shape):
    """An archive of one array whose header says more than follows."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", header.getvalue() + bytes(100))


ZEROS = np.zeros((4_000, 1_000), np.float32)
LISTS = pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(ZEROS.reshape(-1)), 1_000)})
BOMBS = {
    "a.npz": (lambda path: np.savez_compressed(path, vectors=ZEROS), ps.read_vectors),
    "b.npz": (lambda path: write_promise(path, (2**30, 1_000)), ps.read_vectors),
    "a.parquet": (lambda path: pq.write_table(LISTS, path), ps.read_vectors),
    "b.parquet": (lambda path: pq.write_table(LISTS, path), ps.read_index),
    "c.parquet": (lambda path: pq.write_table(pa.table({"text": repeated()}), path, store_schema=False), read_texts),
    "d.parquet": (lambda path: pq.write_table(pa.table({"text": repeated()}), path), read_texts),
    "e.parquet": (lambda path: pq.write_table(pa.table({"text": repeated(60, 10**6)}), path), read_texts),
    "a.arrow": (lambda path: write_arrow(path, LISTS), ps.read_index),
    "b.arrow": (lambda path: write_arrow(path, pa.table({"text": repeated().cast(pa.string())})), read_texts),
    "c.arrow": (lambda path: write_arrow(path, pa.table({"text": repeated()})), read_texts),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_of_much_is_refused_before_memory_is_taken(tmp_path, monkeypatch, name):
    write, read = BOMBS[name]
    write(tmp_path / name)
    monkeypatch.setattr(plain, "_ROOM", 2**19)
    before, limit = pa.total_allocated_bytes(), plain.Room(tmp_path / name).most
    tracemalloc.start()
    with pytest.raises(InputError, match=r"packed file|promises .* bytes"):
        read(tmp_path / name)
    taken = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert taken < 4 * limit + 2**21


def test_lists_that_grow_behind_the_first_row_are_noticed(tmp_path, monkeypatch):
    offsets = np.concatenate([[0, 8], 8 + 100_000 * np.arange(1, 41)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.zeros(offsets[-1], np.float32)))
    pq.write_table(pa.table({"vector": lists}), tmp_path / "a.parquet")
    monkeypatch.setattr(plain, "_ROOM", 2**19)
    with pytest.raises(InputError, match=r"a\.parquet: .*packed file"):
        ps.read_index(tmp_path / "a.parquet")


def test_an_archive_with_what_is_no_array_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "not an array")
    with pytest.raises(InputError, match=r"a\.npz: damaged"):
        ps.read_vectors(tmp_path / "a.npz")


# -- what poolscope wrote ---------------------------------------------------------------------------------------------

READERS = {
    "clouds": lambda path: ps.TokenClouds.open(path),
    "vectors of a store": open_vectors,
    "vectors npy": lambda path: ps.read_vectors(path.with_suffix(".npy")),
    "vectors npz": lambda path: ps.read_vectors(path.with_suffix(".npz")),
    "vectors parquet": lambda path: ps.read_vectors(path.with_suffix(".parquet")),
    "state": load_state,
    "repair": lambda path: ps.Repair.load(path),
    "result": lambda path: Result.load(path),
    "audit": lambda path: ps.Audit.load(path.with_name("audit.json")),
    "audits": lambda path: read_audits([path]),
    "manifest": lambda path: Store.open(path.parent),
    "texts of a store": lambda path: open_spooled(path.parent),
}
NAMES = ("pipe", "pipe.npy", "pipe.npz", "pipe.parquet", "audit.json", "manifest.json", ".texts.json")


@pipes
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_pipe_or_reads_a_device(tmp_path, reader, kind):
    for name in NAMES:
        if kind == "pipe":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(PoolscopeError, match=r"pipe|\.json is"):
        READERS[reader](tmp_path / "pipe")


DOORS = {
    **READERS,
    "run": ps.read_run,
    "qrels": lambda path: ps.audit_run({"q": {"a": 1.0}}, path),
    "open clouds": ps.open_clouds,
    "compare": lambda path: ps.compare(path, path),
    "fix": ps.fix,
    "new vectors": lambda path: ps.write_index(path.with_suffix(".npy"), np.eye(2)),
    "new rows": lambda path: ps.write_index(path.with_suffix(".parquet"), np.eye(2)),
    "texts": read_texts,
    "queries": read_queries,
    "any vectors": ps.read_index,
    "seal": ps.check,
    "model": ps.as_encoder,
    "written run": lambda path: ps.read_run({"q": {"a": 1.0}}).save(path),
}


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000])
@pytest.mark.parametrize("door", DOORS)
def test_a_name_that_the_system_refuses_is_refused_in_one_line(tmp_path, monkeypatch, door, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((PoolscopeError, FileNotFoundError)) as refused:
        DOORS[door](Path(name))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("command", ["compare NAME NAME", "fix NAME", "misses NAME NAME", "cost --stop-words NAME"])
def test_a_command_says_in_one_line_that_a_name_is_too_long(tmp_path, command):
    arguments = command.replace("NAME", "a" * 300).split()
    done = subprocess.run([sys.executable, "-m", "poolscope", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


@pipes
def test_parts_of_a_store_and_of_an_audit_that_are_pipes(tmp_path):
    fill(tmp_path / "store", texts=corpus(7, labels=True))
    ps.audit(bag_of_words, topics(12)).save(tmp_path / "audit", page=False)
    for path in [*tmp_path.rglob("*.arrow"), *tmp_path.rglob("*.parquet")]:
        path.unlink()
        os.mkfifo(path)
    store = Store.open(tmp_path / "store")
    for read in (lambda: store.clouds(-1), lambda: store.labels, lambda: ps.Audit.load(tmp_path / "audit")):
        with pytest.raises(PoolscopeError, match="regular file"):
            read()


def test_verify_reads_listed_files_piece_by_piece(tmp_path):
    size = 2**28
    with (tmp_path / "table.bin").open("wb") as file:
        file.truncate(size)
    (tmp_path / "audit.json").write_text(json.dumps({"files": {"table.bin": "0"}}))
    tracemalloc.start()
    assert ps.verify(tmp_path).files[1].state == "damaged"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 8


@pytest.mark.parametrize("name", ["none.jsonl", "none.csv", "none.tsv"])
def test_a_file_without_a_byte_is_said_to_be_empty(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    for read in (read_texts, read_queries):
        with pytest.raises(InputError, match="is empty") as caught:
            read(tmp_path / name)
        assert "--column" not in str(caught.value)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_small_file_of_countless_empty_rows_is_refused(tmp_path, kind):
    """Rows of nothing take no bytes, and reading a billion of them would never end."""
    path = tmp_path / f"rows.{kind}"
    if kind == "arrow":
        schema = pa.schema([("text", pa.null())])
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(pa.record_batch([pa.nulls(2_000_000_000)], schema=schema))
    else:
        with pq.ParquetWriter(path, pa.schema([("text", pa.string())])) as writer:
            for _ in range(8):
                writer.write_table(pa.table({"text": pa.nulls(1_000_000, pa.string())}))
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="packed file"):
        read_texts(path)
