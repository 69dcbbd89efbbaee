"""Queries and the ids of the texts that answer them: every source, and what is counted or refused."""

from __future__ import annotations

import csv
import json
import re

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolscope.errors import InputError
from poolscope.texts import read_queries, read_texts
from poolscope.texts.queries import id_column_for

ASKED = {"what purrs?": {"cat": 2, "lion": 1}, "what barks?": {"dog": 1}}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_csv(path, header, rows, delimiter=","):
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, delimiter=delimiter).writerows([header, *rows])
    return path


def a_row_a_query(tmp_path):
    rows = [{"query": q, "relevant": list(ids), "grade": list(ids.values())} for q, ids in ASKED.items()]
    return write_lines(tmp_path / "q.jsonl", rows)


def a_row_a_judgement(tmp_path):
    rows = [(q, name, grade) for q, ids in ASKED.items() for name, grade in ids.items()]
    return write_csv(tmp_path / "q.csv", ("question", "chunk_id", "relevance"), rows)


def lists_as_json(tmp_path):
    rows = [(q, json.dumps(ids)) for q, ids in ASKED.items()]
    return write_csv(tmp_path / "lists.csv", ("query", "relevant_ids"), rows)


def parquet(tmp_path):
    table = {"query": list(ASKED), "doc_ids": [list(ids) for ids in ASKED.values()]}
    table["score"] = [list(ids.values()) for ids in ASKED.values()]
    pq.write_table(pa.table(table), tmp_path / "q.parquet")
    return tmp_path / "q.parquet"


def frame(tmp_path):
    rows = [(q, name, grade) for q, ids in ASKED.items() for name, grade in ids.items()]
    return pd.DataFrame(rows, columns=["query", "chunk_id", "grade"])


def two_dicts(tmp_path):
    return {"1": "what purrs?", "2": "what barks?"}, {"1": ASKED["what purrs?"], "2": ASKED["what barks?"]}


def folder(tmp_path):
    """As BEIR keeps it; the judgements of dev are others."""
    home = tmp_path / "animals"
    (home / "qrels").mkdir(parents=True)
    texts = {"cat": ("Cats", "They purr."), "lion": ("", "It purrs, rarely."), "dog": ("Dogs", "They bark.")}
    write_lines(home / "corpus.jsonl", [{"_id": k, "title": t, "text": x} for k, (t, x) in texts.items()])
    queries = {"1": "what purrs?", "2": "what barks?"}
    write_lines(home / "queries.jsonl", [{"_id": k, "text": text} for k, text in queries.items()])
    header = ("query-id", "corpus-id", "score")
    write_csv(home / "qrels" / "test.tsv", header, [(1, "cat", 2), (1, "lion", 1), (2, "dog", 1)], "\t")
    write_csv(home / "qrels" / "dev.tsv", header, [(1, "cat", 1)], "\t")
    return home


def shards(tmp_path):
    """As mteb keeps it: Parquet in folders, in several files."""
    home = tmp_path / "sharded"
    parts = {
        "corpus/corpus-00000-of-00001": {"_id": ["cat", "lion", "dog"], "text": ["a b", "c d", "e f"]},
        "queries/queries-00000-of-00001": {"_id": ["1", "2"], "text": ["what purrs?", "what barks?"]},
        "qrels/test-00000-of-00002": {"query-id": ["1", "1"], "corpus-id": ["cat", "lion"], "score": [2, 1]},
        "qrels/test-00001-of-00002": {"query-id": ["2"], "corpus-id": ["dog"], "score": [1]},
    }
    for name, table in parts.items():
        path = home / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), path)
    return home


@pytest.mark.parametrize(
    "source", [a_row_a_query, a_row_a_judgement, lists_as_json, parquet, frame, two_dicts, folder, shards]
)
def test_every_source_gives_the_same_queries(source, tmp_path):
    asked, plain = read_queries(source(tmp_path)), read_queries(ASKED)
    assert asked.digest == plain.digest
    assert asked.texts == ("what purrs?", "what barks?")
    assert (asked.named, asked.grade.tolist()) == (("cat", "lion", "dog"), [2.0, 1.0, 1.0])
    assert asked.notes == ()


def test_a_benchmark_has_its_texts_its_ids_and_its_splits(tmp_path):
    home = folder(tmp_path)
    texts = read_texts(home)
    assert texts.ids == ("cat", "lion", "dog")
    assert list(texts) == ["Cats They purr.", "It purrs, rarely.", "Dogs They bark."]
    assert read_queries(f"{home}:dev").named == ("cat",)
    assert len(read_queries(f"{home}:dev").notes) == 1  # one query is judged in the other split alone
    with pytest.raises(InputError, match=r"split 'train'; .* dev, test"):
        read_queries(f"{home}:train")
    (home / "qrels" / "test.tsv").unlink()
    assert read_queries(home).named == ("cat",)  # the only split that is left


def test_a_judged_query_that_is_not_there_is_an_error(tmp_path):
    home = folder(tmp_path)
    write_lines(home / "queries.jsonl", [{"_id": "1", "text": "what purrs?"}])
    with pytest.raises(InputError, match="query '2'"):
        read_queries(home)


