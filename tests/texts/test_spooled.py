"""Corpora of many files, packed files and streams; and those that are read into a file."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolscope.errors import InputError
from poolscope.stores.writer import encode_to_store, texts_for_store
from poolscope.texts import read_texts
from poolscope.texts.spooled import ABOUT, TEXTS, open_spooled, spool_texts
from store_fakes import FakeEncoder, contents

ROWS = [{"text": f"text number {k}" if k % 7 else "", "name": f"n{k}", "kind": str(k % 3)} for k in range(50)]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    match "".join(path.suffixes):
        case ".jsonl":
            path.write_text(lines)
        case ".jsonl.gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case ".json":
            path.write_text(json.dumps(rows))
        case ".csv.gz":
            table = "text,name,kind\n" + "".join(f"{row['text']},{row['name']},{row['kind']}\n" for row in rows)
            path.write_bytes(gzip.compress(table.encode()))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.csv.gz", "a.parquet"])
def test_every_format_gives_the_same_texts(tmp_path, name):
    whole = read_texts(write(tmp_path / name, ROWS), column="text", id_column="name", label_column="kind")
    expected = [row for row in ROWS if row["text"]]
    assert list(whole) == [row["text"] for row in expected]
    assert list(whole.ids) == [row["name"] for row in expected]
    spooled = spool_texts(tmp_path / name, tmp_path / "s", column="text", id_column="name", label_column="kind")
    assert (spooled.digest, spooled.report, spooled.source) == (whole.digest, whole.report, whole.source)
    assert spooled.origin() == whole.origin()
    for part in (slice(3, 20), slice(0, 1), slice(40, 60), slice(None, None, 3)):
        assert spooled[part].texts == whole[part].texts
        assert spooled[part].ids == whole[part].ids
        assert spooled[part].labels == whole[part].labels


def test_folders_and_patterns_of_tables_are_one_corpus(tmp_path):
    folder = tmp_path / "parts"
    (folder / "deep").mkdir(parents=True)
    write(folder / "a.parquet", ROWS[:20])
    write(folder / "deep" / "b.parquet", ROWS[20:])
    (folder / "deep" / ".hidden.parquet").write_bytes(b"")
    whole = read_texts(rows_table(), column="text")
    for source in (folder, f"{folder}/**/*.parquet"):
        texts = read_texts(source, column="text")
        assert (list(texts.ids), list(texts)) == (list(whole.ids), list(whole))
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    (tmp_path / "y.txt.gz").write_bytes(gzip.compress(b"three\n"))
    assert list(read_texts(f"{tmp_path}/*.txt*")) == ["one", "two", "three"]
    with pytest.raises(InputError, match=r"\.nothing"):
        read_texts(f"{tmp_path}/*.nothing")
    write(folder / "c.parquet", [{"other": "words"}])
    with pytest.raises(InputError, match=r"c\.parquet: .*'text'"):
        read_texts(folder, column="text")


def rows_table():
    return pa.Table.from_pylist(ROWS)


def test_damaged_and_foreign_files_are_named(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", ROWS)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: "):
        read_texts(path)
    (tmp_path / "b.json").write_text('{"text": "an object"}')
    with pytest.raises(InputError, match=r"b\.json: .*'an object'"):
        read_texts(tmp_path / "b.json")


def test_the_file_is_made_once_and_again_where_the_source_has_changed(tmp_path):
    path, folder = write(tmp_path / "a.jsonl", ROWS), tmp_path / "s"
    first = spool_texts(path, folder, column="text")
    mark = (folder / TEXTS).stat().st_mtime_ns
    assert spool_texts(path, folder, column="text").digest == first.digest
    assert (folder / TEXTS).stat().st_mtime_ns == mark
    write(path, [*ROWS, {"text": "a new one"}])
    assert len(spool_texts(path, folder, column="text")) == len(first) + 1
    assert open_spooled(folder).digest != first.digest
    (folder / ABOUT).write_text("{")
    assert len(spool_texts(path, folder, column="text")) == len(first) + 1


def test_a_source_that_changed_is_read_again_whatever_its_clock_says(tmp_path):
    path, folder = write(tmp_path / "a.jsonl", [{"text": "one text"}]), tmp_path / "s"
    about = path.stat()
    spool_texts(path, folder, column="text")
    write(path, [{"text": "two text"}])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))  # as what unpacks or copies files sets it
    assert path.stat().st_size == about.st_size
    assert list(spool_texts(path, folder, column="text").texts) == ["two text"]


def test_a_store_of_streamed_texts_is_that_of_texts_in_memory(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", ROWS)
    encode_to_store(FakeEncoder(), read_texts(path, column="text"), tmp_path / "one", shard_texts=9)
    texts = texts_for_store(path, tmp_path / "two", column="text", large=0)
    for part in (1, 2):
        assert (tmp_path / "two" / TEXTS).exists()
        encode_to_store(FakeEncoder(), texts, tmp_path / "two", shard_texts=9, part=(part, 2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    os.utime(path)
    write(path, ROWS[::-1])
    with pytest.raises(Exception, match="digest"):
        encode_to_store(
            FakeEncoder(), texts_for_store(path, tmp_path / "two", column="text", large=0), tmp_path / "two"
        )
