"""Vectors in files, tables and arrays: what is guessed and said, what is set aside, what is refused by name."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from poolscope import read_vectors
from poolscope.connectors import Collection, as_collection, is_index, read_index
from poolscope.connectors.base import Fields
from poolscope.connectors.collection import array_collection
from poolscope.connectors.files import open_arrow
from poolscope.errors import InputError
from poolscope.texts import read_texts

MATRIX = np.arange(8.0, dtype=np.float32).reshape(4, 2) + 1
TEXTS = ["a b", "c", "d e f", "g"]


def table(kind: pa.DataType, name: str = "vector", rows=None) -> pa.Table:
    rows = MATRIX.tolist() if rows is None else rows
    return pa.table({"id": list("wxyz")[: len(rows)], name: pa.array(rows, kind), "text": TEXTS[: len(rows)]})


def write(path, content: pa.Table):
    pq.write_table(content, path) if path.suffix == ".parquet" else feather.write_feather(content, path)
    return path


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2)], ids=str
)
def test_every_list_type_in_every_file(tmp_path, ending, kind):
    held = read_index(write(tmp_path / f"v{ending}", table(kind, "whatever")))
    np.testing.assert_array_equal(held.vectors, MATRIX)
    assert (held.ids, held.texts, held.rows) == (tuple("wxyz"), tuple(TEXTS), 4)
    assert "vectors 'whatever', texts 'text'" in held.notes[0]


def test_several_columns_that_could_be_the_vectors_must_be_named(tmp_path):
    both = table(pa.list_(pa.float32()), "first").append_column("second", pa.array(MATRIX.tolist()))
    path = write(tmp_path / "v.parquet", both)
    with pytest.raises(InputError, match=r"first, .*second; 2 .*--vector-column"):
        read_index(path)
    assert len(read_index(path, vector_column="second")) == 4
    with pytest.raises(InputError, match=r"'third' .* id, first, text, second"):
        read_index(path, vector_column="third")
    with pytest.raises(InputError, match="'text' is string"):
        read_index(path, vector_column="text")


def test_a_usual_name_wins_and_token_ids_are_no_vectors(tmp_path):
    content = table(pa.list_(pa.float32()), "my_embedding")
    content = content.append_column("token_ids", pa.array([[1, 2]] * 4)).append_column("scores", pa.array([[0.5]] * 4))
    assert read_index(write(tmp_path / "v.parquet", content)).dimension == 2


def test_a_folder_of_files_is_read_in_the_order_of_names(tmp_path):
    for name, rows in (("b", MATRIX[2:]), ("a", MATRIX[:2])):
        pq.write_table(pa.table({"vector": rows.tolist()}), tmp_path / f"{name}.parquet")
    assert is_index(str(tmp_path))
    held = read_index(tmp_path)
    np.testing.assert_array_equal(held.vectors, MATRIX)
    assert held.ids == ("0", "1", "2", "3")


def test_a_store_of_clouds_with_labels_is_no_folder_of_vectors(tmp_path):
    table = pa.table({"id": ["a"], "label": ["x"]})
    pq.write_table(table, tmp_path / "labels.parquet")
    assert is_index(str(tmp_path))
    (tmp_path / "manifest.json").write_text("{}")
    assert not is_index(str(tmp_path))


def test_numpy_files(tmp_path):
    np.save(tmp_path / "v.npy", MATRIX.astype(np.float16))
    assert read_index(tmp_path / "v.npy").vectors.dtype == np.float32
    np.savez(tmp_path / "v.npz", vectors=MATRIX, texts=TEXTS, ids=[4, 5, 6, 7], labels=["p", "p", "q", "q"])
    held = read_index(tmp_path / "v.npz")
    assert (held.ids, held.texts, held.groups) == (tuple("4567"), tuple(TEXTS), tuple("ppqq"))


def test_what_is_no_text_in_numpy_files_is_written_as_python_does(tmp_path):
    days = np.array(["2020-01-01T10:00:00"] * 4, dtype="datetime64[s]")
    np.savez(tmp_path / "v.npz", vectors=MATRIX, texts=TEXTS, ids=np.float32([0.1, 1, 2, 3]), labels=days)
    held = read_index(tmp_path / "v.npz")
    assert held.ids[:2] == ("0.10000000149011612", "1.0")
    assert set(held.groups) == {"2020-01-01 10:00:00"}


def test_data_frames_and_tensors():
    pandas, polars, torch = (pytest.importorskip(name) for name in ("pandas", "polars", "torch"))
    columns = {"embedding": MATRIX.tolist(), "text": TEXTS}
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns), pa.table(columns)):
        held = as_collection(frame)
        np.testing.assert_array_equal(held.vectors, MATRIX)
        assert held.texts == tuple(TEXTS)
    assert as_collection(torch.ones(2, 3)).dimension == 3


# -- rows that cannot be compared -----------------------------------------------------------------------------------


def test_broken_rows_are_set_aside_and_counted(tmp_path):
    rows = [[1.0, 2.0], None, [0.0, 0.0], [np.nan, 1.0]]
    held = read_index(write(tmp_path / "v.parquet", table(pa.list_(pa.float64()), rows=rows)))
    assert (held.ids, held.rows) == (("w",), 4)
    assert held.faults == {"no vector": 1, "NaN or infinity": 1, "all zeros": 1}
    assert set(held.aside) == {("x", "no vector"), ("y", "all zeros"), ("z", "NaN or infinity")}
    assert "3 of 4 rows" in held.notes[-1]
    mixed = table(pa.list_(pa.float64()), rows=[[1.0, 2.0], [1.0, 2.0, 3.0], [3.0, 4.0], []])
    held = read_index(write(tmp_path / "m.parquet", mixed))
    assert held.faults == {"no vector": 1, "dimension 3, not 2": 1}
    np.testing.assert_array_equal(held.vectors, [[1, 2], [3, 4]])


def test_rows_without_a_text_are_set_aside_unless_none_has_one(tmp_path):
    content = pa.table({"vector": MATRIX.tolist(), "text": ["a", None, " ", "d"]})
    held = read_index(write(tmp_path / "v.parquet", content))
    assert (held.texts, held.faults) == (("a", "d"), {"no text": 2})
    none = pa.table({"vector": MATRIX.tolist(), "text": pa.array([None] * 4, pa.string())})
    held = read_index(write(tmp_path / "n.parquet", none))
    assert (held.texts, len(held)) == (None, 4)


def test_nothing_at_all_is_refused(tmp_path):
    none = table(pa.list_(pa.float64()), rows=[None, [np.nan, 1.0]])
    with pytest.raises(InputError, match=r"2 rows \(1 .*, 1 with NaN"):
        read_index(write(tmp_path / "v.parquet", none))
    with pytest.raises(InputError, match=r"missing\.npy"):
        read_index(tmp_path / "missing.npy")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"bad\.parquet: damaged"):
        read_index(tmp_path / "bad.parquet")
    for wrong in (np.ones(3), np.ones((2, 2, 2)), np.array([["a", "b"]]), np.ones((0, 3))):
        with pytest.raises(InputError, match=r"array: received .* a matrix"):
            as_collection(wrong)


# -- draws ----------------------------------------------------------------------------------------------------------


def test_a_draw_is_uniform_in_order_and_the_same_whatever_the_batches(tmp_path):
    pq.write_table(pa.table({"vector": np.arange(1, 6001.0)[:, None].tolist()}), tmp_path / "v.parquet")
    drawn = read_index(tmp_path / "v.parquet", limit=300, seed=1)
    places = drawn.order
    assert len(drawn) == 300
    assert drawn.rows == 6000
    assert (np.diff(places) > 0).all()
    np.testing.assert_array_equal(drawn.vectors[:, 0], places + 1)
    assert abs(places.mean() - 3000) < 4 * 6000 / np.sqrt(12 * 300)
    np.testing.assert_array_equal(array_collection(np.arange(1, 6001.0)[:, None], limit=300, seed=1).order, places)
    assert "300 of 6,000 vectors" in drawn.notes[-1]
    assert len(read_index(tmp_path / "v.parquet", limit=0)) == 6000


# -- texts beside the vectors ---------------------------------------------------------------------------------------


def held(ids=None) -> Collection:
    return array_collection(MATRIX, ids=ids)


def test_texts_row_by_row_empty_ones_counted():
    joined = held().with_texts(read_texts(["a", "", "c", "d"]))
    assert (joined.texts, joined.ids, joined.faults) == (("a", "c", "d"), ("0", "2", "3"), {"no text": 1})
    with pytest.raises(InputError, match=r"3 texts .* 4 rows"):
        held().with_texts(read_texts(["a", "b", "c"]))


def test_texts_by_id_name_those_without_a_vector():
    corpus = read_texts({"text": ["one", "two", "three"], "name": ["z", "w", "v"]}, id_column="name")
    joined = held(list("wxyz")).with_texts(corpus)
    assert (joined.ids, joined.texts) == (("w", "z"), ("two", "one"))
    assert (joined.without_vector, joined.faults) == (("v",), {"no text": 2})
    with pytest.raises(InputError, match=r"texts of .* others"):
        joined.with_texts(corpus)


def test_a_distance_that_is_none_is_refused():
    assert as_collection(MATRIX, distance="dot").distance == "dot"
    with pytest.raises(InputError, match="'euclid'; allowed: cosine, dot, l2"):
        as_collection(MATRIX, distance="euclid")


@pytest.mark.parametrize("option", [{"limit": value} for value in ("a", 1.5, True, -1)] + [{"seed": -1}, {"seed": "a"}])
def test_draws_are_of_whole_numbers(tmp_path, option):
    np.save(tmp_path / "v.npy", MATRIX)
    name = next(iter(option))
    for read, source in ((read_index, tmp_path / "v.npy"), (as_collection, MATRIX)):
        with pytest.raises(InputError, match=rf"^{name}: received .* whole number"):
            read(source, **option)


@pytest.mark.parametrize("source", [None, 5, [], b"v.npy"])
def test_what_is_no_name_is_refused(source):
    with pytest.raises(InputError, match="source: received"):
        read_index(source)


def test_vectors_of_no_dimension_are_refused_at_once(tmp_path):
    np.save(tmp_path / "v.npy", np.zeros((10**10, 0), np.float32))
    with pytest.raises(InputError, match=r"shape \(10000000000, 0\)"):
        read_index(tmp_path / "v.npy")


def test_one_text_for_all_vectors_is_refused(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=MATRIX, texts=np.array("one"))
    with pytest.raises(InputError, match=r"shape \(\) .* 4 vectors"):
        read_index(tmp_path / "v.npz")
    with pytest.raises(InputError, match="received 1 texts"):
        read_vectors(tmp_path / "v.npz")


def test_a_column_twice_is_refused():
    column = pa.array(MATRIX.tolist())
    with pytest.raises(InputError, match="column 'vector'"):
        as_collection(pa.table([column, column], names=["vector", "vector"]))


def test_a_name_of_a_column_that_is_not_utf8_is_refused(tmp_path):
    path = write(tmp_path / "v.parquet", table(pa.list_(pa.float32()), "vectorXX"))
    path.write_bytes(path.read_bytes().replace(b"vectorXX", b"vector\xff\xfe"))
    with pytest.raises(InputError, match=r"v\.parquet: damaged"):
        read_index(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")
def test_pipes_and_devices_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    (tmp_path / "zero.parquet").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(InputError, match=rf"{name}\.parquet: .*pipes"):
            read_index(tmp_path / f"{name}.parquet")


@pytest.mark.parametrize("name", ["{}", "{}.npy", "{}.parquet", "{}.arrow", "{}.lance"])
def test_names_that_are_too_long(name):
    with pytest.raises(InputError, match=r"no such|no vectors"):
        read_index(name.format("a" * 300))


@pytest.mark.parametrize(
    ("address", "package"),
    [
        ("chroma://me:hidden@[::1/x", "chromadb"),
        ("qdrant://me:hidden@[::1/c", "qdrant_client"),
        ("postgresql://me:hidden@[::1/b?table=t", "psycopg"),
    ],
)
def test_an_address_that_is_none_is_refused_and_not_shown(address, package):
    pytest.importorskip(package)
    with pytest.raises(InputError, match="host:port") as refused:
        read_index(address)
    assert "hidden" not in str(refused.value)


def test_a_parquet_file_streams_and_is_not_held_whole(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((4000, 256)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 256)
    pq.write_table(pa.table({"vector": column}), tmp_path / "v.parquet", row_group_size=100)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in open_arrow(str(tmp_path / "v.parquet"), Fields()).batches(100)]
    assert len(held) == 40
    assert max(held) < vectors.nbytes / 2