def test_what_is_left_out_or_merged_is_counted():
    rows = [
        {"query_id": "a", "query": "what purrs?", "chunk_id": "cat"},
        {"query_id": "a", "query": "what purrs?", "chunk_id": "cat"},  # twice
        {"query_id": "b", "query": "what purrs?", "chunk_id": "lion"},  # the same text under another id
        {"query_id": "c", "query": " ", "chunk_id": "dog"},
        {"query_id": "d", "query": "what barks?", "chunk_id": None},
        {"query_id": "e", "query": "what sings?", "chunk_id": "dog", "grade": 0},
    ]
    asked = read_queries(rows)
    assert (asked.texts, asked.ids, asked.named) == (("what purrs?",), ("a",), ("cat", "lion"))
    assert [int(re.search(r": (\d+)\.", note)[1]) for note in asked.notes] == [1, 1, 1, 1, 2]
    assert "no relevant" in asked.notes[-1]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([{"query": "a", "relevant": "x", "grade": 1}, {"query": "a", "relevant": "x", "grade": 2}], "not alike"),
        ({"query": ["a"], "relevant": [["x", "y"]], "grade": [[1]]}, "2 ids .* 1 grades"),
        ({"query": ["a"], "relevant": ["x"], "grade": ["good"]}, "row 1 holds 'good'"),
        ({"query": ["a"], "relevant": [2.5]}, r"row 1 holds 2\.5 .* id"),
        ({"query": [7], "relevant": ["x"]}, r"row 1 holds 7 \(int\)"),
        ({"a": {"x": 0}}, "1 queries, none"),
        ({" ": ["x"], "": ["y"]}, "2 queries, .* empty"),
        ({"a": {"x": 1, "y": float("nan")}}, "text 'y' .* nan"),
        ({"a": {"x": 1, "y": ""}}, "text 'y' .*''"),
    ],
)
def test_what_cannot_be_meant_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        read_queries(source)


def test_columns_of_other_names_are_named(tmp_path):
    path = write_lines(tmp_path / "q.jsonl", [{"prompt": "what purrs?", "gold": 3}])
    with pytest.raises(InputError, match=r"'prompt', 'gold'.*--query-columns"):
        read_queries(path)
    assert read_queries(path, columns=("prompt", "gold")).named == ("3",)


# -- about texts ------------------------------------------------------------------------------------------------------


def test_ids_become_positions_and_unknown_ones_are_counted():
    asked = read_queries({"one": ["a", "missing"], "two": ["missing"], "three": ["c"]})
    judged = asked.among(["a", "b", "c"])
    assert judged.texts == ("one", "three")
    assert judged.relevant.tolist() == [[0, 0], [1, 2]]
    assert not judged.graded
    assert [note.split()[1] for note in judged.notes] == ["2", "1"]
    assert "draw" in asked.among(["a"], drawn=True).notes[0]
    with pytest.raises(InputError, match="3 ids"):
        asked.among(["0", "1"])


def test_the_id_of_a_document_stands_for_its_texts():
    asked = read_queries({"one": {"doc": 1, "doc#2": 3}})
    judged = asked.among(["doc#1", "doc#2", "other"], documents=[["doc", "doc", "other"]])
    assert judged.relevant.tolist() == [[0, 0], [0, 1]]
    assert judged.grades.tolist() == [1.0, 3.0]  # the text itself was graded too
    assert "document" in judged.notes[0]


def test_texts_of_a_document_that_was_named_are_one_answer():
    judged = read_queries({"one": ["doc"], "two": ["doc#1", "other"]}).among(
        ["doc#1", "doc#2", "other"], documents=[["doc", "doc", "other"]]
    )
    of = dict(zip(map(tuple, judged.relevant.tolist()), judged.answers.tolist(), strict=True))
    assert of[0, 0] == of[0, 1]
    assert len({of[0, 0], of[1, 0], of[1, 2]}) == 3
    assert read_queries({"one": ["a"]}).among(["a", "b"]).answers is None


def test_queries_that_fit_no_text_hear_of_chunks_and_documents():
    with pytest.raises(InputError, match=r"--id-column.*--group.*poolscope chunk"):
        read_queries({"one": ["page-1"]}).among(["0", "1"])


def test_the_column_that_holds_the_ids_is_found():
    asked = read_queries({"one": ["c1"]})
    texts = {"document_id": ["d", "d"], "_id": ["c1", "c2"], "text": ["x", "y"]}
    assert id_column_for(texts, asked) == "_id"
    assert id_column_for({"document_id": ["c1", "c1"], "text": ["x", "y"]}, asked) is None
    assert id_column_for(["x", "y"], asked) is None
    chunks = {"id": ["a#1", "a#2", "b"], "text": ["x", "y", "z"]}
    assert id_column_for(chunks, read_queries({"one": ["a"]})) == "id"
    assert id_column_for(chunks, read_queries({"one": ["c"]})) is None


def test_texts_that_are_asked_for_are_in_every_draw():
    source = {"id": [f"t{k}" for k in range(100)], "text": [f"text {k}" for k in range(100)]}
    plain = read_texts(source, id_column="id", limit=10)
    kept = read_texts(source, id_column="id", limit=10, keep={"t5", "t77"})
    assert {"t5", "t77"} <= set(kept.ids)
    assert len(kept) == 10
    assert len(set(kept.ids) & set(plain.ids)) >= 8
    assert read_texts(read_texts(source, id_column="id"), limit=10, keep={"t5", "t77"}).ids == kept.ids


def test_lines_are_no_table_of_queries_and_not_said_to_be_allowed(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("what is this\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"'\.txt'") as refused:
        read_queries(str(path))
    assert "plain texts" not in str(refused.value)
