"""Texts from every source, and what is counted on the way."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import feather

from poolscope.errors import InputError
from poolscope.texts import ReadReport, read_texts
from poolscope.texts.plain import default_encoding

ROWS = [
    {"key": "k1", "text": 'first\ntext, with "quotes"', "label": "a", "size": 3},
    {"key": "k2", "text": None, "label": "b", "size": 4},
    {"key": "k3", "text": "zweiter Text: ü\u2028ö", "label": "a", "size": 5},
]


def write_csv(path: Path, rows: list[dict[str, object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8-sig") as stream:  # BOM and CRLF, as spreadsheets write
        writer = csv.DictWriter(stream, rows[0], delimiter=delimiter, lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[dict[str, object]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_ipc(path: Path, rows: list[dict[str, object]]) -> Path:
    table = pa.Table.from_pylist(rows)
    opener = pa.ipc.new_stream if path.suffix == ".arrow" else pa.ipc.new_file  # data sets are streams
    with opener(str(path), table.schema) as sink:
        sink.write_table(table)
    return path


WRITERS = {
    "csv": write_csv,
    "tsv": lambda path, rows: write_csv(path, rows, delimiter="\t"),
    "jsonl": write_jsonl,
    "ndjson": write_jsonl,
    "parquet": write_parquet,
    "arrow": write_ipc,
    "feather": write_ipc,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_table_format_reads_the_same(tmp_path: Path, suffix: str) -> None:
    path = WRITERS[suffix](tmp_path / f"rows.{suffix}", ROWS)
    texts = read_texts(path, id_column="key", label_column="label")
    assert texts.ids == ("k1", "k3")
    assert texts.texts == (ROWS[0]["text"], ROWS[2]["text"])
    assert texts.labels == ("a", "a")
    assert texts.source == path.name
    assert texts.report == ReadReport(read=3, kept=2, empty=1)
    assert read_texts(str(path)).ids == ("0", "2")  # ids point at the rows of the file
    assert read_texts(path, column="label").texts == ("a", "b", "a")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8))
@example(rows=["line\r\nends\rinside\n", "\0", ';,\t"'])
def test_tables_keep_every_character(tmp_path: Path, suffix: str, rows: list[str]) -> None:
    path = WRITERS[suffix](tmp_path / f"any.{suffix}", [{"n": i, "text": row} for i, row in enumerate(rows)])
    expected = [row for row in rows if row.strip()]
    if expected:
        assert list(read_texts(path)) == expected
    else:
        with pytest.raises(InputError, match=rf"{len(rows)} rows, .* empty"):
            read_texts(path)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    # Without characters that show nothing, and without NUL, of which the wide encodings are full.
    rows=st.lists(
        st.text(st.characters(exclude_categories=["Cs", "Cf"], exclude_characters="\r\n\0\u034f\u2065")), min_size=1
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_lines_end_at_line_ends_only(tmp_path: Path, rows: list[str], end: str) -> None:
    rows[0] = "x"  # neither a byte order mark nor an empty file
    path = tmp_path / "lines.txt"
    path.write_bytes(end.join(rows).encode())
    texts = read_texts(path)
    assert list(zip(texts.ids, texts, strict=True)) == [(str(i), r) for i, r in enumerate(rows) if r.strip()]


def test_separators_inside_a_line_stay(tmp_path: Path) -> None:
    line = "a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i"
    path = tmp_path / "lines.txt"
    path.write_bytes(f"\ufeff{line}\r\nlast".encode())
    assert read_texts(path).texts == (line, "last")


def test_ten_megabyte_texts(tmp_path: Path) -> None:
    long = "word " * 2_000_000
    (tmp_path / "long.txt").write_text(f"{long}\nshort\n")
    write_csv(tmp_path / "long.csv", [{"text": long}, {"text": "short"}])
    for name in ("long.txt", "long.csv"):
        texts = read_texts(tmp_path / name)
        assert texts.texts == (long, "short")
        assert texts.report.long == 1
        (note,) = texts.report.notes()
        assert re.match("1 text .* 1,000,000 ", note)


def test_undecodable_bytes_are_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "bytes.txt"
    path.write_bytes("bad \xff\xfe here\ngood \ufffd\nü\n".encode("latin-1", "replace"))
    assert read_texts(path, encoding="latin-1").report.undecodable == 0
    path.write_bytes(b"bad \xff\xfe here\ngood \xef\xbf\xbd\n\xc3\xbc\ncut \xe2\x82")
    texts = read_texts(path)
    assert texts.texts == ("bad \ufffd\ufffd here", "good \ufffd", "ü", "cut \ufffd")
    assert texts.report.undecodable == 2  # a U+FFFD that stands in the file is no damage
    assert "U+FFFD" in texts.report.notes()[0]


def test_undecodable_bytes_in_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text\nbad \xff\n")
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "bad \xff"}\n{"text": "half \\ud83d pair"}\n')
    offsets = pa.array([0, 5], pa.int32()).buffers()[1]
    damaged = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"bad \xff")])
    encoded = pa.DictionaryArray.from_arrays(pa.array([0]), damaged)
    pq.write_table(pa.table({"text": damaged}), tmp_path / "a.parquet")
    for source in (tmp_path / "a.csv", tmp_path / "a.parquet", damaged, pa.table({"text": encoded})):
        texts = read_texts(source)
        assert (texts.texts, texts.report.undecodable) == (("bad \ufffd",), 1)
    texts = read_texts(tmp_path / "a.jsonl")
    assert (texts.texts, texts.report.undecodable) == (("bad \ufffd", "half \ufffd pair"), 2)


def test_encodings(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_text("eins\nzwei ü\n", encoding="utf-16")
    assert read_texts(path, encoding="utf-16").texts == ("eins", "zwei ü")
    with pytest.raises(InputError, match=r"wide.txt: received UTF-16 .*--encoding utf-16"):
        read_texts(path)
    for unknown in ("utf-99", "rot13"):
        with pytest.raises(InputError, match=repr(unknown)):
            read_texts(path, encoding=unknown)


def test_duplicates_are_kept_and_counted() -> None:
    texts = read_texts(["a", "b", "a", "a", " ", None])
    assert texts.texts == ("a", "b", "a", "a")
    assert texts.report == ReadReport(read=6, kept=4, empty=2, duplicates=2)
    empty, equal = texts.report.notes()
    assert re.match(r"2 texts .*\(6 read\)", empty)
    assert equal.startswith("2 texts ")
    assert read_texts(["a", "b"]).report.notes() == []


def test_folder(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    for name, content in {
        "b.txt": "b\r\nsecond line",
        "a/z.md": "# z",
        "a/Y.TXT": "y",
        "a/empty.md": " \n",
        "image.png": "no",
        "a/data.csv": "no",
        ".hidden.txt": "no",
        ".git/x.txt": "no",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode())
    texts = read_texts(folder)
    assert texts.ids == ("a/Y.TXT", "a/z.md", "b.txt")
    assert texts.texts == ("y", "# z", "b\nsecond line")
    assert texts.source == "notes"
    assert texts.report == ReadReport(read=4, kept=3, empty=1, other_files=2)
    assert re.match(r"2 files .*\.txt .*\.md", texts.report.notes()[0])
    shuffled = [f"{(7 * i) % 20:02}/{(3 * i) % 20:02}.md" for i in range(20)]
    for name in shuffled:
        (folder / name).parent.mkdir()
        (folder / name).write_text(name)
    assert read_texts(folder).texts[:20] == tuple(sorted(shuffled))
    for name in ("b.txt", "a/z.md", "a/Y.TXT", *shuffled):
        (folder / name).unlink()
    with pytest.raises(InputError, match="2 files, none"):
        read_texts(folder)


def test_standard_input_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"\xef\xbb\xbfone\r\n\xff\rthree")))
    monkeypatch.setattr(sys, "stdin", stdin)
    texts = read_texts("-")
    assert (texts.texts, texts.source, texts.report.undecodable) == (("one", "\ufffd", "three"), "stdin", 1)
    assert not stdin.buffer.closed
    with pytest.raises(InputError, match="stdin: received"):
        read_texts("-")


@pytest.mark.parametrize(
    ("columns", "expected", "note"),
    [
        ({"text": "t", "title": "x"}, "t", None),
        ({"Body": "t", "title": "x"}, "t", None),
        ({"review": "t", "stars": "5", "price": "1.5"}, "t", "review"),
        ({"only": "7"}, "7", "only"),
    ],
)
def test_column_is_guessed(tmp_path: Path, columns: dict[str, str], expected: str, note: str | None) -> None:
    texts = read_texts(write_csv(tmp_path / "guess.csv", [columns]))
    assert texts.texts == (expected,)
    assert texts.report.guessed_column == note
    assert len(texts.report.notes()) == (note is not None)


def test_id_and_label_columns_are_no_text_columns(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"name": "n", "topic": "t", "review": "r"}])
    assert read_texts(path, id_column="name", label_column="topic").texts == ("r",)


@pytest.mark.parametrize("columns", [["text", "content"], ["question", "answer"], ["x", "y"]])
def test_column_that_cannot_be_guessed(tmp_path: Path, columns: list[str]) -> None:
    value = 1 if columns[0] == "x" else "words"
    path = write_jsonl(tmp_path / "a.jsonl", [dict.fromkeys(columns, value)])
    with pytest.raises(InputError, match=rf"'{columns[0]}', '{columns[1]}'.*--column NAME"):
        read_texts(path)


def test_csv_with_semicolons_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "europe.csv"
    path.write_text("id;text\n1;one, two\n\n2;three\n")
    texts = read_texts(path)
    assert list(zip(texts.ids, texts, strict=True)) == [("0", "one, two"), ("2", "three")]
    assert texts.report.empty == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"a\.csv: .*empty"),
        ("a.csv", b"text,text\na,b\n", r"a\.csv: .*\['text', 'text'\]"),
        ("a.csv", b"text\na\nb, c\n", r"line 3 .* 2 fields .* 1"),
        ("a.csv", b'text\n"a\nb', "line 3 .*CSV"),
        ("a.csv", b'text\n"a" b\n', "line 2 .*CSV"),
        ("a.csv", b"text\n", "received nothing"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a.jsonl: line 2 .*JSON \(Expecting value: column 10\)"),
        ("a.jsonl", b'["a"]\n', "line 1 .* an object"),
        ("a.jsonl", b'{"text": "a"}\n{"text": 5}\n', r"row 2 .* 5 \(int\)"),
        ("a.jsonl", b'{"text": ["a"]}\n', r"row 1 holds \['a'\] \(list\)"),
        ("a.parquet", b"PAR1 no", r"a\.parquet: .*(again|be read)"),
        ("a.arrow", b"ARROW1 no", "a.arrow: damaged"),
        ("a.feather", b"x", "a.feather: damaged"),
        ("a.xlsx", b"x", r"'\.xlsx'"),
        ("a.txt", b"\n \n", "2 rows, .* empty"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_texts(tmp_path / name)


def test_ids_of_pandas_with_a_gap_are_whole_numbers() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2, None], "text": ["a", "b", "c"]})  # which makes them 1.0, 2.0, NaN
    with pytest.raises(InputError, match=r"row 3 .* id"):
        read_texts(frame, id_column="id")
    assert read_texts(frame[:2], id_column="id").ids == ("1", "2")


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "feather", "json", "frame"])
def test_rows_count_from_one_in_every_message(tmp_path: Path, kind: str) -> None:
    """The third row lacks its label, whatever the file."""
    columns = {"text": ["a", "b", "c"], "label": ["x", "y", None]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path = tmp_path / f"a.{kind}"
    if kind in ("csv", "tsv"):
        mark = "," if kind == "csv" else "\t"
        path.write_text("".join(f"{mark.join(row)}\n" for row in (columns, *zip("abc", ("x", "y", ""), strict=True))))
    elif kind == "jsonl":
        write_jsonl(path, rows)
    elif kind == "json":
        path.write_text(json.dumps(rows))
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path)
    elif kind == "feather":
        feather.write_feather(pa.table(columns), str(path))
    source = pa.table(columns) if kind == "frame" else path
    with pytest.raises(InputError, match=r": row 3 .* label"):
        read_texts(source, label_column="label")


def test_lines_count_from_one_and_a_record_of_several_lines_by_its_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,id\n"one\ntwo\nthree",1\nfour,2,3\n')
    with pytest.raises(InputError, match=r"a\.csv: line 5 .* 3 "):
        read_texts(tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n\n{"text": 1,}\n')
    with pytest.raises(InputError, match=r"a\.jsonl: line 3 .*JSON"):
        read_texts(tmp_path / "a.jsonl")


def test_columns_that_do_not_fit(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}, {"text": "c"}])
    with pytest.raises(InputError, match=r"'body'; .*'id', 'text'.*--column NAME"):
        read_texts(path, column="body")
    with pytest.raises(InputError, match=r"row 1 and row 2 .*'1'"):
        read_texts(path, id_column="id")
    with pytest.raises(InputError, match=r"row 3 .* label"):
        read_texts(path, label_column="id")
    with pytest.raises(InputError, match=r"row 1 .*0\.5 .* id"):
        read_texts({"text": ["a"], "id": [0.5]}, id_column="id")
    with pytest.raises(InputError, match=r"row 1 .* label"):
        read_texts(pa.table({"text": ["a"], "label": [float("nan")]}), label_column="label")
    (tmp_path / "a.txt").write_text("a")
    for source in (tmp_path, tmp_path / "a.txt", ["a"], read_texts(["a"])):
        with pytest.raises(InputError, match="name 'label'"):
            read_texts(source, label_column="label")


def test_missing_paths_and_foreign_objects(tmp_path: Path) -> None:
    for source in (tmp_path / "none.csv", "data/none.csv", "a sentence " * 1000, "nul\0"):
        with pytest.raises(InputError, match="no such"):
            read_texts(source)
    for source in (b"bytes", 3, None):
        with pytest.raises(InputError, match=rf"{re.escape(repr(source))} \({type(source).__name__}\)"):
            read_texts(source)
    with pytest.raises(InputError, match=r"builtin:docstrings .*builtin:manuals"):
        read_texts("builtin:novels")


def test_objects_in_memory() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    rows = {"n": [1, 2, 3], "text": ["a", None, "b"]}
    frame = pandas.DataFrame(rows, index=["x", "y", "z"])
    for source in (
        frame,
        frame["text"],
        frame["text"].astype("string"),
        frame["text"].astype(object),
        polars.DataFrame(rows),
        polars.Series(rows["text"]),
        pa.table(rows),
        pa.chunked_array([["a"], [None, "b"]]),
        rows,
        iter(rows["text"]),
        np.array(["a", "", "b"]),
    ):
        texts = read_texts(source)
        assert (texts.ids, texts.texts, texts.report.empty) == (("0", "2"), ("a", "b"), 1), type(source)
        assert {type(text) for text in texts} == {str}
    assert read_texts(frame.rename(columns={"text": "review"})).texts == ("a", "b")  # the index is no column
    with pytest.raises(InputError, match=r"row 1 .* 1 "):
        read_texts(frame["n"])
    with pytest.raises(InputError, match=r"received dict, .*Arrow"):
        read_texts({"text": ["a", 1, []]})


def test_the_encoding_that_holds_where_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text("text\nsüß\n", encoding="cp1252")
    with default_encoding("cp1252"):
        assert read_texts(path).texts == ("süß",)
        assert read_texts(path, encoding="latin-1").texts == ("süß",)
        assert read_texts(path, encoding="utf-8").report.undecodable == 1
    assert read_texts(path).report.undecodable == 1


def test_texts_know_where_they_came_from(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("body,note\none,1\n,2\ntwo,3\nthree,4\n", encoding="utf-8")
    texts = read_texts(path, limit=2, seed=5)
    origin = texts.origin()
    assert json.loads(json.dumps(origin)) == origin
    notes = origin.pop("notes")
    assert notes == texts.report.notes()
    assert origin == {
        "source": "table.csv",
        "digest": texts.digest,
        "count": 2,
        "column": "body",
        "read": 4,
        "empty": 1,
        "selected": 2,
        "seed": 5,
    }
    whole = read_texts(path)
    assert (whole.seed, whole.report.selected) == (None, None)
    assert whole.sample(2, seed=5).origin() == texts.origin()
    assert whole.sample(2, seed=5).take([0]).seed is None


def test_a_notebook_shows_the_first_texts_and_no_markup_of_theirs():
    view = read_texts(["<b>bold</b>", *(f"text {k}" for k in range(7))])._repr_html_()
    assert "&lt;b&gt;bold" in view
    assert "<b>bold" not in view
    assert "text 3" in view
    assert "text 4" not in view
    assert "3 more" in view
