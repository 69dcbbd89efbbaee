"""Pairs of texts and pairs of positions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolscope.errors import InputError
from poolscope.texts import Pairs, ReadReport, read_index_pairs, read_pairs, read_texts

ROWS = {
    "query": ["q1", "q1", "q2", "", "q1", "q3"],
    "document": ["d1", "d2", "d1", "d9", "d1", None],
    "score": [1, 0, 1, 1, 1, 0],
}


def save(path: Path, columns: dict[str, list[object]]) -> Path:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [mark.join("" if value is None else str(value) for value in row.values()) for row in rows]
        path.write_text("\n".join([mark.join(columns), *lines]))
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_equal_texts_are_shared(tmp_path: Path, suffix: str) -> None:
    pairs = read_pairs(save(tmp_path / f"pairs.{suffix}", ROWS), label_column="score")
    assert (pairs.queries.ids, pairs.queries.texts) == (("0", "2"), ("q1", "q2"))
    assert (pairs.documents.ids, pairs.documents.texts) == (("0", "1"), ("d1", "d2"))
    assert pairs.index.dtype == np.int64
    assert pairs.index.tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]
    assert pairs.labels is not None
    assert pairs.labels.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert pairs.report == ReadReport(read=6, kept=4, empty=2, duplicates=1)
    assert re.match(r"2 pairs .*\(6 read\)", pairs.report.notes("pair")[0])
    assert (len(pairs), repr(pairs)) == (4, f"Pairs(4 pairs from pairs.{suffix})")


def test_other_columns_and_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_bytes(b"question,answer\na,x\nb,bad \xff\n")
    pairs = read_pairs(path, query_column="question", document_column="answer")
    assert pairs.labels is None
    assert pairs.documents.texts == ("x", "bad \ufffd")
    assert pairs.report == ReadReport(read=2, kept=2, undecodable=1)


def test_sample_of_pairs() -> None:
    columns = {"query": [f"q{i // 3}" for i in range(60)], "document": [f"d{i % 20}" for i in range(60)]}
    columns["label"] = [float(i) for i in range(60)]
    everything = read_pairs(columns, label_column="label")
    drawn = everything.sample(10, seed=3)
    while_reading = read_pairs(columns, label_column="label", limit=10, seed=3)
    assert drawn.report == while_reading.report
    assert drawn.report is not None
    assert drawn.report.selected == 10
    for pairs in (drawn, while_reading):
        assert pairs.labels is not None
        assert len(pairs) == len(set(pairs.labels)) == 10
        assert sorted(pairs.labels) == list(pairs.labels)
        assert set(pairs.index[:, 0]) == set(range(len(pairs.queries)))  # no text without a pair
        assert set(pairs.index[:, 1]) == set(range(len(pairs.documents)))
        for (query, document), label in zip(pairs.index, pairs.labels, strict=True):
            assert pairs.queries[query] == columns["query"][int(label)]
            assert pairs.documents[document] == columns["document"][int(label)]
    assert drawn.labels is not None
    assert drawn.labels.tolist() == while_reading.labels.tolist()
    assert everything.sample(60) is everything


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"q": ["a"], "document": ["b"]}, {}, "no column 'query'; .*'q', 'document'"),
        ({"query": ["a"], "d": ["b"]}, {}, "no column 'document'; .*'query', 'd'"),
        (ROWS, {"label_column": "gold"}, "no column 'gold'.*--label-column NAME"),
        (ROWS, {"label_column": "query"}, r"\['query', 'document', 'query'\]"),
        ({"query": [1], "document": ["b"]}, {}, r"row 1 .* 1 \(int\)"),
        ({"query": ["a"], "document": [""]}, {}, "1 rows, .* empty"),
        ({"query": ["a"], "document": ["b"], "y": ["high"]}, {"label_column": "y"}, "row 1 .*'high' .* label"),
        ({"query": ["a"], "document": ["b"], "y": [None]}, {"label_column": "y"}, "row 1 .*None .* label"),
        (["a", "b"], {}, r"\['a', 'b'\] \(list\)"),
    ],
)
def test_pairs_that_cannot_be_read(columns: object, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pairs(columns, **options)


def test_pairs_check_their_parts() -> None:
    queries, documents = read_texts(["a", "b"]), read_texts(["x"])
    index = np.array([[0, 0], [1, 0]])
    assert len(Pairs(queries, documents, index)) == 2
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        Pairs(queries, documents, index[0])
    with pytest.raises(InputError, match="type float64"):
        Pairs(queries, documents, index.astype(float))
    for wrong in (index[:, ::-1], index - 1):
        with pytest.raises(InputError, match="2 queries or 1 documents"):
            Pairs(queries, documents, wrong)
    with pytest.raises(InputError, match=r"labels .* \(1,\) .* 2 pairs"):
        Pairs(queries, documents, index, np.ones(1))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("names", [("i", "j", "note"), ("left", "right", "note"), ("j", "x", "i")])
def test_index_pairs(tmp_path: Path, suffix: str, names: tuple[str, str, str]) -> None:
    last = ["n", "m"] if names[2] == "note" else [7, 8]
    path = save(tmp_path / f"index.{suffix}", dict(zip(names, ([0, 3], [12, 0], last), strict=True)))
    found = read_index_pairs(path)
    assert found.dtype == np.int64
    assert found.tolist() == ([[0, 12], [3, 0]] if names[2] == "note" else [[7, 0], [8, 3]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "0,1\n2,3\n", "'0', '1' .* i,j"),
        ("a.csv", "a,b,c\n0,1,2\n", "columns 'a', 'b', 'c'; .*'i' and 'j'"),
        ("a.csv", "a,b\nx,y\n", "'a', 'b'; .*two columns"),
        ("a.csv", "i,j\n", r"a\.csv: .*pairs"),
        ("a.csv", "i,j\n0,1\n0,-1\n", "row 2 .*'-1'; .* 0, 1, 2"),
        ("a.csv", "i,j\n0,1.0\n", "row 1 holds '1.0'"),
        ("a.csv", "i,j\n0,\n", "row 1 holds ''"),
        ("a.jsonl", '{"i": 0, "j": 1.0}', "row 1 holds 1.0"),
        ("a.jsonl", '{"i": 0, "j": true}', "row 1 holds True"),
        ("a.jsonl", '{"i": 0, "j": 1}\n{"i": 0}', "row 2 holds None"),
        ("a.jsonl", '{"i": 0, "j": 9223372036854775808}', "row 1 holds 9223372036854775808"),
    ],
)
def test_index_pairs_that_cannot_be_read(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_index_pairs(tmp_path / name)


def test_pairs_of_ids_are_not_shifted_by_empty_rows_or_a_draw(tmp_path: Path) -> None:
    texts = read_texts(["zero", "", "two", "three", " ", "five"])
    path = save(tmp_path / "pairs.csv", {"i": [0, 5], "j": [3, 2]})
    assert read_index_pairs(path, ids=(texts.ids, texts.ids)).tolist() == [[0, 2], [3, 1]]
    drawn = texts.take([0, 2, 3])
    with pytest.raises(InputError, match=r"row 2 .* '2', .* 3 texts"):
        read_index_pairs(path, ids=(drawn.ids, drawn.ids))


def test_pairs_of_names_on_two_sides(tmp_path: Path) -> None:
    path = save(tmp_path / "pairs.jsonl", {"i": ["b", 7], "j": ["x", "y "]})
    assert read_index_pairs(path, ids=(["7", "b"], ["y", "x"])).tolist() == [[1, 1], [0, 0]]
    with pytest.raises(InputError, match="id 'b'"):
        read_index_pairs(path, ids=(["b", "b"], ["x", "y"]))
    odd = save(tmp_path / "odd.jsonl", {"i": [["b"]], "j": ["x"]})
    with pytest.raises(InputError, match=r"row 1 .*\['b'\]"):
        read_index_pairs(odd, ids=(["", "b"], ["x"]))
