"""Pipes, devices, names and cells that no one means: each is refused in one line, and none is waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import poolscope as ps
from poolscope.errors import InputError
from poolscope.texts import read_texts
from poolscope.texts.queries import read_queries

pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")


@pipes
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json", "a.parquet", "a.arrow", "a.csv.gz"])
@pytest.mark.parametrize("read", [read_texts, read_queries, ps.verify])
def test_a_pipe_is_not_waited_for(tmp_path, name, read):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=r"is not a regular file|a file of type"):
        read(tmp_path / name)


@pipes
@pytest.mark.parametrize("name", ["a.arrow", "a.safetensors", "a.json", "a.npz"])
def test_verify_does_not_wait_for_a_pipe(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="is not a regular file"):
        ps.verify(tmp_path / name)


@pipes
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_folder_of_texts_with_a_pipe_or_a_device(tmp_path, kind):
    (tmp_path / "a.txt").write_text("a text")
    if kind == "pipe":
        os.mkfifo(tmp_path / "b.txt")
    else:
        (tmp_path / "b.txt").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"b\.txt is not a regular file"):
        read_texts(tmp_path)


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
    assert "is not a regular file" in ps.verify(tmp_path).files[1].words


def test_verify_reads_no_endless_json(tmp_path):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(2**30 + 1)
    assert "more than" in ps.verify(tmp_path / "a.json").files[0].words


# -- queries ----------------------------------------------------------------------------------------------------------


def table(**columns):
    return {"query": ["a query"], **columns}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (table(relevant=["[" * 100_000]), "nested too deep"),
        ({"a": {"c1": 10**400}}, "as a grade"),
        ({"a": [10**5000]}, "thousands of digits"),
        ({"a": [[10**5000]]}, "as the id of a text"),
        (table(relevant=["c1"], grade=[float("nan")]), "nan as a grade"),
        ("", "as a path"),
    ],
)
def test_cells_that_cannot_be_meant(source, message):
    with pytest.raises(InputError, match=message):
        read_queries(source)


def test_a_grade_that_is_missing_is_still_one():
    assert read_queries(table(relevant=["c1"], grade=[None])).grade.tolist() == [1.0]


@pytest.mark.parametrize("columns", [5, {"query": "relevant"}, "query", ("query", "query"), ("query",), (1, 2)])
def test_columns_that_cannot_be_meant(columns):
    with pytest.raises(InputError, match="received the columns"):
        read_queries(table(relevant=["c1"]), columns=columns)


def test_among_no_texts():
    with pytest.raises(InputError, match="received no ids"):
        read_queries({"a": ["c1"]}).among(())


@pytest.mark.parametrize("columns", [{"ids": ["c1"]}, {"query_id": ["q1"], "id": ["c1"]}])
def test_ids_are_those_of_texts_where_nothing_else_can_be(columns):
    assert read_queries(table(**columns)).named == ("c1",)


@pytest.mark.parametrize("source", [[{"query": "a query", "id": "q1"}], table(id=["q1"])])
def test_an_id_alone_may_be_that_of_the_query(source):
    with pytest.raises(InputError, match="not clear which column"):
        read_queries(source)


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
        ([ONE, {"_id": "q1", "text": "two"}], "q1\tc1\t1\n", "share the id 'q1'"),
        ([ONE, {"_id": None, "text": "two"}], "None\tc1\t1\n", "has no id"),
        ([ONE], "q1\t\t1\n", "has no id"),
        ([ONE], "q1\tc1\tnan\n", "as a grade"),
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
    with pytest.raises(InputError, match="received the encoding"):
        read_texts(tmp_path / "a.txt", encoding=encoding)


def test_no_name_is_not_the_current_folder():
    with pytest.raises(InputError, match="received '' as a path"):
        read_texts("")
