"""Pooled vectors from files: what may be in them, and what is refused by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolscope import read_vectors
from poolscope.errors import InputError

MATRIX = np.arange(6.0).reshape(3, 2) + 1
TEXTS = ["a b", "c", "d e f"]


def test_a_plain_matrix_with_texts_or_lengths_from_elsewhere(tmp_path):
    np.save(tmp_path / "v.npy", MATRIX)
    bare = read_vectors(tmp_path / "v.npy")
    np.testing.assert_array_equal(bare.vectors, MATRIX)
    assert (bare.texts, bare.lengths, bare.ids) == (None, None, ("0", "1", "2"))
    named = read_vectors(tmp_path / "v.npy", texts=TEXTS)
    assert named.lengths.tolist() == [2, 1, 3]
    assert named.unit == "words"
    counted = read_vectors(tmp_path / "v.npy", lengths=[7, 8, 9.0])
    assert counted.lengths.tolist() == [7, 8, 9]
    assert counted.unit == "tokens"
    assert "3 vectors of dimension 2 " in repr(counted)


def test_an_archive_with_everything(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=MATRIX, texts=TEXTS, lengths=[4, 5, 6], ids=["x", "y", "z"], labels=[1, 0, 1])
    found = read_vectors(tmp_path / "v.npz")
    assert found.texts == tuple(TEXTS)
    assert found.lengths.tolist() == [4, 5, 6]
    assert found.ids == ("x", "y", "z")
    assert found.labels == ("1", "0", "1")
    np.savez(tmp_path / "only.npz", anything=MATRIX, n_tokens=[4, 5, 6])
    assert read_vectors(tmp_path / "only.npz").lengths.tolist() == [4, 5, 6]


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
@pytest.mark.parametrize("name", ["embedding", "whatever"])
def test_a_table_of_any_list_type(tmp_path, kind, name):
    types = {
        "list": pa.list_(pa.float32()),
        "large_list": pa.large_list(pa.float64()),
        "fixed": pa.list_(pa.float32(), 2),
    }
    column = pa.chunked_array([pa.array(MATRIX[:2].tolist(), types[kind]), pa.array(MATRIX[2:].tolist(), types[kind])])
    pq.write_table(
        pa.table({"id": ["x", "y", "z"], name: column, "text": TEXTS, "tokens": [3, 4, 5]}), tmp_path / "v.parquet"
    )
    found = read_vectors(tmp_path / "v.parquet")
    np.testing.assert_array_equal(found.vectors, MATRIX)
    assert (found.ids, found.texts, found.lengths.tolist()) == (("x", "y", "z"), tuple(TEXTS), [3, 4, 5])


def assert_refused(path, message, **given):
    with pytest.raises(InputError, match=message):
        read_vectors(path, **given)


def test_what_cannot_be_read_is_named(tmp_path):
    assert_refused(tmp_path / "v.csv", r"type '\.csv'; vectors are read from \.npy, \.npz, \.parquet")
    assert_refused(tmp_path / "v.npy", "no such file")
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    assert_refused(tmp_path / "bad.npz", "not what numpy can read")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    assert_refused(tmp_path / "bad.parquet", "not a Parquet file")
    np.save(tmp_path / "objects.npy", np.array([["a", None]], dtype=object))
    assert_refused(tmp_path / "objects.npy", "can run code")
    np.save(tmp_path / "flat.npy", np.arange(3.0))
    assert_refused(tmp_path / "flat.npy", r"shape \(3,\)")
    np.save(tmp_path / "nan.npy", [[1.0, 2.0], [np.nan, 1.0]])
    assert_refused(tmp_path / "nan.npy", r"row 2 \(1 in all\) holds NaN")
    np.savez(tmp_path / "two.npz", a=MATRIX, b=MATRIX)
    assert_refused(tmp_path / "two.npz", "2 of them could be the vectors")


def test_parts_must_fit_the_vectors(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=MATRIX, lengths=[1, 2, 3])
    assert_refused(tmp_path / "v.npz", "lengths of its own", lengths=[1, 2, 3])
    np.save(tmp_path / "v.npy", MATRIX)
    assert_refused(tmp_path / "v.npy", "2 texts", texts=["a", "b"])
    for wrong in ([1, 2], [1, 2, -3], [1.5, 2, 3], [1, 2, np.nan]):
        assert_refused(tmp_path / "v.npy", "one whole number ≥ 0", lengths=wrong)
    ragged = pa.table({"vector": pa.array([[1.0], [1.0, 2.0]])})
    pq.write_table(ragged, tmp_path / "ragged.parquet")
    assert_refused(tmp_path / "ragged.parquet", r"lengths \[1, 2\]")
    pq.write_table(pa.table({"vector": pa.array([[1.0], None])}), tmp_path / "missing.parquet")
    assert_refused(tmp_path / "missing.parquet", "missing")
    pq.write_table(pa.table({"vector": ["a", "b"]}), tmp_path / "words.parquet")
    assert_refused(tmp_path / "words.parquet", "lists of numbers")
